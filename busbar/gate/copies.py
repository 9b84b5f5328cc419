# SPDX-License-Identifier: MIT
"""Measure the copies of one child process: a GPU and its host, or all pairs of GPUs.

The host fills a buffer with a pattern, the GPU gets it, and what comes back must be the same.
Several children set up at the same time; only the one that holds the lock copies.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from busbar.gate.engine import Address, EngineError, GpuEngine, Work
from busbar.gate.sysfs import short_address
from busbar.parse.cpulist import parse_cpu_list

NBYTES = 256 << 20
"""The smallest size for which the bands of copies between GPU and host are known."""
COPIES = 8
"""Copies of one reading, which is their median."""
_BLOCK = 1_048_573
"""Prime, so that data in a wrong place is not the same as that in the right one."""
_FREE_TIMES = 3
"""How much of its memory a GPU must have free, in copies: others may need the rest soon."""
_IN_USE = "other programs use its memory"
_TIMES = 2
"""How often a reading is taken; the better one counts."""

Emit = Callable[["CopyReading"], None]


@dataclass(frozen=True)
class CopyReading:
    """One direction of one link."""

    buffers: str
    """``H D``, ``D H`` or ``D D``."""
    gpu: int
    """The GPU that sends or receives; of a pair the one that sends."""
    peer: int | None = None
    gb_per_s: float | None = None
    """None if it was not measured."""
    wrong: int = 0
    """Wrong bytes in the first megabyte that has some."""
    note: str = ""
    """Why it was not measured."""
    direct: bool = True
    """Whether the GPU can access the memory of the other one."""

    @property
    def link(self) -> tuple[str, int, int | None]:
        """What was measured."""
        return self.buffers, self.gpu, self.peer


@dataclass(frozen=True)
class GpuDevice:
    """A GPU of the node: its number in the site, and its address."""

    index: int
    bus_id: str


def between_host_and_gpu(
    make: Callable[[], GpuEngine], device: GpuDevice, lock: int, emit: Emit, nbytes: int = NBYTES
) -> None:
    """Measure both directions between the host and a GPU."""
    stay_near(device.bus_id)
    engine = make()
    gpu = _number(engine, device)
    engine.use(gpu)
    if engine.free_bytes() < _FREE_TIMES * nbytes:
        for buffers in ("H D", "D H"):
            emit(CopyReading(buffers, device.index, note=_IN_USE))
        return
    sent, back = engine.on_host(nbytes), engine.on_host(nbytes)
    there = engine.on_gpu(nbytes)
    fill_with_pattern(sent, nbytes)
    ctypes.memset(back, 0, nbytes)
    with _held(lock):
        rate = _reading(engine, engine.to_gpu(there, sent, nbytes), nbytes)
        emit(CopyReading("H D", device.index, gb_per_s=rate))
        rate = _reading(engine, engine.to_host(back, there, nbytes), nbytes)
    wrong = _wrong(back, sent, nbytes)
    emit(CopyReading("D H", device.index, gb_per_s=rate, wrong=wrong))


def between_gpus(
    make: Callable[[], GpuEngine],
    devices: Sequence[GpuDevice],
    lock: int,
    emit: Emit,
    nbytes: int = NBYTES,
) -> None:
    """Measure every ordered pair of GPUs. The pattern goes from one to the next and back."""
    engine = make()
    gpus = {device.index: _number(engine, device) for device in devices}
    memory: dict[int, tuple[Address, Address]] = {}
    without: dict[int, str] = {}
    for index, gpu in gpus.items():
        try:
            engine.use(gpu)
            if engine.free_bytes() >= _FREE_TIMES * nbytes:
                memory[index] = engine.on_gpu(nbytes), engine.on_gpu(nbytes)
            else:
                without[index] = _IN_USE
        except EngineError as error:
            without[index] = str(error)
    sent, back = engine.on_host(nbytes), engine.on_host(nbytes)
    fill_with_pattern(sent, nbytes)
    for index, (source, _) in memory.items():
        engine.use(gpus[index])
        engine.milliseconds(engine.to_gpu(source, sent, nbytes))
    for (first, first_gpu), (second, second_gpu) in permutations(gpus.items(), 2):
        if first in without or second in without:
            note = without.get(first) or without[second]
            emit(CopyReading("D D", first, second, note=note))
            continue
        with _held(lock):
            ends = (first, first_gpu), (second, second_gpu)
            emit(_pair(engine, ends, memory, (sent, back), nbytes))


def _pair(
    engine: GpuEngine,
    ends: tuple[tuple[int, int], tuple[int, int]],
    memory: dict[int, tuple[Address, Address]],
    host: tuple[Address, Address],
    nbytes: int,
) -> CopyReading:
    """Copy from a GPU to another; ``ends`` are their numbers in the site and in the library."""
    (first, first_gpu), (second, second_gpu) = ends
    source, target = memory[first][0], memory[second][1]
    sent, back = host
    engine.use(second_gpu)
    engine.peers(second_gpu, first_gpu)
    engine.fill(target, 0, nbytes)
    engine.use(first_gpu)
    direct = engine.peers(first_gpu, second_gpu)
    copy = engine.to_peer(target, second_gpu, source, first_gpu, nbytes)
    rate = _reading(engine, copy, nbytes)
    engine.use(second_gpu)
    engine.milliseconds(engine.to_host(back, target, nbytes))
    wrong = _wrong(back, sent, nbytes)
    return CopyReading("D D", first, second, rate, wrong, direct=direct)


def stay_near(bus_id: str, root: Path = Path("/")) -> None:
    """Run on the CPUs near a GPU, if known, so that pinned memory is near it too."""
    with contextlib.suppress(OSError, ValueError):
        path = root / "sys/bus/pci/devices" / short_address(bus_id) / "local_cpulist"
        near = set(parse_cpu_list(path.read_text().strip()))
        os.sched_setaffinity(0, near & os.sched_getaffinity(0) or os.sched_getaffinity(0))


def _number(engine: GpuEngine, device: GpuDevice) -> int:
    """Return the number that the library has for a GPU."""
    listed = [short_address(bus_id) for bus_id in engine.bus_ids()]
    if short_address(device.bus_id) not in listed:
        raise EngineError(f"the library lists no GPU at {device.bus_id}")
    return listed.index(short_address(device.bus_id))


def _reading(engine: GpuEngine, work: Work, nbytes: int) -> float:
    """Return GB/s: the median of some copies, the better of two times. The first warms up."""
    engine.milliseconds(work)
    medians = (
        statistics.median(engine.milliseconds(work) for _ in range(COPIES)) for _ in range(_TIMES)
    )
    best = min(medians)
    return nbytes / best * 1e-6 if best > 0 else 0.0


def fill_with_pattern(address: Address, nbytes: int) -> None:
    """Fill host memory with random bytes that repeat every prime number of bytes."""
    block = os.urandom(min(_BLOCK, nbytes))
    ctypes.memmove(address, block, len(block))
    done = len(block)
    while done < nbytes:
        size = min(done, nbytes - done)
        ctypes.memmove(address + done, address, size)
        done += size


def _wrong(one: Address, other: Address, nbytes: int) -> int:
    """Return how many bytes differ in the first block that does; 0 if all are the same."""
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    if not compare(one, other, nbytes):
        return 0
    for start in range(0, nbytes, _BLOCK):
        size = min(_BLOCK, nbytes - start)
        left, right = ctypes.string_at(one + start, size), ctypes.string_at(other + start, size)
        if left != right:
            return sum(a != b for a, b in zip(left, right, strict=True))
    return 1


@contextlib.contextmanager
def _held(lock: int) -> Iterator[None]:
    """Hold the lock of all children; the kernel releases it if this one dies.

    Each child opens the file again: a lock belongs to an open file, which a fork shares.
    """
    descriptor = os.open(f"/proc/self/fd/{lock}", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
