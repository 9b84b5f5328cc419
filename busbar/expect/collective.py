# SPDX-License-Identifier: MIT
"""Expect a collective: a band measured on such nodes, or what the model of all readings says."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from busbar.errors import BusbarError, require_known
from busbar.expect.bounds import ALGORITHMS, NVLS, Bound, Shape, bound, factor
from busbar.expect.expectation import Expectation, NoExpectation, coverage, proven
from busbar.expect.model import Way, bus_bandwidth, compute_mode, fitted, ways
from busbar.expect.question import Question
from busbar.expect.topology import domain_nodes, joined
from busbar.site.family import Band, Collective, LinkClass
from busbar.site.load import link_classes
from busbar.site.model import CollectiveBench, Gpus, NodeType, Proof, Site
from busbar.site.tuning import environment as family_environment, profiles
from busbar.units import format_bytes

HARNESSES = ("nccl-tests", "rccl-tests", "pytorch")
PROTOCOLS = ("simple", "ll", "ll128")
COLLECTIVES: tuple[str, ...] = get_args(CollectiveBench)
_CHOICE = ("algo", "protocol", "harness")
"""What a question can ask of a band."""

_LARGE = 1 << 33
"""Bytes of a question without a size."""
_MOST_BYTES = 1 << 36
_MOST = 0.98
"""Of the limit that the best run reaches, as protocols of links take the rest; and of the best run
that a typical one reaches."""
_SHOWN = 5
"""Systems that a source names."""


@dataclass(frozen=True)
class Candidate:
    """The prediction of a measured band, or of the model, for one run."""

    algo: str | None
    typical: float
    """GB/s of bus bandwidth."""
    low: float
    """Of the typical value."""
    high: float
    sources: tuple[str, ...]
    fitted: int
    readings: int
    band: Collective | None = None
    """The band, if one of this collective on such nodes was measured."""
    outside: bool = False
    """Whether no runs of its class were measured."""


@dataclass(frozen=True)
class _Setting:
    """A question with what the site says about it."""

    site: Site
    question: Question
    node: NodeType
    """The nodes of one NVLink domain are one node."""
    shape: Shape
    gpus: Gpus
    classes: dict[str, LinkClass]
    where: str

    def bound(self, algo: str | None) -> Bound:
        return bound(self.node, self.classes, replace(self.shape, algo=algo))


def collective(site: Site, question: Question) -> Expectation:
    """Limit and band of the bus bandwidth (GB/s, as nccl-tests defines it) of one collective.

    Each GPU has one rank. Without environment and profile, the profile that the band requires sets
    the environment of the site. Without an algorithm, a band measured on such GPUs comes
    first, then the algorithm that the site's references name, then the fastest algorithm.
    Raises ``NoExpectation`` if no data supports a band.
    """
    return _answer(site, question)[0]


def by_algorithm(site: Site, question: Question, ran: str | None = None) -> list[Expectation]:
    """Return the band of the algorithm that ``ran``; if None, of each that may have run.

    A band of the library's own choice on such nodes applies to any algorithm. All have the limit
    of the question; `collective` uses the first. Raises ``NoExpectation`` if no data supports a
    band.
    """
    first, best = _answer(site, question)
    if question.algo or (best.band and best.algo is None):
        return [first]
    found = {}
    for algo in ALGORITHMS:
        with contextlib.suppress(BusbarError):  # no band, or not an algorithm of this hardware
            band = collective(site, replace(question, algo=algo))
            found[algo] = replace(band, limit=first.limit)
    if ran in found:
        return [found[ran]]
    if NVLS in found:  # NCCL reduces in the switch where it can
        return [first]
    taken = {way.algo for way in ways_of(site, question) if fitted().taken(way)}
    return [first, *(band for algo, band in found.items() if algo in taken)]


def _answer(site: Site, question: Question) -> tuple[Expectation, Candidate]:
    setting = _setting(site, question)
    most = _limit(setting)
    measured = _candidates(setting)
    choice = {name: value for name in _CHOICE if (value := getattr(question, name))}
    fitting = [b for b in measured if all(getattr(b, k) == v for k, v in choice.items())]
    sized = [b for b in fitting if b.covers(question.nbytes)]
    candidates: list[Candidate] = []
    if question.nodes == 1 or domain_nodes(setting.node) < sys.maxsize:
        candidates += [_of_band(setting, band, most) for band in _held(setting, sized)]
        candidates += _of_model(setting)
    ran = _ran_when_healthy(setting)
    candidates = [one for one in candidates if one.band or one.algo == ran] or candidates
    path = (*most.path, *_staging(setting))
    sources = _link_sources(setting)
    if not candidates:
        raise NoExpectation(
            _why_not(setting, measured, fitting, choice),
            where=setting.where,
            limit=most.gb_per_s,
            path=path,
            sources=sources,
            nbytes=question.nbytes,
        )
    best = _best(setting.gpus, candidates)
    band = best.band
    if band is None:
        of = question.algo or "any algorithm"
        path = (*path, f"typical value and band are for {best.algo}, the limit for {of}")
    else:
        covered = " to ".join(map(format_bytes, band.bytes))
        path = (*path, f"band of runs of {covered}; the model gives the band of other sizes")
    outside = best.outside or question.communicators > 1  # no such runs have been published
    proof: Proof = proven(site, setting.gpus, band) if band and not outside else "none"
    if band is None and not outside and site.proof != "none":
        proof = "replay"  # by a reference of the site, or a reading behind the model
    typical = min(best.typical, _MOST**2 * most.gb_per_s)
    expected = Expectation(
        limit=most.gb_per_s,
        low=typical * best.low,
        typical=typical,
        high=min(typical * best.high, _MOST * most.gb_per_s),
        path=(*path, f"with {settings_of(band)}") if band and band.when else path,
        sources=(*sources, *best.sources),
        proof=proof,
        nbytes=question.nbytes or (band.bytes[1] if band else _LARGE),
        fitted=best.fitted,
        readings=best.readings,
        outside=outside,
    )
    return expected, best


def _ran_when_healthy(setting: _Setting) -> str | None:
    """Return the algorithm that the references of the site name for such runs, if it is one."""
    asked = setting.question
    names = {
        reference.algo
        for reference in setting.site.references
        if (reference.bench, reference.nodes) == (asked.bench, asked.nodes)
    }
    return names.pop() if len(names) == 1 else None


def _setting(site: Site, question: Question) -> _Setting:
    bench, nodes = question.bench, question.nodes
    require_known("unknown collective", bench, COLLECTIVES)
    node = site.node_type(question.partition)
    where = f"site {site.name}, {bench} on {nodes} node{'s' if nodes > 1 else ''}"
    if node.gpus is None:
        raise NoExpectation("the nodes have no GPUs", where=where)
    per_node = ranks_per_node(node.gpus, question, where)
    large, domains = joined(node, nodes)
    per_domain = per_node * (large.gpus.count // node.gpus.count if large.gpus else 1)
    rails = site.fabric.rails_per_pair if site.fabric else 1
    shape = Shape(bench, domains, per_domain, question.algo, rails, question.communicators)
    gpus, alone = large.gpus or node.gpus, site.only(question.partition)
    return _Setting(alone, question, large, shape, gpus, link_classes(site), where)


def _limit(setting: _Setting) -> Bound:
    try:
        return setting.bound(setting.question.algo)
    except BusbarError as error:
        raise BusbarError(error.what, where=setting.where, hint=error.hint) from error


def _of_band(setting: _Setting, band: Collective, most: Bound) -> Candidate:
    question = setting.question
    base = most if band.algo == question.algo else setting.bound(band.algo)
    size = question.nbytes or band.bytes[1]
    moved = size * factor(question.bench, setting.shape.ranks)
    typical = bus_bandwidth(band.latency_us, base.gb_per_s * band.share, moved, ramp=1)
    return Candidate(
        *(band.algo, typical, band.low, band.high, (band.source,)),
        fitted=len(band.fitted),
        readings=band.readings,
        band=band,
    )


def ways_of(site: Site, question: Question) -> list[Way]:
    """Return how a run can go, by each algorithm that the question and the nodes allow."""
    return _ways(_setting(site, question))


def _ways(setting: _Setting) -> list[Way]:
    question, site = setting.question, setting.site
    provider = site.fabric.provider if site.fabric else ""
    size = question.nbytes or _LARGE
    off = (question.environment or {}).get("NCCL_NVLS_ENABLE") == "0"
    return [
        way
        for way in ways(setting.node, setting.classes, provider, setting.shape, size)
        if question.algo in (None, way.algo)
        or (question.bench != "all_reduce" and question.algo in ALGORITHMS)
        if way.algo != NVLS or question.algo == NVLS or (setting.gpus.multicast and not off)
    ]


def _of_model(setting: _Setting) -> list[Candidate]:
    """Return the values of the model, for any harness and the best protocol."""
    question, fabric = setting.question, setting.site.fabric
    known = question.nbytes is None or question.nbytes <= _MOST_BYTES
    if question.protocol not in (None, "simple") or not known:
        return []
    model, found = fitted(), []
    over = (fabric.oversubscription if fabric else 1) * _fewer_nics(setting)
    for way in _ways(setting):
        width = model.width(way)
        busbw = way.busbw(model.numbers)
        crowded = replace(way, between=way.between and way.between / over)
        low = math.exp(crowded.busbw(model.numbers) - busbw) / width
        systems = sorted({name for each in way.classes for name in model.systems.get(each, ())})
        outside = not model.known(way)
        text = f"{len(model.numbers)} numbers fitted together to {model.readings} readings"
        of = f"; such runs: {', '.join(systems[:_SHOWN])}" if systems else ""
        more = f" and {len(systems) - _SHOWN} more" if len(systems) > _SHOWN else ""
        found.append(
            Candidate(
                *(way.algo, math.exp(busbw), low, width),
                (f"{text}{of}{more}",),
                fitted=len(model.numbers),
                readings=model.readings,
                outside=outside,
            )
        )
    return found


def _best(gpus: Gpus, candidates: list[Candidate]) -> Candidate:
    """Return a band measured on such GPUs, else of the library's choice, else the fastest.

    A band of one algorithm on other GPUs does not show which algorithm ran here. NCCL takes NVLS
    instead of plain trees where it can.
    """
    measured = [each for each in candidates if each.band]
    own = [each for each in measured if each.band and gpus.model in each.band.models]
    if first := own or [each for each in measured if each.algo is None]:
        return first[0]
    of_algorithm = {each.algo: each for each in reversed(candidates)}
    return max(of_algorithm.values(), key=lambda each: each.typical)


def _fewer_nics(setting: _Setting) -> float:
    """Return by how much fewer NICs a part of the GPUs may use: the site may not say which."""
    shape, node = setting.shape, setting.node
    if shape.nodes == 1 or any(nic.near_gpus for nic in node.nics):
        return 1
    return min(node.nic_count, setting.gpus.count / (shape.per_node * shape.communicators))


def _staging(setting: _Setting) -> Iterator[str]:
    if setting.shape.nodes > 1 and (several := setting.shape.communicators) > 1:
        yield f"one of {several} communicators on each node, which have equal shares of the NICs"
    if setting.shape.nodes > 1 and not all(nic.gpudirect for nic in setting.node.nics):
        yield "staged through host memory: the NICs cannot access GPU memory"
    if _fewer_nics(setting) > 1:
        yield "the band begins with fewer NICs: add near_gpus to nics"


def bands(site: Site) -> list[Collective]:
    """Return the measured bands of collectives within the nodes of a site."""
    names = {n for node in site.node_types.values() if node.gpus for n in node.gpus.link_classes()}
    classes = link_classes(site)
    return [band for n in sorted(names & set(classes)) for band in classes[n].collectives]


def _candidates(setting: _Setting) -> list[Collective]:
    """Return the bands of a collective that were measured with these ranks on such links."""
    question, gpus = setting.question, setting.gpus
    if setting.shape.nodes > 1:
        return []
    return [
        band
        for name in sorted(gpus.link_classes(setting.shape.per_node))
        for band in setting.classes[name].collectives
        if band.collective == question.bench
        and setting.shape.per_node in band.ranks_per_node
        and band.mode in (None, compute_mode(gpus))
        and (band.algo != NVLS or gpus.multicast or question.algo == NVLS)
    ]


def harnesses(site: Site) -> list[str]:
    """Return the harnesses that a reading on the site can come from."""
    return sorted({*HARNESSES, *(band.harness for band in bands(site))})


def ranks_per_node(gpus: Gpus, question: Question, where: str) -> int:
    """Return the ranks on each node; raise ``BusbarError`` if they cannot be equally many."""
    nodes, ranks = question.nodes, question.ranks
    if ranks is None:
        return gpus.count
    if ranks % nodes or ranks < nodes:
        what = f"{ranks} ranks cannot be distributed evenly over {nodes} nodes"
        raise BusbarError(what, where=where, hint="use a multiple of the number of nodes")
    return ranks // nodes


def _held(setting: _Setting, bands: list[Collective]) -> list[Collective]:
    """Return the bands whose settings the run had, or the first profile of the family sets."""
    site, question = setting.site, setting.question
    environment, gpus = question.environment, setting.shape.per_node
    if environment is None and question.profile:
        environment = family_environment(
            site, lane=question.lane, profile=question.profile, gpus=gpus
        )
    if environment is not None:
        return [band for band in bands if holds(band, environment)]
    for profile in (None, *profiles(site)):
        settings = family_environment(site, lane=question.lane, profile=profile, gpus=gpus)
        if held := [band for band in bands if holds(band, settings)]:
            return held
    return []


def holds(band: Band, environment: Mapping[str, str]) -> bool:
    """Return whether the environment has the settings that the band was measured with."""
    return all(environment.get(key, "") == value for key, value in band.when.items())


def settings_of(band: Band) -> str:
    """Return the settings that a band was measured with, in words."""
    return " ".join(f"{k}={v}" if v else f"{k} unset" for k, v in band.when.items())


def _why_not(
    setting: _Setting,
    candidates: list[Collective],
    fitting: list[Collective],
    choice: dict[str, str],
) -> str:
    if domain_nodes(setting.node) == sys.maxsize and setting.question.nodes > 1:
        return "the site does not state domain_nodes, the nodes that the same switches connect"
    if candidates and not fitting:
        return f"no data for {', '.join(f'{key} {value}' for key, value in choice.items())}"
    nbytes = setting.question.nbytes
    if nbytes is not None and fitting and not any(band.covers(nbytes) for band in fitting):
        return f"the data {coverage(fitting, nbytes)}"
    if fitting:
        return f"the data was measured with {' or with '.join(map(settings_of, fitting))}"
    return "no data for this collective with this number of GPUs and nodes"


def _link_sources(setting: _Setting) -> tuple[str, ...]:
    """Return the sources of the links in use: NICs between nodes, GPU links for several ranks."""
    names = setting.gpus.link_classes() if setting.shape.per_node > 1 else set()
    if setting.shape.nodes > 1:
        names |= {nic.link_class for nic in setting.node.nics}
    return tuple(f"{name}: {setting.classes[name].source}" for name in sorted(names))
