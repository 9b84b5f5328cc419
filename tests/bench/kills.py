# SPDX-License-Identifier: MIT
"""Kill commands at random moments, resume them, and compare with what they must have.

``python -m tests.bench.kills COUNT [--seed N] [KIND...]`` kills each of these kinds so often, with
SIGKILL, SIGTERM or SIGINT to the command or to its group, or with SIGKILL to one of its children
as the kernel does when memory runs out, at a moment between its start and its end. It takes about
three seconds a kill. Several kills hit one work before it is resumed to its end, or until a child
was killed, of which the command itself makes a result.

- import: ``busbar history import`` of 20,000 readings and of results. After each kill the history
  has all or none of a file, in the end each reading once.
- check: ``busbar check`` of the memory of this machine. What a killed run leaves is not ``pass``,
  and the history has its readings once.
- nightly: ``busbar nightly`` with the recorded stages of ``tests/cluster/test_nightly.py``. A
  finished stage does not run again, and the night ends as one that nobody killed.
- sweep: ``busbar sweep run`` in a job of Slurm whose ``srun`` plays the pair program. Rows that
  were written stay, and each pair of the plan has one in the end.

Slurm is played by programs of the same names; ``tests/lab`` ends sweeps and nights of a real one.
No process may be left 60 seconds after a kill. The exit status is 1 after a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busbar.boundary import read_text
from busbar.engine.own_programs import latest_version
from busbar.history.read import history, read_series
from busbar.terminal import stdout
from tests.cluster import test_nightly as night
from tests.files import executable, written

ROOT = Path(__file__).resolve().parents[2]
MARK = "BUSBAR_KILLS"
ENDS_S = 60.0
READINGS, LEFT = 20_000, 500
OF_MEMORY = 2
NODES = 6
FLEET = """\
name: fleet
description: what the programs of kills.py play
family: generic
scheduler: slurm
partitions:
  - {name: lab, node_type: node, nodes: 6}
node_types:
  node: {cores: 2}
deliveries:
  - {kind: wheels, stack: host}
"""
SRUN = """\
import json, os, re, sys, time
if sys.argv[2:] == ["--mpi=list"]:
    sys.exit(print("pmix"))
(first, last), = re.findall(r"--nodelist=n\\[(.)-(.)]", " ".join(sys.argv))
nodes = [f"n{number}" for number in range(int(first), int(last) + 1)]
if "sh" in sys.argv:
    sys.exit(print(*nodes))
def say(event, **keys):
    print(json.dumps({"event": event, "rail": 0} | keys), flush=True)
for rank, node in enumerate(nodes):
    say("start", node=node, step=1, nonce=os.environ["BUSBAR_NONCE"],
        version=sys.argv[1])
    say("rank", rank=rank, node=node, device="")
pairs = ends = []
for line in sys.stdin:
    kind, *words = line.split()
    if kind == "quit":
        break
    if kind == "pairs":
        pairs = [tuple(map(int, word.split(":"))) for word in words]
        ends = pairs + [pair[::-1] for pair in pairs]
    if kind == "rails":
        ends = [(rank, rank) for rank in range(len(nodes))]
    if kind == "pass":
        time.sleep(0.3)  # words[2] is the most that it may take
        for rank, partner in ends:
            say("pair", **{"pass": int(words[0])}, rank=rank, partner=partner, gb_per_s=1.0,
                wrong=0, lost="")
"""
SLURM = {
    "srun": f"exec {sys.executable} -ISc '{SRUN}' {latest_version('sweep')} \"$@\"",
    "sinfo": 'for n in 1 2 3 4 5 6; do echo "n$n|idle|none"; done',
    "scontrol": (
        'case "$*" in *job*) echo "JobId=7 JobName=x JobState=RUNNING ExitCode=0:0'
        ' Partition=lab NodeList=n[1-6]" ;; *hostnames*) for n in 1 2 3 4 5 6; do echo n$n; done'
        " ;; *) exit 1 ;; esac"
    ),
}
STAGE_S = 0.2
"""What a recorded stage of a night takes."""


@dataclass
class Work:
    """Something that a command does, perhaps in several attempts, in a directory of its own."""

    directory: Path
    variables: dict[str, str] = field(default_factory=dict)
    is_spoilt: bool = False
    """Whether a child was killed: the command goes on, and may end with any result."""

    def set_up(self) -> None:
        """Write what the command needs."""

    def command(self) -> Sequence[object]:
        """Return the words of the next attempt."""
        raise NotImplementedError

    def after_kill(self) -> str:
        """Return what is wrong with what a killed attempt left; empty if nothing is."""
        return ""

    def at_end(self) -> str:
        """Return what is wrong after an attempt that came to its end; empty if nothing is."""
        raise NotImplementedError

    def start(self) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [*map(str, self.command())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | {MARK: str(self.directory)} | self.variables,
                start_new_session=True,
            )

    def left(self) -> dict[int, str]:
        """Return the command lines of its processes, by their number."""
        mark = f"{MARK}={self.directory}".encode()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(process.name)] = line
            except OSError:
                continue
        return found


def counted(directory: Path) -> int:
    """Return the readings that the history has, which must be whole."""
    if not directory.exists():
        return 0
    with history(directory) as store:
        read_series(store)
        (count,) = store.connection.execute("SELECT count(*) FROM reading").fetchone()
        return int(count)


BUSBAR = (sys.executable, "-P", "-m", "busbar")


class Import(Work):
    """Of a file of lines and of the results of a run."""

    def set_up(self) -> None:
        line = '{"time": %d, "site": "a", "metric": "m%d", "unit": "GB/s", "value": 1.5}\n'
        lines = (line % (1.7e9 + n // 50 * 86400, n % 50) for n in range(READINGS))
        (self.directory / "lines").write_text("".join(lines))
        row = {"check": "c", "verdict": "unjudged", "metric": "bandwidth", "gb_per_s": 1.0}
        results = [row | {"bytes": 8 + n} for n in range(LEFT)]
        document = {"schema": "busbar-check/1", "site": "a", "time": "2026-11-22T03:12:00+00:00"}
        document |= {"verdict": "unjudged", "results": results}
        (self.directory / "results.json").write_text(json.dumps(document))
        self.variables["BUSBAR_HISTORY"] = str(self.directory / "history")

    def command(self) -> Sequence[object]:
        files = (self.directory / "lines", self.directory / "results.json")
        return (*BUSBAR, "history", "import", *files)

    def after_kill(self) -> str:
        count = counted(self.directory / "history")
        return "" if count in (0, READINGS, READINGS + LEFT) else f"{count} readings"

    def at_end(self) -> str:
        count = counted(self.directory / "history")
        return "" if count == READINGS + LEFT else f"{count} readings"


class Check(Work):
    """Each attempt is a run of its own; all of them share the history."""

    known = 0
    """The readings of the history before this attempt."""

    def set_up(self) -> None:
        self.variables["BUSBAR_HISTORY"] = str(self.directory / "history")

    def command(self) -> Sequence[object]:
        shutil.rmtree(self.directory / "out", ignore_errors=True)
        # An attempt may have ended before its kill: the history has its readings as well.
        self.known = counted(self.directory / "history")
        return (*BUSBAR, "check", "--site=local", "-n^memory", "--output", self.directory / "out")

    def _document(self) -> dict[str, Any]:
        results = self.directory / "out" / "results.json"
        return json.loads(read_text(results, 2**26)) if results.exists() else {}

    def _imported(self, document: Mapping[str, Any]) -> str:
        """Return what is wrong with the history after two imports of the results."""
        rows = [row for row in document.get("results", ()) if row.get("gb_per_s")]
        file = self.directory / "out" / "results.json"
        done = []
        for _ in range(2 if rows else 0):
            words = [*BUSBAR, "history", "import", file]
            done.append(
                subprocess.run(
                    words, env=os.environ | self.variables, check=False, capture_output=True
                ).returncode
            )
        count = counted(self.directory / "history") - self.known
        # ReFrame has stored a run that was killed before it wrote its document.
        stored = () if document else (OF_MEMORY,)
        wrong = count not in (len(rows), *stored) or any(done)
        return f"{count} readings in the history, {len(rows)} in the results {done}" * wrong

    def after_kill(self) -> str:
        document = self._document()
        rows = sum(bool(row["gb_per_s"]) for row in document.get("results", ()))
        whole = rows == OF_MEMORY and not document["interrupted"]
        if document and document["verdict"] == "pass" and not whole:
            return f"a pass of {rows} readings, interrupted: {document['interrupted']}"
        return self._imported(document)

    def at_end(self) -> str:
        document = self._document()
        rows = sum(bool(row["gb_per_s"]) for row in document.get("results", ()))
        if rows != OF_MEMORY or document["interrupted"]:
            return f"{rows} readings, {document.get('interrupted')}"
        return self._imported(document)


class Nightly(Work):
    """With recorded stages, as those of the tests."""

    def set_up(self) -> None:
        data = self.directory / "data"
        for name, script in night.TOOLS.items():
            executable(data / name, f"data=${{0%/*}}\n{script}")
        (data / "queue").touch()
        (data / "job").write_text("7\n")
        stages = night.Stages(data, self.directory / "nights", None)  # type: ignore[arg-type]
        stages.before("sbatch", "")
        for node in night.NODES:
            stages.gate(node)
        stages.sweep()
        stages.check("check")
        stages.check("sample")
        for name in ("sweep", "check", "sample"):
            stages.before(name, f"sleep {STAGE_S}")
        self.variables |= {"PATH": f"{data}:{os.environ['PATH']}", "SLURM_JOB_ID": ""}
        self.finished: set[str] = set()

    def command(self) -> Sequence[object]:
        (self.directory / "data" / "calls").unlink(missing_ok=True)
        own = f"data.OWN = ({str(self.directory / 'data' / 'stage')!r},)"
        code = f"import sys; from busbar import data; {own}; from busbar.cli import main; "
        words = ["nightly", "--site=h20-roce", "--output", self.directory / "nights"]
        resume = ["--resume"] if self._nights() else []
        return (sys.executable, "-P", "-c", f"{code}sys.exit(main())", *words, *resume)

    def _nights(self) -> list[Path]:
        return sorted((self.directory / "nights").glob("*/night.json"))

    def _state(self) -> dict[str, str]:
        """Return the verdicts of the stages that have finished."""
        if not self._nights():
            return {}
        (file,) = self._nights()
        return {
            e["name"]: e["verdict"]
            for e in json.loads(file.read_text())["stages"]
            if e["finished"]
        }

    def after_kill(self) -> str:
        calls = self.directory / "data" / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else ()
        names = [self._stage(line) for line in lines]
        state = self._state()
        lost, again = self.finished - state.keys(), self.finished & {*names}
        self.finished = {*state}
        wrong = [n for n, verdict in state.items() if verdict != "pass" and not self.is_spoilt]
        return f"lost {lost}, again {again}, not pass {wrong}" * bool(lost or again or wrong)

    @staticmethod
    def _stage(line: str) -> str:
        return "sample" if "--tag=nightly" in line else line.partition(" ")[0]

    def at_end(self) -> str:
        wrong = self.after_kill()
        names = {"gate", "sweep", "check", "sample"}
        return wrong or f"only {self.finished}" * (self.finished != names)


class Sweep(Work):
    """In a job of six nodes, with five rounds."""

    def set_up(self) -> None:
        for name, script in SLURM.items():
            executable(self.directory / "data" / name, script)
        compiler = executable(
            self.directory / "data" / "cxx", 'while [ "$1" != -o ]; do shift; done; touch "$2"'
        )
        written(self.directory / "fleet" / "site.yaml", FLEET)
        shutil.copy(ROOT / "site/local/reframe.py", self.directory / "fleet")
        path = f"{self.directory / 'data'}:{os.environ['PATH']}"
        self.variables |= {"PATH": path, "SLURM_JOB_ID": "7", "OMPI_CXX": str(compiler)}
        self.rows: set[str] = set()

    def command(self) -> Sequence[object]:
        output = self.directory / "out"
        options = ("--rounds=5", "--seconds=0.05", "--limit=1", "--output", output)
        resume = ["--resume"] if (output / "plan.jsonl").exists() else []
        return (*BUSBAR, "sweep", "run", "--site", self.directory / "fleet", *options, *resume)

    def _rows(self) -> list[str]:
        file = self.directory / "out" / "results.jsonl"
        text = file.read_text() if file.exists() else ""
        return [line for line in text.split("\n")[:-1] if '"skipped"' not in line]

    def after_kill(self) -> str:
        rows = self._rows()
        lost = self.rows - {*rows}
        self.rows = {*rows}
        keys = [
            (row["round"], row["a"], row["b"], row.get("nic")) for row in map(json.loads, rows)
        ]
        twice = [key for key, count in Counter(keys).items() if count > 1]
        return f"lost {lost}, twice {twice}" * bool(lost or twice)

    def at_end(self) -> str:
        wrong = self.after_kill()
        between = [
            row for row in map(json.loads, self.rows) if row["round"] and row["state"] == "ok"
        ]
        most = 5 * NODES // 2
        return wrong or f"{len(between)} of {most} pairs" * (len(between) < most)


KINDS: Mapping[str, Callable[[Path], Work]] = {
    "import": Import,
    "check": Check,
    "nightly": Nightly,
    "sweep": Sweep,
}
MOST_KILLS = 6
"""Of one work before it is resumed to its end."""


@dataclass
class Kills:
    """The kills of one kind."""

    kind: str
    chance: random.Random
    usual_s: float = 0.0
    """What an attempt takes that nobody kills."""
    done: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    """Between a signal and the end of the last process."""
    failures: list[str] = field(default_factory=list)

    def work(self, most: int) -> None:
        """Kill one work up to ``most`` times, then resume it to its end."""
        directory = Path(tempfile.mkdtemp(prefix=f"busbar-kills-{self.kind}-"))
        work = KINDS[self.kind](directory)
        work.set_up()
        failures = len(self.failures)
        for _ in range(most):
            if not self._kill(work):
                break
        if not work.is_spoilt:
            begun = time.monotonic()
            work.start().wait(600)
            self.usual_s = max(self.usual_s, time.monotonic() - begun)
            self._expect(work, work.at_end(), "at the end")
        if failures == len(self.failures):
            shutil.rmtree(directory)

    def _kill(self, work: Work) -> bool:
        """Kill an attempt; return False if it ended before."""
        process = work.start()
        number = self.chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        how = self.chance.choice(("command", "group", "child"))
        try:
            process.wait(self.chance.uniform(0.05, 1) * self.usual_s)
            return False
        except subprocess.TimeoutExpired:
            children = sorted(work.left().keys() - {process.pid}) if how == "child" else []
        if children:
            number = signal.SIGKILL
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(children), number)
            work.is_spoilt = True
        else:
            how = "group" if how == "group" else "command"
            (os.killpg if how == "group" else os.kill)(process.pid, number)
        begun = time.monotonic()
        self.kinds[f"{how} {number.name}"] += 1
        while process.poll() is None or work.left():
            if time.monotonic() - begun > ENDS_S:
                self._expect(work, f"left: {work.left()}", f"{how} {number.name}")
                return False
            time.sleep(0.02)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        self.done += 1
        self._expect(work, work.after_kill(), f"after kill {self.done}, {how} {number.name}")
        return not work.is_spoilt

    def _expect(self, work: Work, wrong: str, when: str) -> None:
        if wrong:
            self.failures.append(f"{work.directory}: {when}: {wrong}")
            stdout().line(self.failures[-1])


def main() -> int:
    """Run what the command line names; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failed = False
    for kind in args.kinds or KINDS:
        kills = Kills(kind, random.Random(f"{kind} {args.seed}"))  # noqa: S311 - no secret
        kills.work(0)  # shows what it takes
        while kills.done < args.count and len(kills.failures) < 5:
            kills.work(min(kills.chance.randint(1, MOST_KILLS), args.count - kills.done))
        failed |= bool(kills.failures)
        stdout().line(
            f"{kind}: {kills.done} kills, {len(kills.failures)} failures, gone after at most"
            f" {kills.slowest_s:.1f} s (seed {args.seed}): {dict(kills.kinds)}"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
