# SPDX-License-Identifier: MIT
"""Which checks can run on a site, in which environments, and why the others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from busbar.delivery.environment import Environment

if TYPE_CHECKING:
    from reframe.core.pipeline import RegressionTest

MATCHES = "busbar-matches: "
"""The start of the line in which the process of ReFrame reports its checks."""


@dataclass(frozen=True)
class Match:
    """One check and where it can run."""

    name: str
    """As ReFrame shows it: ``pt2pt %bench=osu_bw``."""
    description: str
    tags: tuple[str, ...]
    features: tuple[str, ...]
    """The features of environments that the check names."""
    runs_in: tuple[str, ...]
    """``partition+environment``."""
    reason: str = ""
    """Why it cannot run anywhere."""

    @property
    def test(self) -> str:
        """The name without its parameters."""
        return self.name.split(" ")[0]


def match(check: RegressionTest) -> Match:
    """Match a loaded check with the partitions and environments of ReFrame's configuration."""
    from reframe.core import runtime  # noqa: PLC0415 - only the process of ReFrame loads it

    valid = runtime.valid_sysenv_comb(check.valid_systems, check.valid_prog_environs)
    pairs: list[str] = []
    lacks: list[str] = []
    empty = [name for name in ("valid_systems", "valid_prog_environs") if not getattr(check, name)]
    if empty:
        lacks.append(f"the check has an empty {' and '.join(empty)}")
    for partition in () if empty else runtime.runtime().system.partitions:
        if partition not in valid:
            systems = _alternatives(check.valid_systems)
            lacks.append(f"partition {partition.name} lacks {systems}")
            continue
        for environ in partition.environs:
            if environ in valid[partition]:
                pairs.append(f"{partition.name}+{environ.name}")
            else:
                lacks.append(lack(Environment.from_reframe(environ), check.valid_prog_environs))
    return Match(
        name=check.display_name,
        description=check.descr,
        tags=tuple(sorted(check.tags)),
        features=tuple(sorted(_features(check.valid_prog_environs))),
        runs_in=tuple(pairs),
        reason="" if pairs else "; ".join(dict.fromkeys(lacks)),
    )


def lines(matches: Sequence[Match]) -> list[str]:
    """Return the lines of ``busbar check --list``: what can run, then what cannot and why."""
    runs = [
        f"{m.name} [{', '.join(m.tags)}]: {', '.join(m.runs_in)}" for m in matches if m.runs_in
    ]
    return runs + [f"not {m.name}: {m.reason}" for m in matches if not m.runs_in]


def _features(environs: Sequence[str]) -> set[str]:
    return {word[1:] for entry in environs for word in entry.split() if word[0] in "+-"}


def lack(environment: Environment, environs: Sequence[str]) -> str:
    """Return what an environment lacks, and why if that is known."""
    reasons = {
        reason for name, reason in environment.lacking.items() if name in _features(environs)
    }
    missing = f"environment {environment.name} lacks {_alternatives(environs)}"
    return ": ".join([missing, *sorted(reasons)])


def _alternatives(conditions: Sequence[str]) -> str:
    first, *others = conditions
    return f"{first} (or {' or '.join(others)})" if others else first
