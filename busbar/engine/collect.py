# SPDX-License-Identifier: MIT
"""Read the outputs of a job in one pass and sort their facts into runs and launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from busbar.engine.collector import Collector
from busbar.engine.documents import PICKLE, lines_of
from busbar.engine.inputs import Stream
from busbar.engine.job_output import UNNAMED, JobOutput
from busbar.engine.launch import LaunchOutput
from busbar.engine.patterns import Patterns, patterns
from busbar.engine.reading import Evidence
from busbar.engine.tool import tools
from busbar.errors import BusbarError
from busbar.parse.events import RankPlace
from busbar.parse.mentions import is_document
from busbar.parse.messages import Pattern
from busbar.parse.owners import MOST_STREAMS, Owners, has_streams, has_words, stream_of
from busbar.parse.text import BLOCK_BYTES, Source, blocks, decode
from busbar.parse.wrapped import wrapping

# ---- The steps in one file: each launch of a program is read apart from all others
# A benchmark and another program (a training, a script of the site) share a log one after the
# other or line by line. A line shows its program by the row of a table, a process id that the
# table lists, the words of a runtime that no benchmark has, a command line, or the prefix of a log
# collector. A line that shows none of these belongs to the program of the line before.
MOST_STEPS = 64
LONGEST_NAME = 60
"""Bytes of a command by which a step is called."""


class _Step:
    """What reads the lines of one step."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Empty if it is a benchmark, or what comes with one."""
        self.is_program = False
        """Whether it certainly is a different program; otherwise it is one only if it failed."""
        self.first = 0
        """The number of its first line; 0 without one."""
        self._collector: Collector | None = None

    def block(self, number: int, text: bytes, file: str, table: Patterns) -> None:
        self.first = self.first or number
        self._collector = self._collector or Collector(file, table, number)
        self._collector.block(number, text)

    def finish(self) -> Iterator[JobOutput]:
        for facts in self._collector.finish() if self._collector else ():
            apart = not facts.tool and (self.is_program or facts.has_failed)
            facts.step = self.name if apart else ""
            yield facts


class _Stream:
    """The lines before which a collector writes one name, or all lines of a file."""

    def __init__(self, steps: Steps, name: str) -> None:
        self._steps, self._name = steps, name
        self._owners = Owners()
        self._own: _Step | None = steps.begin(name)
        """The benchmarks, which the collector distinguishes."""
        self._other: _Step | None = None
        self._last = self._own

    def block(self, number: int, text: bytes) -> None:
        """Read a block of lines; those of other streams are empty in it."""
        owners = self._owners
        if owners.shows_nothing(text, words=self._other is None):
            self._steps.read(self._last, number, text)
            return
        owners.learn(text)
        if not owners.benchmark and self._other is None and has_words(text):
            # The lines so far belong to another program; a benchmark may follow.
            self._own, self._other = None, self._own
        parts = list(self._parts(text))
        for step in dict.fromkeys(part for part, _ in parts):
            own = b"".join(
                lines if part is step else b"\n" * lines.count(b"\n") for part, lines in parts
            )
            first = len(own) - len(own.lstrip(b"\n")) if len(parts) > 1 else 0
            self._steps.read(step, number + first, own[first:])

    def _parts(self, text: bytes) -> Iterator[tuple[_Step, bytes]]:
        """Yield the pieces of a block with their steps."""
        last = ("own" if self._last is self._own else "other") if self._last.first else ""
        # The lines before the first mark belong to the program that the mark shows.
        begin, step = 0, self._last if last else None
        for at, kind in self._owners.marks(text, last):
            new = self._step(kind, text[at : at + LONGEST_NAME].split(b"\n", 1)[0])
            if step and new is not step and at > begin:
                yield step, text[begin:at]
                begin = at
            step = new
        self._last = step or self._last
        yield self._last, text[begin:]

    def _step(self, kind: str, line: bytes) -> _Step:
        if kind == "own":
            self._own = self._own or self._steps.begin("")
            return self._own
        if self._other is None or kind == "new":
            command = decode(line).lstrip("$+ ") if kind == "new" else ""
            name = command or self._name or UNNAMED
            self._other = self._steps.begin(name)
        self._other.is_program = self._other.is_program or kind != "process"
        return self._other


class Steps:
    """Reads one file block by block, and sorts its lines into steps."""

    def __init__(self, file: str, table: Patterns, first: int = 1) -> None:
        self._file, self._table, self._first = file, table, first
        self._all: list[_Step] = []
        self._streams: dict[bytes, _Stream] = {}
        self._is_split = False

    def begin(self, name: str) -> _Step:
        """Return a new step; the last one goes on if there are too many."""
        if len(self._all) < MOST_STEPS:
            self._all.append(_Step(name))
        return self._all[-1]

    def read(self, step: _Step, number: int, text: bytes) -> None:
        """Read lines of a step."""
        step.block(number, text, self._file, self._table)

    def block(self, number: int, text: bytes) -> None:
        """Read a block of lines, the first of which has the given number."""
        if number == self._first:
            self._is_split = has_streams(text)
        if not self._is_split:
            self._stream(b"").block(number, text)
            return
        last, owned = b"", []
        for line in text.split(b"\n"):
            last = stream_of(line) or last
            owned.append((last, line))
        for name in dict.fromkeys(name for name, _ in owned):
            lines = [line if owner == name else b"" for owner, line in owned]
            first = next(at for at, (owner, _) in enumerate(owned) if owner == name)
            self._stream(name).block(number + first, b"\n".join(lines[first:]))

    def _stream(self, name: bytes) -> _Stream:
        if name not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                return next(iter(self._streams.values()))
            self._streams[name] = _Stream(self, name.decode("utf-8", "replace"))
        return self._streams[name]

    def finish(self) -> list[JobOutput]:
        """Return the runs and the steps of other programs in the order of their beginnings."""
        ordered = sorted(self._all, key=lambda step: step.first)
        found = [facts for step in ordered for facts in step.finish()]
        return found or [JobOutput(files=[self._file])]


# ---- All files of a job
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
