# SPDX-License-Identifier: MIT
"""Accept four nodes of the lab again and again: healthy, with a slow link, and killed on the way.

``python -m tests.bench.certify_lab DIR [--healthy N] [--slow N] [--kills N] [--seed S]`` needs
root and what ``ci/lab/install.sh`` installs, and takes one to three minutes a trial. DIR is empty.

- healthy: the record of a fleet without a fault is granted.
- slow: the link of one random node has 60 % of its rate. The record is refused and names the node;
  after the repair only what concerns this node runs again, sweeps with good partners, and the
  record is granted and tells what happened to the node.
- kills: SIGKILL to the command at a random moment. The same command goes on, keeps every run that
  had ended as it is, and leaves a record with each run once.

Every record must support its verdict. One line for each trial; the exit status is 1 after a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from busbar.terminal import stdout
from tests.lab import fleet as lab
from tests.lab.common import LAB, ROOT

NODES = lab.NODES[:4]
RATE = 80
"""Mbit/s of a good link: little enough for two cores that play all nodes and do other work."""
GOOD = 0.85 * RATE / 8000
"""GB/s of payload that a good link carries; a sweep wants 90 % of it."""
SHARE = 0.6
"""Of its rate, what a slow link has."""
CONTRACT = f"""\
site: {{site}}
clauses:
  - require: gate
  - {{{{require: sweep, times: 2, at_least: {GOOD} GB/s}}}}
  - {{{{require: same, facts: {{{{kernel: ""}}}}}}}}
"""
WHOLE = ["begun", "gate", "sweep", "sweep", "check"]


class FourNodes(lab.Fleet):
    """Nodes on one leaf switch."""

    def heal(self) -> None:
        """Give every link its rate."""
        for node in NODES:
            self.shape(node, RATE)


class Trial:
    """One record of the fleet."""

    def __init__(self, fleet: lab.Fleet, directory: Path) -> None:
        self.fleet, self.record = fleet, directory / "record"
        directory.mkdir()
        self.contract = directory / "contract.yaml"
        self.contract.write_text(CONTRACT.format(site=fleet.directory / "fleet"))

    def start(self, *options: object) -> subprocess.Popen[str]:
        """Start the command on the head."""
        run = ("run", "--json", "--contract", self.contract, "--output", self.record, *options)
        return self._popen(*run)

    def run(self, *options: object) -> tuple[int, dict[str, Any]]:
        """Run it to its end: exit status and predicate; exit status 2 has none."""
        process = self.start(*options)
        text, errors = process.communicate(timeout=900)
        return process.returncode, json.loads(text)["predicate"] if text else {"sentence": errors}

    def verified(self) -> bool:
        """Whether the record, which is not signed, supports its verdict."""
        process = self._popen("verify", self.record)
        process.communicate(timeout=300)
        return process.returncode == 3

    def _popen(self, *words: object) -> subprocess.Popen[str]:
        command = (LAB / "run", self.fleet.lab, sys.executable, "-m", "busbar", "certify", *words)
        return subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    @property
    def files(self) -> list[Path]:
        """The documents of the runs that have ended."""
        return sorted(self.record.glob("runs/*/run.json"))

    @property
    def works(self) -> list[tuple[str, tuple[str, ...]]]:
        """Kind and nodes of each run."""
        runs = [json.loads(file.read_text()) for file in self.files]
        return [(run["kind"], tuple(run["nodes"])) for run in runs]


def healthy(trial: Trial, chance: random.Random) -> Iterator[str]:
    """Yield what is wrong with the acceptance of a fleet without a fault."""
    status, found = trial.run()
    if status or [kind for kind, _ in trial.works] != WHOLE:
        yield found["sentence"]


def slow(trial: Trial, chance: random.Random) -> Iterator[str]:
    """Yield what is wrong with a refusal, or with the repair after it."""
    node = chance.choice(NODES)
    trial.fleet.shape(node, int(RATE * SHARE))
    status, found = trial.run()
    trial.fleet.heal()
    named = {event["node"] for event in found.get("account", ())}
    if status != 1 or named != {node} or node not in found["sentence"]:
        yield f"{node} was slow: {found['sentence']}"
        return
    before = len(trial.works)
    status, found = trial.run("--repaired", node)
    if status or [event["node"] for event in found["account"]] != [node]:
        yield f"{node} was repaired: {found['sentence']}"
    again = trial.works[before:]
    if [kind for kind, _ in again] != ["repaired", *WHOLE[1:]]:
        yield f"after the repair of {node}: {again}"
    if {nodes for kind, nodes in again if kind in ("gate", "check")} != {(node,)}:
        yield f"repeated for others than {node}: {again}"


def killed(trial: Trial, chance: random.Random, whole_s: float) -> Iterator[str]:
    """Yield what a kill at a random moment did."""
    process = trial.start()
    time.sleep(chance.uniform(0.5, whole_s))
    trial.fleet.run("pkill", f"-{signal.SIGKILL.value}", "-o", "-f", "busbar certify run")
    process.communicate(timeout=60)
    before = {file: file.read_bytes() for file in trial.files}
    status, end = 2, time.monotonic() + 120
    while status == 2 and time.monotonic() < end:  # the last jobs of the killed one are ending
        status, found = trial.run()
    if status:
        yield f"exit status {status}: {found['sentence']}"
    if [kind for kind, _ in trial.works] != WHOLE:
        yield f"runs: {trial.works}"
    if lost := [str(file) for file, text in before.items() if file.read_bytes() != text]:
        yield f"changed: {lost}"
    stdout().line(f"  {len(before)} runs had ended")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    for name in ("healthy", "slow", "kills", "seed"):
        parser.add_argument(f"--{name}", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)  # noqa: S311 - a seeded choice
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the cluster is stopped, too
    site = lab.SITE.replace("nodes: 8", f"nodes: {len(NODES)}")
    with mock.patch.multiple(lab, NODES=NODES, SITE=site):
        fleet = FourNodes.start(args.directory, 1)
    wrong, whole_s = 0, 60.0
    try:
        kinds: list[tuple[str, int, Callable[..., Iterator[str]]]] = [
            ("healthy", args.healthy, healthy),
            ("slow", args.slow, slow),
            ("kills", args.kills, lambda t, c: killed(t, c, whole_s)),
        ]
        for name, count, judged in kinds:
            for number in range(count):
                trial = Trial(fleet, args.directory / f"{name}-{number}")
                begun = time.monotonic()
                faults = list(judged(trial, chance))
                took = time.monotonic() - begun
                whole_s = took if name == "healthy" else whole_s
                if not trial.verified():
                    faults.append("verify refuses the record")
                wrong += bool(faults)
                stdout().line(f"{name} {number}: {took:.0f} s: {'; '.join(faults) or 'right'}")
    finally:
        fleet.stop()
    stdout().line(f"{wrong} trials were wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
