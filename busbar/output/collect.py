# SPDX-License-Identifier: MIT
"""Read the outputs of a job in one pass and sort their facts into runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from busbar.output.job_output import (
    MOST_HOSTS,
    MOST_PATHS,
    ExitStatus,
    JobOutput,
    Occurrence,
)
from busbar.output.json_runs import from_json
from busbar.output.monitor import INSPECTOR_BEGINNINGS, from_ras, note_record
from busbar.output.patterns import Patterns, patterns
from busbar.output.runs import Runs
from busbar.output.tables import Tables
from busbar.parse import (
    launch,
    nccl_log,
    nccl_monitor,
    nccl_tests,
    numbers,
    nvidia_smi,
    ucx_log,
)
from busbar.parse.messages import HEAD_BYTES, Message, Pattern, match
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
MOST_RECORD_BYTES = 1 << 16
MOST_PREFIXES = 100_000
_SHELL_BYTES = (b"$", b"+", b"e", b"E", b"r", b" ")
"""How a traced command and ``exit_status=N`` begin."""
_COMMAND_WORDS = (b"mpirun", b"mpiexec", b"srun", b"prterun", b"_perf", b"osu_")
_ASSIGNMENT = re.compile(rb"[A-Z][A-Z0-9_]+=\S")
_MOST_RECENT = 40
"""Lines before the end of a run in which its reason is searched."""
_LONGEST_COMMAND = 8192
_COMPLAINT = re.compile(
    rb"(?i)error|fail|fatal|cannot|can't|unable|abort|denied|refused|no such|not found|invalid"
    rb"|killed|timed out|exception|warn|illegal|unreachable|exceeded|unexpected|corrupt"
)
_NO_COMPLAINT = re.compile(rb"(?i)no errors?\b|\b0 errors?\b|errors?\s*[:=]?\s*0\b|without error")
"""What healthy output says of errors."""
_CONNECTIONS = (b"Chan", b"Ring")
_ROW_BYTES = frozenset(b" \t0123456789")
_STARTS_OF_A_PROCESS = frozenset({"ucx.version", "ucx.api-mismatch", "ucx.env"})


def collect(sources: Sequence[Source], more: Sequence[Pattern] = ()) -> list[JobOutput]:
    """Return the runs in ``sources``, in order; files without a run are context of the runs.

    A file of context, such as one rank's ``NCCL_DEBUG_FILE``, goes to the run that names its
    process, or else to all of them. ``more`` are patterns to search beside those of the parsers.
    """
    runs: list[JobOutput] = []
    context: list[JobOutput] = []
    for source in sources:
        for facts in read(source, more):
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


def read(source: Source, more: Sequence[Pattern] = ()) -> list[JobOutput]:
    """Return the runs of one file: at least one, which is empty if nothing was recognised."""
    facts = _read_json(source)
    if facts is not None:
        return [facts]
    collector = _Collector(source.name, patterns(tuple(more)))
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
        if ras := nccl_monitor.parse_ras(text):
            return from_ras(ras, source.name, text)
        run = nccl_tests.parse_json(text)
    except ValueError:
        return None  # JSON of another kind, or broken beyond reading: the line reader goes on
    return from_json(run, source.name, text) if run else None


class _Collector:
    """Reads one file line by line."""

    def __init__(self, name: str, table: Patterns) -> None:
        self.runs = Runs(name)
        self.tables = Tables(self.runs)
        self._patterns = table
        self._prefixes: set[bytes] = set()
        self._tokens: set[bytes] = set()
        self._hosts: set[bytes] = set()
        self._block: tuple[int, list[bytes]] = (1, [])
        """The lines that are being read and those just before, with the number of the first."""
        self._continued = b""
        """A command line whose last line ended in a backslash."""

    def finish(self) -> list[JobOutput]:
        self.tables.end_of_file()
        first, lines = self._block
        self._note_complaint(self.runs.current, first + len(lines))
        return self.runs.finish()

    def block(self, number: int, lines: list[bytes]) -> None:
        """Read lines. This loop is written for logs of half a gigabyte, with millions of lines."""
        before = self._block[1][-_MOST_RECENT:]
        self._block = (number - len(before), before + lines)
        marker, width = nccl_log.INFO, len(nccl_log.INFO)
        by_head = self._patterns.by_head
        prefixes = self._prefixes
        for at, line in enumerate(lines, number):
            prefix_bytes = line.find(marker)
            if prefix_bytes < 0:
                if line:
                    self._other(at, line)
                continue
            prefix = line[:prefix_bytes]
            if prefix not in prefixes:
                self._new_prefix(at, line, prefix)
            start = prefix_bytes + width
            head = line[start : start + HEAD_BYTES]
            if head in _CONNECTIONS:
                self._channel(at, line, start)
            for pattern in by_head.get(head) or by_head.get(head[:1], ()):
                if pattern.needle in line:
                    self._messages(at, line, match((pattern,), line[start:]))

    def _new_prefix(self, number: int, line: bytes, prefix: bytes) -> None:
        """Note the process that prints; text before it is a label, a time, or part of a row."""
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
        run = self.runs.current
        if process and len(run.processes) < MOST_HOSTS:
            self._hosts.add(process.host.encode())
            run.note_process(process.host, process.pid)

    def _channel(self, number: int, line: bytes, start: int) -> None:
        run = self.runs.current
        via = line.rfind(nccl_log.VIA)
        if via < 0:
            ring = nccl_log.parse_ring(line[start:])
            if ring:
                run.rings.setdefault(ring.channel, (ring, self.runs.evidence(number, line)))
            return
        transport = line[via + 5 : via + 69]
        if transport.startswith((b"NET/", b"COLLNET/")):
            path = nccl_log.parse_net_path(line[start : start + 512])
            if path is None:
                return
            name = f"NET/{path.network}" + ("/GDRDMA" if path.gdr else "")
            if path not in run.paths and len(run.paths) < MOST_PATHS:
                run.paths[path] = self.runs.evidence(number, line)
        else:
            name = transport.split(b"[", 1)[0].decode("utf-8", "replace").strip()
        if name not in run.transports:
            run.transport_lines[name] = self.runs.evidence(number, line)
        run.transports[name] += 1

    def _messages(self, number: int, line: bytes, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.kind in _STARTS_OF_A_PROCESS and self.runs.current.readings:
                self.runs.begin()
            run, evidence = self.runs.current, self.runs.evidence(number, line)
            if message.kind.startswith("died"):
                self._note_complaint(run, number)
            run.note_message(message.kind, evidence, message.fields)
            if message.kind == "nccl.env":
                run.note_setting(message["name"], message["value"], evidence)
            elif message.kind == "ucx.env":
                for name, value in ucx_log.parse_settings(message["settings"]).items():
                    run.note_setting(name, value, evidence)
            elif message.kind == "ofi.process" and not run.tool:
                run.tool = "nccl_message_transfer"
            elif message.kind == "ofi.process":
                run.hosts.setdefault(message["host"])

    def _other(self, number: int, line: bytes) -> None:
        label = LABEL.match(line)
        if label:
            line = line[label.end() :]
        if self.tables.line(number, line, label_key(label)):
            return
        if line.startswith(INSPECTOR_BEGINNINGS) and (
            record := nccl_monitor.parse_record(line[:MOST_RECORD_BYTES])
        ):
            note_record(self.runs.current, *record, self.runs.evidence(number, line))
            return
        self._library(number, line)
        run = self.runs.current
        if process := ucx_log.LINE.search(line[:512]):
            run.note_process(
                process["host"].decode("utf-8", "replace"), numbers.count(process["pid"])
            )
        elif (
            self._continued
            or line[:1] in _SHELL_BYTES
            or _ASSIGNMENT.match(line)
            or any(word in line for word in _COMMAND_WORDS)
        ):
            self._shell(number, line)
        if report := nvidia_smi.parse_report(decode(line, 200)):
            self.runs.current.reports.setdefault(report, self.runs.evidence(number, line))

    def _note_complaint(self, run: JobOutput, end: int) -> None:
        """Note the nearest line before ``end`` that complains: it can say why a run ended."""
        first, lines = self._block
        if run.complaint:
            return
        for number in range(end - 1, max(first, end - _MOST_RECENT) - 1, -1):
            line = lines[number - first][:1024]
            if _COMPLAINT.search(line) and not _NO_COMPLAINT.search(line):
                run.complaint = self.runs.evidence(number, line)
                return

    def _library(self, number: int, line: bytes) -> None:
        """Read messages of NCCL without its INFO prefix, of UCX, MPI and the launcher."""
        at = line.find(nccl_log.WARN)
        if at >= 0:
            text = line[at + len(nccl_log.WARN) :]
            self._messages(number, line, match(self._patterns.warnings, text))
            warning = {"text": decode(text, 300)}
            self.runs.current.note_message("nccl.warn", self.runs.evidence(number, line), warning)
        elif b"CCL version" in line:
            at = max(line.find(b"NCCL version"), line.find(b"RCCL version"))
            self._messages(number, line, match(self._patterns.warnings, line[at:]))
        self._messages(number, line, self._patterns.other(line))
        if b"tag(" in line or b"cfg[" in line or b"cfg#" in line:
            self._endpoint(number, line)

    def _endpoint(self, number: int, line: bytes) -> None:
        endpoint = ucx_log.parse_endpoint(decode(line))
        if endpoint is None:
            return
        endpoints = self.runs.current.endpoints
        if occurrence := endpoints.get(endpoint):
            occurrence.count += 1
        elif len(endpoints) < MOST_HOSTS:
            endpoints[endpoint] = Occurrence({}, self.runs.evidence(number, line))

    def _shell(self, number: int, line: bytes) -> None:
        text, run = decode(line), self.runs.current
        evidence = self.runs.evidence(number, line)
        status = launch.parse_exit_status(text)
        if status is not None:
            if run.exit_status is None or run.exit_status.code == 0:
                run.exit_status = ExitStatus(status, evidence)
            return
        joined = f"{decode(self._continued, _LONGEST_COMMAND)} {text}" if self._continued else text
        self._continued = b""
        exported = launch.parse_export(text)
        command = None if exported else launch.parse_command(joined)
        if not (exported or command):
            return
        if command and text.endswith("\\") and len(joined) < _LONGEST_COMMAND:
            self._continued = joined.rstrip("\\").encode()
            return
        if run.readings or run.exit_status:
            run = self.runs.begin()
        if exported:
            run.note_setting(*exported, evidence)
        if command:
            run.commands.append((command, evidence))
            for name, value in command.environment.items():
                run.note_setting(name, value, evidence)
