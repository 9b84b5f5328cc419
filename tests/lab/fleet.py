# SPDX-License-Identifier: MIT
"""Eight nodes on leaf switches with links of one rate, and ``busbar sweep run`` on them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.said import ran

from .common import LAB, ROOT

NODES = tuple(f"n{number}" for number in range(1, 9))
RATE = 200
"""Mbit/s of a good link."""
SLOW = 5
"""A slow link has one part in so many."""
SITE = """\
name: fleet
description: eight nodes in the lab
family: generic
scheduler: slurm
partitions:
  - {{name: lab, node_type: node, nodes: 8}}
node_types:
  node: {{cores: 2, nics: [{nics}]}}
fabric: {{provider: tcp, rails: {rails}}}
deliveries:
  - {{kind: wheels, stack: host}}
"""


@dataclass(frozen=True)
class Fleet:
    """A running cluster of eight nodes with ``nics`` NICs each."""

    lab: Path
    directory: Path
    nics: int
    leaf: int = 4
    """Nodes of a leaf, whose uplink has the rate of their links."""

    @classmethod
    def start(cls, directory: Path, nics: int, leaf: int = 4) -> Fleet:
        """Start the cluster and shape all its links."""
        fleet = cls(directory / "cluster", directory, nics, leaf)
        words = ["-n", str(len(NODES)), "-g", "0", "-i", str(nics), "-l", str(leaf)]
        # Its processes must not keep a lock of the caller's.
        subprocess.run([LAB / "up", *words, fleet.lab], check=True, capture_output=True)
        fleet.heal()
        site = directory / "fleet"
        site.mkdir()
        shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
        names = ", ".join(f"{{name: eth{n}, class: eth-1g}}" for n in range(nics))
        (site / "site.yaml").write_text(SITE.format(nics=names, rails=nics))
        return fleet

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of the leaf switches."""
        return tuple(f"leaf{number + 1}" for number in range(len(NODES) // self.leaf))

    def stop(self) -> None:
        subprocess.run([LAB / "down", self.lab], check=True)

    def heal(self) -> None:
        """Give every link its rate."""
        for node in NODES:
            for nic in range(self.nics):
                self.shape(node, RATE, nic)
        for leaf in self.leaves:
            self.shape(leaf, self.leaf * RATE)

    def shape(self, name: str, mbit: int, nic: int = 0) -> None:
        words = [LAB / "shape", self.lab, name, f"{mbit}mbit", str(nic)]
        subprocess.run([str(word) for word in words], check=True)

    @contextmanager
    def slow(self, *links: tuple[str, int]) -> Iterator[None]:
        """Make links slow for a while: node or leaf, and NIC."""
        for name, nic in links:
            self.shape(name, RATE * (self.leaf if name in self.leaves else 1) // SLOW, nic)
        try:
            yield
        finally:
            self.heal()

    def run(self, *words: object, node: str = "") -> str:
        """Run a command on the head or on a node."""
        place = ["-n", node] if node else []
        command = [LAB / "run", *place, self.lab, *words]
        done = ran(*command)
        return done.stdout

    def sweep(self, output: Path, *options: object, rounds: int = 5, limit: bool = True) -> Sweep:
        """Start a sweep on the head; without a limit, nodes are compared with each other."""
        words: Sequence[object] = (
            *(LAB / "run", self.lab, sys.executable, "-m", "busbar", "sweep", "run", "--json"),
            *("--site", self.directory / "fleet", "--output", output, "--rounds", rounds),
            *(("--limit", RATE * self.nics / 8000, "--tolerance", "0.4") if limit else ()),
            *options,
        )
        process = subprocess.Popen(
            [str(word) for word in words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        return Sweep(self, process, output)


@dataclass
class Sweep:
    """A running sweep."""

    fleet: Fleet
    process: subprocess.Popen[str]
    output: Path

    def wait_for_rounds(self, count: int) -> None:
        """Wait until the file has results of so many rounds."""
        results = self.output / "results.jsonl"
        for _ in range(600):
            if len(self._rounds(results)) >= count or self.process.poll() is not None:
                return
            time.sleep(0.1)
        raise AssertionError(f"no {count} rounds in a minute")

    @staticmethod
    def _rounds(results: Path) -> set[int]:
        lines = results.read_text().splitlines() if results.exists() else []
        return {json.loads(line)["round"] for line in lines} - {0}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the sweep that runs on the head."""
        self.fleet.run("pkill", f"-{number.value}", "-o", "-f", "busbar sweep run")

    def ended(self, seconds: float = 200) -> tuple[int, dict[str, Any]]:
        """Return exit status and document."""
        try:
            text, errors = self.process.communicate(timeout=seconds)
        finally:
            self.process.kill()
        assert text, errors
        return self.process.returncode, json.loads(text)
