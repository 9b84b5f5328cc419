# SPDX-License-Identifier: MIT
"""What the gate remembers about its node between looks, in a file of its user.

A driver that does not answer once proves nothing: a busy node can be slow. After
``_SILENT_LOOKS`` looks without an answer it is. A port that fails now and then is healthy in most
looks. The kernel log forgets its oldest lines; what an earlier look has read there still counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from busbar.boundary import read_text, refuse_foreign, replace_file
from busbar.errors import DAMAGED, BusbarError
from busbar.gate.findings import GateFinding
from busbar.gate.kernel_log import KernelLog
from busbar.gate.typed import typed
from busbar.verdict import Verdict

SCHEMA = "busbar-gate-memory/1"
_MOST_BYTES = 2**20
_MOST_ERRORS = 200
_SILENT_LOOKS = 3
"""Looks without an answer after which a driver or a file system has failed."""
_SCARCE = 0.02
"""Share of the memory below which programs may fail for want of it."""
_FLAPS, _FLAPS_S = 3, 3600.0
"""A part that begins to fail so often in this time has failed, until the time is over."""


@dataclass(frozen=True)
class LogLook:
    """What was read of the kernel log until now, in the time since the boot."""

    log: KernelLog
    uptime_s: float


@dataclass
class GateMemory:
    """What earlier looks found. Checks are named with their place; times are Unix times."""

    path: Path
    boot: str
    """Name that the kernel gave to this boot."""
    look: LogLook | None = None
    silent: dict[str, list[float]] = field(default_factory=dict)
    """When a check got no answer, in consecutive looks of this boot; the latest ones."""
    failed: dict[str, list[float]] = field(default_factory=dict)
    """When a check began to fail."""
    failing: list[str] = field(default_factory=list)
    """The checks that failed in the latest look."""
    downs: dict[str, int] = field(default_factory=dict)
    """How often each port was down, as its counter had it."""
    refused: str = ""
    """Why a prolog or epilog took the node out of service; not yet reported to Slurm."""

    def whole(self, log: KernelLog, uptime_s: float) -> LogLook:
        """Return the log with what earlier looks have read of it."""
        if not log.certain or self.look is None:
            return LogLook(log, uptime_s)
        before = self.look.log
        errors = {error.key: error for error in (*before.errors, *log.errors)}
        lost = log.lost_until_s
        if lost is not None and lost <= self.look.uptime_s:
            lost = before.lost_until_s
        latest = sorted(errors.values(), key=lambda error: error.seconds)[-_MOST_ERRORS:]
        return LogLook(KernelLog(tuple(latest), lost), uptime_s)

    def judged(
        self, findings: Sequence[GateFinding], at: float, *, starved: bool = False
    ) -> Iterator[GateFinding]:
        """Yield the findings as several looks show them, and remember this look.

        On a starved node, where anybody's job can be the reason, no answer counts for nothing.
        """
        keys = [f"{each.check} {each.where}" for each in findings]
        checks = {each.check for each in findings}
        for gone in {*self.silent, *self.failing} - {*keys}:
            # It answers: its parts, such as the GPUs, are checked instead of the whole.
            if gone.partition(" ")[0] in checks:
                self.silent.pop(gone, None)
                self.failing = [key for key in self.failing if key != gone]
        for key, each in zip(keys, findings, strict=True):
            heard = each if each.silent and starved else self._silent(key, each, at)
            yield self._flapping(key, heard, at)

    def went_down(self, port: str, count: int, at: float) -> None:
        """Remember that a port was down between two looks, which both found it well."""
        key = f"nic_state {port}"
        if count > self.downs.get(port, count) and key not in self.failing:
            self.failed[key] = [*self.failed.get(key, ()), at]
        self.downs[port] = count

    def _silent(self, key: str, finding: GateFinding, at: float) -> GateFinding:
        if not finding.silent:
            self.silent.pop(key, None)
            return finding
        looks = self.silent[key] = [*self.silent.get(key, ()), at][-_SILENT_LOOKS:]
        if len(looks) < _SILENT_LOOKS:
            return finding
        value = f"no answer in {_SILENT_LOOKS} looks ({finding.note})"
        return replace(finding, verdict=Verdict.FAILED, value=value, band="an answer")

    def _flapping(self, key: str, finding: GateFinding, at: float) -> GateFinding:
        begun = [time for time in self.failed.get(key, ()) if 0 <= at - time < _FLAPS_S]
        if finding.verdict in (Verdict.FAILED, Verdict.DEGRADED):
            if key not in self.failing:
                begun.append(at)
                self.failing.append(key)
        elif key in self.failing:
            self.failing.remove(key)
        self.failed.pop(key, None)
        if begun:
            self.failed[key] = begun[-_FLAPS:]
        if len(begun) < _FLAPS or finding.verdict is not Verdict.PASS:
            return finding
        return replace(
            finding, verdict=Verdict.FAILED, note=f"it failed {len(begun)} times within an hour"
        )

    def write(self) -> None:
        """Replace the file; raise ``BusbarError`` or ``OSError`` if that fails."""
        values = asdict(self)
        del values["path"]
        replace_file(self.path, json.dumps({"schema": SCHEMA, **values}) + "\n")


def is_starved(root: Path) -> bool:
    """Whether the node has more to run than CPUs, or hardly any memory is left."""
    with suppress(OSError, ValueError, LookupError):  # unreadable: not starved
        lines = (line.split() for line in (root / "proc/meminfo").read_text().splitlines())
        kib = {words[0]: int(words[1]) for words in lines}
        load = float((root / "proc/loadavg").read_text().split()[0])
        scarce = kib["MemAvailable:"] < _SCARCE * kib["MemTotal:"]
        return scarce or load > (os.cpu_count() or 1)
    return False


def recall(path: Path, root: Path) -> GateMemory:
    """Read the memory of this boot; an empty one at the first look.

    Raises ``BusbarError`` if it cannot be read, or if another user can change it.
    """
    refuse_foreign(path.parent, "--memory")
    boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        raw = json.loads(read_text(path, _MOST_BYTES, own=True))
        if raw.pop("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        memory: GateMemory = typed(GateMemory, raw | {"path": path})
    except FileNotFoundError:
        return GateMemory(path, boot)
    except (OSError, *DAMAGED) as error:
        what = f"cannot be read: {error!r}"[:200]
        raise BusbarError(what, where=str(path), hint="remove it") from error
    if memory.boot != boot:
        memory.look, memory.silent, memory.downs, memory.boot = None, {}, {}, boot
    return memory
