# SPDX-License-Identifier: MIT
"""Expect a collective: the bound of its algorithm times the share that published runs reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from busbar.errors import BusbarError
from busbar.expect.banded import BandedExpectation, coverage
from busbar.expect.bounds import NVLS, bound, factor
from busbar.expect.errors import NoExpectation
from busbar.expect.proof import proven
from busbar.expect.question import Question
from busbar.site.family import Band, Collective, LinkClass
from busbar.site.load import family, link_classes
from busbar.site.model import CollectiveBench, Gpus, NodeType, Site
from busbar.site.tuning import environment as family_environment
from busbar.site.tuning import profiles

HARNESSES = ("nccl-tests", "rccl-tests", "pytorch")
PROTOCOLS = ("simple", "ll", "ll128")
COLLECTIVES: tuple[str, ...] = get_args(CollectiveBench)
_CHOICE = ("algo", "protocol", "plugin", "harness")
"""What a question can ask of a band."""


def collective(site: Site, question: Question) -> BandedExpectation:
    """Limit and band of the bus bandwidth (GB/s, as nccl-tests defines it) of one collective.

    Each GPU has one rank. Without environment and profile, the environment of the site is that of
    the profile that the band asks for. Raises ``NoExpectation`` where no data supports a band.
    """
    bench, nbytes, nodes, lane = question.bench, question.nbytes, question.nodes, question.lane
    if bench not in COLLECTIVES:
        raise BusbarError(f"unknown collective {bench!r}", hint=f"known: {', '.join(COLLECTIVES)}")
    node = site.node_type(question.partition)
    gpus = node.gpus
    where = f"site {site.name}, {bench} on {nodes} node{'s' if nodes > 1 else ''}"
    if gpus is None:
        raise NoExpectation("the nodes have no GPUs", where=where)
    per_node = _ranks_per_node(gpus, question, where)
    classes = link_classes(site)
    try:
        most = bound(
            node, classes, bench, nodes=nodes, ranks_per_node=per_node, algo=question.algo
        )
    except BusbarError as error:
        raise BusbarError(error.what, where=where, hint=error.hint) from error
    environment = question.environment
    if environment is None and question.profile:
        environment = family_environment(site, lane=lane, profile=question.profile, gpus=per_node)
    path = (*most.path, *_staging(node, nodes))
    candidates = _candidates(site, gpus, bench, nodes, per_node)
    choice = {name: getattr(question, name) for name in _CHOICE}
    fitting = [b for b in candidates if all(v in (None, getattr(b, k)) for k, v in choice.items())]
    sized = [b for b in fitting if b.covers(nbytes)]
    band = _first_held(site, sized, environment, lane=lane, gpus=per_node)
    sources = _link_sources(node, classes, nodes, per_node)
    if band is None:
        reason = _why_not(candidates, fitting, sized, nbytes, choice)
        raise NoExpectation(
            reason, where=where, limit=most.gb_per_s, path=path, sources=sources, nbytes=nbytes
        )
    base = most
    if band.algo != question.algo:
        base = bound(node, classes, bench, nodes=nodes, ranks_per_node=per_node, algo=band.algo)
    size = nbytes or band.bytes[1]
    typical = _bus_bandwidth(band, base.gb_per_s, size * factor(bench, nodes * per_node))
    return BandedExpectation(
        limit=most.gb_per_s,
        low=typical * band.low,
        typical=typical,
        high=min(typical * band.high, most.gb_per_s),
        path=(*path, f"with {_settings(band)}") if band.when else path,
        sources=(*sources, band.source),
        proof=proven(site, gpus, band),
        nbytes=size,
        fitted=len(band.fitted),
        readings=band.readings,
    )


def _staging(node: NodeType, nodes: int) -> tuple[str, ...]:
    if nodes == 1 or all(nic.gpudirect for nic in node.nics):
        return ()
    return ("staged through host memory: the NICs do not read GPU memory",)


def _bus_bandwidth(band: Collective, bound_gb_per_s: float, moved: float) -> float:
    """Return GB/s for ``moved`` bytes, the message size times the factor of nccl-tests."""
    time_us = band.latency_us + moved / (bound_gb_per_s * band.share) * 1e-3
    return moved / time_us * 1e-3


def _candidates(
    site: Site, gpus: Gpus, bench: str, nodes: int, ranks_per_node: int
) -> list[Collective]:
    """Return the family's bands of a collective with these ranks on these GPUs."""
    return [
        band
        for band in family(site).collectives
        if band.collective == bench
        and band.nodes == nodes
        and ranks_per_node in band.ranks_per_node
        and band.link_class in (gpus.links.classes() if gpus.links else ())
        and band.mode in (None, gpus.partitioning.compute if gpus.partitioning else None)
        and (band.algo != NVLS or gpus.multicast)
    ]


def harnesses(site: Site) -> list[str]:
    """Return the harnesses that a reading on the site can come from."""
    return sorted({*HARNESSES, *(band.harness for band in family(site).collectives)})


def _ranks_per_node(gpus: Gpus, question: Question, where: str) -> int:
    nodes, ranks = question.nodes, question.ranks
    if nodes < 1:
        raise BusbarError(f"nodes must be positive, got {nodes}", where=where)
    if ranks is None:
        return gpus.count
    if ranks % nodes or ranks < nodes:
        raise BusbarError(
            f"{ranks} ranks cannot be distributed evenly over {nodes} nodes",
            where=where,
            hint="give a multiple of the number of nodes",
        )
    return ranks // nodes


def _first_held(
    site: Site,
    bands: list[Collective],
    environment: Mapping[str, str] | None,
    *,
    lane: str | None,
    gpus: int,
) -> Collective | None:
    """Return the first band whose settings the run had, or a profile of the family sets."""
    if environment is not None:
        return next((b for b in bands if holds(b, environment)), None)
    for profile in (None, *profiles(site)):
        settings = family_environment(site, lane=lane, profile=profile, gpus=gpus)
        for band in bands:
            if holds(band, settings):
                return band
    return None


def holds(band: Band, environment: Mapping[str, str]) -> bool:
    """Return whether the environment has the settings that the band was measured with."""
    return all(environment.get(key, "") == value for key, value in band.when.items())


def _settings(band: Band) -> str:
    return " ".join(f"{k}={v}" if v else f"{k} unset" for k, v in band.when.items())


def _why_not(
    candidates: list[Collective],
    fitting: list[Collective],
    sized: list[Collective],
    nbytes: int | None,
    choice: dict[str, str | None],
) -> str:
    if not candidates:
        return "no data for this collective with this number of GPUs and nodes"
    if not fitting:
        chosen = ", ".join(f"{key} {value}" for key, value in choice.items() if value)
        available = "; ".join(
            ", ".join(f"{key} {getattr(band, key) or 'not stated'}" for key in choice)
            for band in candidates
        )
        return f"no data for {chosen}; available: {available}"
    if not sized and nbytes is not None:
        return f"the data {coverage(fitting, nbytes)}"
    return "the data was measured with " + " or with ".join(_settings(band) for band in sized)


def _link_sources(
    node: NodeType, classes: Mapping[str, LinkClass], nodes: int, ranks_per_node: int
) -> tuple[str, ...]:
    """Return the sources of the links in use: NICs between nodes, GPU links for several ranks."""
    links = node.gpus.links if node.gpus and ranks_per_node > 1 else None
    names = links.classes() if links else set()
    if nodes > 1:
        names |= {nic.link_class for nic in node.nics}
    return tuple(f"{name}: {classes[name].source}" for name in sorted(names))
