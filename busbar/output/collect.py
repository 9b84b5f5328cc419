# SPDX-License-Identifier: MIT
"""Reads outputs in one pass and sorts what they say into runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from busbar.output.job_output import MOST_HOSTS, MOST_PATHS, JobOutput, Occurrence
from busbar.output.json_runs import from_json
from busbar.output.reading import Evidence
from busbar.output.tables import Tables
from busbar.parse import launch, nccl_log, nccl_tests, nvidia_smi, ofi, ucx_log
from busbar.parse.messages import Pattern, match
from busbar.parse.text import (
    LABEL,
    Source,
    decode,
    label_key,
    line_blocks,
    open_plain,
    read_bytes,
)

MOST_JSON_BYTES = 16 << 20
MOST_PREFIXES = 100_000
_SHELL_BYTES = (b"$", b"+", b"e", b"E", b"r", b" ")
"""How a traced command and ``exit_status=N`` begin."""
_ROW_BYTES = frozenset(b" \t0123456789")
_OTHER_TABLES: tuple[Pattern, ...] = (
    *ucx_log.TABLE,
    *ofi.TABLE,
    *launch.ALL,
    *nvidia_smi.TABLE,
)
# One look decides for most lines that none of the patterns can match.
_ANY_NEEDLE = re.compile(b"|".join(sorted({re.escape(row.needle) for row in _OTHER_TABLES})))
_STARTS_OF_A_PROCESS = frozenset({"ucx.version", "ucx.api-mismatch", "ucx.env"})


def collect(sources: Sequence[Source]) -> list[JobOutput]:
    """The runs in ``sources``, in order; files without a run of their own are context of the runs.

    A file of context, such as one rank's ``NCCL_DEBUG_FILE``, goes to the run that names its
    process, or else to all of them.
    """
    runs: list[JobOutput] = []
    context: list[JobOutput] = []
    for source in sources:
        for facts in read(source):
            if facts.empty:
                facts.files = [source.name]
            (runs if facts.tool else context).append(facts)
    if not runs:
        whole = JobOutput()
        for facts in context:
            whole.merge_context(facts)
        return [whole]
    for facts in context:
        owners = [run for run in runs if run.processes & facts.processes] or runs
        for run in owners:
            run.merge_context(facts)
    return runs


def read(source: Source) -> list[JobOutput]:
    """The runs of one file; at least one, which is empty when nothing was recognised."""
    facts = _read_json(source)
    if facts is not None:
        return [facts]
    collector = Collector(source.name)
    for number, lines in line_blocks(source):
        collector.block(number, lines)
    return collector.finish()


def _read_json(source: Source) -> JobOutput | None:
    with open_plain(source) as stream:
        start = read_bytes(stream, 4096)
        head = start.lstrip()
        if not head.startswith(b"{") or b'"event"' in head.split(b"\n", 1)[0]:
            return None
        text = (start + read_bytes(stream, MOST_JSON_BYTES)).decode("utf-8", "replace")
    try:
        run = nccl_tests.parse_json(text)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None  # JSON of another kind, or broken beyond reading: the line reader goes on
    return from_json(run, source.name, text) if run else None


class Collector:
    """The state of reading one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: list[JobOutput] = []
        self.facts = JobOutput(files=[name])
        self.tables = Tables(self)
        self._prefixes: set[bytes] = set()
        self._tokens: set[bytes] = set()
        self._hosts: set[bytes] = set()

    # ---- runs
    def begin_run(self) -> JobOutput:
        """A new run, unless the present one has not begun."""
        if self.facts.tool:
            self.runs.append(self.facts)
            self.facts = JobOutput(files=[self.name])
        return self.facts

    def finish(self) -> list[JobOutput]:
        """All runs; what follows the last one without being a run belongs to it."""
        self.tables.end_of_file()
        if self.runs and not self.facts.tool:
            if not self.facts.empty:
                self.runs[-1].merge_context(self.facts)
            return self.runs
        return [*self.runs, self.facts]

    def evidence(self, number: int, line: bytes) -> Evidence:
        """The line as evidence."""
        return Evidence(self.name, number, decode(line))

    # ---- lines
    def block(self, number: int, lines: Iterable[bytes]) -> None:
        """The inner loop; a log of half a gigabyte has millions of lines, hence its shape."""
        marker, width = nccl_log.INFO, len(nccl_log.INFO)
        candidates = nccl_log.candidates
        prefixes = self._prefixes
        for at, line in enumerate(lines, number):
            found = line.find(marker)
            if found < 0:
                if line:
                    self._other(at, line)
                continue
            prefix = line[:found]
            if prefix not in prefixes:
                self._new_prefix(at, line, prefix)
            start = found + width
            head = line[start : start + 4]
            if head in (b"Chan", b"Ring"):
                self._channel(at, line, start)
            elif head == b"NET/" and line.startswith((b"OFI ", b"Plugin: Loaded"), start + 4):
                self._messages(at, line, ofi.TABLE)
            else:
                for pattern in candidates(line, start):
                    if pattern.needle in line:
                        self._nccl(at, line, start, (pattern,))

    def _new_prefix(self, number: int, line: bytes, prefix: bytes) -> None:
        """Learns who prints; what stands before the process is a label, a time, or a piece of
        a row."""
        token = prefix.rpartition(b" [")[0].rpartition(b" ")[2]
        if token in self._tokens and line[0] not in _ROW_BYTES:
            return  # only the time before it is new
        start = nccl_log.process_start(line[:4096], self._hosts)
        front = line[:start]
        label = LABEL.match(front)
        if label:
            front = front[label.end() :]
        if front.strip():
            self.tables.piece(number, front, label_key(label))
        elif len(self._prefixes) < MOST_PREFIXES:
            self._prefixes.add(prefix)
        process = nccl_log.parse_process(line[start:])
        if process and line.startswith(token, start) and len(self._tokens) < MOST_PREFIXES:
            self._tokens.add(token)
        if process and len(self.facts.processes) < MOST_HOSTS:
            self._hosts.add(process.host.encode())
            self.facts.hosts.setdefault(process.host)
            self.facts.processes.add((process.host, process.pid))

    def _channel(self, number: int, line: bytes, start: int) -> None:
        facts = self.facts
        via = line.rfind(nccl_log.VIA)
        if via < 0:
            ring = nccl_log.parse_ring(line[start:])
            if ring:
                facts.rings.setdefault(ring.channel, (ring, self.evidence(number, line)))
            return
        way = line[via + 5 : via + 69]
        if way.startswith((b"NET/", b"COLLNET/")):
            path = nccl_log.parse_net_path(line[start : start + 512])
            if path is None:
                return
            kind = f"NET/{path.network}" + ("/GDRDMA" if path.gdr else "")
            if path not in facts.paths and len(facts.paths) < MOST_PATHS:
                facts.paths[path] = self.evidence(number, line)
        else:
            kind = way.split(b"[", 1)[0].decode("utf-8", "replace").strip()
        if kind not in facts.transports:
            facts.transport_lines[kind] = self.evidence(number, line)
        facts.transports[kind] += 1

    def _nccl(
        self, number: int, line: bytes, start: int, table: tuple[Pattern, ...] | None = None
    ) -> None:
        facts = self.facts
        message_bytes = line[start:]
        messages = nccl_log.parse(message_bytes, table) if table else nccl_log.parse(message_bytes)
        for message in messages:
            evidence = self.evidence(number, line)
            if message.kind == "nccl.env":
                facts.note_setting(message.values[0], message.values[1], evidence)
            facts.note_message(message.kind, message.values, evidence)

    def _messages(self, number: int, line: bytes, table: tuple[Pattern, ...]) -> None:
        for message in match(table, line):
            if message.kind in _STARTS_OF_A_PROCESS and self.facts.readings:
                self.begin_run()
            self.facts.note_message(message.kind, message.values, self.evidence(number, line))
            if message.kind == "ucx.env":
                for name, value in ucx_log.parse_settings(message.values[0]).items():
                    self.facts.note_setting(name, value, self.evidence(number, line))
            elif message.kind == "ofi.process" and not self.facts.tool:
                self.facts.tool = "nccl_message_transfer"
            elif message.kind == "ofi.process":
                self.facts.hosts.setdefault(message.values[1])

    def _other(self, number: int, line: bytes) -> None:
        label = LABEL.match(line)
        if label:
            line = line[label.end() :]
        if self.tables.line(number, line, label_key(label)):
            return
        self._library(number, line)
        if process := ucx_log.LINE.search(line[:512]):
            host = process[1].decode("utf-8", "replace")
            if len(self.facts.processes) < MOST_HOSTS:
                self.facts.hosts.setdefault(host)
                self.facts.processes.add((host, int(process[2])))
        elif line[:1] in _SHELL_BYTES:
            self._shell(number, line)
        if report := nvidia_smi.parse_report(decode(line, 200)):
            self.facts.reports.setdefault(report, self.evidence(number, line))

    def _library(self, number: int, line: bytes) -> None:
        """Messages of NCCL without its usual prefix, of UCX, MPI and the launcher."""
        at = line.find(nccl_log.WARN)
        if at >= 0:
            self._nccl(number, line, at + len(nccl_log.WARN))
            if b"NET/" in line:
                self._messages(number, line, ofi.TABLE)
            self.facts.note_message(
                "nccl.warn",
                (decode(line[at + len(nccl_log.WARN) :], 300),),
                self.evidence(number, line),
            )
        elif b"CCL version" in line:
            self._nccl(number, line, max(line.find(b"NCCL version"), line.find(b"RCCL version")))
        if _ANY_NEEDLE.search(line):
            self._messages(number, line, _OTHER_TABLES)
        if b"tag(" in line or b"cfg[" in line or b"cfg#" in line:
            self._endpoint(number, line)

    def _endpoint(self, number: int, line: bytes) -> None:
        endpoint = ucx_log.parse_endpoint(decode(line))
        if endpoint is None:
            return
        if seen := self.facts.endpoints.get(endpoint):
            seen.count += 1
        elif len(self.facts.endpoints) < MOST_HOSTS:
            self.facts.endpoints[endpoint] = _seen(self.evidence(number, line))

    def _shell(self, number: int, line: bytes) -> None:
        text = decode(line)
        status = launch.parse_exit_status(text)
        if status is not None:
            if self.facts.exit_status is None or self.facts.exit_status[0] == 0:
                self.facts.exit_status = (status, self.evidence(number, line))
            return
        exported = launch.parse_export(text)
        command = None if exported else launch.parse_command(text)
        if exported or command:
            if self.facts.readings or self.facts.exit_status:
                self.begin_run()
            evidence = self.evidence(number, line)
            if exported:
                self.facts.note_setting(*exported, evidence)
            if command:
                self.facts.commands.append((command, evidence))
                for name, value in command.environment.items():
                    self.facts.note_setting(name, value, evidence)


def _seen(evidence: Evidence) -> Occurrence:
    return Occurrence((), evidence)
