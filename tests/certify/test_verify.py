# SPDX-License-Identifier: MIT
"""Records that somebody changed, swapped or composed: each is refused, and the file is named."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from busbar.certify import record as records
from busbar.certify.verify import verify
from busbar.errors import BusbarError

from .records import FakeFleet

_TAMPERED, _UNTOUCHED = 300, 20
"""More of them, when the code changes: 10,000 and 1,000 were tried once."""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("keys") / "center"
    if not shutil.which("ssh-keygen"):
        pytest.skip("ssh-keygen is not installed")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key


@pytest.fixture(scope="module")
def original(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    fleet = FakeFleet(tmp_path_factory.mktemp("original"), slow={"n2"})
    fleet.certify()
    fleet.slow = set()
    fleet.certify("n2")
    records.sign(fleet.record, key)
    return fleet.record


def rewritten(directory: Path) -> None:
    """Give a changed record new checksums, as whoever forges it would."""
    file = directory / records.RECORD
    document = json.loads(file.read_text())
    document["subject"] = [vars(each) for each in records.subjects(directory)]
    file.write_text(json.dumps(document, indent=1) + "\n")


def change(directory: Path, file: str, old: str, new: str) -> None:
    path = next(iter(sorted(directory.glob(file))))
    text = path.read_text()
    assert old in text, file
    path.write_text(text.replace(old, new, 1))


def test_an_untouched_record_is_accepted(original: Path, key: Path, tmp_path: Path) -> None:
    for _ in range(_UNTOUCHED):
        assert verify(original).supported
    signers = tmp_path / "signers"
    signers.write_text(f"center@example.org {key.with_suffix('.pub').read_text()}")
    found = verify(original, signers)
    assert found.supported
    assert not found.unchecked
    assert "center@example.org" in found.signed_by[0]
    signers.write_text("")
    assert verify(original, signers).problems[0].startswith("record.json.sig: is not valid")


def test_any_changed_byte_is_refused(original: Path, tmp_path: Path) -> None:
    files = sorted(path for path in original.rglob("*") if path.is_file())
    chance = random.Random(28)  # noqa: S311 - a seeded choice
    accepted = []
    for _ in range(_TAMPERED):
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        at = chance.randrange(len(content))
        before = bytes(content)
        content[at] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
        try:
            found = verify(original)
            if found.supported or not any(file.name in each for each in found.problems):
                accepted.append((file.name, at, found.sentence))
        except BusbarError as error:
            if records.RECORD not in str(error):
                accepted.append((file.name, at, str(error)))
        finally:
            file.write_bytes(before)
    assert accepted == []
    assert verify(original).supported


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


WITHOUT = (
    "a clause removed",
    "a reading edited",
    "a log edited",
    "a log of another job",
    "results of another day",
)


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
        "signature not checked: ssh-keygen is not here",
    )
