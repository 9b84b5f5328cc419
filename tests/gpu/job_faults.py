# SPDX-License-Identifier: MIT
"""Jobs of PyTorch and NCCL with one fault each, observed by the collector of ``busbar job``.

``python3 -m tests.gpu.job_faults OUT [NAME...]`` runs them; ``--judge OUT`` judges what was kept.
Ranks are programs of their own, so that `/proc` shows their environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busbar.job.node.collect import documents

ROOT = Path(__file__).resolve().parents[2]
LOOK_S = 5.0
READY_S = 22.0
RANKS = 2


@dataclass(frozen=True)
class Case:
    """A job, and the cause that should be named."""

    name: str
    cause: str
    """Empty for a healthy job."""
    rank: int | None = None
    """The rank that should be named."""
    body: str = "train"
    environment: dict[str, str] = field(default_factory=dict)
    cpus: str = ""
    foreign: bool = False
    recorder: bool = False
    """Whether to look once more, and ask PyTorch's flight recorder."""


CASES = (
    Case("mismatch", "collective-mismatch", body="mismatch", recorder=True),
    Case("healthy", "", recorder=True),
    Case("late_rank", "rank-late", 1, "late", recorder=True),
    Case("healthy_compute", "", body="compute"),
    Case("host_stall", "rank-late", 1, "loader"),
    Case("p2p_off", "nccl-p2p-off", environment={"NCCL_P2P_DISABLE": "1"}),
    Case("few_threads", "nccl-few-threads", environment={"NCCL_NTHREADS": "64"}),
    Case("foreign_process", "gpu-busy", 1, foreign=True),
    Case("one_core", "cpu-affinity", cpus="0"),
)


def rank_main(body: str, rank: int, progress: Path) -> None:
    """One rank: steps of a product and an all_reduce; from step 20 on, its fault."""
    import torch
    from torch import distributed

    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    distributed.init_process_group("nccl", rank=rank, world_size=RANKS)
    matrix = torch.ones(4096, 4096, device=device, dtype=torch.bfloat16)
    message = torch.ones(64 << 20, device=device)
    parts = torch.ones(RANKS * message.numel() // 64, device=device)
    counter = os.open(progress, os.O_RDWR | os.O_CREAT)
    step = 0
    while True:
        step += 1
        odd = rank == 1 and step > 20
        if odd and body == "late":
            time.sleep(120)
        if odd and body == "loader":
            with subprocess.Popen(["sleep", "120"], stdout=subprocess.PIPE) as worker:
                worker.communicate()
        for _ in range(20 if body == "compute" else 4):
            matrix @ matrix
        if odd and body == "mismatch":
            distributed.all_gather_into_tensor(parts, parts[: parts.numel() // RANKS])
        elif body != "compute":
            distributed.all_reduce(message)
        torch.cuda.synchronize()
        if not rank:
            os.pwrite(counter, step.to_bytes(8, "little"), 0)


def foreign_main() -> None:
    """A program of somebody else on GPU 1."""
    import torch

    torch.cuda.set_device(1)
    matrix = torch.ones(8192, 8192, device="cuda", dtype=torch.bfloat16)
    while True:
        for _ in range(20):
            matrix @ matrix
        torch.cuda.synchronize()


def steps(progress: Path) -> int:
    """Return how many steps rank 0 has done."""
    try:
        return int.from_bytes(progress.read_bytes(), "little")
    except OSError:
        return 0


def start(case: Case, port: int, progress: Path, log: Any) -> list[subprocess.Popen[bytes]]:
    """Start the ranks, and the program of somebody else."""
    own = [sys.executable, "-m", "tests.gpu.job_faults"]
    pin = ["taskset", "-c", case.cpus] if case.cpus else []
    running = []
    for rank in range(RANKS):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        if case.recorder:
            place |= {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{progress}.pipe"}
            place |= {"TORCH_FR_DUMP_TEMP_FILE": f"{progress}.dump"}
            place |= {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{progress}.dump"}
            place |= {"TORCH_NCCL_TRACE_BUFFER_SIZE": 2000}
        environment = os.environ | {k: str(v) for k, v in place.items()} | case.environment
        words = [*pin, *own, "--rank", case.body, str(rank), str(progress)]
        running.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log, cwd=ROOT))
    if case.foreign:
        running.append(subprocess.Popen([*own, "--foreign"], stdout=log, stderr=log, cwd=ROOT))
    return running


def look(pids: Sequence[int], *, recorder: bool = False) -> str:
    """Return the line that the collector prints."""
    asked = {"job": "", "pids": [*pids], "seconds": LOOK_S, "stacks": False, "recorder": recorder}
    words = [sys.executable, "-m", "busbar.job.node.collect", json.dumps(asked)]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=LOOK_S + 25, check=False, cwd=ROOT
    )
    sys.stderr.write(done.stderr)
    return documents(done.stdout)[0]


def observe(case: Case, port: int, out: Path) -> None:
    """Run a case and keep what the collector prints."""
    progress = out / f"{case.name}.steps"
    with (out / f"{case.name}.log").open("wb") as log:
        running = start(case, port, progress, log)
        try:
            stop = time.monotonic() + READY_S
            while steps(progress) < 19 and time.monotonic() < stop:
                time.sleep(0.2)
            time.sleep(6 if case.foreign else 1.5)
            begin = time.monotonic()
            line = look([each.pid for each in running[:RANKS]])
            (out / f"{case.name}.json").write_text(line + "\n")
            shown = f"{case.name}: observed in {time.monotonic() - begin:.1f} s"
            sys.stdout.write(f"{shown} at step {steps(progress)}\n")
            sys.stdout.flush()
            if case.recorder:
                line = look([each.pid for each in running[:RANKS]], recorder=True)
                (out / f"{case.name}.recorder.json").write_text(line + "\n")
            if case.name == "healthy":
                paired(progress, [each.pid for each in running[:RANKS]], out)
        finally:
            for each in running:
                each.send_signal(signal.SIGKILL)
                each.wait()


def paired(progress: Path, pids: Sequence[int], out: Path) -> None:
    """Compare the steps per second with and without a look, in turns."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for looked in (False, True) * 3:
        at, begin = steps(progress), time.monotonic()
        if looked:
            look(pids)
        else:
            time.sleep(LOOK_S + 0.3)
        rates[looked].append((steps(progress) - at) / (time.monotonic() - begin))
    (out / "paired.json").write_text(json.dumps({"without": rates[False], "with": rates[True]}))


def judged(out: Path) -> str:
    """Return the table of what was kept."""
    try:
        from busbar.job.judge import judge
        from busbar.job.sample import read_sample
    except ImportError as error:
        return f"not judged here: {error}\n"
    rows, named, healthy = [], 0, 0
    for case, end in ((case, end) for case in CASES for end in ("", ".recorder")):
        path = out / f"{case.name}{end}.json"
        if not path.exists():
            continue
        lines = [row for row in path.read_text().splitlines() if row[:1] == "{"]
        answer = judge("", [read_sample(row) for row in lines])
        causes = [each.id for each in answer.causes]
        ranks = [n for each in answer.causes[:1] for n in each.details["ranks"]]
        right = causes[:1] == ([case.cause] if case.cause else [])
        right = right and (case.rank is None or ranks == [case.rank])
        named += right and bool(case.cause) and not end
        healthy += bool(causes) and not case.cause and not end
        mark = "right" if right else "WRONG"
        rows.append(f"{case.name + end:18} {mark}  {answer.verdict}: {answer.headline}  {causes}")
        rows.append(f"{'':18} collector: {answer.collector_cpu_s} s; {answer.unseen}")
    wanted = sum(bool(case.cause) for case in CASES)
    rows.append(f"{named} of {wanted} faults named, {healthy} healthy jobs accused")
    if (out / "paired.json").exists():
        rows.append(f"steps per second: {(out / 'paired.json').read_text()}")
    return "\n".join(rows) + "\n"


def main() -> int:
    """Run the cases, or a part of one."""
    match sys.argv[1:]:
        case "--rank", body, rank, progress:
            rank_main(body, int(rank), Path(progress))
        case "--foreign", *_:
            foreign_main()
        case "--judge", out:
            sys.stdout.write(judged(Path(out)))
        case out, *names:
            for number, each in enumerate(CASES):
                if not names or each.name in names:
                    observe(each, 29700 + number, Path(out))
            (Path(out) / "table.txt").write_text(judged(Path(out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
