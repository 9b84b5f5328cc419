# SPDX-License-Identifier: MIT
"""Collectives through PyTorch, checked and timed, because users of PyTorch see these numbers.

Start one process a GPU with torchrun; ``--start`` forks those of one node after one import of
PyTorch. Sizes and bus bandwidth are those of nccl-tests (doc/PERFORMANCE.md). Output: JSON lines
of the kind that gpu_aware prints. Exit status: 0 all correct, 1 wrong data,
3 number of ranks, 4 no GPU for a rank, 5 an error of PyTorch or NCCL.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

VERSION = "1.3"
WRONG_DATA, WRONG_RANKS, NO_GPU, ERROR = 1, 3, 4, 5
CODES = {WRONG_RANKS: "rank-count", NO_GPU: "too-few-gpus", ERROR: "runtime"}
_SUFFIXES = {"K": 10, "M": 20, "G": 30}
_LOADERS = ("LD_PRELOAD", "LD_AUDIT")
# Whole numbers below this stay exact in float32, and so do the sums of any job that fits.
_PATTERN = 251
# Patterns begin at different places in one payload, as buffers of programs are aligned.
_ALIGNED, _SHIFTS, _CHUNK = 32, 509, 1 << 24
_GUARD, _UNTOUCHED, _OVERWRITTEN = 32, -3.0, -2.0
_VERIFIED, _LEAST_VERIFIED, _VERIFIED_SECONDS = 104, 4, 0.15
_BATCHES, _LEAST_ROUNDS, _BATCH_BYTES = 5, 4, 4 << 30
_DELAY_BYTES, _DELAY_MARGIN = 256 << 20, 2
# Looks at the kernel's clock, which counts hundredths of a second, and how far apart.
_TICKS, _LEAST_SECONDS = 5, 1.0
# What the CPU may take to see that a GPU is done.
_NOTICING_SECONDS = 1e-4


def emit(event: str, **values: object) -> None:
    """One JSON line in one write, so that lines of ranks do not mix."""
    line = json.dumps({"event": event, **values}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())


def give_up(status: int, rank: int, text: str) -> int:
    """Prints an error event and returns the exit status."""
    emit("error", rank=rank, code=CODES[status], text=text)
    return status


def size(text: str) -> int:
    """Bytes of ``16M``."""
    shift = _SUFFIXES.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift


@dataclass(frozen=True)
class Job:
    """This process among its peers."""

    rank: int
    ranks: int
    device: torch.device
    payload: torch.Tensor
    """Small whole numbers without a period, more than the largest message has, and others in each
    run."""
    delay: Delay | None
    """None on a host without GPUs, where starting a collective is running it."""
    clock_ratios: list[float] = field(default_factory=list)
    """Of each batch, its time by the GPU's events over what the CPU waited, at most 1."""

    def pattern(self, rank: int, turn: int, count: int, start: int = 0) -> torch.Tensor:
        """What ``rank`` sends in a turn: each rank and turn begins elsewhere in the payload."""
        shift = _ALIGNED * ((rank * 61 + turn) % _SHIFTS)
        return self.payload[shift + start : shift + start + count]

    def expected_sum(self, turn: int, count: int, start: int = 0) -> torch.Tensor:
        """The sum of what all ranks send in a turn."""
        total = self.pattern(0, turn, count, start).clone()
        for rank in range(1, self.ranks):
            total += self.pattern(rank, turn, count, start)
        return total

    def room(self, count: int) -> Room:
        """Room for a message, with guards before and after it that nothing may change."""
        return Room(torch.full((count + 2 * _GUARD,), _UNTOUCHED, device=self.device))


@dataclass(frozen=True)
class Room:
    """A message between two guards."""

    whole: torch.Tensor

    @property
    def data(self) -> torch.Tensor:
        """The message."""
        return self.whole[_GUARD:-_GUARD]

    def touched(self) -> torch.Tensor:
        """Count the elements of the guards that changed."""
        guards = torch.cat([self.whole[:_GUARD], self.whole[-_GUARD:]])
        return (guards != _UNTOUCHED).sum()


def key_of_run(device: torch.device) -> int:
    """A number of this run that all ranks know: data of an earlier run is wrong."""
    key = torch.tensor([int.from_bytes(os.urandom(3), "little")], device=device)
    dist.broadcast(key, 0)
    return int(key.item())


def payload_of(count: int, device: torch.device, key: int) -> torch.Tensor:
    """Fill the payload for messages of up to ``count`` elements."""
    payload = torch.empty(count + _ALIGNED * _SHIFTS, device=device)
    for start in range(0, len(payload), _CHUNK):
        part = payload[start : start + _CHUNK]
        place = key + torch.arange(start, start + len(part), device=device, dtype=torch.int64)
        part.copy_((place * 2654435761 % (1 << 32) >> 16) % _PATTERN)
    return payload


@dataclass(frozen=True)
class Operation:
    """A collective on a message of ``nbytes`` bytes, as nccl-tests counts them."""

    load: Callable[[int], object]
    """Prepare what this rank sends in a turn and clear the room for the result."""
    run: Callable[[], object]
    wrong: Callable[[int], torch.Tensor]
    """Overwrite what this rank sent, and count the elements that differ from the result of a turn
    or lie beside it and changed. The count stays on the device: the next turn need not wait."""
    factor: float
    """Bus bandwidth over algorithm bandwidth."""


def _differ(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    return (got != expected).sum()


def all_reduce(job: Job, nbytes: int) -> Operation:
    """In place, as PyTorch does it.

    The timed runs, whose turns are negative, add zeros: what any of them spoils stays until the
    last, which is compared.
    """
    count = nbytes // 4
    room = job.room(count)
    data = room.data

    def load(turn: int) -> None:
        data.zero_() if turn < 0 else data.copy_(job.pattern(job.rank, turn, count))

    def wrong(turn: int) -> torch.Tensor:
        expected = torch.zeros_like(data) if turn < 0 else job.expected_sum(turn, count)
        return _differ(data, expected) + room.touched()

    return Operation(load, lambda: dist.all_reduce(data), wrong, 2 * (job.ranks - 1) / job.ranks)


def _out_of_place(
    job: Job,
    counts: tuple[int, int],
    run: Callable[[torch.Tensor, torch.Tensor], object],
    expected: Callable[[int], list[torch.Tensor]],
    factor: float,
) -> Operation:
    """``run(out, mine)``; ``expected`` returns the parts of the result of a turn."""
    sent, received = (job.room(count) for count in counts)
    mine, out = sent.data, received.data

    def load(turn: int) -> None:
        mine.copy_(job.pattern(job.rank, turn, len(mine)))
        out.fill_(-1)

    def wrong(turn: int) -> torch.Tensor:
        wrong = sent.touched() + received.touched()
        # Of some turns nobody knows which; the others see who reads a message after its end.
        if os.urandom(1)[0] % 4 == 0:
            wrong += _differ(mine, job.pattern(job.rank, turn, len(mine)))
        mine.fill_(_OVERWRITTEN)
        parts = expected(turn)
        for got, part in zip(out.split(len(parts[0])), parts, strict=True):
            wrong += _differ(got, part)
        return wrong

    return Operation(load, lambda: run(out, mine), wrong, factor)


def all_gather(job: Job, nbytes: int) -> Operation:
    """``nbytes`` is what each rank receives."""
    part = max(1, nbytes // 4 // job.ranks)
    return _out_of_place(
        job,
        (part, part * job.ranks),
        dist.all_gather_into_tensor,
        lambda turn: [job.pattern(rank, turn, part) for rank in range(job.ranks)],
        (job.ranks - 1) / job.ranks,
    )


def reduce_scatter(job: Job, nbytes: int) -> Operation:
    """``nbytes`` is what each rank sends."""
    part = max(1, nbytes // 4 // job.ranks)
    return _out_of_place(
        job,
        (part * job.ranks, part),
        dist.reduce_scatter_tensor,
        lambda turn: [job.expected_sum(turn, part, job.rank * part)],
        (job.ranks - 1) / job.ranks,
    )


def alltoall(job: Job, nbytes: int) -> Operation:
    """``nbytes`` is what each rank sends."""
    part = max(1, nbytes // 4 // job.ranks)
    return _out_of_place(
        job,
        (part * job.ranks, part * job.ranks),
        dist.all_to_all_single,
        lambda turn: [job.pattern(rank, turn, part, job.rank * part) for rank in range(job.ranks)],
        (job.ranks - 1) / job.ranks,
    )


def broadcast(job: Job, nbytes: int) -> Operation:
    """From rank 0."""
    count = nbytes // 4
    room = job.room(count)
    data = room.data
    return Operation(
        lambda turn: data.copy_(job.pattern(job.rank, turn, count)),
        lambda: dist.broadcast(data, 0),
        lambda turn: _differ(data, job.pattern(0, turn, count)) + room.touched(),
        1.0,
    )


def sendrecv(job: Job, nbytes: int) -> Operation:
    """Each rank sends to the next and receives from the one before."""
    count = nbytes // 4
    after, before = (job.rank + 1) % job.ranks, (job.rank - 1) % job.ranks

    def run(out: torch.Tensor, mine: torch.Tensor) -> None:
        for request in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, out, before)]
        ):
            request.wait()

    return _out_of_place(
        job, (count, count), run, lambda turn: [job.pattern(before, turn, count)], 1.0
    )


class Clocks:
    """The clocks of the readings beside that of the kernel, which no library can replace."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type != "cpu"
        self._start, self._event = self._together(), self._mark()

    def ratio(self) -> float:
        """How fast the clock of the readings has run since the start, by the kernel's."""
        while self._uptime() < self._start[0] + _LEAST_SECONDS:
            time.sleep(0.01)
        event, (kernel, ours) = self._mark(), self._together()
        ratio = (ours - self._start[1]) / (kernel - self._start[0])
        if event and self._event:
            gpu = self._event[0].elapsed_time(event[0]) * 1e-3
            ratio *= gpu / (event[1] - self._event[1])
        return ratio

    def _mark(self) -> tuple[torch.cuda.Event, float] | None:
        """An event of the GPU, and when it was recorded."""
        if not self._on_gpu:
            return None
        event = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        now = time.perf_counter()
        event.record()
        torch.cuda.synchronize()
        return event, now

    def _together(self) -> tuple[float, float]:
        """The kernel's time as it changes, and ours; a process that waits for a CPU is late."""
        seen = []
        for _ in range(_TICKS):
            before = now = self._uptime()
            while now == before:
                now = self._uptime()
            seen.append((now, time.perf_counter()))
        return min(seen, key=lambda both: both[1] - both[0])

    def _uptime(self) -> float:
        with open("/proc/uptime", "rb", buffering=0) as file:
            return float(file.read().split()[0])


OPERATIONS: dict[str, Callable[[Job, int], Operation]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "alltoall": alltoall,
    "broadcast": broadcast,
    "sendrecv": sendrecv,
}


class Delay:
    """Work for a GPU while the CPU starts what is timed.

    Python can take longer to start a short collective than NCCL to run it, and the GPU would wait.
    """

    def __init__(self, device: torch.device) -> None:
        self._memory = torch.empty(_DELAY_BYTES, dtype=torch.uint8, device=device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for event in (begin, end):
            self._memory.fill_(0)
            event.record()
        torch.cuda.synchronize()
        self._seconds = float(begin.elapsed_time(end)) * 1e-3

    def __call__(self, seconds: float) -> None:
        for _ in range(math.ceil(seconds / self._seconds)):
            self._memory.fill_(0)


def timed(job: Job, operation: Operation, iterations: int, starting: float) -> float:
    """Seconds of one round of a batch, by the clock of the device.

    ``starting`` is how many seconds Python takes to start a batch, at most.
    """
    if job.device.type == "cpu":
        dist.barrier()
        start = time.perf_counter()
        for _ in range(iterations):
            operation.run()
        return (time.perf_counter() - start) / iterations
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    assert job.delay
    job.delay(starting)
    operation.run()  # not timed: it begins when the last rank is there
    begin.record()
    for _ in range(iterations):
        operation.run()
    end.record()
    while not begin.query():
        pass
    started = time.perf_counter()
    torch.cuda.synchronize()
    waited, seconds = time.perf_counter() - started, float(begin.elapsed_time(end)) * 1e-3
    job.clock_ratios.append(min(1, (seconds + _NOTICING_SECONDS) / waited))
    return seconds / iterations


def verified(operation: Operation, turns: range) -> int:
    """Run one turn after the other, each with another payload, and compare each whole."""
    wrong = []
    for turn in turns:
        operation.load(turn)
        operation.run()
        wrong.append(operation.wrong(turn))
    return int(sum(wrong).item())


def slowest(job: Job, seconds: list[float]) -> list[float]:
    """The times of the slowest rank, which is what a program waits for."""
    times = torch.tensor(seconds, device=job.device)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return [float(each) for each in times.tolist()]


def measure(job: Job, name: str, nbytes: int, *, warmup: int, iterations: int) -> int:
    """Check and time one collective at one size; return the wrong elements of all ranks.

    Of several batches the slowest does not count: a machine that is shared interrupts some. Large
    messages need fewer rounds for as steady a mean.

    The last result of each batch is compared whole, outside its time. After the batches 104 turns
    follow, all compared, so that a fault in every n-th result is caught up to n = 104; fewer, but
    at least 4, if they would take more than 0.15 s, as those of 1 GiB do.
    """
    operation = OPERATIONS[name](job, nbytes)
    wrong = verified(operation, range(_LEAST_VERIFIED))
    begin = time.perf_counter()
    wrong += verified(operation, range(_LEAST_VERIFIED))
    checked = time.perf_counter()
    for _ in range(warmup):
        operation.run()
    started = time.perf_counter()
    cost, starting = slowest(
        job, [(checked - begin) / _LEAST_VERIFIED, (started - checked) / warmup]
    )
    rounds = min(iterations, max(_LEAST_ROUNDS, _BATCH_BYTES // nbytes))
    times = []
    for batch in range(-_BATCHES, 0):
        operation.load(batch)
        times.append(timed(job, operation, rounds, _DELAY_MARGIN * rounds * starting))
        wrong += int(operation.wrong(batch).item())
    turns = int(max(_LEAST_VERIFIED, min(_VERIFIED, _VERIFIED_SECONDS / cost)))
    wrong += verified(operation, range(_LEAST_VERIFIED, _LEAST_VERIFIED + turns))
    seconds = statistics.mean(sorted(slowest(job, times))[:-1])
    algbw = nbytes / seconds * 1e-9
    count = torch.tensor([wrong], device=job.device, dtype=torch.int64)
    dist.all_reduce(count)
    wrong = max(wrong, int(count.item()))
    if job.rank == 0:
        emit(
            "reading",
            metric="busbw",
            operation=name,
            bytes=nbytes,
            gb_per_s=round(algbw * operation.factor, 4),
            algbw_gb_per_s=round(algbw, 4),
            us=round(seconds * 1e6, 3),
            verified=turns + 2 * _LEAST_VERIFIED + _BATCHES,
            wrong=wrong,
        )
    return wrong


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, required=True, help="ranks that were asked for")
    parser.add_argument("--collectives", default="all_reduce", help=",".join(OPERATIONS))
    parser.add_argument("--sizes", default="1M,16M,256M,1G", help="message sizes, as in 1M,1G")
    parser.add_argument("--warmup", type=int, default=5, help="1 or more (%(default)s)")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--device", type=int, help="the GPU of every rank (default: by local rank)"
    )
    parser.add_argument(
        "--backend",
        choices=["nccl", "gloo"],
        default="nccl",
        help="nccl (RCCL too); gloo for host memory, on machines without GPUs (%(default)s)",
    )
    parser.add_argument(
        "--start", action="store_true", help="start the ranks here, without a launcher"
    )
    parser.add_argument("--seconds", type=int, default=60, help="limit of one collective")
    return parser.parse_args(argv)


def described(device: torch.device) -> tuple[str, str]:
    """Bus id and name of a GPU; empty for the host."""
    if device.type == "cpu":
        return "", ""
    properties = torch.cuda.get_device_properties(device)
    domain, bus, place = (
        getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")
    )
    return f"{domain:04x}:{bus:02x}:{place:02x}.0", properties.name


def preloaded() -> str:
    """The libraries that the environment puts before all others."""
    return " ".join(f"{name}={os.environ[name]}" for name in _LOADERS if os.environ.get(name))


def run(args: argparse.Namespace, rank: int, ranks: int) -> int:
    """Places this rank, then checks and measures."""
    local = int(os.environ.get("LOCAL_RANK", rank)) if args.device is None else args.device
    hip = torch.version.hip
    on_gpu = args.backend == "nccl"
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else ""
    if rank == 0:
        emit(
            "start",
            program="torch_collectives",
            version=VERSION,
            nonce=os.environ.get("BUSBAR_NONCE", ""),
            backend=("hip" if hip else "cuda") if on_gpu else "host",
            ranks=ranks,
            asked_ranks=args.ranks,
            torch=torch.__version__,
            nccl=nccl,
            hip=hip or "",
        )
    if ranks != args.ranks:
        return give_up(WRONG_RANKS, rank, f"asked for {args.ranks} ranks, {ranks} started")
    if on_gpu and local >= torch.cuda.device_count():
        visible = torch.cuda.device_count()
        text = f"rank {rank} has no GPU of its own: {visible} are visible"
        return give_up(NO_GPU, rank, text)
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    bus_id, name = described(device)
    emit(
        "rank",
        rank=rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        node_rank=local,
        device=bus_id,
        device_name=name,
        cpus=",".join(map(str, sorted(os.sched_getaffinity(0)))),
        preloaded=preloaded(),
    )
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    own = {}
    if on_gpu:
        torch.cuda.set_device(local)
        own["device_id"] = device
    limit = timedelta(seconds=args.seconds)
    dist.init_process_group(args.backend, rank=rank, world_size=ranks, timeout=limit, **own)
    sizes = [size(text) for text in args.sizes.split(",")]
    payload = payload_of(max(sizes) // 4 + ranks, device, key_of_run(device))
    job = Job(rank, ranks, device, payload, Delay(device) if on_gpu else None)
    clocks, begin, wrong = Clocks(device), time.monotonic(), 0
    for name in args.collectives.split(","):
        for nbytes in sizes:
            wrong += measure(job, name, nbytes, warmup=args.warmup, iterations=args.iterations)
    seconds = round(time.monotonic() - begin, 3)
    if rank == 0:
        ratio = clocks.ratio() * statistics.median(job.clock_ratios or [1])
        emit("end", wrong=wrong, seconds=seconds, clock_ratio=round(ratio, 6))
    dist.destroy_process_group()
    return WRONG_DATA if wrong else 0


def start(ranks: int, rank_main: Callable[[], int]) -> NoReturn:
    """Fork into the ranks, and end with their exit status.

    No process ends by way of Python, which takes a second after an import of PyTorch. A rank that
    fails ends the others, which would wait for it; wrong data is seen by all.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    running = set()
    for rank in range(ranks):
        if not (pid := os.fork()):
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            status = rank_main()
            ctypes.CDLL(None).fflush(None)  # the log of NCCL
            os._exit(status)
        running.add(pid)
    status = 0
    while running:
        pid, how = os.wait()
        running.discard(pid)
        code = os.waitstatus_to_exitcode(how)
        if code not in (0, WRONG_DATA) and status in (0, WRONG_DATA):
            for other in running:
                os.kill(other, signal.SIGTERM)
        status = status or (128 - code if code < 0 else code)
    os._exit(status)


def main(argv: list[str] | None = None) -> int:
    """Runs one rank, or starts all."""
    args = parse_arguments(argv)
    if args.start:
        start(args.ranks, lambda: one_rank(args))
    return one_rank(args)


def one_rank(args: argparse.Namespace) -> int:
    """Runs one rank, and says why if it cannot."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        return run(args, rank, ranks)
    except RuntimeError as error:  # torch.distributed's errors are of this class
        return give_up(ERROR, rank, str(error).splitlines()[0])


if __name__ == "__main__":
    sys.exit(main())
