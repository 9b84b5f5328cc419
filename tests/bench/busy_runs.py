# SPDX-License-Identifier: MIT
"""Runs ``busbar check --site local`` beside other programs; prints the verdicts under each load.

``busy_runs.py [--runs N] [--loads spin,compile] DIR``. Under no load may a run be degraded or
failed, and a run whose data is forced through TCP may not pass. The results of every run are kept
in DIR; runs that are there already count and are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from busbar.delivery.reframe import configuration
from busbar.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "reframe_checks" / "src"
BIN = Path(sys.executable).parent
CHECK = [sys.executable, "-m", "busbar", "check", "--site", "local"]
BAD = (Verdict.DEGRADED, Verdict.IMPOSSIBLE, Verdict.FAILED)
SPIN = "while True: pass"
STREAM = """
import numpy
a, b = numpy.ones(1 << 25), numpy.ones(1 << 25)
while True: numpy.copyto(a, b)
"""
WRITE = """
import os, sys
block = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(256):
            file.write(block)
            os.fsync(file.fileno())
"""


def python(script: str, *arguments: str) -> list[str]:
    """Return the command of a small program."""
    return [sys.executable, "-c", script, *arguments]


def again(*command: str | Path) -> list[str]:
    """Return a command that runs another one without end."""
    return ["sh", "-c", 'while :; do "$@"; sleep 0.1; done', "sh", *map(str, command)]


def loads(directory: Path) -> dict[str, list[list[str]]]:
    """Return the programs of each load; they write below ``directory``."""
    compiler = [BIN / "mpic++", "-O2", "-std=c++17", "-c", SOURCES / "gpu_aware.cpp", "-o"]
    exports = configuration(ROOT / "site" / "local")["environments"][0]["env_vars"]
    settings = " ".join(f"{name}={value}" for name, value in exports)
    program = directory / "gpu_aware"
    link = [BIN / "mpic++", "-O2", "-std=c++17", SOURCES / "gpu_aware.cpp", "-ldl", "-o", program]
    subprocess.run(link, check=True)
    job = f"export {settings}; exec mpirun -n 2 {program} --ranks=2 --sizes=64K,4M --copy"
    return {
        "none": [],
        "spin": [python(SPIN)] * 4 + [python(STREAM)] * 4,
        "compile": [again(*compiler, directory / f"{n}.o") for n in range(4)],
        "check": [again(*CHECK, "--output", directory / "check")],
        "mpi": [again("bash", "-c", job)],
        "disk": [python(WRITE, str(directory / f"{n}.bin")) for n in range(4)],
    }


@contextmanager
def beside(command: list[str]) -> Iterator[None]:
    """Run a program, and end it and its children."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as load:
        try:
            yield
        finally:
            os.killpg(load.pid, signal.SIGTERM)
            time.sleep(2)  # `busbar check` and mpirun end their own
            os.killpg(load.pid, signal.SIGKILL)


def verdict_of(output: Path, *options: str, **more: str) -> str:
    """Run the checks, unless they have run, and return the verdict."""
    if not (output / "results.json").exists():
        subprocess.run(
            [*CHECK, "--output", str(output), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | more,
            check=False,
        )
    try:
        document = json.loads((output / "results.json").read_text())
    except FileNotFoundError:
        return "none"
    return str(document["verdict"])


def show(name: str, found: Counter[str]) -> None:
    """Print one line of the table."""
    counts = "".join(f"{found[verdict]:11}" for verdict in Verdict)
    sys.stdout.write(f"{name:14}{found.total():6}{counts}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the table; exit status 1 if a run was accused, or passed by TCP."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, metavar="DIR")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--forced", type=int, default=2, help="runs of TCP beside each load")
    parser.add_argument("--loads", default="spin,compile,check,mpi,disk")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the loads end as well
    output = args.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    known = loads(output)
    wrong = 0
    sys.stdout.write(f"{'load':14}{'runs':>6}{''.join(f'{verdict:>11}' for verdict in Verdict)}\n")
    for name in args.loads.split(","):
        with ExitStack() as stack:
            for command in known[name]:
                stack.enter_context(beside(command))
            found = Counter(verdict_of(output / name / str(n)) for n in range(args.runs))
            show(name, found)
            forced = Counter(
                verdict_of(output / name / f"tcp-{n}", "-n", "link_matrix", UCX_TLS="tcp,self")
                for n in range(args.forced)
            )
            show(f"{name}, TCP", forced)
        wrong += sum(found[verdict] for verdict in (*BAD, "none")) + forced[Verdict.PASS]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
