# SPDX-License-Identifier: MIT
"""Every record is read by some test, and none that was made up is taken for a measurement."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from busbar import site as sites
from tests.cases import cases
from tests.files import read_table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT / "tests" / "data"
CASES = read_table(HERE / "index.yaml")["cases"]
ELSEWHERE = read_table(HERE / "elsewhere.yaml")
# Descriptions of machines, of which JSON and XML hold no header, and of systems.
OF_MACHINES = {"detect", "detect-public", "published", "sites"}
REPLAYED = {
    record[kind]
    for case in CASES.values()
    for record in case["records"]
    for kind in ("file", "log")
    if kind in record
}
RECORDS = {
    str(path.relative_to(DATA))
    for path in DATA.rglob("*")
    if path.is_file()
    and path.name != "README.md"
    and path.relative_to(DATA).parts[0] not in OF_MACHINES
}


def read_elsewhere(record):
    """Whether the table names a file that names the record."""
    name = Path(record).name
    for entry in ELSEWHERE:
        if fnmatch.fnmatch(record, entry["files"]):
            text = (ROOT / entry["by"]).read_text()
            # Labels name the files of the ranks of one run by a pattern.
            return name in text or f"{name.split('.')[0]}.nccl.*" in text
    return False


def test_every_record_is_read():
    assert REPLAYED <= RECORDS
    assert sorted(r for r in RECORDS - REPLAYED if not read_elsewhere(r)) == []


@cases("entry", ELSEWHERE)
def test_no_entry_of_the_table_is_stale(entry):
    assert fnmatch.filter(RECORDS - REPLAYED, entry["files"])


def test_what_is_made_up_says_so_in_name_and_header():
    for record in RECORDS:
        folder, name = record.rsplit("/", 1)
        made_up = "synthetic" in folder
        assert made_up == name.endswith("_synthetic.log"), record
        if made_up:
            header = (DATA / record).read_text().split("\n", 1)[0]
            assert header.startswith("# synthetic: "), record


def test_a_site_with_nothing_but_made_up_records_claims_no_proof():
    real = {
        case["site"]
        for case in CASES.values()
        if any("synthetic" not in record["file"] for record in case["records"])
    }
    made_up = {case["site"] for case in CASES.values()} - real
    assert made_up == {"mi300x", "mi250x-cray", "p5"}
    for name in made_up:
        assert sites.load(name).proof == "none"
