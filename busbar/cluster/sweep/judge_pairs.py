# SPDX-License-Identifier: MIT
"""Judge the readings of one NIC, or of all NICs at once: by a limit first, then by the fleet."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from busbar.cluster.sweep.evidence import gb_per_s, of_link, of_node, of_uplink
from busbar.cluster.sweep.localise import (
    ALPHA,
    FEWEST,
    FREE,
    Bools,
    Floats,
    Ints,
    Located,
    Pairs,
    best_of,
    links_of,
    locate,
    partners,
    repeated,
)
from busbar.cluster.sweep.paths import MINORITY, Paths, model
from busbar.cluster.sweep.uplinks import PATH, slow_uplinks, touching

# The constants: value, meaning, and how to see what another value costs.
#   fleets  python -m tests.bench.sweep_fleet: recall and false accusations of docs/sweep-method.md
#   method  part of the method, with the reason above
_FEW = 2  # fleets: slow ends that are faults, however small the fleet is, if most are well
_MOST_SHARED = 4  # method: by so much the links of nodes exceed the uplinks of their leaf
_FASTER = 0.01  # method: share of much faster pairs that shows a faster kind of node
_WELL = 0.25  # fleets: share of readings with others in which the ends of a slow link are fast
_OPEN = 0.1  # paths: chance that a healthy fleet has such a link, which then is well
_COMPARABLE = 4  # method: with fewer nodes, the slow one cannot be identified
Link = tuple[int, int]


@dataclass(frozen=True)
class Least:
    """What a pair must reach."""

    gb_per_s: float
    text: str
    """Where the number comes from."""
    most: float = math.inf
    """GB/s that no pair reaches: the clock or the program is wrong."""


@dataclass
class JudgedPairs:
    """What one kind of reading shows; ends are numbers of nodes."""

    nodes: dict[int, str] = field(default_factory=dict)
    """The evidence against each slow node."""
    common: set[int] = field(default_factory=set)
    """Slow nodes that were measured only with slow nodes."""
    uplinks: dict[tuple[int, ...], str] = field(default_factory=dict)
    """The evidence against the uplinks of a leaf, or of two that have one path."""
    links: dict[Link, str] = field(default_factory=dict)
    """The evidence against each slow pair of nodes that are well."""
    suspects: set[int] = field(default_factory=set)
    suspect_links: dict[Link, float] = field(default_factory=dict)
    """Pairs of healthy nodes with a slow reading, and how slow it was (logarithm)."""
    again: set[Link] = field(default_factory=set)
    """Pairs of healthy nodes that were measured again, often enough for a slow link."""
    scores: Floats = field(default_factory=lambda: np.zeros(0))
    """By end, relative to the fleet; empty if the fleet was not judged."""
    open: list[str] = field(default_factory=list)
    """Questions that cannot be decided without a limit."""


@dataclass(frozen=True)
class _Pass:
    """One way to judge: by a limit, or by the fleet."""

    rates: Pairs
    residuals: Pairs
    """The same readings, relative to what is expected."""
    crossing: Bools
    crowded: Bools
    """The ones that filled the uplinks."""
    shows: Bools
    """The readings that a slow end makes slow."""
    own: Bools
    """Pairs inside leaves, of two nodes of one generation: only their nodes make them slow."""
    cut: float
    expected: str
    relative: bool

    def where(self, keep: Bools) -> _Pass:
        """Return the same for the readings that ``keep`` selects."""
        changes: dict[str, Any] = {
            name: each.where(keep) if isinstance(each, Pairs) else each[keep]
            for name, each in vars(self).items()
            if isinstance(each, Pairs | np.ndarray)
        }
        return replace(self, **changes)


@dataclass(frozen=True)
class Judge:
    """What all kinds of readings of a sweep are judged by."""

    leaf: Ints
    """Number of the leaf of each node; -1 if it is not known."""
    kind: Ints
    """The same for its kind of hardware, if that is a large share of the nodes."""
    tolerance: float
    """How much slower than the fleet a healthy node may be."""
    tests: int
    """Ends in all kinds of readings, by which the chance of an error is divided."""

    def judge(self, pairs: Pairs, least: Least | None) -> JudgedPairs:
        """Return what the readings of one kind show."""
        found = JudgedPairs()
        known = (self.leaf[pairs.a] >= 0) & (self.leaf[pairs.b] >= 0)
        crossing = known & (self.leaf[pairs.a] != self.leaf[pairs.b])
        cut = math.log1p(-self.tolerance)
        paths = model(pairs, crossing, self.leaf, self.kind, cut)
        own = ~crossing & (paths.generation[pairs.a] == paths.generation[pairs.b])
        masks = crossing, paths.crowded, paths.shows_ends(cut), own
        rest = np.ones(len(pairs), bool)
        if least:
            shared = self._share_uplinks(pairs, crossing, paths, cut)
            residuals = pairs.relative(math.log(least.gb_per_s))
            one = _Pass(pairs, residuals, *masks, 0.0, least.text, relative=False)
            rest[~shared] = ~self._add(found, one.where(~shared))
            if not rest.any():
                return found
        else:
            if (nodes := len(np.union1d(pairs.a, pairs.b))) < _COMPARABLE:
                found.open.append(f"{nodes} nodes are too few to compare; pass --limit")
            _note_slow_crossing(found, paths.rates, crossing, cut)
            _note_generations(found, pairs, paths)
        expected = f"the fleet reaches {gb_per_s(paths.rates[rest]):.4g} GB/s"
        one = _Pass(pairs, pairs.relative(paths.rates), *masks, cut, expected, relative=True)
        self._add(found, one.where(rest))
        found.suspects -= found.nodes.keys()
        return found

    def _share_uplinks(self, pairs: Pairs, crossing: Bools, paths: Paths, cut: float) -> Bools:
        """Return readings that a limit cannot judge, because all leaves share uplinks equally.

        With two leaves this is unknown, and no fabric is built with less than a quarter.
        """
        if len(np.union1d(self.leaf[pairs.a[crossing]], self.leaf[pairs.b[crossing]])) <= PATH:
            return np.zeros(len(pairs), bool)
        hidden = crossing & ~paths.shows_ends(cut)
        return hidden & (paths.ends - paths.rates < math.log(_MOST_SHARED) - cut)

    def _add(self, found: JudgedPairs, one: _Pass) -> Bools:
        """Add what one pass shows to what was found; return which readings uplinks explain."""
        explained = self._add_uplinks(found, one)
        one = one.where(~explained)
        if not len(one.rates):
            return explained
        located = _located(one, self.tests)
        if one.relative:
            found.scores = located.scores
            mixed = _mixed(one.rates, located.candidates)
            notes = _faster(one.residuals, one.rates, one.cut), mixed
            found.open += [note for note in notes if note and not found.nodes]
            if mixed:
                return explained
        for culprit in located.culprits:
            mine = one.shows & ((one.rates.a == culprit.end) | (one.rates.b == culprit.end))
            rates = one.rates.where(one.shows) if mine.sum() >= FEWEST else one.rates
            text = of_node(rates, culprit, located.candidates, one.expected)
            found.nodes.setdefault(culprit.end, text)
            found.common |= {culprit.end} if culprit.common else set()
        found.suspects |= set(located.suspects)
        self._add_links(found, one, located)
        return explained

    def _add_uplinks(self, found: JudgedPairs, one: _Pass) -> Bools:
        """Add slow uplinks; return which readings they explain."""
        pairs = one.rates
        explained = np.zeros(len(pairs), bool)
        if not one.crossing.any():
            return explained
        for uplink in slow_uplinks(
            one.residuals, one.crowded, self.leaf, one.cut, relative=one.relative
        ):
            mine = touching(pairs, one.crossing, self.leaf, uplink)
            explained |= mine
            inner = np.isin(self.leaf[pairs.a], uplink) & ~one.crossing
            text = of_uplink(pairs, mine, inner, one.crossing & ~mine, one.expected)
            found.uplinks.setdefault(uplink, text)
        return explained

    def _add_links(self, found: JudgedPairs, one: _Pass, located: Located) -> None:
        rest, rates = one.residuals, one.rates
        bad = located.candidates.copy()
        bad[[*found.nodes, *located.suspects]] = True
        again = repeated(rest, one.cut, ~bad, self.leaf)
        culprits = [link for link in again if link.chance < ALPHA]
        ends = np.array([divmod(culprit.end, rest.count) for culprit in culprits], np.int64)
        several = np.flatnonzero(np.bincount(ends.ravel(), minlength=rest.count) >= FEWEST)
        found.suspects |= set(several.tolist())  # this many slow links mean one slow end
        others = ~np.isin(links_of(rest), [culprit.end for culprit in culprits])
        others &= ~bad[rest.a] & ~bad[rest.b]
        for culprit in culprits:
            a, b = divmod(culprit.end, rest.count)
            if {a, b} & found.suspects or not _ends_are_well(
                rest, rates, culprit.end, one.cut, others
            ):
                continue  # it remains a suspect
            found.links.setdefault((a, b), of_link(rates, a, b, culprit, one.expected))
        healthy = rest.where(~bad[rest.a] & ~bad[rest.b])
        keys, where = np.unique(links_of(healthy), return_inverse=True)
        found_rates, counts = best_of(where, healthy.rate, len(keys))
        found.again |= {divmod(key, rest.count) for key in keys[counts > FEWEST].tolist()}
        # Pairs collide on their way, some of them again and again.
        likely = [link.end for link in again if link.chance < _OPEN]
        open_ = (counts <= FEWEST) | np.isin(keys, likely)
        for key, rate in zip(keys[open_].tolist(), found_rates[open_].tolist(), strict=True):
            if rate < one.cut:
                link = divmod(key, rest.count)
                found.suspect_links[link] = min(rate, found.suspect_links.get(link, 0.0))


def _located(one: _Pass, tests: int) -> Located:
    """Locate slow ends by pairs with their own generation inside leaves.

    One reading of ``FREE`` may be disturbed: ends with fewer healthy partners there, and those
    that are fast with others, are judged by all readings that show a slow end; ends with too few
    of these by all readings.
    """
    found = locate(one.residuals, one.cut, tests, relative=one.relative)
    for shows, healthy, least in ((one.shows, False, FEWEST), (one.shows & one.own, True, FREE)):
        pairs = one.residuals.where(shows)
        part = locate(pairs, one.cut, tests, relative=one.relative)
        seen = partners(pairs, part.candidates & healthy) >= least
        # Nothing makes a slow end fast in readings that show it.
        seen &= (not healthy) | found.candidates | ~part.candidates
        parts = ((part, seen), (found, ~seen))
        found = Located(
            tuple(one for each, of in parts for one in each.culprits if of[one.end]),
            tuple(one for each, of in parts for one in each.suspects if of[one]),
            np.where(seen, part.candidates, found.candidates),
            np.where(seen, part.scores, found.scores),
        )
    return found


def _ends_are_well(rest: Pairs, rates: Pairs, link: int, cut: float, others: Bools) -> bool:
    """Return whether both ends of a link reach in other pairs what the link should.

    Pairs that cross leaves may be slower than it, and then show nothing. If an end has measured
    with others in the rounds beside those that repeated the link, only these count: something may
    disturb an end for a while.
    """
    mine = links_of(rest) == link
    least = float(np.median((rates.rate - rest.rate)[mine])) + cut
    rounds = np.sort(rest.round[mine])[1:]
    meanwhile = np.isin(rest.round, np.concatenate([rounds - 1, rounds, rounds + 1]))
    for end in divmod(link, rest.count):
        theirs = others & ((rest.a == end) | (rest.b == end))
        theirs = theirs & meanwhile if (theirs & meanwhile).any() else theirs
        if not theirs.any() or np.mean(rates.rate[theirs] >= least) < _WELL:
            return False
    return True


def _mixed(rates: Pairs, candidates: Bools) -> str:
    """Return a note if the slow ends are too many to be faults without a limit that says so."""
    present = len(np.unique(np.concatenate([rates.a, rates.b])))
    slow = int(candidates.sum())
    if not slow or (slow * 2 < present and (slow <= _FEW or slow <= MINORITY * present)):
        return ""
    theirs = candidates[rates.a] | candidates[rates.b]
    others = "" if theirs.all() else f", others {gb_per_s(rates.rate[~theirs]):.4g}"
    return _kinds(slow, present, gb_per_s(rates.rate[theirs]), others)


def _kinds(slow: int, nodes: int, rate: float, others: str) -> str:
    return (
        f"{slow} of {nodes} nodes reach {rate:.4g} GB/s{others}: without a "
        "limit, they may be slow or of a different kind; pass --limit"
    )


def _faster(rest: Pairs, rates: Pairs, cut: float) -> str:
    """Return a note if many pairs are faster than the fleet, which then may be slow."""
    faster = rest.rate > -2 * cut
    if faster.sum() < FEWEST or faster.mean() < _FASTER or faster.all():
        return ""
    fast, most = (gb_per_s(rates.rate[which]) for which in (faster, ~faster))
    return (
        f"{int(faster.sum())} of {len(rest)} pairs reach {fast:.4g} GB/s, most {most:.4g}: without"
        " a limit, most nodes may be slow or of a different kind; pass --limit"
    )


def _note_generations(found: JudgedPairs, pairs: Pairs, paths: Paths) -> None:
    if not paths.generation.any():
        return
    of = np.minimum(paths.generation[pairs.a], paths.generation[pairs.b])
    ends, slow = np.union1d(pairs.a, pairs.b), of < of.max()
    count = int((paths.generation[ends] < of.max()).sum())
    older, newer = (gb_per_s(paths.ends[which]) for which in (slow, ~slow))
    others = f", others {newer:.4g}, and are compared with their own kind"
    found.open.append(_kinds(count, len(ends), older, others))


def _note_slow_crossing(found: JudgedPairs, rates: Floats, crossing: Bools, cut: float) -> None:
    if crossing.all() or not crossing.any():
        return
    across, inside = gb_per_s(rates[crossing]), gb_per_s(rates[~crossing])
    if math.log(across / inside) < cut:
        found.open.append(
            f"pairs of different leaves reach {across:.4g} GB/s, pairs of one leaf {inside:.4g}:"
            " without a limit, uplinks may be slow or shared; pass --limit"
        )
