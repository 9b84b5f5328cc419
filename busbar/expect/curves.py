# SPDX-License-Identifier: MIT
"""Bus bandwidth of a collective by the curves of link classes and networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from busbar.expect.bounds import Shape, factor, inside_bound, network_bound, weakest
from busbar.site.family import Band, Curve, CurveInside, LinkClass, Network
from busbar.site.model import Algorithm, Gpus, NodeType

RAMP = 0.7
"""How times of latency and of bandwidth add up; 1: one after the other. Least squares over eight
published series from 1 MiB to 16 GiB gives 0.6 to 0.75 (tests/expect/test_curves.py)."""
ANY: Algorithm = "ring"
"""The algorithm whose share within a node stands for those that nothing is known of."""


@dataclass(frozen=True)
class Candidate:
    """What a band or a curve says of one run."""

    band: Band
    algo: str | None
    typical: float
    """GB/s of bus bandwidth."""
    sources: tuple[str, ...]
    fitted: int
    readings: int
    measured: bool = False
    """Whether the band is of this collective on such nodes, and not of a curve."""


def bus_bandwidth(latency_us: float, gb_per_s: float, moved: float, ramp: float = RAMP) -> float:
    """Return GB/s of ``moved`` bytes: the message size times the factor of nccl-tests."""
    time_us: float = (latency_us**ramp + (moved / gb_per_s * 1e-3) ** ramp) ** (1 / ramp)
    return moved / time_us * 1e-3


def answers(
    node: NodeType,
    classes: dict[str, LinkClass],
    network: Network | None,
    run: Shape,
    nbytes: int | None,
) -> Iterator[Candidate]:
    """Yield what the curves say of a run by any algorithm, one answer for each that has one."""
    gpus, nodes, per_node = node.gpus, run.nodes, run.per_node
    if gpus is None:
        return
    inside = [
        curve for name in sorted(gpus.link_classes(per_node)) for curve in classes[name].curves
    ]
    inside = [c for c in inside if _fits(c, gpus, run.collective)]
    if nodes == 1:
        for curve in inside:
            if curve.ranks[0] <= per_node <= curve.ranks[1] and curve.covers(nbytes):
                shape = replace(run, algo=curve.algo)
                yield _answer(curve, _inside(node, classes, curve, shape), shape, nbytes)
        return
    reached = all(nic.gpudirect for nic in node.nics)
    for between in network.curves if network and reached else ():
        if (
            _fits(between, gpus, run.collective)
            and between.vendor == gpus.vendor
            and between.nodes[0] <= nodes <= between.nodes[1]
            and between.covers(nbytes)
        ):
            shape = replace(run, algo=between.algo)
            rate = between.share * network_bound(node, classes, shape, near=True)
            of_algorithm = {curve.algo: curve for curve in reversed(inside)}
            within = of_algorithm.get(between.algo) or of_algorithm.get(ANY)
            if per_node > 1:
                rate = min(rate, _inside(node, classes, within, shape))
            yield _answer(between, rate, shape, nbytes, within)


def compute_mode(gpus: Gpus) -> str | None:
    """Return the compute mode of AMD accelerators; None if it is unknown, and for other GPUs."""
    if gpus.partitioning:
        return gpus.partitioning.compute
    divided = gpus.links is not None and gpus.links.package is not None
    return "SPX" if gpus.vendor == "amd" and not divided else None


def _fits(curve: Curve, gpus: Gpus, collective: str) -> bool:
    nvls = curve.algo == "nvls"
    return (
        collective in curve.collectives
        and curve.mode in (None, compute_mode(gpus))
        and (not nvls or gpus.may_multicast)
    )


def _inside(
    node: NodeType, classes: dict[str, LinkClass], curve: CurveInside | None, shape: Shape
) -> float:
    """Return the GB/s of large messages within the nodes; without a curve those of the bound."""
    most = inside_bound(node, classes, shape)
    if curve is None:
        return most
    rate = (curve.across if shape.nodes > 1 and curve.across else curve.share) * most
    if curve.ceiling:
        rate = min(rate, curve.ceiling * weakest(node, classes, shape.per_node))
    return rate


def _answer(
    curve: Curve, rate: float, shape: Shape, nbytes: int | None, within: Curve | None = None
) -> Candidate:
    used = [each for each in (curve, within) if each]
    ranks = shape.ranks
    moved = (nbytes or curve.bytes[1]) * factor(shape.collective, ranks)
    return Candidate(
        band=curve,
        algo=curve.algo,
        typical=bus_bandwidth(curve.latency(ranks), rate, moved),
        sources=tuple(each.source for each in used),
        fitted=sum(len(each.fitted) for each in used),
        readings=sum(each.readings for each in used),
    )
