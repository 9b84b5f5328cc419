# SPDX-License-Identifier: MIT
"""NCCL's status of a running job: ``ncclras -f json``. `busbar job` reads its Inspector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.parse import numbers

RAS = "ncclras"


def read_document(file: str, text: str) -> JobOutput | None:
    """Return the facts of a document of ``ncclras -f json``, from NCCL 2.28 on.

    None for anything else. Raises ``ValueError`` if it is broken.
    """
    try:
        document = numbers.load_json(text)
    except ValueError:  # not JSON: the reader of lines takes it
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
        facts.note_message(kind, Evidence(file, number, text.split("\n")[number - 1]), fields)

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
