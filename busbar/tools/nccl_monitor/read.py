# SPDX-License-Identifier: MIT
"""Facts from what NCCL says of a running job."""

from __future__ import annotations

from busbar.engine.identify import NCCL_NAMES
from busbar.engine.job_output import MOST_READINGS, JobOutput
from busbar.engine.reading import Evidence, Reading
from busbar.engine.tool import TableReader
from busbar.parse.text import decode
from busbar.tools.nccl_monitor.parse import (
    InspectedOperation,
    InspectedPlace,
    Ras,
    parse_ras,
    parse_record,
)

RAS, INSPECTOR = "ncclras", "nccl-inspector"
_MOST_RECORD_BYTES = 1 << 16


def read_document(file: str, text: str) -> JobOutput | None:
    """Return the facts of a document of ``ncclras -f json``; None for JSON of another kind."""
    ras = parse_ras(text)
    return _from_ras(ras, file, text) if ras else None


def _from_ras(ras: Ras, file: str, text: str) -> JobOutput:
    facts = JobOutput(files=[file], tool=RAS, version=ras.version, ranks=ras.ranks or None)
    facts.hosts = dict.fromkeys(ras.hosts)

    def line(rank: int, below: str) -> Evidence:
        """Return the line of a rank, after the key ``below``."""
        at = max(text.find(f'"rank": {rank},', text.find(f'"{below}"')), 0)
        number = text.count("\n", 0, at) + 1
        return Evidence(file, number, text.split("\n")[number - 1])

    for each in ras.behind:
        fields = {
            "rank": str(each.rank),
            "operation": each.operation,
            "count": str(each.count),
            "most": str(each.most),
        }
        facts.note_message("ras.behind", line(each.rank, "ranks"), fields)
    for gone in ras.missing:
        state = "is dead" if gone.dead else "does not answer"
        summary = f"rank {gone.rank} on {gone.host} (pid {gone.pid}) {state}"
        facts.note_message("died.ras", line(gone.rank, "missing_ranks"), {"text": summary})
    for rank, error in ras.errors.items():
        summary = f"rank {rank} has NCCL error {error}"
        facts.note_message("died.ras", line(rank, "ranks"), {"text": summary})
    return facts


class InspectorReader(TableReader):
    """Reads the records of the Inspector."""

    row_triggers = (r'\{"(?:header|coll_perf)"',)

    def row(self, number: int, line: bytes, key: bytes) -> bool:
        record = parse_record(line[:_MOST_RECORD_BYTES]) if line.lstrip()[:1] == b"{" else None
        if record is None:
            return False
        _note_record(self.run, *record, Evidence(self.runs.file, number, decode(line)))
        return True


def _note_record(
    facts: JobOutput,
    place: InspectedPlace | None,
    operation: InspectedOperation | None,
    evidence: Evidence,
) -> None:
    facts.tool = facts.tool or INSPECTOR
    if place:
        facts.note_process(place.host, place.pid)
        facts.ranks = max(facts.ranks or 0, place.ranks)
    if operation and len(facts.readings) < MOST_READINGS:
        name = NCCL_NAMES.get(operation.name, operation.name.lower())
        for kind, rate in (("busbw", operation.busbw), ("algbw", operation.algbw)):
            facts.readings.append(
                Reading(kind, operation.nbytes, rate, evidence=evidence, operation=name)  # type: ignore[arg-type]
            )
