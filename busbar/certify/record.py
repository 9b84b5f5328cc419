# SPDX-License-Identifier: MIT
"""The record: requirements and results, with the checksum of every evidence file."""

from __future__ import annotations

import hashlib
import json
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from busbar.boundary import refuse_links, regular, replace_file
from busbar.certify.contract import Contract
from busbar.certify.judge import NodeEvent, account, judge, sentence, versions
from busbar.certify.ledger import Ledger
from busbar.certify.readings import ClauseResult
from busbar.data import full_version
from busbar.document import to_json, written
from busbar.errors import BusbarError, file_error
from busbar.report.page import templates
from busbar.site import Site
from busbar.site.calibration import CALIBRATION_FILE
from busbar.site.load import SITE_FILE

CONTRACT, RECORD, PAGE, LOCK = "contract.yaml", "record.json", "index.html", ".lock"
NAMESPACE = "busbar-acceptance"
"""Namespace of the signatures, so that a signature for another purpose is not valid."""
_SITE, _ATTACHED = "site", "attached"
_OF_SITE = (SITE_FILE, CALIBRATION_FILE)
_MOST_BYTES = 2**32
"""Maximum size of a file: reading it takes 10 s, and no log is larger."""
TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:busbar:acceptance:1"


@dataclass(frozen=True)
class Subject:
    """One file of the record."""

    name: str
    """Its path in the record."""
    digest: Mapping[str, str]
    """``sha256`` of its content."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """The content of a record: the predicate of its statement."""

    verdict: Literal["accepted", "not accepted"]
    """Whether every clause is met."""
    sentence: str
    """The verdict, and the first clause that is not met."""
    site: str
    """Name of the site."""
    nodes: tuple[str, ...]
    """The nodes of the record."""
    missing: tuple[str, ...]
    """Nodes of the partition that were not tested, with their state."""
    clauses: tuple[ClauseResult, ...]
    """The clauses, in the order of the contract."""
    account: tuple[NodeEvent, ...]
    """What happened to nodes that were set aside."""
    versions: Mapping[str, str]
    """What the nodes ran with; of facts that differ, which nodes."""
    begun: str
    """ISO 8601, UTC."""
    ended: str
    """When the last run began: ISO 8601, UTC."""
    by: str
    """Who began it: user and host."""
    busbar: str
    """Version and commit of Busbar."""


@dataclass(frozen=True, kw_only=True)
class AcceptanceRecord:
    """An in-toto statement about the files of a record."""

    schema: Literal["busbar-acceptance/1"] = "busbar-acceptance/1"
    """The schema of this document."""
    type: str = field(default=TYPE, metadata=written("_type"))
    """The type of the in-toto statement."""
    subject: tuple[Subject, ...]
    """Every file except this one and its signatures."""
    predicate_type: str = field(default=PREDICATE, metadata=written("predicateType"))
    """The type of the predicate."""
    predicate: Acceptance
    """The predicate: what the files show."""


def begin(directory: Path, contract: Path, site: Site, attached: Iterable[Path] = ()) -> None:
    """Copy contract, site and attached files to the record.

    Raises ``BusbarError`` if the record has different files with these names, or if a file cannot
    be read.
    """
    place = directory / _SITE / site.name
    copies = {contract: directory / CONTRACT}
    copies |= {site.directory / n: place / n for n in _OF_SITE if site.directory}
    for path in attached:
        refuse_links(path, "--attach")  # others read the copy
        with file_error("cannot be read", path, "correct --attach"):
            open(path, "rb", opener=regular).close()
        copies[path] = directory / _ATTACHED / path.name
    others = {each.name for each in directory.glob("*")} - {LOCK, _SITE, _ATTACHED}
    if others and not copies[contract].exists():
        what = "contains other files, and a record lists all files of its directory"
        raise BusbarError(what, where=str(directory), hint="choose another --output")
    with file_error("cannot be written", directory, "choose another --output"):
        for parent in {copy.parent for copy in copies.values()}:
            parent.mkdir(parents=True, exist_ok=True)
        for source, copy in copies.items():
            if not source.exists():
                continue
            if copy.exists() and copy.read_bytes() != source.read_bytes():
                what, hint = f"{source} has changed since it began", "choose another --output"
                raise BusbarError(what, where=str(directory), hint=hint)
            replace_file(copy, source.read_bytes())


def acceptance(contract: Contract, site: str, ledger: Ledger) -> Acceptance:
    """Return the content of the record, from its runs."""
    results, events = judge(contract, ledger), account(ledger)
    first = ledger.kept[0].run if ledger.kept else None
    return Acceptance(
        verdict="accepted" if all(each.state == "met" for each in results) else "not accepted",
        sentence=sentence(site, results, events),
        site=site,
        nodes=ledger.nodes,
        missing=tuple(ledger.missing.values()),
        clauses=results,
        account=events,
        versions=versions(ledger),
        begun=first.begun if first else "",
        ended=ledger.kept[-1].run.begun if ledger.kept else "",
        by=first.said if first else "",
        busbar=full_version(),
    )


def write(directory: Path, found: Acceptance) -> AcceptanceRecord:
    """Write page and record; remove the signatures of the earlier record."""
    for old in directory.glob(f"{RECORD}*.sig"):
        old.unlink()
    replace_file(directory / PAGE, page(found))
    record = AcceptanceRecord(subject=tuple(subjects(directory)), predicate=found)
    replace_file(directory / RECORD, json.dumps(to_json(record), indent=1) + "\n")
    return record


def subjects(directory: Path) -> Iterator[Subject]:
    """Yield the files of a record with their checksums, sorted by name."""
    others = {directory / RECORD, directory / LOCK, *signatures(directory)}
    for path in sorted(directory.rglob("*")):
        name, found = str(path.relative_to(directory)), path.lstat()
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            raise BusbarError("is not a regular file", where=str(path), hint="remove it")
        if found.st_size > _MOST_BYTES:
            raise BusbarError("has more than 4 GiB", where=str(path), hint="remove it")
        if stat.S_ISREG(found.st_mode) and path not in others:
            with path.open("rb") as file:
                yield Subject(name, {"sha256": hashlib.file_digest(file, "sha256").hexdigest()})


def signatures(directory: Path) -> Sequence[Path]:
    """Return the signatures of a record."""
    return sorted(directory.glob(f"{RECORD}*.sig"))


def sign(directory: Path, key: Path) -> Path:
    """Sign the record with an OpenSSH key; further parties sign the same file."""
    numbers = ("", *(f".{number}" for number in range(2, len(signatures(directory)) + 2)))
    paths = (directory / f"{RECORD}{number}.sig" for number in numbers)
    path = next(path for path in paths if not path.exists())
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key)]
    text = (directory / RECORD).read_bytes()
    try:
        done = subprocess.run(command, input=text, capture_output=True, check=False)
    except FileNotFoundError:
        raise BusbarError("ssh-keygen was not found", hint="install the OpenSSH client") from None
    if done.returncode:
        what = done.stderr.decode(errors="replace").strip()
        raise BusbarError(f"cannot sign: {what}", where=str(key), hint="pass a private key")
    replace_file(path, done.stdout)
    return path


def page(found: Acceptance) -> str:
    """Return the HTML page."""
    return templates().get_template("acceptance.html.j2").render(found=found)
