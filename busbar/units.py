# SPDX-License-Identifier: MIT
"""Parse and format sizes and times: GB is 1e9 bytes, MiB is 2**20 bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

MIB = 2**20
GIB = 2**30
FIRST_S, LAST_S = 946684800, 4102444800
"""A time before 2000 or after 2099 means that the clock or the file is wrong."""
CLOCKS_S = 300
"""Seconds by which the clocks of two machines may differ."""
_SUFFIXES = {"": 1, "K": 2**10, "M": MIB, "G": GIB, "T": 2**40}


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds of a unit of time, by its first letter."""
_DURATION = re.compile(
    r"(?P<count>[0-9]{1,9}(?:\.[0-9]{1,6})?) ?"
    r"(?P<unit>d(?:ays?)?|h(?:(?:ou)?rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?) ?"
)
_CLOCK = re.compile(
    r"(?:(?P<days>[0-9]{1,4})-)?(?P<hours>[0-9]{1,4}):(?P<minutes>[0-9]{2}):(?P<rest>[0-9]{2})"
)


def duration(text: str) -> float:
    """Return the seconds of ``1h30m``, ``2 hours`` or Slurm's ``1-12:00:00``; 0 for other text."""
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(each or 0) for each in clock.groupdict().values())
        return ((days * 24 + hours) * 60 + minutes) * 60 + rest
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text) or len(parts) > len(SECONDS):
        return 0
    return sum(float(count) * SECONDS[unit[0]] for count, unit in parts)


def parse_bytes(text: str) -> int:
    """Return the number of bytes of ``"16M"``, ``"16MiB"`` or ``"16777216"`` (powers of 1024).

    Raises ``ValueError`` for anything else.
    """
    match = re.fullmatch(
        r"(?P<count>[0-9]{1,18})\s*(?P<suffix>[KMGT]?)(?:iB|B)?", text.strip(), re.IGNORECASE
    )
    if not match:
        raise ValueError(f"invalid size {text!r}; use a size such as 65536, 64K or 16MiB")
    return int(match["count"]) * _SUFFIXES[match["suffix"].upper()]


def option_bytes(count: int) -> str:
    """Return ``16M`` for 16777216, as used in benchmark options."""
    return format_bytes(count).replace(" ", "").removesuffix("B").removesuffix("i")


def format_bytes(count: int) -> str:
    """Return ``16 MiB`` for 16777216; exact, so 1000 stays ``1000 B``."""
    for suffix in ("TiB", "GiB", "MiB", "KiB"):
        unit = _SUFFIXES[suffix[0]]
        if count >= unit and count % unit == 0:
            return f"{count // unit} {suffix}"
    return f"{count} B"


def seconds(time: str | int | float, key: str = "time") -> float:
    """Return a time as seconds since 1970; raise ``ValueError`` for anything else.

    A time without a zone is UTC.
    """
    if not isinstance(time, str):
        found = float(time)
    else:
        try:
            moment = datetime.fromisoformat(time.strip())
        except ValueError:
            raise ValueError(f"{key}: {time[:40]!r} is not ISO 8601, such as 2026-01-31") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        found = moment.timestamp()
    if not FIRST_S <= found < LAST_S:
        raise ValueError(f"{key}: {time!r} is not between the years 2000 and 2100")
    return found


def past(time: str | int | float, key: str = "time") -> float:
    """Return a time as `seconds` does; raise ``ValueError`` also for one that is still to come."""
    found = seconds(time, key)
    if found > datetime.now(UTC).timestamp() + CLOCKS_S:
        raise ValueError(f"{key}: {time!r} is later than now; correct the clock that it is from")
    return found


def outside(of: object, most: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield each attribute that is less than 0 or more than ``most``; None is neither."""
    for name, end in most.items():
        value = getattr(of, name)
        if value is not None and not 0 <= value <= end:
            yield name, f"must be 0 to {end:g}, got {value:g}"


def moment(text: str) -> float:
    """Return a time that is typed in seconds since 1970: ISO 8601, today, yesterday (UTC)."""
    days = {"today": 0, "yesterday": 1}
    if text not in days:
        return seconds(text)
    return seconds((datetime.now(UTC).date() - timedelta(days[text])).isoformat())
