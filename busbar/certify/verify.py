# SPDX-License-Identifier: MIT
"""Verify a record: check its files and signatures, and judge everything again from the logs."""

from __future__ import annotations

import base64
import math
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Literal

from markupsafe import escape

from busbar.boundary import read_text, visible
from busbar.certify import contract as contracts, record as records
from busbar.certify.ledger import Kept, Ledger
from busbar.check.snapshot import read
from busbar.cluster.nightly import gate
from busbar.document import read_document
from busbar.engine.collect import collect
from busbar.engine.inputs import named
from busbar.engine.results import RESULTS_FILE, Outcome
from busbar.errors import BusbarError, file_error
from busbar.explain.rulebook import PATTERNS
from busbar.units import CLOCKS_S, seconds
from busbar.words import grouped

_LOGS = ("rfm_job.out", "rfm_job.err", "nccl*.log")
_MOST_PARTIES = 100
_LINE = 70
"""Characters per line of a signature."""
_END = "-----END SSH SIGNATURE-----"
_ROUNDING = 5e-3
"""Permitted relative difference between a reading and the number in the log."""
_HINT = "pass the directory of a record written by busbar certify run"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of the verification."""

    schema: Literal["busbar-certify-verify/1"] = "busbar-certify-verify/1"
    """The schema of this document."""
    supported: bool
    """Whether the files are unchanged and support the record."""
    sentence: str
    """The verdict of the record, or the reason why it is refused."""
    problems: tuple[str, ...]
    """Contradictions, each as a file and a description."""
    signed_by: tuple[str, ...]
    """Key of each valid signature, and its holder if listed in --signers."""
    unchecked: str = ""
    """Why no signature was checked; otherwise empty."""


def verify(directory: Path, signers: Path | None = None) -> Verification:
    """Verify a record; raise ``BusbarError`` if the directory is not one."""
    record = read_document(directory / records.RECORD, _HINT, records.AcceptanceRecord)
    signed, problems, unchecked = _signed(directory, signers)
    try:
        problems += _problems(directory, record)
    except (BusbarError, ValueError) as error:
        problems.append(str(error))
    claim = record.predicate.sentence
    text = f"refused: {problems[0]}" if problems else f"the record supports its verdict: {claim}"
    return Verification(
        supported=not problems,
        sentence=text,
        problems=tuple(problems),
        signed_by=tuple(signed),
        unchecked=unchecked,
    )


def _problems(directory: Path, record: records.AcceptanceRecord) -> Iterator[str]:
    if (record.type, record.predicate_type) != (records.TYPE, records.PREDICATE):
        yield f"{records.RECORD}: not an acceptance statement"
        return
    try:
        now = {each.name: each.digest for each in records.subjects(directory)}
    except BusbarError as error:
        yield error.alone()
        return
    listed = {each.name: each.digest for each in record.subject}
    wrong = [name for name, digest in listed.items() if now.get(name) != digest]
    yield from (f"{name}: {'has changed' if name in now else 'is missing'}" for name in wrong)
    lock = directory / records.LOCK
    locked = [records.LOCK] if lock.exists() and lock.stat().st_size else []
    more = [*(now.keys() - listed.keys()), *locked]
    yield from (f"{name}: not listed in the record" for name in more)
    if wrong or more:
        return
    contract = contracts.read(directory / records.CONTRACT)
    ledger = Ledger.load(directory, contract)
    found, said = records.acceptance(contract, record.predicate.site, ledger), record.predicate
    for name in vars(found):
        if name != "busbar" and getattr(found, name) != getattr(said, name):
            yield f"{records.RECORD}: its {name} differs from the runs"
    shown = read_text(directory / records.PAGE)
    if (
        records.page(said) != shown
        if said.busbar == found.busbar
        else escape(visible(said.sentence)) not in shown
    ):
        yield f"{records.PAGE}: differs from {records.RECORD}"
    ends = [*(seconds(each.run.begun) for each in ledger.kept[1:]), time.time()]
    for number, (kept, end) in enumerate(zip(ledger.kept, ends, strict=True), 1):
        if kept.directory.name != f"{number:04}-{kept.run.kind}":
            yield f"{kept.directory.relative_to(directory)}: is not run {number} of the record"
        if not 0 <= kept.run.seconds <= end + CLOCKS_S - seconds(kept.run.begun):
            yield f"{kept.directory.relative_to(directory)}: did not end before the next run began"
        yield from _foreign(directory, kept, said.site)
        yield from _logs(directory, kept.directory / "check")


def _foreign(directory: Path, kept: Kept, site: str) -> Iterator[str]:
    """Yield documents of a run with a different time, site or node, or with contradictions."""
    begun, gated = seconds(kept.run.begun), gate.read(kept.directory / "gate", kept.run.nodes)
    last = begun + kept.run.seconds + CLOCKS_S
    place, results = kept.directory.relative_to(directory), f"check/{RESULTS_FILE}"
    documents = [(f"gate: {node}", each.time, each.site) for node, each in gated.items()]
    documents += [(results, kept.checked.time, kept.checked.site)] if kept.checked else []
    for name, when, where in documents:
        if not begun - CLOCKS_S <= seconds(when) <= last or where != site:
            yield f"{place}/{name} is from {when} on {where}, but the run is from {kept.run.begun}"
    rows = kept.checked.results if kept.checked else ()
    if other := {node for row in rows for node in row.where.split(",") if node} - kept.nodes:
        yield f"{place}/{results}: has readings from {min(other)}, where it did not run"


def _logs(directory: Path, output: Path) -> Iterator[str]:
    """Yield the readings of checks that are not in any log."""
    if not (output / RESULTS_FILE).exists():
        return
    rows = {}
    for file in sorted(output.glob(f"reframe/*/**/{RESULTS_FILE}")):
        name = file.relative_to(directory)
        try:
            outcome = Outcome.read(file)
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        known = _values(file.parent)
        for row in outcome.results:
            rows[row.check, row.where, row.pair, row.bytes, row.value] = name
            if row.value is not None and not _among(row.value, known[row.bytes or 0]):
                yield f"{name}: none of its logs shows {row.value:.6g} {row.unit} for {row.pair}"
                break
    for row in (row for each in read(output / RESULTS_FILE).outcomes for row in each.results):
        if row.value is not None:
            key = (row.check, row.where, row.pair, row.bytes, row.value)
            if key not in rows:
                name = (output / RESULTS_FILE).relative_to(directory)
                yield f"{name}: no job has {row.value:.6g} {row.unit} for {row.pair}"
                break


def _values(directory: Path) -> Mapping[int, list[float]]:
    """Return the readings in the logs of a job by message size."""
    files = [file for pattern in _LOGS for file in sorted(directory.glob(pattern))]
    sources = [source for file in files for source in named(file)]
    outputs = collect(sources, PATTERNS)
    readings = ((each.nbytes, each.value) for output in outputs for each in output.readings)
    return defaultdict(list, grouped(readings))


def _among(value: float, known: list[float]) -> bool:
    return any(math.isclose(value, each, rel_tol=_ROUNDING) for each in known)


def _signed(directory: Path, signers: Path | None) -> tuple[list[str], list[str], str]:
    """Return valid keys, invalid signatures, and the reason if none was checked."""
    signed, wrong = [], []
    with file_error("cannot be read", signers):
        _ = signers and signers.read_bytes()
    text = (directory / records.RECORD).read_bytes()
    found = records.signatures(directory)
    if len(found) > _MOST_PARTIES:
        return [], [f"{records.RECORD}: has {len(found)} signatures"], ""
    for path in found:
        try:
            _refuse_other_form(path)
            signed.append(_signer(path, text, signers))
        except FileNotFoundError:  # reported as unchecked, with an exit status of its own
            return [], [], "signature not checked: ssh-keygen was not found"
        except (OSError, ValueError) as error:
            wrong.append(f"{path.name}: {getattr(error, 'strerror', None) or error}")
    return signed, wrong, "" if found else "the record is not signed"


def _refuse_other_form(signature: Path) -> None:
    """Raise ``ValueError`` for text that ssh-keygen accepts but never writes (blank lines)."""
    text = read_text(signature)
    try:
        data = base64.b64decode("".join(text.splitlines()[1:-1]), validate=True)
    except ValueError:
        data = b""
    lines = wrap(base64.b64encode(data).decode(), _LINE)
    if text.splitlines(keepends=True)[1:] != [f"{line}\n" for line in (*lines, _END)]:
        raise ValueError("has changed: ssh-keygen writes a different format")


def _signer(signature: Path, text: bytes, signers: Path | None) -> str:
    def keygen(*words: str) -> str:
        command = ["ssh-keygen", "-Y", *words, "-s", str(signature)]
        done = subprocess.run(command, input=text, capture_output=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise ValueError(f"is not valid: {said[-1] if said else 'ssh-keygen refuses it'}")
        return done.stdout.decode(errors="replace").strip()

    if not signers:
        return keygen("check-novalidate", "-n", records.NAMESPACE).splitlines()[0]
    own = keygen("check-novalidate", "-n", records.NAMESPACE).splitlines()[0]
    try:
        holder = keygen("find-principals", "-f", str(signers)).splitlines()[0]
    except ValueError as error:
        key = own.rpartition(" ")[2]
        line = f"NAME {_public_key(read_text(signature))}"
        what = f"its key {key} is not in {signers}; if you know its owner, add the line: {line}"
        raise ValueError(what) from error
    return keygen(
        "verify", "-n", records.NAMESPACE, "-f", str(signers), "-I", holder
    ).splitlines()[0]


def _public_key(signature: str) -> str:
    """Return the public key in a signature (OpenSSH, PROTOCOL.sshsig) as one line."""
    data = base64.b64decode("".join(signature.splitlines()[1:-1]))
    magic_and_version = 10
    length = int.from_bytes(data[magic_and_version : magic_and_version + 4])
    key = data[magic_and_version + 4 : magic_and_version + 4 + length]
    kind = key[4 : 4 + int.from_bytes(key[:4])].decode("ascii", "replace")
    return f"{kind} {base64.b64encode(key).decode()}"
