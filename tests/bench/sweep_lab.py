# SPDX-License-Identifier: MIT
"""Sweep eight nodes on four leaves with random faults: ``python -m tests.bench.sweep_lab FILE``.

A trial is one sweep with its defaults, in the Slurm lab, whose links have 200 Mbit/s. FILE gets a
line for each; trials that it has are not run again, so that a batch can end after ``--minutes``.
At the end of each batch the sums of all trials in FILE are printed.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.fleet import NODES, RATE, Fleet

KINDS = ("rate", "one way", "loss", "flap", "leaf")
TRIALS = (*KINDS, "two", *(["none"] * 4))
"""In turn: six faults and four controls. 50 trials have 30 faults and 20 controls."""
_LOST = 0.01
_DOWN_S = 3
_ROUNDS = 7
_PAIRS = _ROUNDS * len(NODES) // 2


@dataclass(frozen=True)
class Fault:
    """What happens to a node or a leaf, and how a sweep must name it."""

    kind: str
    where: str
    share: float = 1.0
    """Of the rate that is left."""
    direction: str = ""
    after: float = 0.0
    """Share of the planned pairs that are measured before a link goes down."""

    def begin(self, fleet: Fleet, output: Path) -> Callable[[], object]:
        """Let it happen; return what ends it."""
        mbit = round(self.share * RATE * (fleet.leaf if self.kind == "leaf" else 1))
        if self.kind in ("rate", "leaf"):
            fleet.shape(self.where, mbit)
            return fleet.heal
        if self.kind == "one way":
            device, node = (
                ("eth0", self.where) if self.direction == "sending" else (self.where, "")
            )
            words = f"dev {device} root tbf rate {mbit}mbit burst 128kb latency 50ms"
            fleet.run("tc", "qdisc", "replace", *words.split(), node=node)
            return fleet.heal
        if self.kind == "loss":
            # A sender notices what it drops itself: what it sends is dropped where it arrives.
            sends = self.direction == "sending"
            at = [node for node in NODES if (node == self.where) != sends]
            source = f"-s 10.77.0.{self.where[1:]} " if sends else ""
            rule = f"{source}-i eth0 -m statistic --mode random --probability {_LOST} -j DROP"
            for node in at:
                fleet.run("iptables", "-A", "INPUT", *rule.split(), node=node)
            return lambda: [fleet.run("iptables", "-F", "INPUT", node=node) for node in at]
        down = threading.Thread(target=self._flap, args=(fleet, output))
        down.start()
        return down.join

    def _flap(self, fleet: Fleet, output: Path) -> None:
        end, rows = time.monotonic() + 120, output / "results.jsonl"
        before = 1 + round(self.after * (_PAIRS - 1))
        while time.monotonic() < end:
            if rows.exists() and len(rows.read_text().splitlines()) >= before:
                break
            time.sleep(0.02)
        fleet.run("ip", "link", "set", self.where, "down")
        time.sleep(_DOWN_S)
        fleet.run("ip", "link", "set", self.where, "up")

    @property
    def names(self) -> list[tuple[str, str, str]]:
        """What names it: id, kind of the fault and direction."""
        if self.kind in ("loss", "flap"):
            one = (f"{self.where}/eth0", "flap", "")
            return [one] if self.kind == "flap" else [(self.where, "loss", self.direction)]
        return [(self.where, "slow", self.direction)]


def faults_of(seed: int, trial: int) -> list[Fault]:
    """Return the faults of a trial; two at once are on different leaves."""
    draw = random.Random(f"{seed}/{trial}")  # noqa: S311 - which link is slow is no secret
    name = TRIALS[trial % len(TRIALS)]
    kinds = draw.sample(KINDS, 2) if name == "two" else [name] * (name != "none")
    found = []
    for kind, leaf in zip(kinds, draw.sample(range(4), 2), strict=False):
        where = f"leaf{leaf + 1}" if kind == "leaf" else NODES[2 * leaf + draw.randrange(2)]
        share = draw.uniform(0.2, 0.67 if kind != "leaf" else 0.4)
        way = draw.choice(("sending", "receiving")) if kind in ("one way", "loss") else ""
        found.append(Fault(kind, where, round(share, 2), way, round(draw.uniform(0, 0.8), 2)))
    return found


def run(fleet: Fleet, seed: int, trial: int, output: Path) -> dict[str, Any]:
    """Run one trial; return its line."""
    faults = faults_of(seed, trial)
    begun = time.monotonic()
    with ExitStack() as stack:
        for fault in faults:
            stack.callback(fault.begin(fleet, output))
        _, found = fleet.sweep(output, rounds=_ROUNDS, limit=False).ended()
    accused = [(one["id"], one["fault"], one["direction"]) for one in found["accused"]]
    named = [any(name in accused for name in fault.names) for fault in faults]
    meant = {name[0] for fault in faults for name in fault.names}
    return {
        "seed": seed,
        "trial": trial,
        "faults": [f"{f.kind} {f.where} {f.share} {f.direction}".strip() for f in faults],
        "right": all(named),
        "wrong": [one for one in accused if one[0] not in meant],
        "accused": accused,
        "unmeasured": found["unmeasured"],
        "unsteady": found["unsteady"],
        "verdict": found["verdict"],
        "seconds": round(time.monotonic() - begun),
    }


def sums(lines: list[dict[str, Any]]) -> str:
    """Return the sums of all trials."""
    ill = [line for line in lines if line["faults"]]
    well = [line for line in lines if not line["faults"]]
    missed = Counter(TRIALS[line["trial"] % len(TRIALS)] for line in ill if not line["right"])
    right, wrong = (sum(bool(line[key]) for line in ill) for key in ("right", "wrong"))
    accused, left = (sum(bool(line[key]) for line in well) for key in ("accused", "unmeasured"))
    return (
        f"{len(ill)} with faults: {right} right, {wrong} with a wrong accusation, missed"
        f" {dict(missed)}; {len(well)} controls: {accused} accused, {left} with something not"
        " measured"
    )


def main() -> None:
    """Run a batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", type=Path, help="directory for the results of each sweep")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.file.open()] if args.file.exists() else []
    done = {(line["seed"], line["trial"]) for line in lines}
    left = [trial for trial in range(args.trials) if (args.seed, trial) not in done]
    end = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as directory:
        fleet = Fleet.start(Path(directory), nics=1, leaf=2)
        try:
            for trial in left:
                if time.monotonic() > end:
                    break
                output = (args.keep or Path(directory)).resolve() / f"{args.seed}-{trial}"
                lines.append(run(fleet, args.seed, trial, output))
                with args.file.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
        finally:
            fleet.stop()
    print(sums(lines))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
