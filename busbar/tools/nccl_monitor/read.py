# SPDX-License-Identifier: MIT
"""What NCCL says of a running job: ``ncclras -f json`` and the JSON of its Inspector plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from busbar.engine.identify import NCCL_NAMES
from busbar.engine.job_output import MOST_READINGS, JobOutput
from busbar.engine.reading import Evidence, Kind, Reading
from busbar.engine.tool import TableReader
from busbar.parse import numbers
from busbar.parse.text import decode

RAS, INSPECTOR = "ncclras", "nccl-inspector"
_MOST_RECORD_BYTES = 1 << 16


def read_document(file: str, text: str) -> JobOutput | None:
    """Return the facts of a document of ``ncclras -f json``, from NCCL 2.28 on.

    None for anything else. Raises ``ValueError`` if it is broken.
    """
    try:
        document = numbers.load_json(text)
    except ValueError:
        return None
    if not isinstance(document, dict) or "communicators" not in document:
        return None
    try:
        return _ras(document, file, text)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a document of ncclras: {error}") from None


def _ras(document: Mapping[str, Any], file: str, text: str) -> JobOutput:
    whole, version = numbers.json_whole, str(document.get("nccl_version", ""))
    communicators = document["communicators"]
    ranks = [rank for each in communicators for rank in each["ranks"]]
    largest = max((whole(each["size"]) for each in communicators), default=0)
    facts = JobOutput(files=[file], tool=RAS, version=version, ranks=largest or None)
    facts.hosts = dict.fromkeys(str(rank["host"]) for rank in ranks)

    def note(kind: str, rank: object, below: str, fields: Mapping[str, str]) -> None:
        """Note a message with the line of a rank, after the key ``below``."""
        at = max(text.find(f'"rank": {rank},', text.find(f'"{below}"')), 0)
        number = text.count("\n", 0, at) + 1
        line = Evidence(file, number, text.split("\n")[number - 1])
        facts.note_message(kind, line, fields)

    for fields in (fields for each in communicators for fields in behind(each["ranks"])):
        note("ras.behind", fields["rank"], "ranks", fields)
    for gone in (rank for each in communicators for rank in each.get("missing_ranks", ())):
        dead = gone.get("status", {}).get("considered_dead")
        rank, state = whole(gone["rank"]), "is dead" if dead else "does not answer"
        summary = f"rank {rank} on {gone['host']} (pid {whole(gone['pid'])}) {state}"
        note("died.ras", rank, "missing_ranks", {"text": summary})
    errors = {whole(r["rank"]): whole(r.get("status", {}).get("async_error", 0)) for r in ranks}
    for rank, error in errors.items():
        if error:
            note("died.ras", rank, "ranks", {"text": f"rank {rank} has NCCL error {error}"})
    return facts


def behind(ranks: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield the ranks that started fewer operations of a kind than others of a communicator."""
    whole = numbers.json_whole
    counts = [
        (whole(rank["rank"]), operation, whole(count))
        for rank in ranks
        for operation, count in rank.get("collective_counts", {}).items()
    ]
    most: Counter[str] = Counter()
    for _, operation, count in counts:
        most[operation] = max(most[operation], count)
    for rank, operation, count in counts:
        if count < most[operation]:
            words = (str(rank), operation, str(count), str(most[operation]))
            yield dict(zip(("rank", "operation", "count", "most"), words, strict=True))


class InspectorReader(TableReader):
    """Reads the records of the Inspector; waiting for other ranks counts as time of operations.

    Before version 4.3 of its format each line names its process, then only the first of a dump.
    """

    row_triggers = (r'\{"(?:header|coll_perf)"',)

    def row(self, number: int, line: bytes, key: bytes) -> bool:
        if line.lstrip()[:1] != b"{":
            return False
        place: tuple[str, int, int] | None = None
        readings: list[Reading] = []
        try:
            record = numbers.load_json(line[:_MOST_RECORD_BYTES])
            if "header" in record and "metadata" in record:
                place = _place(record["header"], record["metadata"])
            if "coll_perf" in record:
                evidence = Evidence(self.runs.file, number, decode(line))
                readings = _readings(record["coll_perf"], evidence)
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        facts = self.run
        if place or readings:
            facts.tool = facts.tool or INSPECTOR
        if place:
            facts.note_process(*place[:2])
            facts.ranks = max(facts.ranks or 0, place[2])
        if len(facts.readings) < MOST_READINGS:
            facts.readings += readings
        return bool(place or readings)


def _place(header: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return host and process id of the process that recorded, and the ranks of its job."""
    whole = numbers.json_whole
    return str(metadata["hostname"]), whole(metadata["pid"]), whole(header["n_ranks"])


def _readings(row: Mapping[str, Any], evidence: Evidence) -> list[Reading]:
    name, nbytes = str(row["coll"]), numbers.json_whole(row["coll_msg_size_bytes"])
    operation = NCCL_NAMES.get(name, name.lower())
    columns: tuple[tuple[Kind, str], ...] = (
        ("busbw", "coll_busbw_gbs"),
        ("algbw", "coll_algobw_gbs"),
    )
    return [
        Reading(k, nbytes, numbers.json_real(row[c]), evidence=evidence, operation=operation)
        for k, c in columns
    ]
