# SPDX-License-Identifier: MIT
"""A rank of MPI in Python that sleeps while it waits; on a sign, it does what its name says.

``ranks.py STEP_MS NBYTES FAULT RANK FILE``: steps of a pause and a ring exchange. FILE appears
when the fault begins. MPI is called by ctypes: the ranks need no package.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

MPI = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
BYTE = ctypes.addressof(ctypes.c_char.in_dll(MPI, "ompi_mpi_byte"))
WORLD = ctypes.addressof(ctypes.c_char.in_dll(MPI, "ompi_mpi_comm_world"))
PAUSE_S = 0.002


def wait(requests: list[ctypes.c_void_p]) -> None:
    """Sleep until the requests are done, so that cores stay free."""
    while requests:
        done = ctypes.c_int()
        MPI.MPI_Test(ctypes.byref(requests[0]), ctypes.byref(done), None)
        if done.value:
            requests.pop(0)
        else:
            time.sleep(PAUSE_S)


def start(call: str, buffer: ctypes.Array[ctypes.c_char], peer: int, tag: int) -> ctypes.c_void_p:
    """Begin to send or receive a buffer."""
    request = ctypes.c_void_p()
    words = (buffer, len(buffer), ctypes.c_void_p(BYTE), peer, tag, ctypes.c_void_p(WORLD))
    getattr(MPI, call)(*words, ctypes.byref(request))
    return request


def exchange(out: ctypes.Array[ctypes.c_char], into: ctypes.Array[ctypes.c_char]) -> None:
    """Send to the next rank and receive from the one before."""
    wait(
        [
            start("MPI_Irecv", into, (RANK - 1) % SIZE, 7),
            start("MPI_Isend", out, (RANK + 1) % SIZE, 7),
        ]
    )


def gather(out: ctypes.Array[ctypes.c_char], into: ctypes.Array[ctypes.c_char]) -> None:
    """Receive with a tag that nobody sends."""
    wait([start("MPI_Irecv", into, (RANK - 1) % SIZE, 9)])


def compute(seconds: float) -> None:
    """Use a core."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def checkpoint(path: str) -> None:
    """Write a file, and try again and again if there is no space."""
    with open(path, "wb", buffering=0) as file:
        left = 64
        while left:
            try:
                file.write(bytes(1 << 20))
                left -= 1
            except OSError:
                time.sleep(0.05)


def main() -> None:
    """Exchange until the end, and show the fault once FILE exists."""
    pause_ms, nbytes, fault, odd, file = sys.argv[1:6]
    out, into = ctypes.create_string_buffer(int(nbytes)), ctypes.create_string_buffer(int(nbytes))
    keep = bytearray(64 << 20) if fault == "memory" else b""
    mine = int(odd) in (RANK, -1)
    while True:
        begun = os.path.exists(file)
        if begun and mine and fault == "computes":
            compute(60)
        elif begun and mine and fault == "checkpoint":
            checkpoint(str(Path(file).parent / "disk" / f"checkpoint{RANK}"))
        elif begun and mine and fault == "mismatch":
            gather(out, into)
        elif begun and mine and fault == "ends":
            break
        compute(float(pause_ms) / 1000) if fault == "busy" else time.sleep(float(pause_ms) / 1000)
        if fault == "writes":
            (Path(file).parent / f"out{RANK}").write_bytes(bytes(1 << 20))
        exchange(out, into)
    del keep


if __name__ == "__main__":
    MPI.MPI_Init(None, None)
    number = ctypes.c_int()
    MPI.MPI_Comm_rank(ctypes.c_void_p(WORLD), ctypes.byref(number))
    RANK = number.value
    MPI.MPI_Comm_size(ctypes.c_void_p(WORLD), ctypes.byref(number))
    SIZE = number.value
    main()
    MPI.MPI_Finalize()
