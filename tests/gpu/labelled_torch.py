# SPDX-License-Identifier: MIT
"""Records runs of torch_collectives, each with one thing done to it that its name tells.

PyTorch is imported once; each rank of each run is a fork of this process, made before CUDA starts.
A record has the command in its first line and the exit status in its last.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed

PROGRAM = Path(__file__).parents[2] / "reframe_checks/src/torch_collectives.py"
DEBUG = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,NET,P2P,SHM,TUNING",
    "NCCL_NVLS_ENABLE": "0",
}
ALL = "all_reduce,all_gather,reduce_scatter,alltoall,broadcast,sendrecv"


@dataclass(frozen=True)
class Run:
    """One record."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    ranks: int = 4
    started: int | None = None
    """Ranks that really start; fewer than ``ranks`` hang."""
    cpus: tuple[set[int], ...] = ()
    """CPUs of each rank, or one set for all."""
    busy_gpu: int | None = None
    show_load: bool = False
    debug: bool = True
    limit_s: int = 40
    file_each: bool = False
    """NCCL writes one file a rank."""
    kill_rank: int | None = None


RUNS = (
    Run(
        "torch_healthy_all_collectives", arguments=("--collectives", ALL, "--sizes", "16M,256M,1G")
    ),
    Run("torch_healthy_no_debug", debug=False),
    Run("torch_two_gpus_healthy", ranks=2),
    Run("torch_small_messages_healthy", arguments=("--sizes", "8,1K,64K", "--iterations", "200")),
    Run("torch_visible_reversed_healthy", {"CUDA_VISIBLE_DEVICES": "3,2,1,0"}),
    Run("torch_algo_ring_healthy", {"NCCL_ALGO": "Ring"}),
    Run("torch_shm_off_healthy", {"NCCL_SHM_DISABLE": "1"}),
    Run("torch_ignore_affinity", {"NCCL_IGNORE_CPU_AFFINITY": "1"}),
    Run("torch_one_core_for_all", cpus=({0},)),
    Run("torch_one_core_each", cpus=({0}, {1}, {2}, {3})),
    Run("torch_one_core_two_ranks", cpus=({0}, {0}, {1, 2, 3, 4}, {5, 6, 7, 8})),
    Run("torch_busy_gpu2", busy_gpu=2),
    Run("torch_busy_gpu2_load_shown", busy_gpu=2, show_load=True),
    Run("torch_p2p_off", {"NCCL_P2P_DISABLE": "1"}),
    Run("torch_p2p_level_loc", {"NCCL_P2P_LEVEL": "LOC"}),
    Run("torch_p2p_off_files", {"NCCL_P2P_DISABLE": "1"}, file_each=True),
    Run("torch_p2p_shm_off", {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}),
    Run("torch_channels_1", {"NCCL_MAX_NCHANNELS": "1"}),
    Run("torch_channels_4", {"NCCL_MAX_NCHANNELS": "4"}),
    Run("torch_proto_ll", {"NCCL_PROTO": "LL"}),
    Run("torch_proto_ll128", {"NCCL_PROTO": "LL128"}),
    Run("torch_buffsize_64k", {"NCCL_BUFFSIZE": "65536"}),
    Run("torch_algo_tree", {"NCCL_ALGO": "Tree"}),
    Run("torch_nthreads_64", {"NCCL_NTHREADS": "64"}),
    Run("torch_launch_blocking", {"CUDA_LAUNCH_BLOCKING": "1"}),
    Run("torch_same_gpu", arguments=("--device", "0")),
    Run("torch_too_few_gpus", {"CUDA_VISIBLE_DEVICES": "0,1"}),
    Run(
        "torch_rank_killed",
        arguments=("--sizes", "1G", "--iterations", "4000"),
        kill_rank=2,
        limit_s=25,
    ),
    Run("torch_rank_missing", started=3, limit_s=15),
)


def load(gpu: int, seconds: float) -> None:
    """Keeps a GPU busy with copies in its memory."""
    torch.cuda.set_device(gpu)
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        for _ in range(50):
            target.copy_(source)
        torch.cuda.synchronize()


def fork(log: int, body: object) -> int:
    """A child that runs ``body`` with its output in ``log``."""
    child = os.fork()
    if child:
        return child
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = 1
    try:
        status = int(body() or 0)  # type: ignore[operator]
    except SystemExit as leave:
        status = int(leave.code or 0)
    finally:
        os._exit(status)


def rank_body(run: Run, rank: int, port: int, out: Path) -> int:
    """One rank, in its own process."""
    environment = (DEBUG if run.debug else {"NCCL_NVLS_ENABLE": "0"}) | run.environment
    if run.file_each:
        environment["NCCL_DEBUG_FILE"] = str(out / f"{run.name}.nccl.%h.%p.log")
    os.environ.update(environment)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(run.ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    if run.cpus:
        os.sched_setaffinity(0, run.cpus[rank % len(run.cpus)])
    sys.argv = [str(PROGRAM), "--ranks", str(run.ranks), *run.arguments]
    runpy.run_path(str(PROGRAM), run_name="__main__")
    return 0


def record(run: Run, port: int, out: Path) -> None:
    """Runs it and writes its record."""
    shown = " ".join(
        f"{k}={v}" for k, v in ((DEBUG if run.debug else {}) | run.environment).items()
    )
    binding = f" cpus={[sorted(c) for c in run.cpus]}" if run.cpus else ""
    path = out / f"{run.name}.log"
    with path.open("wb") as stream:
        stream.write(
            f"$ {shown} torch_collectives.py --ranks {run.ranks} {' '.join(run.arguments)}"
            f"{binding}\n".encode()
        )
        stream.flush()
        busy = None
        if run.busy_gpu is not None:
            gpu = run.busy_gpu
            busy = fork(os.open(os.devnull, os.O_WRONLY), lambda: load(gpu, 60))
            time.sleep(4)
        if run.show_load:
            subprocess.run(["nvidia-smi"], stdout=stream.fileno(), check=False)
        appending = os.open(path, os.O_WRONLY | os.O_APPEND)
        children = {
            fork(appending, lambda rank=rank: rank_body(run, rank, port, out)): rank
            for rank in range(run.started or run.ranks)
        }
        status = wait(children, run)
        if busy:
            os.kill(busy, signal.SIGKILL)
            os.waitpid(busy, 0)
        os.write(appending, f"exit_status={status}\n".encode())
        os.close(appending)


def wait(children: dict[int, int], run: Run) -> int:
    """The first status that is not 0; 124 when the limit was reached, as timeout(1) has it."""
    status, stop = 0, time.monotonic() + run.limit_s
    kill_at = time.monotonic() + 8
    victim = next((child for child, rank in children.items() if rank == run.kill_rank), None)
    while children and time.monotonic() < stop:
        for child in list(children):
            done, code = os.waitpid(child, os.WNOHANG)
            if not done:
                continue
            del children[child]
            code = os.waitstatus_to_exitcode(code)
            status = status or (128 - code if code < 0 else code)
            if code:  # a launcher gives the others a moment and ends them
                stop = min(stop, time.monotonic() + 5)
        if victim in children and time.monotonic() > kill_at:
            os.kill(victim, signal.SIGKILL)
        time.sleep(0.02)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return (status or 124) if children else status


def main() -> int:
    """Every run, or those whose names are given after the directory."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    wanted = set(sys.argv[2:])
    for index, run in enumerate(RUNS):
        if wanted and run.name not in wanted:
            continue
        begin = time.monotonic()
        record(run, 29600 + index, out)
        print(f"{run.name}: {time.monotonic() - begin:.1f} s", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
