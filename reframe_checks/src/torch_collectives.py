# SPDX-License-Identifier: MIT
"""Collectives through PyTorch, checked and timed, because users of PyTorch see these numbers.

Start one process a GPU, with torchrun, mpirun or srun. Sizes and bus bandwidth are those of
nccl-tests (doc/PERFORMANCE.md). Output: JSON lines of the kind that gpu_aware prints. Exit status:
0 all correct, 1 wrong data, 3 number of ranks, 4 no GPU for a rank, 5 an error of PyTorch or NCCL.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

VERSION = "1.0"
WRONG_DATA, WRONG_RANKS, NO_GPU, ERROR = 1, 3, 4, 5
CODES = {WRONG_RANKS: "rank-count", NO_GPU: "too-few-gpus", ERROR: "runtime"}
_SUFFIXES = {"K": 10, "M": 20, "G": 30}
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
# The two halves of an 8-bit pattern stay exact in float32 and in the sums of any job that fits.
_PATTERN = 251
_BATCHES, _LEAST_ROUNDS, _BATCH_BYTES = 5, 4, 4 << 30


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


def from_environment(names: tuple[str, ...], default: int) -> int:
    """The first of ``names`` that a launcher has set."""
    return next((int(os.environ[name]) for name in names if name in os.environ), default)


@dataclass(frozen=True)
class Job:
    """This process among its peers."""

    rank: int
    ranks: int
    device: torch.device

    def pattern(self, rank: int, count: int) -> torch.Tensor:
        """What ``rank`` sends: ``count`` small whole numbers that tell rank and place."""
        place = torch.arange(count, device=self.device, dtype=torch.int64)
        return ((place * 7 + rank * 13) % _PATTERN).to(torch.float32)


@dataclass(frozen=True)
class Operation:
    """A collective on a message of ``nbytes`` bytes, as nccl-tests counts them."""

    run: Callable[[], object]
    wrong: Callable[[], int]
    factor: float
    """Bus bandwidth over algorithm bandwidth."""


def _differ(got: torch.Tensor, expected: torch.Tensor) -> int:
    return int((got != expected).sum().item())


def _sum(job: Job, count: int) -> torch.Tensor:
    total = torch.zeros(count, device=job.device)
    for rank in range(job.ranks):
        total += job.pattern(rank, count)
    return total


def all_reduce(job: Job, nbytes: int) -> Operation:
    """In place, as PyTorch does it; the check runs once on fresh data."""
    count = nbytes // 4
    data = torch.ones(count, device=job.device)

    def wrong() -> int:
        fresh = job.pattern(job.rank, count)
        dist.all_reduce(fresh)
        return _differ(fresh, _sum(job, count))

    return Operation(lambda: dist.all_reduce(data), wrong, 2 * (job.ranks - 1) / job.ranks)


def all_gather(job: Job, nbytes: int) -> Operation:
    """``nbytes`` is what each rank receives."""
    part = max(1, nbytes // 4 // job.ranks)
    mine = job.pattern(job.rank, part)
    out = torch.empty(part * job.ranks, device=job.device)

    def wrong() -> int:
        out.zero_()
        dist.all_gather_into_tensor(out, mine)
        return sum(
            _differ(out[r * part : (r + 1) * part], job.pattern(r, part)) for r in range(job.ranks)
        )

    return Operation(
        lambda: dist.all_gather_into_tensor(out, mine), wrong, (job.ranks - 1) / job.ranks
    )


def reduce_scatter(job: Job, nbytes: int) -> Operation:
    """``nbytes`` is what each rank sends."""
    part = max(1, nbytes // 4 // job.ranks)
    mine = job.pattern(job.rank, part * job.ranks)
    out = torch.empty(part, device=job.device)

    def wrong() -> int:
        out.zero_()
        dist.reduce_scatter_tensor(out, mine)
        whole = _sum(job, part * job.ranks)
        return _differ(out, whole[job.rank * part : (job.rank + 1) * part])

    return Operation(
        lambda: dist.reduce_scatter_tensor(out, mine), wrong, (job.ranks - 1) / job.ranks
    )


def alltoall(job: Job, nbytes: int) -> Operation:
    """``nbytes`` is what each rank sends."""
    part = max(1, nbytes // 4 // job.ranks)
    mine = job.pattern(job.rank, part * job.ranks)
    out = torch.empty_like(mine)

    def wrong() -> int:
        out.zero_()
        dist.all_to_all_single(out, mine)
        own = slice(job.rank * part, (job.rank + 1) * part)
        return sum(
            _differ(out[r * part : (r + 1) * part], job.pattern(r, part * job.ranks)[own])
            for r in range(job.ranks)
        )

    return Operation(lambda: dist.all_to_all_single(out, mine), wrong, (job.ranks - 1) / job.ranks)


def broadcast(job: Job, nbytes: int) -> Operation:
    """From rank 0."""
    count = nbytes // 4
    data = job.pattern(job.rank, count)

    def wrong() -> int:
        fresh = job.pattern(job.rank, count)
        dist.broadcast(fresh, 0)
        return _differ(fresh, job.pattern(0, count))

    return Operation(lambda: dist.broadcast(data, 0), wrong, 1.0)


def sendrecv(job: Job, nbytes: int) -> Operation:
    """Each rank sends to the next and receives from the one before."""
    count = nbytes // 4
    mine = job.pattern(job.rank, count)
    out = torch.empty_like(mine)
    after, before = (job.rank + 1) % job.ranks, (job.rank - 1) % job.ranks

    def run() -> None:
        for request in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, out, before)]
        ):
            request.wait()

    def wrong() -> int:
        out.zero_()
        run()
        return _differ(out, job.pattern(before, count))

    return Operation(run, wrong, 1.0)


OPERATIONS: dict[str, Callable[[Job, int], Operation]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "alltoall": alltoall,
    "broadcast": broadcast,
    "sendrecv": sendrecv,
}


def timed(job: Job, operation: Operation, iterations: int) -> float:
    """Seconds of one round of a batch, by the clock of the device."""
    if job.device.type == "cpu":
        dist.barrier()
        start = time.perf_counter()
        for _ in range(iterations):
            operation.run()
        return (time.perf_counter() - start) / iterations
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    dist.barrier()
    begin.record()
    for _ in range(iterations):
        operation.run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / iterations * 1e-3


def measure(job: Job, name: str, nbytes: int, *, warmup: int, iterations: int) -> int:
    """Checks and times one collective at one size; returns the wrong elements of all ranks.

    Of several batches the slowest does not count: a machine that is shared interrupts some. Large
    messages need fewer rounds for as steady a mean.
    """
    operation = OPERATIONS[name](job, nbytes)
    count = torch.tensor([operation.wrong()], device=job.device, dtype=torch.int64)
    dist.all_reduce(count)
    for _ in range(warmup):
        operation.run()
    rounds = min(iterations, max(_LEAST_ROUNDS, _BATCH_BYTES // nbytes))
    times = [timed(job, operation, rounds) for _ in range(_BATCHES)]
    # The slowest rank is what a program waits for.
    slowest = torch.tensor(times, device=job.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    seconds = statistics.mean(sorted(slowest.tolist())[:-1])
    algbw = nbytes / seconds * 1e-9
    wrong = int(count.item())
    if job.rank == 0:
        emit(
            "reading",
            metric="busbw",
            operation=name,
            bytes=nbytes,
            gb_per_s=round(algbw * operation.factor, 4),
            algbw_gb_per_s=round(algbw, 4),
            us=round(seconds * 1e6, 3),
            wrong=wrong,
        )
    return wrong


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, required=True, help="ranks that were asked for")
    parser.add_argument("--collectives", default="all_reduce", help=",".join(OPERATIONS))
    parser.add_argument("--sizes", default="1M,16M,256M,1G", help="message sizes, as in 1M,1G")
    parser.add_argument("--warmup", type=int, default=5)
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


def run(args: argparse.Namespace, rank: int, ranks: int) -> int:
    """Places this rank, then checks and measures."""
    local = from_environment(_LOCAL, rank) if args.device is None else args.device
    hip = torch.version.hip
    on_gpu = args.backend == "nccl"
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else ""
    if rank == 0:
        emit(
            "start",
            program="torch_collectives",
            version=VERSION,
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
    )
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    own = {}
    if on_gpu:
        torch.cuda.set_device(local)
        own["device_id"] = device
    limit = timedelta(seconds=args.seconds)
    dist.init_process_group(args.backend, rank=rank, world_size=ranks, timeout=limit, **own)
    job, begin, wrong = Job(rank, ranks, device), time.monotonic(), 0
    for name in args.collectives.split(","):
        for text in args.sizes.split(","):
            wrong += measure(job, name, size(text), warmup=args.warmup, iterations=args.iterations)
    dist.destroy_process_group()
    if rank == 0:
        emit("end", wrong=wrong, seconds=round(time.monotonic() - begin, 3))
    return WRONG_DATA if wrong else 0


def main(argv: list[str] | None = None) -> int:
    """Runs one rank."""
    args = parse_arguments(argv)
    rank, ranks = from_environment(_RANK, 0), from_environment(_SIZE, 1)
    try:
        return run(args, rank, ranks)
    except RuntimeError as error:  # torch.distributed's errors are of this class
        return give_up(ERROR, rank, str(error).splitlines()[0])


if __name__ == "__main__":
    sys.exit(main())
