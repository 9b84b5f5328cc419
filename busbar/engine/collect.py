# SPDX-License-Identifier: MIT
"""Read the outputs of a job in one pass and sort their facts into runs and launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from busbar.engine.documents import PICKLE, lines_of
from busbar.engine.inputs import Stream
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import LaunchOutput
from busbar.engine.patterns import patterns
from busbar.engine.reading import Evidence
from busbar.engine.steps import Steps
from busbar.engine.tool import tools
from busbar.errors import BusbarError
from busbar.parse.events import RankPlace
from busbar.parse.mentions import is_document
from busbar.parse.messages import Pattern
from busbar.parse.text import BLOCK_BYTES, Source, blocks
from busbar.parse.wrapped import wrapping

MOST_JSON_BYTES = 16 << 20
END_BYTES = 1 << 12
"""What is kept of either end of a file."""
_DOCUMENT = re.compile(rb"\[?\s*\{|" + b"|".join(PICKLE))


def collect(sources: Sequence[Source], more: Sequence[Pattern] = ()) -> list[JobOutput]:
    """Return the runs in ``sources``, in order; files without a run are context of the runs.

    A file of context, such as one rank's ``NCCL_DEBUG_FILE``, goes to the run that names its
    process, otherwise to all of them. ``more`` are patterns to search beside those of the parsers.
    """
    return joined(facts for source in sources for facts in _read(source, more))


def _read(source: Source, more: Sequence[Pattern]) -> list[JobOutput]:
    try:
        return read(source, more)
    except BusbarError:
        if source.is_optional:
            return []
        raise


def joined(outputs: Iterable[JobOutput]) -> list[JobOutput]:
    """Return the runs in the outputs of files; everything else is their context."""
    runs: list[JobOutput] = []
    context: list[JobOutput] = []
    for facts in outputs:
        (runs if facts.tool or facts.step else context).append(facts)
    if len(runs) < 2 and not any(each.tool for each in runs):
        context, runs = [*runs, *context], []
    if not runs:
        whole = JobOutput()
        for facts in context:
            whole.merge_context(facts)
        return [whole]
    add_context(runs, context)
    return runs


def add_context(runs: Sequence[JobOutput], context: Iterable[JobOutput]) -> None:
    """Merge the context into the runs that it belongs to.

    Context that names processes belongs to their runs, context before the first run of a file to
    that run, and all other context to every run.
    """
    for facts in context:
        own = [run for run in runs if run.processes & facts.processes]
        for run in own or [run for run in runs if {*run.files} & {*facts.files}][:1] or runs:
            run.merge_context(facts)


def read(source: Source, more: Sequence[Pattern] = ()) -> list[JobOutput]:
    """Return the runs of one file: at least one, which is empty if nothing was recognised."""
    with Stream(source) as stream:
        unwrap = wrapping(stream.head)
        steps = Steps(source.name, patterns(tuple(more)), source.first)
        if is_document(stream.head.decode("utf-8", "replace")):
            return steps.finish()
        facts = None if unwrap else _read_json(stream, source.name)
        if facts is not None:
            return [facts]
        head = last = b""
        for number, block in blocks(stream, source.first):
            text = unwrap(block) if unwrap else block
            head, last = head or text[:END_BYTES], text or last
            steps.block(number, text)
        runs = steps.finish()
    runs[-1].ends[source.name] = (head + b"\n" + last[-END_BYTES:]).decode("utf-8", "replace")
    if stream.damage:
        runs[-1].damage[source.name] = stream.damage
    return runs


def _read_json(stream: Stream, name: str) -> JobOutput | None:
    head = stream.head.lstrip()
    if not _DOCUMENT.match(head) or b'"event"' in head.split(b"\n", 1)[0]:
        return None
    pieces: list[bytes] = []
    nbytes = 0
    while nbytes < MOST_JSON_BYTES and (piece := stream.read(BLOCK_BYTES)):
        pieces.append(piece)
        nbytes += len(piece)
    data = b"".join(pieces)
    text = data.decode("utf-8", "replace")
    readers = (tool.document for tool in tools().values() if tool.document)
    facts = None
    with suppress(ValueError):  # broken beyond reading: the line reader goes on
        facts = next((found for read in readers if (found := read(name, text))), None)
    if facts is None:
        stream.unread(lines_of(data, name) or data)
    return facts


_BEGINS = re.compile(r"^\$ \S")


def split(lines: Sequence[str]) -> list[list[str]]:
    """The output of each launch: from its traced command line up to the next one."""
    parts: list[list[str]] = []
    for line in lines:
        if _BEGINS.match(line):
            parts.append([line])
        elif parts:
            parts[-1].append(line)
    return parts


def show(
    name: str,
    lines: Sequence[str],
    others: Sequence[Source] = (),
    more: Sequence[Pattern] = (),
    first: int = 1,
) -> LaunchOutput:
    """Read the output of one launch, whose first line is ``first`` of the file ``name``.

    ``others`` are files that its ranks wrote. ``more`` are patterns as in :func:`collect`.
    """
    try:
        runs = collect([Source.from_text(name, "\n".join(lines) + "\n", first), *others], more)
    except BusbarError as error:  # it is not text
        runs = [JobOutput(files=[name])]
        runs[0].malformed.append((str(error), Evidence(name, first, lines[0] if lines else "")))
    facts = runs[0]
    for other in runs[1:]:  # the same launch: programs that started apart from each other
        facts.merge_context(other)
        facts.readings += other.readings
        facts.finished = facts.finished or other.finished
    ranks = sorted(
        (place for place, _ in facts.events_of(RankPlace)), key=lambda place: place.rank
    )
    return LaunchOutput(facts, tuple(ranks), tuple(lines), name, first)
