# SPDX-License-Identifier: MIT
"""A rank in Python that sleeps while it waits; on a sign, it does what its name says.

``ranks.py STEP_MS NBYTES FAULT RANK FILE``: steps of a pause and an exchange: a ring of MPI, or as
JOB_BODY says an ``allreduce`` of MPI, or a ring of ``sockets`` whose ranks block. FILE appears
when the fault begins. MPI is called by ctypes: the ranks need no package.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

BODY = os.environ.get("JOB_BODY", "ring")
PAUSE_S = 0.002
if BODY != "sockets":
    MPI = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    BYTE, FLOAT, SUM, WORLD = (
        ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(MPI, f"ompi_mpi_{name}")))
        for name in ("byte", "float", "op_sum", "comm_world")
    )


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
    getattr(MPI, call)(buffer, len(buffer), BYTE, peer, tag, WORLD, ctypes.byref(request))
    return request


def exchange(out: ctypes.Array[ctypes.c_char], into: ctypes.Array[ctypes.c_char]) -> None:
    """Send to the next rank and receive from the one before; or add over all."""
    if BODY == "sockets":
        NEXT.sendall(out.raw)
        left = len(out)
        while left:
            left -= len(BEFORE.recv(left))
        return
    if BODY == "allreduce":
        request = ctypes.c_void_p()
        words = (out, into, len(out) // 4, FLOAT, SUM, WORLD, ctypes.byref(request))
        MPI.MPI_Iallreduce(*words)
        wait([request])
        return
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


def reads(path: Path) -> None:
    """Read a file from its disk, again and again."""
    number, page = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
    while True:
        if os.preadv(number, [page], 0) < len(page):
            raise RuntimeError(path)


def does(fault: str, place: Path) -> None:
    """Do what the fault says, which may never end."""
    if fault == "computes":
        compute(60)
    elif fault == "loop":
        number = 0
        while True:
            number += 1
    elif fault == "pipe":
        with subprocess.Popen(["sleep", "120"], stdin=subprocess.PIPE) as worker:
            worker.stdin.write(bytes(1 << 20))  # more than a pipe holds
    elif fault == "reads":
        reads(place / "data")
    elif fault == "checkpoint":
        checkpoint(str(place / "disk" / f"checkpoint{RANK}"))


LOADER = (
    "import sys, time\nwhile True:\n time.sleep(0.08); sys.stdout.write('x'); sys.stdout.flush()"
)


def main() -> None:
    """Exchange until the end, and show the fault once FILE exists."""
    pause_ms, nbytes, fault, odd, file = sys.argv[1:6]
    out, into = ctypes.create_string_buffer(int(nbytes)), ctypes.create_string_buffer(int(nbytes))
    keep = bytearray(64 << 20) if fault == "memory" else b""
    mine, place = int(odd) in (RANK, -1), Path(file).parent
    loader = None
    if fault == "loader":  # every step waits for it, on each rank
        words = [sys.executable, "-c", LOADER]
        loader = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0)
    while True:
        begun = os.path.exists(file)
        if begun and mine and fault == "mismatch":
            gather(out, into)
        elif begun and mine and fault == "ends":
            break
        elif begun and mine:
            does(fault, place)
        works = fault == "busy" or (fault == "uneven" and not RANK)
        compute(float(pause_ms) / 1000) if works else time.sleep(float(pause_ms) / 1000)
        if fault == "writes":
            (place / f"out{RANK}").write_bytes(bytes(1 << 20))
        elif fault == "scans":
            Path(sys.executable).resolve().read_bytes()
        elif loader and loader.stdout:
            loader.stdout.read(1)
        exchange(out, into)
    del keep


def connected(port: int) -> tuple[socket.socket, socket.socket]:
    """Return the connections to the next rank and from the one before."""
    with socket.create_server(("127.0.0.1", port + RANK)) as server:
        while True:
            try:
                to = socket.create_connection(("127.0.0.1", port + (RANK + 1) % SIZE))
                break
            except OSError:
                time.sleep(0.05)
        return to, server.accept()[0]


if __name__ == "__main__":
    if BODY == "sockets":
        RANK, SIZE = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
        NEXT, BEFORE = connected(int(os.environ["JOB_PORT"]))
        main()
    MPI.MPI_Init(None, None)
    found = ctypes.c_int()
    MPI.MPI_Comm_rank(WORLD, ctypes.byref(found))
    RANK = found.value
    MPI.MPI_Comm_size(WORLD, ctypes.byref(found))
    SIZE = found.value
    main()
    MPI.MPI_Finalize()
