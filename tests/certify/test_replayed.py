# SPDX-License-Identifier: MIT
"""A contract for four H200, judged by what recorded runs of nccl-tests and OSU printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from busbar.certify import contract as contracts
from busbar.certify.ledger import Ledger
from busbar.certify.record import acceptance, begin, write
from busbar.certify.verify import verify
from busbar.cluster.nightly.process import Ended
from tests.cases import sampled
from tests.replay.conftest import Replay, index, prefix, replay, toolkit  # noqa: F401

pytestmark = pytest.mark.run
CONTRACT = """\
site: h200x4
clauses:
  - require: collective
    operation: all_reduce
    bytes: 1 GiB
    at_least: [95 % of low, 70 % of limit]
  - require: check
    check: pt2pt
    bytes: 16 MiB
    at_least: low
  - {require: check, check: xccl, operation: all_gather, bytes: 1 GiB, at_least: low}
"""
_XCCL = "xccl%size_set=quick%collective="
CHECKS = (f"{_XCCL}all_reduce", f"{_XCCL}all_gather", "pt2pt%size_set=quick")


@sampled(
    2, ("case", "states"), [("h200x4-healthy", ["met"] * 3), ("h200x4-slow", ["not met"] * 3)]
)
def test_recorded_runs(
    replay: Replay,  # noqa: F811 - the fixture
    tmp_path: Path,
    case: str,
    states: list[str],
) -> None:
    options = [word for check in CHECKS for word in ("-n", check)]
    replay(case, *options)
    contract_file = tmp_path / "contract.yaml"
    contract_file.write_text(CONTRACT)
    contract, site = contracts.load(contract_file)
    record = tmp_path / "record"
    record.mkdir()
    begin(record, contract_file, site)
    ledger = Ledger.load(record, contract)
    ledger.note("begun", ["vm"], said="somebody")

    def act(directory: Path) -> Ended:
        shutil.copytree(tmp_path / "out", directory / "check", dirs_exist_ok=True)
        return Ended(0, late=False, seconds=60.0, said="")

    for clause in contract.clauses:
        ledger.run("check", clause.name, ["vm"], act)
    found = acceptance(contract, site.name, ledger)
    write(record, found)
    assert [each.state for each in found.clauses] == states, found.sentence
    assert verify(record).problems == ()
    log = next(record.glob("runs/*/check/reframe/*/**/xccl*/rfm_job.out"))
    log.write_text(log.read_text().replace("1073741824", "1073741825"))
    assert not verify(record).supported
