# SPDX-License-Identifier: MIT
"""Where and when a line was printed, and the ranks of a run with their hosts and GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.parse import numbers
from busbar.parse.tables import beside

_FORMS = {
    name: [re.compile(each) for each in expressions]
    for name, expressions in beside(__file__).items()
    if name != "words"
}
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_MONTH = re.compile("|".join(re.findall("...", _MONTHS)))
_YEAR = re.compile(r"^\d{4}[-/]")


@dataclass(frozen=True)
class Position:
    """Place and time of a line; empty or None if unknown."""

    rank: int | None = None
    pid: int | None = None
    host: str = ""
    gpu: str = ""
    nic: str = ""
    time: str = ""

    @property
    def words(self) -> str:
        """Return ``rank 37 (gpu-004, GPU 5)``."""
        gpu = f"GPU {self.gpu}" if self.gpu else ""
        inside = [each for each in (self.host, gpu) if each]
        if self.rank is None:
            return ", ".join(inside)
        return f"rank {self.rank}" + (f" ({', '.join(inside)})" if inside else "")

    @property
    def moment(self) -> tuple[int, ...]:
        """Month, day and time of day; without a date only the time; empty without a time."""
        named = _MONTH.sub(lambda name: str(_MONTHS.index(name[0]) // 3 + 1), self.time)
        return tuple(map(numbers.count, re.findall(r"\d\d?", _YEAR.sub("", named))))

    def is_before(self, other: Position) -> bool:
        """Return whether a line is older than another, by times of one form."""
        first, second = self.moment, other.moment
        return bool(first) and len(first) == len(second) and first < second


class Owner(NamedTuple):
    """Where a rank runs."""

    host: str
    gpu: str
    pid: int | None
    bus: str

    def has(self, own: Position, bus: str) -> bool:
        """Return whether a line of the host is about the process or the GPU of the rank."""
        if self.host.split(".")[0] != own.host.split(".")[0]:
            return False
        if own.pid or bus:
            return own.pid == self.pid or bus == self.bus
        return bool(own.gpu) and own.gpu == self.gpu


def _bus(text: str) -> str:
    """Return ``86`` for ``0000:86:00.0``, ``0x86``, and NCCL's ``86000``."""
    if ":" in text:
        return text.split(":")[-2][-2:].lower()
    return (text[2:] if text.startswith("0x") else text[-5:-3]).lower().zfill(2)


def owners_of(facts: JobOutput) -> dict[int, Owner]:
    """Return host and GPU of each rank, by the list of a table or NCCL's own lines."""
    found = {
        d.rank: Owner(d.host, str(d.device), d.pid, _bus(d.bus)) for d in facts.devices.values()
    }
    for seen in facts.seen("nccl.init") if not found else ():
        if seen["device"]:
            host, pid = (_first(name, seen.evidence.text) for name in ("host", "pid"))
            owner = Owner(host, seen["device"], numbers.whole(pid), _bus(seen["bus"]))
            found.setdefault(numbers.count(seen["rank"]), owner)
    return found


def _first(name: str, text: str) -> str:
    return next((found[name] for each in _FORMS[name] if (found := each.search(text))), "")


def times_of(text: str) -> Iterator[tuple[int, ...]]:
    """Yield the time of each line that has one; see `Position.moment`."""
    return (Position(time=_first("time", line)).moment for line in text.splitlines())


def located(
    line: Evidence | None, owners: Mapping[int, Owner], rank: int | None = None
) -> Position:
    """Return place and time of a line about a rank, completed by what the run lists of ranks."""
    text = line.text if line else ""
    host, gpu, nic, time = (_first(name, text) for name in ("host", "gpu", "nic", "time"))
    own_rank, pid = (numbers.whole(_first(name, text)) for name in ("rank", "pid"))
    own = Position(rank, time=time)
    if rank is None or rank == own_rank:
        own = Position(own_rank, pid, host, gpu, nic, time)
    bus = _bus(own.gpu) if ":" in own.gpu else ""
    if own.rank is None and own.host:
        of_line = (each for each, owner in owners.items() if owner.has(own, bus))
        own = replace(own, rank=next(of_line, None))
    if owner := owners.get(-1 if own.rank is None else own.rank):
        gpu = own.gpu if own.gpu and not bus else owner.gpu
        pid = own.pid or owner.pid
        own = replace(own, host=own.host or owner.host, gpu=gpu, pid=pid)
    return own
