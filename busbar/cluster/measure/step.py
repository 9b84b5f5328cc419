# SPDX-License-Identifier: MIT
"""One step of Slurm: the pair program on many nodes, which takes orders while it lives."""

from __future__ import annotations

import os
import queue
import secrets
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from busbar.cluster.measure.program import Program
from busbar.engine.launch import NONCE
from busbar.engine.own_programs import latest_version
from busbar.parse import numbers
from busbar.slurm.steps import kill_step


@dataclass(frozen=True)
class PairStart:
    """A rank before MPI starts."""

    node: str
    rail: int
    step: int
    nonce: str
    version: str = ""


@dataclass(frozen=True)
class PairRank:
    """A rank that takes orders."""

    rank: int
    node: str
    rail: int
    device: str


@dataclass(frozen=True)
class PairRate:
    """What arrived at one end of a pair in one pass."""

    pass_number: int
    rank: int
    partner: int
    gb_per_s: FiniteFloat
    wrong: int
    """Bytes."""
    lost: str
    """Why the pass did not come to its end; empty if it did."""
    clock_ratio: FiniteFloat = 1
    """Seconds by the clock that gave the rate, per second of the kernel's clock."""
    segments: int = 0
    """What TCP of the node sent in this time, and what of it again."""
    resent: int = 0


@dataclass(frozen=True)
class ProgramError:
    """Why a rank ended."""

    rank: int
    text: str


Event = PairStart | PairRank | PairRate | ProgramError
_NAMES = {"start": PairStart, "rank": PairRank, "pair": PairRate, "error": ProgramError}
_ADAPTERS: dict[str, TypeAdapter[Event]] = {
    name: TypeAdapter(kind) for name, kind in _NAMES.items()
}


def parse_event(line: str) -> Event | None:
    """Return the event of a line; None if it is something else, as MPI prints messages too."""
    if not line.startswith("{"):
        return None
    try:
        value: Any = numbers.load_json(line)
    except ValueError:  # a message of MPI that begins with a brace
        return None
    if not isinstance(value, dict) or str(value.get("event")) not in _ADAPTERS:
        return None
    value = {"pass_number": value.get("pass"), **value}
    try:
        return _ADAPTERS[value["event"]].validate_python(value)
    except ValidationError:  # not of our program, which writes all keys
        return None


_VERSION = latest_version("sweep")
_LONGEST_LINE = 1 << 16
_QUIT_S = 10
_KILL_S = 5
ALL_RAILS = -1


class PairStep:
    """A running step. Its methods return at their deadline, whatever the nodes do."""

    def __init__(
        self, program: Program, nodes: Sequence[str], log: Path, *, few_cpus: bool, patience: float
    ) -> None:
        self.requested = tuple(nodes)
        self.started: set[str] = set()
        """Nodes whose ranks have started, perhaps without MPI."""
        self.errors: list[str] = []
        """What ranks gave as the reason of their end."""
        self.ended = False
        self._program = program
        self._ranks: dict[int, PairRank] = {}
        self._nonce = secrets.token_hex(8)
        self._number: int | None = None
        self._passes = 0
        self._lines: queue.Queue[str | None] = queue.Queue()
        script = program.script(nodes, few_cpus, patience)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["bash", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="backslashreplace",
                env=os.environ | {NONCE: self._nonce},
            )
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for_ranks(self, deadline: float) -> bool:
        """Return whether all ranks take orders before the deadline."""
        while len(self._ranks) < len(self.requested) * len(self._program.rails):
            if self._next(deadline) is None:
                return False
        return True

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose ranks all take orders."""
        count = Counter(rank.node for rank in self._ranks.values())
        return tuple(node for node, ranks in count.items() if ranks == len(self._program.rails))

    def pair_up(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Set the pairs of the passes that follow."""
        rails = len(self._program.rails)
        index = {rank.node: rank.rank // rails for rank in self._ranks.values()}
        words = (f"{index[a]}:{index[b]}" for a, b in pairs)
        self._order(f"pairs {' '.join(words)}")

    def measure(
        self, expected: set[tuple[str, int]], rail: int, seconds: float, grace: float
    ) -> dict[tuple[str, int], PairRate]:
        """Measure one pass; return the answers by node and rail, none of the ranks that hang."""
        self._passes += 1
        answers: dict[tuple[str, int], PairRate] = {}
        self._order(f"pass {self._passes} {rail} {seconds}")
        deadline = time.monotonic() + seconds + grace
        while expected - answers.keys():
            event = self._next(deadline)
            if event is None:
                break
            if isinstance(event, PairRate) and event.pass_number == self._passes:
                rank = self._ranks.get(event.rank)
                if rank and (rank.node, rank.rail) in expected:
                    answers[rank.node, rank.rail] = event
        return answers

    def close(self, *, kill: bool = False) -> None:
        """End the step; kill it if it does not end on its own or ``kill`` is true."""
        if not kill:
            self._order("quit")
            with suppress(OSError):  # the step has ended, and nobody reads what is left
                if self._process.stdin:
                    self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # it is killed below
                self._process.wait(_QUIT_S)
        if self._process.poll() is None:
            if self._number is not None:
                kill_step(self._number)
            with suppress(subprocess.TimeoutExpired):  # Slurm did not end it; srun may
                self._process.wait(_KILL_S)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):  # srun hangs
                self._process.wait(_KILL_S)
            self._process.kill()
            self._process.wait()
        self.ended = True

    def _order(self, line: str) -> None:
        try:
            if self._process.stdin:
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()
        except (OSError, ValueError):  # the step has ended; its last lines say why
            self.ended = True

    def _next(self, deadline: float) -> Event | None:
        """Return the next event; None after the deadline or the end of the step."""
        while not self.ended:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:  # the deadline
                return None
            if line is None:
                self.ended = True
                return None
            event = parse_event(line)
            if event is not None:
                self._remember(event)
                return event
        return None

    def _remember(self, event: Event) -> None:
        match event:
            case PairStart() if event.nonce == self._nonce and event.version != _VERSION:
                self.errors.append(f"another version of sweep ran, not {_VERSION}")
            case PairStart() if event.nonce == self._nonce:
                self.started.add(event.node)
                self._number = event.step
            case PairRank() if event.node in self.started:
                self._ranks[event.rank] = event
            case ProgramError():
                self.errors.append(event.text)
            case _:
                pass

    def _read(self) -> None:
        stream = self._process.stdout
        while stream and (line := stream.readline(_LONGEST_LINE)):
            self._lines.put(line)
        self._lines.put(None)
