# SPDX-License-Identifier: MIT
"""The GPU driver of the host against the CUDA or ROCm of the image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import elf
from busbar.preflight.host import rocm_release
from busbar.preflight.loader import Found
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.plan import ImagePlan

Version = tuple[int, ...]

# The oldest driver of each CUDA major version; before CUDA 11 of each release. NVIDIA, CUDA
# Compatibility (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, tables
# 1 and 2); 450.80.02 is the driver that the page names for all of CUDA 11. Newer drivers run every
# older CUDA.
_OLDEST_DRIVER: dict[Version, Version] = {
    (10, 0): (410, 48),
    (10, 1): (418, 39),
    (10, 2): (440, 33),
    (11,): (450, 80, 2),
    (12,): (525,),
    (13,): (580,),
}
# Oldest and newest user space for the kernel driver of each ROCm release. AMD, "User and AMD GPU
# Driver support matrix" (rocm.docs.amd.com/projects/install-on-linux, reference/
# user-kernel-space-compat-matrix, 2025-09-17: 5.3 to driver 30.10, which came with ROCm 7.0) and
# ROCm/amdgpu-docs pull request 97 (driver 30.30 of ROCm 7.2). The driver of 7.1 is between the
# two; the range here is what both of its neighbours leave.
_ROCM: dict[Version, tuple[Version, Version]] = {
    (5, 3): ((5, 1), (5, 5)),
    (5, 4): ((5, 2), (5, 6)),
    (5, 5): ((5, 3), (5, 7)),
    (5, 6): ((5, 4), (6, 0)),
    (5, 7): ((5, 5), (6, 1)),
    (6, 0): ((5, 6), (6, 2)),
    (6, 1): ((5, 7), (6, 4)),
    (6, 2): ((6, 0), (7, 0)),
    (6, 3): ((6, 1), (7, 0)),
    (6, 4): ((6, 1), (7, 0)),
    (7, 0): ((6, 2), (7, 0)),
    (7, 1): ((6, 3), (7, 1)),
    (7, 2): ((6, 3), (7, 2)),
}
_NCCL_CUDA = re.compile(rb"NCCL version [\d.]+\+cuda(?P<version>\d+\.\d+)")
_TABLE = "add it to the table in busbar/preflight/driver.py"


def cuda(plan: ImagePlan, libraries: dict[str, Found | None]) -> Line:
    """Whether the driver runs every CUDA that the program loads."""
    driver = plan.host.nvidia_driver
    if driver is None:
        return _broken(
            "there is no NVIDIA driver on this host (/sys/module/nvidia/version)",
            "run preflight on a compute node",
        )
    by = f"driver {_dotted(driver)}"
    taken = plan.view.search("libcuda.so.1")
    if taken and taken.origin == "image":
        if trap := _trap(taken, driver):
            return trap
        driver = _numbers(taken.path.name.partition(".so.")[2])
        by += f" with cuda-compat {_dotted(driver)} in the image"
    shown = []
    for toolkit, source in _toolkits(plan, libraries):
        if fault := _fault(toolkit, source, driver, by):
            return fault
        shown.append(f"CUDA {_dotted(toolkit or ())} ({source})")
    runs = f"{by} runs {', '.join(shown)}" if shown else f"{by}; the program loads no CUDA"
    return ready("gpu-driver", runs)


def _trap(taken: Found, driver: Version) -> Line | None:
    """What is wrong with a libcuda of the image that comes before the driver's."""
    remedy = f"take {taken.path.parent} out of LD_LIBRARY_PATH and /etc/ld.so.conf.d"
    first = f"{taken.path} of the image comes before the libcuda of --nv"
    if "stubs" in taken.path.parts:
        return _broken(f"{first}, and is a stub for linking", remedy)
    found = re.fullmatch(r"libcuda\.so\.(?P<version>\d+(?:\.\d+)+)", taken.path.name)
    if found is None:
        return _broken(f"{first}, and its name does not say of which driver it is", remedy)
    if _numbers(found["version"]) < driver:
        return _broken(
            f"{first}: it is cuda-compat {found['version']}, older than the driver"
            f" {_dotted(driver)}, and CUDA ends with a driver mismatch (error 803)",
            remedy,
        )
    return None


def _fault(toolkit: Version | None, source: str, driver: Version, by: str) -> Line | None:
    """What is wrong with one CUDA on the driver."""
    if toolkit is None:
        return _broken(
            f"{source} holds a CUDA runtime of unknown version",
            "set CUDA_VERSION in the image, as NVIDIA's images do, or link libcudart.so",
        )
    oldest = _OLDEST_DRIVER.get(toolkit[:1]) or _OLDEST_DRIVER.get(toolkit[:2])
    if oldest is None:
        reason = f"nothing is known of the driver that CUDA {_dotted(toolkit)} ({source}) needs"
        return _broken(reason, _TABLE)
    if driver < oldest:
        return _broken(
            f"CUDA {_dotted(toolkit)} ({source}) needs driver {_dotted(oldest)} or newer, there is"
            f" {by}",
            "use a CUDA of the driver's time; cuda-compat helps on data center GPUs only",
        )
    return None


def _toolkits(
    plan: ImagePlan, libraries: dict[str, Found | None]
) -> Iterator[tuple[Version | None, str]]:
    """Each CUDA that is loaded and what shows it; None where its version cannot be seen."""
    shared = False
    for name, found in libraries.items():
        if runtime := re.fullmatch(r"libcudart\.so\.(?P<version>\d+(?:\.\d+)?)", name):
            shared = True
            yield _numbers(runtime["version"]), name
        elif (
            found
            and name.startswith("libnccl.so")
            and (built := _NCCL_CUDA.search(found.local.read_bytes()))
        ):
            yield (
                _numbers(built["version"].decode())[:1],
                f"{name}, built with {built['version'].decode()}",
            )
    # The static runtime opens the driver's library by its name.
    if plan.program and not shared and elf.mentions(plan.program.local, b"libcuda.so.1"):
        said = plan.environment.get("CUDA_VERSION")
        yield (_numbers(said)[:2] if said else None), str(plan.program.path)


def rocm(plan: ImagePlan, libraries: dict[str, Found | None]) -> Line:
    """Whether AMD supports the image's ROCm on the host's driver."""
    outside = plan.host.rocm
    if outside is None:
        return _broken(
            "there is no ROCm on this host (/opt/rocm*/.info/version), so the release of its"
            " driver is unknown",
            "run preflight on a compute node",
        )
    inside = rocm_release(plan.view.image) or _hip(libraries)
    if inside is None:
        return ready("gpu-driver", "the image brings no ROCm of its own")
    supported = _ROCM.get(outside[:2])
    shown = f"ROCm {_dotted(inside)} in the image, {_dotted(outside)} on the host"
    if supported is None:
        return _broken(f"{shown}: nothing is known of the driver of the host's", _TABLE)
    oldest, newest = supported
    length = len(inside[:2])  # of a soname only the major is known
    if not oldest[:length] <= inside[:2] <= newest[:length]:
        return _broken(
            f"{shown}: AMD supports {_dotted(oldest)} to {_dotted(newest)} on that driver",
            f"build the image with a ROCm of {_dotted(oldest)} to {_dotted(newest)}",
        )
    return ready("gpu-driver", shown)


def _hip(libraries: dict[str, Found | None]) -> Version | None:
    """The major release of a ROCm that does not lie in /opt, from the name of its HIP."""
    for name, found in libraries.items():
        if found and (hip := re.fullmatch(r"libamdhip64\.so\.(?P<version>\d+)", name)):
            return _numbers(hip["version"])
    return None


def _broken(reason: str, remedy: str) -> Line:
    return Line("gpu-driver", Status.BROKEN, reason, remedy)


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
