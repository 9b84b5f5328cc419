# SPDX-License-Identifier: MIT
"""Records that somebody changed, swapped or composed: each is refused, and the file is named."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from busbar.certify import contract as contracts, record as records
from busbar.certify.ledger import Ledger
from busbar.certify.verify import verify
from busbar.errors import BusbarError
from tests.bench.certify_tampered import (
    repaired_record,
    resealed,
    rewritten,
    signing_key,
    tampered,
    untouched,
)
from tests.cases import some

_TAMPERED, _UNTOUCHED = len(some(range(100), 3)), len(some(range(10), 3))
"""More of them, when the code changes: ``python -m tests.bench.certify_tampered``."""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("ssh-keygen"):
        pytest.skip("ssh-keygen is not installed")
    return signing_key(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def original(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return repaired_record(tmp_path_factory.mktemp("original"), key)


def large_file(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**42)


def change(directory: Path, file: str, old: str, new: str) -> None:
    path = next(iter(sorted(directory.glob(file))))
    text = path.read_text()
    assert old in text, file
    path.write_text(text.replace(old, new, 1))


def test_an_untouched_record_is_accepted(original: Path, key: Path, tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    signers.write_text(f"center@example.org {key.with_suffix('.pub').read_text()}")
    found = verify(original, signers)
    assert found.supported
    assert not found.unchecked
    assert "center@example.org" in found.signed_by[0]
    signers.write_text("")
    (why,) = verify(original, signers).problems
    assert why.startswith("record.json.sig: its key SHA256:")
    signers.write_text(f"center@example.org {why.partition('NAME ')[2]}\n")
    assert verify(original, signers).signed_by == found.signed_by
    assert list(untouched(tmp_path, key, _UNTOUCHED, 28)) == []


def test_any_change_is_refused_and_named(key: Path, tmp_path: Path) -> None:
    assert [fault for fault in tampered(tmp_path, key, _TAMPERED, 28) if fault[1]] == []


FORGED: dict[str, Callable[[Path], object]] = {
    "a clause removed": lambda d: change(d, "contract.yaml", "  - require: gate\n", ""),
    "a figure lowered": lambda d: change(d, "contract.yaml", "20 GB/s", "2 GB/s"),
    "a reading edited": lambda d: change(
        d, "runs/*check/check/results.json", '"gb_per_s": 12.0', '"gb_per_s": 24.0'
    ),
    "a log edited": lambda d: change(
        d, "runs/*check/check/reframe/output/n1/rfm_job.out", "24100", "25100"
    ),
    "a log of another job": lambda d: shutil.copy(
        next(d.glob("runs/0005-check/check/reframe/output/n3/rfm_job.out")),
        next(d.glob("runs/0005-check/check/reframe/output/n0/rfm_job.out")),
    ),
    "a run removed": lambda d: shutil.rmtree(next(d.glob("runs/0006-repaired"))),
    "a run twice": lambda d: shutil.copytree(d / "runs/0003-sweep", d / "runs/0099-sweep"),
    "a node left out": lambda d: change(d, "runs/0001-begun/run.json", '"n3"', '"n1"'),
    "a gate that passed": lambda d: change(d, "runs/0002-gate/gate/1.json", "n1", "n7"),
    "results of another day": lambda d: change(
        d, "runs/0005-check/check/results.json", '"time": "', '"time": "2001-01-01", "then": "'
    ),
    "a verdict of its own": lambda d: (
        change(d, "record.json", '"not met"', '"met"')
        if '"not met"' in (d / "record.json").read_text()
        else change(d, "record.json", '"accepted"', '"not accepted"')
    ),
    "a link": lambda d: (d / "runs" / "link").symlink_to("/etc/passwd"),
    "a pipe": lambda d: os.mkfifo(d / "runs" / "pipe"),
    "a pipe as a signature": lambda d: os.mkfifo(d / "record.json.2.sig"),
    "a file without end": lambda d: large_file(d / "runs" / "large"),
    "more signatures than parties": lambda d: [
        shutil.copy(d / "record.json.sig", d / f"record.json.{n}.sig") for n in range(2, 200)
    ],
    "something in the lock": lambda d: (d / ".lock").write_text("more"),
    "a file more": lambda d: (d / "runs" / "more").write_text("more"),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_a_forgery_with_new_checksums_is_refused(
    original: Path, tmp_path: Path, forge: Callable[[Path], object]
) -> None:
    """The signature is that of the original."""
    copy = tmp_path / "record"
    shutil.copytree(original, copy, symlinks=True)
    forge(copy)
    with suppress(BusbarError):  # a link has no checksum
        rewritten(copy)
    assert not verify(copy).supported


UNSIGNED: dict[str, Callable[[Path], object]] = {
    "another page": lambda d: change(d, "index.html", "after the repair of n2", ""),
    "a run of another number": lambda d: (d / "runs/0005-check").rename(d / "runs/0099-check"),
    "without the bad run": lambda d: [
        shutil.rmtree(d / "runs" / name) for name in ("0005-check", "0006-repaired")
    ],
    "a run of the future": lambda d: [
        file.write_text(re.sub(r'"20\d\d-', '"2090-', file.read_text()))
        for file in d.glob("runs/**/*.json")
    ],
    "a run without end": lambda d: change(
        d, "runs/0002-gate/run.json", '"seconds": 60.0', '"seconds": 1e300'
    ),
    "readings of another node": lambda d: [
        file.write_text(file.read_text().replace('"n3"', '"m3"'))
        for file in d.glob("runs/0005-check/**/results.json")
    ],
    "results of another site": lambda d: change(
        d, "runs/0005-check/check/results.json", '"site": "fleet"', '"site": "other"'
    ),
}
"""What contradicts itself when Busbar writes the record anew."""
WITHOUT = (
    "a clause removed",
    "a reading edited",
    "a log edited",
    "a log of another job",
    "results of another day",
)


@pytest.mark.parametrize("forge", UNSIGNED.values(), ids=UNSIGNED.keys())
def test_a_record_that_contradicts_itself(
    original: Path, tmp_path: Path, forge: Callable[[Path], object]
) -> None:
    copy = tmp_path / "record"
    shutil.copytree(original, copy)
    forge(copy)
    resealed(copy)
    contract = contracts.read(copy / "contract.yaml")
    page = (copy / "index.html").read_text()
    records.write(copy, records.acceptance(contract, "fleet", Ledger.load(copy, contract)))
    if page != (original / "index.html").read_text():
        (copy / "index.html").write_text(page)
        rewritten(copy)
    found = verify(copy)
    assert not found.supported
    assert not found.problems[0].startswith("record.json")


@pytest.mark.parametrize("name", WITHOUT)
def test_a_forgery_is_refused_without_its_signature(
    original: Path, tmp_path: Path, name: str
) -> None:
    """What the logs show decides, whoever has signed."""
    copy = tmp_path / "record"
    shutil.copytree(original, copy)
    for signature in records.signatures(copy):
        signature.unlink()
    FORGED[name](copy)
    rewritten(copy)
    found = verify(copy)
    assert not found.supported
    assert found.unchecked == "the record is not signed"


def test_a_second_party_signs_the_same_file(original: Path, key: Path, tmp_path: Path) -> None:
    copy = tmp_path / "record"
    shutil.copytree(original, copy)
    records.sign(copy, key)
    assert len(verify(copy).signed_by) == 2


def test_without_ssh_keygen_no_signature_is_checked(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    found = verify(original)
    assert (found.supported, found.unchecked) == (
        True,
        "signature not checked: ssh-keygen was not found",
    )
