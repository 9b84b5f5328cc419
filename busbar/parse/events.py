# SPDX-License-Identifier: MIT
"""JSON lines of our own programs: gpu_aware, memory, torch_collectives, placed.sh and busy.awk.

`parse` reads one line. Types are strict and an unknown event is refused; unknown keys are ignored,
so that output of a newer program can be explained.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from functools import cache, reduce
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError

from busbar.parse import numbers
from busbar.parse.busy import Busy
from busbar.parse.tables import beside

BEGINNINGS = ('{"event"', '{"placed"')
"""How the lines begin."""

TRIGGERS = (r'\{"(?:event"\s*:\s*"(?:[^r]|ra)|placed")', r'"wrong"\s*:\s*[1-9]')
"""Texts in the lines that `parse` reads, for `busbar.parse.triggers`."""
READING_TRIGGER = r'\{"event'
"""Readings, which can be many."""

CLOCK_MARGIN = 0.01
"""Share by which two clocks of a machine may differ: NTP slews one of them by 0.0005 at most."""

# Strict: "8" and true are not numbers.
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
Positive = Annotated[int, Field(strict=True, gt=0, lt=1 << 62)]
Number = Annotated[float, Field(strict=True)]
Quantity = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
"""Fields next to a reading; a reading that is not a number is judged, not refused."""
DriverTime = Annotated[float, Field(strict=True, ge=0.1, allow_inf_nan=False)]
"""No copy takes less than a transaction over PCIe."""
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Bytes = Annotated[Count, Field(alias="bytes")]
# A field's name in JSON has to be outermost, hence two of each.
Source = Annotated[Count, Field(alias="from")]
Target = Annotated[Count, Field(alias="to")]
OptionalSource = Annotated[Count | None, Field(alias="from")]
OptionalTarget = Annotated[Count | None, Field(alias="to")]

_COUNTING = ("gpu_aware", "torch_collectives")
"""The programs that send messages."""
ErrorCode = Literal["usage", "rank-count", "too-few-gpus", "same-gpu", "wrong-gpu", "runtime"]

_CODES: dict[str, ErrorCode] = beside(__file__)
"""By the sentences of version 1.0 of the programs, which printed errors without a code."""


class MalformedEventError(ValueError):
    """A line that begins as one of ours and cannot be read."""

    def __init__(self, reason: str, *, cut: bool = False) -> None:
        super().__init__(reason)
        self.cut = cut
        """Whether it is not JSON: the output ends in the middle of a line."""


@dataclass(frozen=True)
class Start:
    """What was started: versions that really run, and how many ranks were requested."""

    program: str
    version: str
    backend: Literal["host", "cuda", "hip"]
    ranks: Count
    asked_ranks: Count
    nonce: str = ""
    """What the check gave the job; empty without a check, and in version 1.0."""
    share_devices: Count = 0
    """1 if several ranks are configured to use one GPU."""
    mpi: str = ""
    ucx: str = ""
    """Version of the UCX loaded into the process; empty when MPI uses none."""
    gpu_driver: str = ""
    """Version of the kernel driver and of the API that it offers; empty on the host back end."""
    statistic: str = ""
    """``mean`` or ``best``: what the readings are over their windows; empty if the program has
    one way only."""
    torch: str = ""
    nccl: str = ""
    hip: str = ""
    """The ROCm that PyTorch was built for."""

    @property
    def counts(self) -> bool:
        """Whether the program says how many messages it compared, and compares its clock."""
        return self.program in _COUNTING and self.version not in ("1.0", "1.1")


@dataclass(frozen=True)
class RankPlace:
    """Where a rank runs."""

    rank: Count
    host: str
    pid: Positive
    node_rank: Count
    cpus: str
    ranks: Count | None = None
    """How many there are, where the line tells."""
    device: str = ""
    """PCI bus id."""
    device_name: str = ""
    visible: str | None = None
    """Value of ``*_VISIBLE_DEVICES``; None where the line does not tell."""


@dataclass(frozen=True)
class Rank(RankPlace):
    """Where a rank of our own programs runs."""

    preloaded: str = ""
    """What its environment loads before MPI, as in ``LD_PRELOAD=libfast.so``."""


@dataclass(frozen=True)
class Placed(RankPlace):
    """Where a rank of another program runs, as ``placed.sh`` says."""


@dataclass(frozen=True)
class ReadingEvent:
    """One measurement."""

    metric: Literal["bandwidth", "latency", "busbw"]
    nbytes: Bytes
    wrong: Count
    """Bytes or elements that arrived wrong."""
    verified: Count | None = None
    """The messages that were compared; None if the line does not tell."""
    source: OptionalSource = None
    target: OptionalTarget = None
    buffers: str = ""
    operation: str = ""
    gb_per_s: Number | None = None
    us: Number | None = None
    driver_us: DriverTime | None = None
    """Beside a latency between GPUs: the shortest copy within a GPU, by the faster of both."""
    algbw_gb_per_s: Quantity | None = None
    """Beside a bus bandwidth: size over time, which is in ``us``."""
    memory_gb_per_s: Quantity | None = None
    """Beside a copy within a GPU: what its memory carries by its clock and width."""
    statistic: str = ""
    """As in the start event, where a program names it beside each reading."""
    window: Positive | None = None
    """Beside a bandwidth: the messages of one repetition, which took ``seconds``."""
    seconds: Quantity | None = None
    windows: Positive | None = None
    """How many repetitions were timed."""
    trips: Positive | None = None
    """Beside a latency: the round trips that were timed."""
    cpu_wait_share: Share | None = None
    """The part of the time in which a rank of the pair was ready to run and had no CPU; None if
    the kernel does not count that."""

    def __post_init__(self) -> None:
        if (self.us if self.metric == "latency" else self.gb_per_s) is None:
            raise ValueError(f"the {self.metric} has no value")

    @property
    def value(self) -> float:
        """GB/s, or us for a latency."""
        return (self.us if self.metric == "latency" else self.gb_per_s) or 0.0

    @property
    def measured_us(self) -> float | None:
        """How long the program measured; None if it does not say."""
        if self.metric == "latency":
            return 2 * self.trips * self.value if self.trips else None
        return self.seconds * self.windows * 1e6 if self.seconds and self.windows else None


@dataclass(frozen=True)
class Copy:
    """A plain copy between two processes, without MPI."""

    source: Source
    target: Target
    nbytes: Bytes
    method: Literal["memcpy", "process_vm_readv"]
    gb_per_s: Number | None = None
    """None if the method is refused on this machine; ``error`` gives the reason."""
    error: str = ""


@dataclass(frozen=True)
class Flag:
    """A flag from core to core, the fastest possible message."""

    source: Source
    target: Target
    us: Number


@dataclass(frozen=True)
class Check:
    """One correctness test: the bytes that arrived wrong."""

    operation: str
    buffers: str
    nbytes: Bytes
    wrong: Count
    messages: Count | None = None
    """How many were compared; None if the line does not tell."""
    late: Count = 0
    """The bytes of gets that arrived when their window was freed, with a UCX before 1.16."""
    source: OptionalSource = None
    target: OptionalTarget = None


@dataclass(frozen=True)
class Error:
    """Why a rank gave up."""

    rank: Count
    code: ErrorCode
    text: str


@dataclass(frozen=True)
class Idle:
    """How long a rank waited for others, and how much of a core that took."""

    rank: Count
    seconds: Quantity
    cpu_seconds: Quantity
    clock_ratio: Quantity | None = None
    """The clock of the readings divided by the kernel's."""


@dataclass(frozen=True)
class End:
    """The last line of a program; without it the run was cut."""

    wrong: Count
    seconds: Quantity | None = None
    clock_ratio: Quantity | None = None
    """The clock of the readings divided by the kernel's."""


Event = Start | Rank | Placed | ReadingEvent | Copy | Flag | Check | Error | Idle | End | Busy
_TAGS = {ReadingEvent: "reading"}
"""The names of events in JSON that are not those of their classes."""


def _tag(document: Any) -> str | None:
    return document.get("event") if isinstance(document, dict) else None


@cache
def _events() -> TypeAdapter[Event]:
    """Build the union at the first event: most inputs have none."""
    names = {kind: _TAGS.get(kind, kind.__name__.lower()) for kind in get_args(Event)}
    kinds = (Annotated[kind, Tag(name)] for kind, name in names.items())
    unknown: Any = {"custom_error_type": "event", "custom_error_message": "not a known event"}
    union: Any = Annotated[reduce(operator.or_, kinds), Discriminator(_tag, **unknown)]
    return TypeAdapter(union)


def parse(line: str | bytes) -> Event:
    """Parse one line.

    Raises ``MalformedEventError`` if it is not JSON, not a known event, or lacks a value.
    """
    try:
        document = numbers.load_json(line, once=True)
    except ValueError as error:
        raise MalformedEventError(str(error), cut=True) from error
    if isinstance(document, dict):
        _update(document)
    try:
        return _events().validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise MalformedEventError(f"{where}: {first['msg']}".removeprefix(": ")) from error


def _update(document: dict[str, Any]) -> None:
    """Bring a line of any released version into the present form."""
    placed = document.pop("placed", None)
    if isinstance(placed, dict):
        document.update(placed, event="placed")
    driver, text = document.get("gpu_driver"), document.get("text")
    if isinstance(driver, int):  # the API's number alone
        document["gpu_driver"] = str(driver)
    if document.get("event") == "error" and "code" not in document and isinstance(text, str):
        codes = (code for words, code in _CODES.items() if re.search(words, text))
        document["code"] = next(codes, "runtime")
