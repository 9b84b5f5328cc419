# SPDX-License-Identifier: MIT
"""Contracts that no machine can show, or that nobody can read: one error each, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar import site as sites
from busbar.certify import contract as contracts
from busbar.certify.plan import planned
from busbar.errors import BusbarError
from busbar.expect import Question, expect
from tests.cases import cases, some

_HEAD = "site: dgx-h100\npartition: gpu\nclauses:\n"
_ALL = "  - require: collective\n    operation: all_reduce\n"

WRONG = {
    "unknown check": ("  - require: check\n    check: xcl\n", 5, "unknown check 'xcl'"),
    "no such collective": (_ALL.replace("all_reduce", "all_gathr"), 5, "all_gathr"),
    "more nodes than there are": (
        _ALL + "    nodes: 900\n",
        6,
        "900 nodes, and partition gpu has 2",
    ),
    "above the limit": (
        _ALL + "    bytes: 1 GiB\n    at_least: 9000 GB/s\n",
        7,
        "no machine with these links can reach it",
    ),
    "no such figure": (_ALL + "    at_least: fast\n", 6, "'fast' is not a figure"),
    "no such size": (_ALL + "    bytes: 3 MiB\n", 6, "no check measures 3 MiB"),
    "a key of another": (
        "  - require: gate\n    times: 3\n",
        4,
        "gate does not have the key times",
    ),
    "nothing named": ("  - require: collective\n", 4, "collective needs operation"),
    "the same twice": (_ALL + _ALL + "    at_least: low\n", 6, "applies to the same readings"),
    "unknown key": ("  - require: gate\n    node: 3\n", 5, "unknown key"),
    "no clause": ("  []\n", 3, "at least 1"),
    "a command": ("  - require: check\n    check: $(reboot)\n", 5, "$("),
    "a pair above the limit": (
        "  - require: pairs\n    at_least: 451 GB/s\n",
        5,
        "no machine with these links can reach it",
    ),
    "pairs of nodes above the limit": (
        "  - require: pairs\n    nodes: 2\n    at_least: 51 GB/s\n",
        6,
        "no machine with these links can reach it",
    ),
    "a sweep above the limit": (
        "  - require: sweep\n    at_least: 401 GB/s\n",
        5,
        "no machine with these links can reach it",
    ),
    "a share above the limit": (_ALL + "    at_least: 101 % of limit\n", 6, "above the limit"),
    "an unknown band": (
        "  - require: pairs\n    nodes: 2\n    at_least: low\n",
        6,
        "low is unknown: no such run has been measured",
    ),
    "nothing promised": (_ALL + "    at_least: 0 GB/s\n", 6, "'0 GB/s' is 0"),
    "a latency as a rate": (_ALL + "    at_least: 5 us\n", 4, "use at_most"),
    "a rate as a latency": (
        "  - {require: check, check: pt2pt, at_most: 5 GB/s}\n",
        4,
        "use at_least",
    ),
    "below the least latency": (
        "  - {require: check, check: pt2pt, at_most: 90 % of limit}\n",
        4,
        "no latency is below",
    ),
    "a check of one node on two": (
        "  - require: check\n    check: memory\n    nodes: 2\n",
        6,
        "memory runs on one node",
    ),
    "a check of nodes on one": (
        "  - require: check\n    check: xccl_nodes\n",
        5,
        "xccl_nodes runs on several nodes",
    ),
    "a fact that nobody states": (
        "  - require: same\n    facts: {drivr: ''}\n",
        5,
        "nodes do not report 'drivr'",
    ),
    "the same fact twice": (
        "  - {require: same, facts: {driver: ''}}\n"
        "  - {require: same, facts: {driver: '550', kernel: ''}}\n",
        5,
        "applies to the same readings",
    ),
    "all sizes, and one": (_ALL + _ALL + "    bytes: 1 GiB\n", 6, "applies to the same readings"),
    "one check by two names": (
        "  - require: pairs\n  - {require: check, check: link_matrix}\n",
        5,
        "applies to the same readings",
    ),
    "two soaks": (
        "  - {require: soak, hours: 1}\n  - {require: soak, hours: 2}\n",
        5,
        "applies to the same readings",
    ),
    "no such file": (
        "  - {require: check, check: mine, file: mine.py}\n",
        4,
        "no such file: mine.py",
    ),
    "a soak without end": ("  - {require: soak, hours: .inf}\n", 4, "hours"),
    "a sweep of none": ("  - {require: sweep, times: 0}\n", 4, "times"),
    "no bytes": (_ALL + "    bytes: -1\n", 6, "bytes"),
    "a list as a number": (_ALL + "    nodes: [1]\n", 6, "nodes"),
    "a key twice": ("  - require: gate\n    require: gate\n", 5, "require"),
    "no requirement": ("  - nodes: 2\n", 4, "require"),
    "a sentence": ("  - all is well\n", 4, "clauses[0]"),
    "no YAML": ("  - {\n", 5, ""),
    "a latency of a sweep": ("  - require: sweep\n    at_least: 5 us\n", 4, "an absolute rate"),
}


def test_each_wrong_contract_is_one_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "contract.yaml"
    wrong = []
    for name, (clauses, line, said) in WRONG.items():
        file.write_text(_HEAD + clauses)
        try:
            contracts.load(file)
            wrong.append(f"{name}: accepted")
        except BusbarError as error:
            if (
                said not in str(error)
                or f"contract.yaml:{line}" not in error.where
                or error.others
            ):
                wrong.append(f"{name}: {error}")
    assert wrong == []


@pytest.mark.parametrize("key", ["site: nowhere", "site: dgx-h100\npartition: cpu"])
def test_a_site_or_partition_that_is_not_there(tmp_path: Path, key: str) -> None:
    file = tmp_path / "contract.yaml"
    file.write_text(f"{key}\nclauses: [{{require: gate}}]\n")
    with pytest.raises(BusbarError, match=r"contract\.yaml:"):
        contracts.load(file)


@cases("name", some(sites.names(), 4))
def test_the_first_contract_of_each_site_is_valid(tmp_path: Path, name: str) -> None:
    site = sites.load(name)
    file = tmp_path / "contract.yaml"
    file.write_text(contracts.first(site, site.partitions[0].name, site.partitions[0].nodes))
    contract, _ = contracts.load(file)
    *lines, last = planned(contract, 2)
    assert len(lines) >= 3
    assert "node hours" in last


@pytest.mark.parametrize("nodes", [1, 2, 12])
def test_no_first_figure_is_above_the_band(tmp_path: Path, nodes: int) -> None:
    site = sites.load("dgx-b200")
    file = tmp_path / "contract.yaml"
    file.write_text(contracts.first(site, "gpu", nodes))
    clause = next(c for c in contracts.read(file).clauses if c.operation and c.nodes == nodes)
    band = expect(site, Question(bench="all_reduce", nbytes=2**30, nodes=nodes, partition="gpu"))
    (figure,) = clause.figures
    assert band.low - 0.1 <= (figure.among(band) or 0) <= band.low
    assert ("agree on a figure" in file.read_text()) == band.outside


def test_typical_needs_a_measurement_of_such_machines(tmp_path: Path) -> None:
    file = tmp_path / "contract.yaml"
    file.write_text("site: local\nclauses:\n" + _ALL + "    at_least: 95 % of typical\n")
    with pytest.raises(BusbarError, match="typical is unknown"):
        contracts.load(file)
