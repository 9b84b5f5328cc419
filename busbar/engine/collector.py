# SPDX-License-Identifier: MIT
"""Read one file line by line, and sort its facts into runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import re2

from busbar.engine.job_output import MOST_HOSTS, MOST_PATHS, JobOutput, Occurrence
from busbar.engine.patterns import BEGINNINGS, Boxes, Patterns, Role
from busbar.engine.recent import Recent, read_shell
from busbar.engine.runs import Runs
from busbar.engine.tables import Tables
from busbar.engine.tool import started_by
from busbar.parse import nccl_log, numbers, nvidia_smi, ucx_log
from busbar.parse.mentions import is_other_text
from busbar.parse.messages import HEAD_BYTES, Message, Pattern, match, search
from busbar.parse.prefix import Prefixes
from busbar.parse.text import BLOCK_BYTES, decode

MOST_PREFIXES = 20_000
DENSE = 4
"""If more than one in this many lines is read, checking each line beats a search."""
DENSE_BLOCKS = 16
"""Blocks that are taken for dense after one that was."""
_COUNTED = (Role.WARNING, Role.SHELL, Role.PROCESS)
"""Roles of lines that a log can repeat like messages."""
_CONNECTIONS = (b"Chan", b"Ring")
_ROW_BYTES = frozenset(b" \t0123456789")
_STARTS_OF_A_PROCESS = frozenset({"ucx.version", "ucx.api-mismatch", "ucx.env"})


class Collector:
    """Reads one file line by line."""

    def __init__(self, name: str, table: Patterns, first: int = 1) -> None:
        self.runs = Runs(name)
        self._first = first
        self.tables = Tables(self.runs)
        self._patterns = table
        self._line_prefixes = Prefixes()
        self._recent = Recent()
        self._readers: dict[Role, Callable[[int, bytes], None]] = {
            Role.VERSION: self._version,
            Role.SHELL: partial(read_shell, self.runs, self._recent),
            Role.PROCESS: self._process,
            Role.ENDPOINT: self._endpoint,
            Role.RULE: self._rule,
        }
        self._started = started_by()
        self._prefixes: set[bytes] = set()
        self._tokens: set[bytes] = set()
        self._full = False
        """Whether no more processes are noted."""
        self._dense_blocks = 0
        """Number of further blocks in which each line is checked."""
        self._transports: dict[bytes, str] = {}
        """Names by what follows `via` in a line."""
        self._hosts: set[bytes] = set()
        self._boxes = Boxes(self._recent, self._line_prefixes)

    def finish(self) -> list[JobOutput]:
        self.tables.end_of_file(self._recent.end - 1)
        self._note_complaint(self.runs.current, self._recent.end)
        return self.runs.finish()

    def block(self, number: int, block: bytes) -> None:
        """Read a block of lines, the first of which has the given number."""
        if self.runs.full:
            self.runs.drop(number, block.split(b"\n", 1)[0])
            return
        self._recent.add(number, block)
        if number == self._first:
            self._learn(block)
        nlines = block.count(b"\n") + 1
        if self.tables.drops_rows:
            self._dense_blocks = 0  # most lines are rows, which a search leaves out
            for expression in self._patterns.row_lines:
                self.runs.shapes.skip_lines(expression)
        if self._dense_blocks or block.count(nccl_log.INFO) * DENSE > nlines:
            self._lines(self.runs.unworn(number, block))
            self._dense_blocks = max(0, self._dense_blocks - 1)
        elif self._lines(self._triggered(number, block)) * DENSE > nlines:
            self._dense_blocks = DENSE_BLOCKS

    def _learn(self, block: bytes) -> None:
        """Learn the prefixes of the first lines before one of them is read."""
        for _, line in self._triggered(1, block[: BLOCK_BYTES >> 2]):
            owners = self._patterns.triggers.of(line)
            if owners and owners[0] in BEGINNINGS:
                self._line_prefixes.learn(line)
        self._line_prefixes.learn_repeated(block[: BLOCK_BYTES >> 4].split(b"\n", 99)[:99])

    def _lines(self, lines: Iterable[tuple[int, bytes]]) -> int:
        """Read lines and return their number.

        This loop is written for logs of half a gigabyte, with millions of lines.
        """
        marker, nlines = nccl_log.INFO, 0
        for at, line in lines:
            nlines += 1
            prefix_bytes = line.find(marker)
            if prefix_bytes >= 0:
                self._info(at, line, prefix_bytes)
            elif line:
                self._other(at, line)
        return nlines

    def _triggered(self, number: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        """Return the lines with a trigger; after the head of a table those like a row as well."""
        return self.runs.found(number, block, self._searcher)

    def _searcher(self) -> re2.Expression:
        """Return what finds the next line to be read."""
        if self.tables.drops_rows:
            return self._patterns.any_but_rows
        if self.tables.row_is_cut:
            return self._patterns.any_or_number
        if self.tables.rows_are_plain:
            return self._patterns.any_or_row
        return self._patterns.any if self._measures else self._patterns.any_before_results

    @property
    def _measures(self) -> bool:
        """Whether the run is of a benchmark, or may follow one in the file."""
        return bool(self._first > 1 or self.runs.current.tool or self.runs.current.readings)

    def _info(self, at: int, line: bytes, prefix_bytes: int) -> None:
        """Read a line of ``NCCL_DEBUG=INFO``."""
        prefix = line[:prefix_bytes]
        if prefix not in self._prefixes and (not self._full or line[0] in _ROW_BYTES):
            self._new_prefix(at, line, prefix)
        start = prefix_bytes + len(nccl_log.INFO)
        head = line[start : start + HEAD_BYTES]
        if head in _CONNECTIONS:
            self._channel(at, line, start)
        by_head = self._patterns.by_head
        rows = by_head.get(head) or by_head.get(head[:1])
        if not rows:
            return
        shapes, text = self.runs.shapes, line[start:]
        if text in shapes.worn:
            return
        seen = [row for row in rows if row.needle in text]
        if not seen:
            return
        if shapes.is_worn(text):
            if self._full and line[0] not in _ROW_BYTES and head not in _CONNECTIONS:
                shapes.skip_like(line, start)
        else:
            shapes.count()
            self._messages(at, line, match(seen, text))

    def _new_prefix(self, number: int, line: bytes, prefix: bytes) -> None:
        """Note the process that prints; text before it is a label, a time, or part of a row."""
        token = prefix.rpartition(b" [")[0].rpartition(b" ")[2]
        known = self._full or token in self._tokens
        if known and line[0] not in _ROW_BYTES:
            return  # only the time before it is new
        start = len(prefix) - len(token) - len(prefix.rpartition(b" [")[2]) - 2 if known else 0
        start = start or nccl_log.process_start(line[:4096], self._hosts)
        rank, front = self._line_prefixes.cut(line[:start])
        if front.strip():
            self.tables.piece(number, front, rank)
        elif len(self._prefixes) < MOST_PREFIXES:
            self._prefixes.add(prefix)
        if known:
            return
        process = nccl_log.PROCESS.match(line[start:])
        if process and line.startswith(token, start):
            self._tokens.add(token)
            self._full = len(self._tokens) >= MOST_PREFIXES
        run = self.runs.current
        if process and len(run.processes) < MOST_HOSTS:
            self._hosts.add(process["host"])
            run.note_process(process["host"].decode(), numbers.count(process["pid"]))

    def _channel(self, number: int, line: bytes, start: int) -> None:
        run = self.runs.current
        via = line.rfind(nccl_log.VIA)
        if via < 0:
            ring = nccl_log.parse_ring(line[start:])
            if ring:
                run.rings.setdefault(ring.channel, (ring, self.runs.evidence(number, line)))
            return
        transport = line[via + 5 : via + 69]
        name = self._transports.get(transport)
        crosses = transport.startswith((b"NET/", b"COLLNET/"))
        if name is None or (crosses and len(run.paths) < MOST_PATHS):
            path = nccl_log.parse_net_path(line[start : start + 512]) if crosses else None
            if path:
                name = path.way
                if path not in run.paths and len(run.paths) < MOST_PATHS:
                    run.paths[path] = self.runs.evidence(number, line)
            else:
                name = transport.split(b"[", 1)[0].decode("utf-8", "replace").strip()
            if len(self._transports) < MOST_HOSTS:
                self._transports[transport] = name
        if name not in run.transports:
            run.transport_lines[name] = self.runs.evidence(number, line)
        run.transports[name] += 1

    def _messages(self, number: int, line: bytes, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.kind in _STARTS_OF_A_PROCESS and self.runs.current.readings:
                self.runs.begin()
            run = self.runs.current
            if message.kind.startswith("died"):
                self._note_complaint(run, number)
            if run.counts(message.kind, message.fields):
                continue
            evidence = self.runs.evidence(number, line)
            self._note_context(run, number, message.kind)
            run.note_message(message.kind, evidence, message.fields)
            if message.kind == "nccl.env":
                run.note_setting(message["name"], message["value"], evidence)
            elif message.kind == "ucx.env":
                for name, value in ucx_log.parse_settings(message["settings"]).items():
                    run.note_setting(name, value, evidence)
            elif message.kind in self._started:
                self._process_of(run, self._started[message.kind], message["host"])

    @staticmethod
    def _process_of(run: JobOutput, tool: str, host: str) -> None:
        """Record a tool's process that reports its node; only the first one begins the run."""
        if run.tool:
            run.hosts.setdefault(host)
        run.tool = run.tool or tool

    def _other(self, number: int, line: bytes) -> None:
        if self.runs.full:
            self.runs.drop(number, line)
            return
        warning = line.find(nccl_log.WARN)
        shapes = self.runs.shapes
        if shapes.is_worn(line[warning:] if warning > 0 else line):
            shapes.skip_like(line, max(warning, 0))
            return  # whichever process prints it
        owners = self._patterns.triggers.of(line)
        begins = bool(owners) and owners[0] in BEGINNINGS
        if begins:
            self._line_prefixes.learn(line)
        in_table = begins or self.tables.rows_are_plain or self.tables.row_is_cut
        if not owners and not in_table:
            return
        text = b""  # cut off its prefix when that is needed
        if in_table:
            rank, text = self._line_prefixes.cut(line)
            if self.tables.line(number, text, rank):
                if self.tables.repeats:
                    shapes.count()
                return
        if owners:
            self._owned(number, line, text, owners)

    def _owned(
        self, number: int, line: bytes, text: bytes, owners: Sequence[Pattern | Role]
    ) -> None:
        """Read a line that has triggers."""
        known = [each for each in owners if each not in self._patterns.unclear]
        if known and all(isinstance(each, Pattern) or each in _COUNTED for each in known):
            self.runs.shapes.count()
        for owner in owners if self._measures else known:
            if isinstance(owner, Pattern):
                excused = owner.excused and owner.excused(line)
                if not excused and not self.runs.current.has_enough(owner.kind):
                    self._message(number, line, owner)
            elif owner is Role.WARNING:
                self._warning(number, line)
            else:
                self._read(number, line, text, owner)

    def _read(self, number: int, line: bytes, text: bytes, role: Role) -> None:
        """Call the reader of a role; ``text`` is the line without its prefix, if that was cut."""
        if role is Role.REPORT:
            self._report(number, line, text or self._line_prefixes.cut(line).text)
        elif role in self._readers:
            self._readers[role](number, text or self._line_prefixes.cut(line).text)

    def _message(self, number: int, line: bytes, pattern: Pattern) -> None:
        """Note the message of a pattern; an anchored one begins the line after its prefix."""
        found = search(pattern, line)
        if not found and pattern.anchored:
            found = search(pattern, self._line_prefixes.cut(line).text)
            if found and is_other_text(decode(line)):
                return
        if found and not self._recent.introduces(number):
            self._messages(number, line, (found,))

    def _rule(self, number: int, _: bytes) -> None:
        for first, whole, found in self._boxes.messages(number, self._patterns.triggers):
            self._messages(first, whole, (found,))

    def _note_context(self, run: JobOutput, number: int, kind: str) -> None:
        """Note the lines around the first message of a kind, and the one that names its node."""
        if kind not in run.messages and (place := self._recent.place(number)):
            run.places[kind] = self.runs.evidence(*place)
        if kind in self._patterns.in_context and kind not in run.around:
            run.around[kind] = [self.runs.evidence(*each) for each in self._recent.around(number)]

    def _note_complaint(self, run: JobOutput, end: int) -> None:
        """Note the nearest line before ``end`` that complains: it can say why a run ended."""
        if run.complaint is None and (found := self._recent.complaint(end)):
            run.complaint = self.runs.evidence(*found)

    def _process(self, _: int, line: bytes) -> None:
        if process := ucx_log.LINE.search(line[:512]):
            host = process["host"].decode("utf-8", "replace")
            self.runs.current.note_process(host, numbers.count(process["pid"]))

    def _report(self, number: int, *texts: bytes) -> None:
        for text in texts:
            if report := nvidia_smi.parse_report(decode(text, 200)):
                self.runs.current.reports.setdefault(report, self.runs.evidence(number, text))
                return

    def _version(self, number: int, line: bytes) -> None:
        if nccl_log.WARN not in line:
            at = max(line.find(b"NCCL version"), line.find(b"RCCL version"))
            self._messages(number, line, self._patterns.warning(line[at:]))

    def _warning(self, number: int, line: bytes) -> None:
        text = line[line.find(nccl_log.WARN) + len(nccl_log.WARN) :]
        messages = list(self._patterns.warning(text))
        enough = self.runs.current.has_enough("nccl.warn")
        if enough and not messages:
            return
        if messages and self._recent.introduces(number):
            return
        self._messages(number, line, messages)
        if enough:
            return
        warning = {"text": decode(text, 300)}
        run = self.runs.current
        if not run.counts("nccl.warn", warning):
            run.note_message("nccl.warn", self.runs.evidence(number, line), warning)

    def _endpoint(self, number: int, line: bytes) -> None:
        endpoint = ucx_log.parse_endpoint(decode(line))
        if endpoint is None:
            return
        endpoints = self.runs.current.endpoints
        if occurrence := endpoints.get(endpoint):
            occurrence.count += 1
        elif len(endpoints) < MOST_HOSTS:
            endpoints[endpoint] = Occurrence({}, self.runs.evidence(number, line))
