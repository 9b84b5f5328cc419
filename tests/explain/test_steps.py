# SPDX-License-Identifier: MIT
"""A benchmark and another program in one log: each is judged by its own lines."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from busbar.verdict import Verdict
from tests.cases import some

from .outputs import ids, steps, verdict
from .test_labels import DATA

BENCHMARKS = {
    name: DATA.joinpath("h200x4", f"{name}.log").read_text().splitlines()[1:]
    for name in ("nccl_no_debug", "nccl_healthy_a", "gpu_aware_healthy")
}
PROGRAMS = {
    "rank-died": [
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 88, in <module>',
        "    main()",
        "KeyError: 'input_ids'",
    ],
    "gpu-out-of-memory": [
        "epoch 3 step 100 loss 1.93",
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ],
    "peer-unreachable": [
        "gpu7:9001:9033 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
        "gpu7:9001:9033 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.7<0>",
        "gpu7:9001:9033 [0] NCCL WARN socketStartConnect: Connect to 10.0.0.8<41000> failed :"
        " Connection refused",
    ],
    "shm-too-small": [
        "gpu7:9001:9033 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space"
        " left on device"
    ],
}
Lines = list[str]


def mixed(one: Lines, other: Lines, before: str = "", before_other: str = "") -> Lines:
    """Both line by line, each with what a collector writes before it."""
    rank = random.Random(34)  # noqa: S311 - repeatable
    places = sorted(rank.randrange(len(one)) for _ in other)
    found, rest = [], list(other)
    for at, line in enumerate(one):
        while places and places[0] == at:
            places.pop(0)
            found.append(before_other + rest.pop(0))
        found.append(before + line)
    return found


FORMS: dict[str, Callable[[Lines, Lines], Lines]] = {
    "after": lambda one, other: [*one, *other],
    "before": lambda one, other: [*other, *one],
    "commands": lambda one, other: [
        *("$ mpirun -n 4 ./bench.sh", *one),
        *("$ srun -n 4 python train.py", *other),
    ],
    "commands, other order": lambda one, other: ["$ srun python train.py", *other, *one],
    "line by line": mixed,
    "compose": lambda one, other: mixed(one, other, "bench-1  | ", "train-1  | "),
    "pods": lambda one, other: mixed(
        one, other, "[pod/all-reduce-x7k2p/main] ", "[pod/llama-0/pt] "
    ),
    "hosts": lambda one, other: mixed(one, other, "nodea: ", "gpu7: "),
    "syslog": lambda one, other: mixed(
        one, other, "Nov 21 07:23:34 nodea slurm[11]: ", "Nov 21 07:23:34 gpu7 slurm[12]: "
    ),
}


def test_a_passing_and_a_failing_step() -> None:
    wrong = []
    every = itertools.product(BENCHMARKS.items(), PROGRAMS.items(), FORMS)
    for (name, one), (cause, other), form in some(every, 5):
        found = steps("\n".join(FORMS[form](one, other)) + "\n")
        measured = [each for each in found if each.readings]
        failed = ids(*(each for each in found if not each.readings))
        right = [each.verdict for each in measured] == [Verdict.PASS] and cause in failed
        if not right or not ids(*found) <= {cause, "nccl-socket-fallback"}:
            told = [(str(each.verdict), each.step, ids(each)) for each in found]
            wrong.append((form, name, cause, told))
    assert not wrong


def test_a_failure_without_an_owner_amid_a_benchmark_is_unjudged() -> None:
    """Its line has no process: nobody knows whether the benchmark survived it."""
    line = "init.cc:1247 NCCL WARN Mismatched collective detected, please check your calls"
    for one in BENCHMARKS.values():
        assert verdict("\n".join(mixed(one, [line])) + "\n") is Verdict.UNJUDGED
