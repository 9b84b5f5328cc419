# SPDX-License-Identifier: MIT
"""Records of fleets that do not exist: the documents and logs that their runs would leave."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from busbar.certify import contract as contracts
from busbar.certify.ledger import Ledger
from busbar.certify.plan import Work, lacking, works
from busbar.certify.record import Acceptance, acceptance, begin, write
from busbar.check.document import document_of
from busbar.cluster.nightly.process import Ended
from busbar.cluster.sweep.document import RunAccusation, SweepRun
from busbar.document import to_json
from busbar.engine.results import Outcome, Result
from busbar.gate.findings import Basis, compared, concluded
from busbar.gate.site import Rule, Rules
from busbar.verdict import Verdict

MIB4 = 2**22
CLAUSES = """\
  - require: gate
  - require: sweep
    times: 2
  - require: check
    check: pt2pt
    bytes: 4 MiB
    at_least: [80 % of limit, 20 GB/s]
  - require: same
    facts: {driver: ""}
"""
_SITE = """\
name: fleet
description: nodes of a test
family: generic
scheduler: slurm
partitions: [{{name: lab, node_type: node, nodes: {nodes}}}]
node_types: {{node: {{cores: 2}}}}
deliveries: [{{kind: wheels, stack: host}}]
"""
_LOG = """\
# OSU MPI Bandwidth Test v7.4
# Size      Bandwidth (MB/s)
{}  {:.2f}
"""


@dataclass
class FakeFleet:
    """Nodes without hardware; what is wrong with them is what the runs will show."""

    directory: Path
    count: int = 4
    clauses: str = CLAUSES
    slow: set[str] = field(default_factory=set)
    """Nodes whose rate is half of that of the others."""
    failing: set[str] = field(default_factory=set)
    """Nodes that fail the gate."""
    accused: set[str] = field(default_factory=set)
    """What sweeps accuse."""
    drivers: dict[str, str] = field(default_factory=dict)
    """The driver of a node, if it is not 550."""
    missing: tuple[str, ...] = ()
    banded: bool = True
    """Whether something is known of the rates; that the data arrived intact is in any case."""

    def __post_init__(self) -> None:
        self.nodes = tuple(f"n{n}" for n in range(self.count))
        site = self.directory / "fleet"
        site.mkdir(parents=True)
        (site / "site.yaml").write_text(_SITE.format(nodes=self.count))
        self.contract_file = self.directory / "contract.yaml"
        self.contract_file.write_text(f"site: {site}\nclauses:\n{self.clauses}")
        self.record = self.directory / "record"
        self.record.mkdir()

    def certify(self, *repaired: str) -> Acceptance:
        """Run what is lacking, and write the record."""
        contract, site = contracts.load(self.contract_file)
        begin(self.record, self.contract_file, site)
        ledger = Ledger.load(self.record, contract, clean=True)
        if not ledger.kept:
            ledger.note("begun", self.nodes, self.missing, "somebody on head")
        if repaired:
            ledger.note("repaired", repaired)
        for work in works(contract):
            while nodes := lacking(work, ledger):
                ledger.run(
                    work.kind, work.name, nodes, lambda d, w=work, n=nodes: self._act(w, n, d)
                )
        found = acceptance(contract, site.name, ledger)
        write(self.record, found)
        return found

    def _act(self, work: Work, nodes: Sequence[str], directory: Path) -> Ended:
        if work.kind in ("gate", "soak"):
            self._gate(nodes, directory / "gate")
        if work.kind == "sweep":
            accused = [
                RunAccusation(id=each, kind="node", evidence="0.1 GB/s", confirmed=True)
                for each in sorted(self.accused)
            ]
            found = SweepRun(
                verdict=Verdict.DEGRADED if accused else Verdict.PASS,
                nodes=tuple(nodes),
                accused=tuple(accused),
                suspects=(),
                unmeasured=(),
            )
            (directory / "sweep.json").write_text(json.dumps(to_json(found)))
        if work.kind in ("check", "soak"):
            together = [",".join(nodes)] if work.together > 2 else nodes
            self._check(
                "pt2pt_nodes" if work.together > 2 else "pt2pt", together, directory / "check"
            )
        return Ended(0, late=False, seconds=60.0, said="")

    def _gate(self, nodes: Sequence[str], directory: Path) -> None:
        directory.mkdir()
        for n, node in enumerate(nodes):
            finding = compared("gpu_xid", node not in self.failing, "", "Xid 79", "none")
            basis = Basis("fleet", "lab", Rules({"gpu_xid": Rule("enforce")}))
            document = to_json(concluded(node, basis, [finding], at=time.time(), seconds=1.0))
            (directory / f"{n}.json").write_text(json.dumps(document))

    def _check(self, check: str, nodes: Sequence[str], directory: Path) -> None:
        outcomes = []
        for node in nodes:
            names = node.split(",")
            rate = 12.0 if self.slow & {*names} else 24.0 + int(names[0][1:]) % 7 / 10
            row = Result(
                *(check, Verdict.PASS if rate > 20 else Verdict.DEGRADED, node, "0->1"),
                metric="bandwidth",
                bytes=MIB4,
                gb_per_s=rate,
                limit=25.0,
                low=20.0,
                typical=24.0,
                high=25.0,
                message="" if rate > 20 else "slow",
            )
            intact = Result(check, Verdict.PASS, node, "0->1", metric="correctness")
            if not self.banded:
                row = replace(row, verdict=Verdict.UNJUDGED, message="")
                row = replace(row, low=None, typical=None, high=None)
            provenance = {"driver": self.drivers.get(node, "550"), "nodes": node}
            outcome = Outcome(
                check, "ucx-1.14", (intact, row), "lab", "host", provenance=provenance
            )
            outcomes.append(outcome)
            job = directory / "reframe" / "output" / names[0]
            job.mkdir(parents=True)
            outcome.write(job / "results.json")
            (job / "rfm_job.out").write_text(_LOG.format(MIB4, rate * 1000))
        document = to_json(document_of("fleet", "ucx-1.14", outcomes))
        (directory / "results.json").write_text(json.dumps(document))
