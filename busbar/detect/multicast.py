# SPDX-License-Identifier: MIT
"""Print 1 if NVIDIA's driver supports multicast on the first GPU, else 0: ``python -m``.

No tool prints it. Multicast needs an NVSwitch with NVLink SHARP, a driver and a fabric manager
that enable it; in a virtual machine with some GPUs of a node it is off.
"""

from __future__ import annotations

import ctypes
import sys

from busbar.terminal import stderr, stdout

_ATTRIBUTE = 132
"""CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED (CUDA driver API)."""


def main() -> int:
    """Print the attribute; exit with status 1 if the driver does not answer."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        stderr().line(str(error))
        return 1
    value, device = ctypes.c_int(), ctypes.c_int()
    if (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), 0)
        or cuda.cuDeviceGetAttribute(ctypes.byref(value), _ATTRIBUTE, device)
    ):
        stderr().line("the CUDA driver does not answer")
        return 1
    stdout().line(str(value.value))
    return 0


if __name__ == "__main__":
    sys.exit(main())
