# SPDX-License-Identifier: MIT
"""Run the remaining work of a contract; a second call continues after an interruption."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from busbar.certify.contract import Contract
from busbar.certify.ledger import SWEEP, Ledger
from busbar.certify.plan import Work, lacking, soaked, works
from busbar.check.processes import Interruption
from busbar.cluster.nightly import gate
from busbar.cluster.nightly.process import Ended, run
from busbar.cluster.nightly.stages import NightJob
from busbar.data import CHECKS, busbar
from busbar.redact import REPLACEMENT
from busbar.slurm.hostlist import fold
from busbar.words import counted

_DEVICE = re.compile(
    rb"(?:GPU|MIG|IB)-[0-9a-f]{8}(?:(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\\b)"
    rb"|(?i:(?<=serial number:)|(?<=serial:))[ \t]*[\w-]++"
    rb"|\b0x[0-9a-f]{16}\b|\b(?:[0-9a-f]{4}:){3}[0-9a-f]{4}\b"
)
"""UUIDs of GPUs, serial numbers, and GUIDs of InfiniBand."""


@dataclass(frozen=True)
class Executor:
    """Runs the remaining work of a contract."""

    contract: Contract
    site: str
    job: NightJob | None
    """How Slurm allocates the nodes; None on a machine without Slurm."""
    interruption: Interruption
    tell: Callable[[str], None]
    redact: bool = False
    """Whether to mask device serial numbers in all files of a run."""

    def run(self, ledger: Ledger) -> None:
        """Run the remaining work; later runs exclude nodes with a fault."""
        for work in works(self.contract):
            tries = 2  # a clause that cannot be measured is not met
            while tries and not self.interruption.name and (nodes := lacking(work, ledger)):
                self.tell(f"{work.name or work.kind}: {counted(len(nodes), 'node')}")
                before = ledger.set_aside
                kept = ledger.run(work.kind, work.name, nodes, partial(self._act, work, nodes))
                if kept is None:
                    break
                for node, why in ledger.set_aside.items():
                    if node not in before:
                        self.tell(f"{node} is excluded: {why}")
                if not kept.measured:
                    tries -= 1
                    self.tell(f"{work.name or work.kind}: not measured: {kept.run.said}")

    def _act(self, work: Work, nodes: tuple[str, ...], directory: Path) -> Ended:
        ended = self._measure(work, nodes, directory)
        for file in directory.rglob("*") if self.redact else ():
            if file.is_file() and not file.is_symlink():
                text = file.read_bytes()
                kept = _DEVICE.sub(REPLACEMENT.encode(), text)
                if kept != text:
                    file.write_bytes(kept)
        return ended

    def _measure(self, work: Work, nodes: tuple[str, ...], directory: Path) -> Ended:
        match work.kind:
            case "gate":
                return self._gate(nodes, directory)
            case "sweep":
                return self._sweep(nodes, directory)
            case "check":
                return self._check([work.check], work.together, nodes, directory)
        checked = self._check(soaked(self.contract), 1, nodes, directory)
        # the gate sees the checks' messages in the kernel log
        gated = self._gate(nodes, directory)
        seconds = gated.seconds + checked.seconds
        return Ended(checked.status, checked.late or gated.late, seconds, checked.said)

    def _gate(self, nodes: tuple[str, ...], directory: Path) -> Ended:
        output = directory / "gate"
        output.mkdir()
        log = directory / "gate.log"
        if self.job:
            job = self.job
            command = gate.command(self.site, job.grant, job.wish, nodes, output)
            return run(command, directory / "gate.out", log, job.deadline)
        return run(busbar("gate", f"--site={self.site}", "--json"), output / "0.json", log, None)

    def _sweep(self, nodes: tuple[str, ...], directory: Path) -> Ended:
        sweeps = [each for each in self.contract.clauses if each.require == "sweep"]
        limits = [f"--limit={figure.value:g}" for each in sweeps for figure in each.figures]
        return self._busbar("sweep", ["sweep", "run", "--json", *limits], nodes, directory, SWEEP)

    def _check(
        self, names: list[str], together: int, nodes: tuple[str, ...], directory: Path
    ) -> Ended:
        words = ["check", *(f"--name={name}" for name in names)]
        words += [f"--setvar=nodes={together}"] if together > 2 else []
        clauses = [each for each in self.contract.clauses if each.file and each.name in names]
        files = sorted({Path(each.file).absolute() for each in clauses})
        words += [f"--checks={each}" for each in (CHECKS, *files)] if files else []
        return self._busbar("check", words, nodes, directory, "check.out")

    def _busbar(
        self, name: str, words: list[str], nodes: tuple[str, ...], directory: Path, out: str
    ) -> Ended:
        """Run a Busbar command on nodes, with the selected stack."""
        job = self.job
        where = [f"--nodelist={fold(nodes)}", *job.submission, *job.stack] if job else []
        command = busbar(*words, f"--site={self.site}", *where, f"--output={directory / name}")
        return run(command, directory / out, directory / f"{name}.log", None)
