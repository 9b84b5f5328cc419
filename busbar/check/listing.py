# SPDX-License-Identifier: MIT
"""Which checks can run on a site, in which environments, and what the others lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from busbar.check.names import short_name
from busbar.delivery.environment import Environment, PartitionFacts
from busbar.document import in_json
from busbar.engine.tool import Feature, tools
from busbar.parse.tables import beside
from busbar.words import counted, grouped

if TYPE_CHECKING:
    from reframe.core.pipeline import RegressionTest


FEATURES = {name: Feature(**row) for name, row in beside(__file__).items()}
FEATURES |= {name: each for tool in tools().values() for name, each in tool.features.items()}
_SHOWN = 4


def needs(lacks: Iterable[Iterable[str]]) -> str:
    """Return ``a second node, a GPU or PyTorch`` for the features that each check lacks.

    They are conditions: ``+osu`` is missing, ``-efa`` must not be there. Those that most checks
    lack come first.
    """
    counts = Counter(need for each in lacks for need in dict.fromkeys(map(_need, each)))
    words = [need for need, _ in counts.most_common()]
    if len(words) > _SHOWN:
        words[_SHOWN:] = ["other things"]
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _need(condition: str) -> str:
    name = condition[1:]
    need = FEATURES[name].need if name in FEATURES else f"the feature {name}"
    return need if condition.startswith("+") else f"a system without {need}"


MATCHES = "busbar-matches: "
"""Prefix of the line in which the ReFrame process reports its checks."""


CHOSEN = "busbar-chosen"
"""The tag that the ReFrame process adds to the checks to run."""


@dataclass(frozen=True)
class Match:
    """One check and where it can run."""

    name: str
    """ReFrame's name: ``pt2pt %bench=osu_bw``."""
    description: str
    tags: tuple[str, ...]
    features: tuple[str, ...]
    """The environment features that the check requires."""
    runs_in: tuple[str, ...]
    """``partition+environment``."""
    reason: str = ""
    """Why it cannot run anywhere."""
    lacks: tuple[str, ...] = ()
    """The smallest set of unmet feature conditions: ``+osu``, ``-efa``."""
    hash: str = ""
    """ReFrame's hash."""
    nodes: int = 1
    """Number of nodes."""

    @property
    @in_json()
    def runs(self) -> bool:
        """Whether it runs in any environment."""
        return bool(self.runs_in)

    @property
    def test(self) -> str:
        """The name without its parameters."""
        return self.name.split(" ")[0]

    @property
    def short(self) -> str:
        """The name for people: ``pt2pt osu_bw DD``."""
        return short_name(self.name)


def match(check: RegressionTest) -> Match:
    """Match a loaded check with the partitions and environments of ReFrame's configuration."""
    from reframe.core import runtime  # noqa: PLC0415 - only the process of ReFrame loads it

    valid = runtime.valid_sysenv_comb(check.valid_systems, check.valid_prog_environs)
    pairs: list[str] = []
    reasons: list[str] = []
    lacks: list[tuple[str, ...]] = []
    empty = [name for name in ("valid_systems", "valid_prog_environs") if not getattr(check, name)]
    if empty:
        reasons.append(f"the check has an empty {' and '.join(empty)}")
    for partition in () if empty else runtime.runtime().system.partitions:
        if partition not in valid:
            unmet = _unmet(check.valid_systems, partition.features)
            reasons.append(_unfit(check, partition.name, unmet))
            lacks.append(unmet)
            continue
        if not partition.environs:
            reason = PartitionFacts.from_reframe(partition).no_environment
            reasons.append(f"partition {partition.name}: {reason}")
        for environ in partition.environs:
            if environ in valid[partition]:
                pairs.append(f"{partition.name}+{environ.name}")
            else:
                lacks.append(_unmet(check.valid_prog_environs, environ.features))
                reasons.append(lack(Environment.from_reframe(environ), check.valid_prog_environs))
    return Match(
        name=check.display_name,
        description=check.descr,
        tags=tuple(sorted(check.tags)),
        features=tuple(sorted(_features(check.valid_prog_environs))),
        runs_in=tuple(pairs),
        reason="" if pairs else "; ".join(dict.fromkeys(reasons)),
        lacks=() if pairs else min(lacks, key=len, default=()),
        hash=check.hashcode,
        nodes=getattr(check, "node_count", 1),
    )


def lines(matches: Sequence[Match]) -> list[str]:
    """Return the lines of ``busbar check --list``: checks that can run, then why others cannot."""
    runs = [
        f"{m.short} [{', '.join(m.tags)}]: {', '.join(m.runs_in)}: {m.description}"
        for m in matches
        if m.runs_in
    ]
    return runs + [f"cannot run, {why}: {', '.join(of)}" for why, of in why_not(matches).items()]


def why_not(matches: Iterable[Match]) -> dict[str, list[str]]:
    """Return the checks that cannot run by what they need: ``needs a GPU``."""
    return grouped((_why(each), each.short) for each in matches if not each.runs_in)


def _why(match: Match) -> str:
    if not match.lacks:
        return match.reason
    needed = " and ".join(dict.fromkeys(map(_need, match.lacks)))
    _, _, known = match.reason.partition(": ")
    return f"needs {needed}" + f" ({known})" * (bool(known) and "; " not in match.reason)


def skips(matches: Sequence[Match]) -> Iterator[str]:
    """Yield one line for all checks that lack features, and one for each other reason."""
    lacking = [match for match in matches if match.lacks]
    if lacking:
        verb = "need" if len(lacking) > 1 else "needs"
        what = f"{counted(len(lacking), 'check')} {verb} {needs(m.lacks for m in lacking)}"
        yield f"{what} (busbar check --list)"
    for reason, count in Counter(match.reason for match in matches if not match.lacks).items():
        yield f"{counted(count, 'check')} did not run: {reason}"


def _unmet(conditions: Sequence[str], features: Collection[str]) -> tuple[str, ...]:
    """Return the unmet conditions of the alternative with the fewest."""

    def is_unmet(word: str) -> bool:
        return word[0] in "+-" and (word[0] == "+") != (word[1:] in features)

    unmet = [list(filter(is_unmet, entry.split())) for entry in conditions]
    words = min(unmet, key=len, default=[])
    if {"+cuda", "+rocm"} <= {word for entry in unmet for word in entry}:
        words = ["+gpu" if word in ("+cuda", "+rocm") else word for word in words]
    return tuple(words)


def _features(environs: Sequence[str]) -> set[str]:
    return {word[1:] for entry in environs for word in entry.split() if word[0] in "+-"}


def lack(environment: Environment, environs: Sequence[str]) -> str:
    """Return what an environment lacks, with the reason if known."""
    reasons = {
        reason for name, reason in environment.lacking.items() if name in _features(environs)
    }
    missing = f"environment {environment.name} lacks {_alternatives(environs)}"
    return ": ".join([missing, *sorted(reasons)])


def _unfit(check: RegressionTest, partition: str, unmet: tuple[str, ...]) -> str:
    """Return why a check cannot run in a partition; a multi-node partition is remote."""
    if unmet == ("+remote",):
        return (
            f"it needs {max(2, getattr(check, 'node_count', 2))} nodes, and partition {partition}"
            " has 1: set nodes in site.yaml, or pass the site of the cluster with --site"
        )
    if too_much := [f"+{word[1:]}" for word in unmet if word[0] == "-"]:
        return f"partition {partition} has {' '.join(too_much)}"
    return f"partition {partition} lacks {_alternatives(check.valid_systems)}"


def _alternatives(conditions: Sequence[str]) -> str:
    first, *others = conditions
    return f"{first} (or {' or '.join(others)})" if others else first
