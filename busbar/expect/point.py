# SPDX-License-Identifier: MIT
"""Point to point: the widest path, an engine's ceiling, and latency + size / bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from busbar.errors import BusbarError
from busbar.expect.banded import BandedExpectation, fitted_in, slowdown
from busbar.expect.collective import holds
from busbar.expect.errors import NoExpectation
from busbar.expect.proof import proven
from busbar.expect.topology import Hop, Path, gpu, node_graph, raw_rate, widest_path
from busbar.site.family import Engine, LinkClass, Transfer
from busbar.site.load import family, link_classes
from busbar.site.model import Gpus, Nic, NodeType, PointBench, Proof, Site
from busbar.site.tuning import Buffers
from busbar.site.tuning import environment as family_environment
from busbar.units import format_bytes

BENCHES: tuple[str, ...] = get_args(PointBench)
BUFFERS = ("D D", "H D", "D H", "H H")
"""Device or host, of the sender and the receiver, as OSU writes them."""
_LATENCY_BYTES = 8
"""Message of a latency that is asked for without a size and without data."""


@dataclass(frozen=True)
class Question:
    """What was run between two GPUs."""

    bench: str
    nbytes: int | None
    """Message size; None: the largest that the data supports."""
    buffers: str = "D D"
    engine: str | None = None
    lane: str | None = None
    environment: Mapping[str, str] | None = None
    """What the run had set; None: the site's own."""
    pairs: int = 1
    """Pairs at once (``osu_mbw_mr``)."""
    driver_us: float | None = None
    """What the shortest copy within a GPU took in the same run."""

    def settings(self, site: Site) -> Mapping[str, str]:
        """The environment of the run."""
        if self.environment is not None:
            return self.environment
        buffers: Buffers = "device" if "D" in self.buffers else "host"
        return family_environment(site, lane=self.lane, buffers=buffers)

    @property
    def times(self) -> int:
        """What the benchmark sums up: both directions, or all pairs."""
        return 2 if self.bench == "osu_bibw" else self.pairs


def point_to_point(
    site: Site,
    *,
    bench: str,
    src: int,
    dst: int,
    nbytes: int | None = None,
    buffers: str = "D D",
    engine: str | None = None,
    lane: str | None = None,
    nodes: int = 1,
    environment: Mapping[str, str] | None = None,
    partition: str | None = None,
    driver_us: float | None = None,
) -> BandedExpectation:
    """Limit and band of one benchmark between two GPUs, for one message size.

    With ``nodes`` 2 the GPU ``src`` of one node sends to ``dst`` of another. GB/s for ``osu_bw``
    and ``osu_bibw`` (both directions together), us for ``osu_latency``; ``osu_mbw_mr`` is asked of
    `multi_pair`. ``nbytes`` None takes the largest size that the data supports. ``environment`` is
    what the run had set; None stands for the site's own. ``engine`` None takes what the
    environment chooses. ``driver_us`` is what the shortest copy within a GPU took in that run, if
    it was measured: a latency depends on the CPUs as well. Raises ``NoExpectation`` where no data
    supports a band.
    """
    if bench not in BENCHES or bench == "osu_mbw_mr":
        known = ", ".join(name for name in BENCHES if name != "osu_mbw_mr")
        raise BusbarError(f"{bench!r} is not run between two GPUs", hint=f"known: {known}")
    question = Question(bench, nbytes, buffers, engine, lane, environment, driver_us=driver_us)
    return _expect(site, question, src, dst, nodes=nodes, partition=partition)


def multi_pair(
    site: Site,
    *,
    nbytes: int | None = None,
    ranks: int | None = None,
    nodes: int = 1,
    lane: str | None = None,
    environment: Mapping[str, str] | None = None,
    partition: str | None = None,
) -> BandedExpectation:
    """Limit and band of ``osu_mbw_mr`` in GB/s: the first half of the ranks sends to the second.

    ``ranks`` counts those of all nodes (None: one for each GPU). Raises ``NoExpectation`` where no
    data supports a band, ``BusbarError`` for an odd number of ranks.
    """
    gpus = _gpus(site, partition)
    ranks = ranks or nodes * gpus.count
    if ranks % (2 * nodes) or ranks > nodes * gpus.count:
        raise BusbarError(
            f"{ranks} ranks do not form pairs on {nodes} x {gpus.count} GPUs",
            where=f"site {site.name}, osu_mbw_mr",
            hint="give an even number up to the number of GPUs",
        )
    pairs = ranks // 2
    if nodes == 1:
        if pairs > 1 and not (gpus.links and gpus.links.switched):
            limit, path = _of_all_senders(site.node_type(partition), link_classes(site), pairs)
            raise NoExpectation(
                "several pairs at once share direct links, of which nothing is known",
                where=f"site {site.name}, osu_mbw_mr",
                hint="ask for one pair with --ranks 2",
                limit=limit,
                path=path,
                nbytes=nbytes,
            )
        question = Question("osu_mbw_mr", nbytes, lane=lane, environment=environment, pairs=pairs)
        return _expect(site, question, 0, pairs, nodes=1, partition=partition)
    # All NICs of the node work for the pairs together.
    question = Question("osu_mbw_mr", nbytes, lane=lane, environment=environment)
    return _expect(site, question, None, None, nodes=nodes, partition=partition)


def _expect(
    site: Site,
    question: Question,
    src: int | None,
    dst: int | None,
    *,
    nodes: int,
    partition: str | None,
) -> BandedExpectation:
    gpus = _gpus(site, partition)
    node = site.node_type(partition)
    where = f"site {site.name}, {question.bench}"
    if question.buffers not in BUFFERS:
        known = ", ".join(BUFFERS)
        raise BusbarError(
            f"unknown buffers {question.buffers!r}", where=where, hint=f"known: {known}"
        )
    if question.buffers == "H H" and nodes == 1:
        raise NoExpectation(
            "host buffers use no link of the GPUs; judge the reading against a copy measured in"
            " the same run",
            where=where,
        )
    for index in (src, dst):
        if index is not None and not 0 <= index < gpus.count:
            raise BusbarError(
                f"there is no GPU {index}",
                where=where,
                hint=f"its nodes have GPUs 0 to {gpus.count - 1}",
            )
    classes = link_classes(site)
    try:
        if nodes > 1:
            path = _between(site, node, classes, src, dst)
        elif question.buffers != "D D":
            path = _to_host(gpus, classes, dst if question.buffers.startswith("H") else src)
        else:
            path = _inside(node, classes, src, dst)
    except BusbarError as error:
        kind = type(error)
        raise kind(error.what, where=where, hint=error.hint) from error
    link = classes[path.binding.link_class]
    engine = _engine(site, question, link) if nodes == 1 else None
    way = _Way(path, link, engine)
    band = way.band(site, question, where)
    return way.expect(question, band, proven(site, gpus, band))


@dataclass(frozen=True)
class _Way:
    """A path with the engine that copies."""

    path: Path
    link: LinkClass
    engine_name: str | None

    @property
    def engine(self) -> Engine | None:
        return self.link.engines.get(self.engine_name) if self.engine_name else None

    def limit(self, question: Question, nbytes: int) -> float:
        """GB/s that the links and the engine let pass, or the least us for one message."""
        raw = self.path.gb_per_s
        rate = min(raw, self.engine.cap_gb_per_s) if self.engine else raw
        return nbytes / rate * 1e-3 if question.bench == "osu_latency" else rate * question.times

    def expect(self, question: Question, band: Transfer, proof: Proof) -> BandedExpectation:
        nbytes = question.nbytes or band.bytes[1]
        carried = self.path.gb_per_s * band.share * band.hop_share**self.path.forwarding_gpus
        if self.engine:
            carried = min(carried, self.engine.cap_gb_per_s * self.engine.share)
        latency = question.bench == "osu_latency"
        slower, why = slowdown(band, question.driver_us if latency else None)
        time_us = band.latency_us * slower + nbytes / carried * 1e-3
        typical = time_us if latency else question.times * nbytes / time_us * 1e-3
        limit = self.limit(question, nbytes)
        fitted, readings = fitted_in(self.link, question.bench)
        return BandedExpectation(
            limit=limit,
            low=typical * band.low,
            typical=typical,
            high=typical * band.high if latency else min(typical * band.high, limit),
            unit="us" if latency else "GB/s",
            path=self.describe(),
            sources=(*self.sources(), band.source, *why),
            proof=proof,
            nbytes=nbytes,
            fitted=fitted,
            readings=readings,
        )

    def describe(self) -> tuple[str, ...]:
        text = self.path.describe()
        if self.engine:
            text += (f"engine {self.engine_name}: at most {self.engine.cap_gb_per_s:g} GB/s",)
        elif self.engine_name:
            text += (f"engine {self.engine_name}: no ceiling of its own",)
        return text

    def sources(self) -> tuple[str, ...]:
        text = (f"{self.path.binding.link_class}: {self.link.source}",)
        return (*text, f"{self.engine_name}: {self.engine.source}") if self.engine else text

    def band(self, site: Site, question: Question, where: str) -> Transfer:
        """The band that fits, or ``NoExpectation`` with the reason."""
        environment = question.settings(site)
        fitting = [
            band
            for band in self.link.bands
            if band.bench == question.bench
            and band.buffers == question.buffers
            and band.engine in (None, self.engine_name)
            and (not band.lanes or question.lane in (None, *band.lanes))
        ]
        nbytes = question.nbytes
        sized = [b for b in fitting if nbytes is None or b.bytes[0] <= nbytes <= b.bytes[1]]
        held = [band for band in sized if holds(band, environment)]
        if held:
            return max(held, key=lambda band: band.bytes[1])
        name = self.path.binding.link_class
        if not fitting:
            engine = f" by engine {self.engine_name}" if self.engine_name else ""
            reason = f"no data for {question.buffers} buffers over {name}{engine}"
        elif not sized and nbytes is not None:
            ranges = ", ".join(
                f"{format_bytes(b.bytes[0])} to {format_bytes(b.bytes[1])}" for b in fitting
            )
            reason = f"the data over {name} is of {ranges}, not of {format_bytes(nbytes)}"
        else:
            wanted = " or ".join(
                " ".join(f"{key}={value}" for key, value in band.when.items()) for band in sized
            )
            reason = f"the data over {name} was taken with {wanted}"
        latency = question.bench == "osu_latency"
        raise NoExpectation(
            reason,
            where=where,
            limit=self.limit(question, nbytes or _LATENCY_BYTES),
            unit="us" if latency else "GB/s",
            path=self.describe(),
            sources=self.sources(),
            nbytes=nbytes or (_LATENCY_BYTES if latency else None),
        )


def _gpus(site: Site, partition: str | None) -> Gpus:
    node = site.node_type(partition)
    if node.gpus is None:
        raise NoExpectation(
            "nothing is known of this machine's links; judge the reading against a copy measured"
            " in the same run",
            where=f"site {site.name}",
        )
    return node.gpus


def _inside(
    node: NodeType, classes: dict[str, LinkClass], src: int | None, dst: int | None
) -> Path:
    if src is None or dst is None or src == dst:
        raise NoExpectation(f"both ranks are on GPU {src}, so no link is used")
    graph = node_graph(node, classes)
    plain = widest_path(graph, gpu(src), gpu(dst))
    if plain is None:
        if node.gpus is None or node.gpus.host_link is None:
            raise NoExpectation(
                f"no GPU links lead from GPU {src} to GPU {dst}, so bytes pass through the host"
            )
        there, back = (_to_host(node.gpus, classes, index).hops for index in (src, dst))
        return Path((*there, *map(_turned, back)))
    # What a hop costs belongs to the class that binds; one number a class, whatever the engine.
    bands = classes[plain.binding.link_class].bands
    hop_share = min((band.hop_share for band in bands), default=1.0)
    return widest_path(graph, gpu(src), gpu(dst), hop_share) or plain


def _of_all_senders(
    node: NodeType, classes: dict[str, LinkClass], pairs: int
) -> tuple[float, tuple[str, ...]]:
    """GB/s that all links of the sending or of the receiving GPUs carry, whichever is less."""
    graph = node_graph(node, classes)
    sums = {
        side: float(sum(graph.degree(gpu(first + n), weight="gb_per_s") for n in range(pairs)))
        for side, first in (("sending", 0), ("receiving", pairs))
    }
    least = min(sums, key=lambda side: sums[side])
    return sums[least], (f"all links of the {least} GPUs: {sums[least]:g} GB/s",)


def _to_host(gpus: Gpus, classes: dict[str, LinkClass], index: int | None) -> Path:
    if gpus.host_link is None or index is None:
        raise NoExpectation("the site does not state how its GPUs reach the host")
    link = gpus.host_link
    raw = raw_rate(link.link_class, link.count, classes)
    return Path((Hop(gpu(index), "host", link.link_class, link.count, raw),))


def _between(
    site: Site, node: NodeType, classes: dict[str, LinkClass], src: int | None, dst: int | None
) -> Path:
    """From a GPU through its nearest NICs to those of the other node and its GPU."""
    if not node.nics or site.fabric is None:
        raise NoExpectation("the site states no network between its nodes")
    hops: list[Hop] = []
    for side, index in (("", src), ("'", dst)):
        nics = _near(node, index)
        count = sum(nic.count for nic in nics)
        if index is not None:
            count = min(count, site.fabric.rails_per_pair)
        name = nics[0].name if len(nics) == 1 or index is not None else "nics"
        raw = raw_rate(nics[0].link_class, count, classes)
        end = gpu(index) if index is not None else "gpus"
        port = Hop(f"{end}{side}", f"{name}{side}", nics[0].link_class, count, raw)
        ways = [port]
        staged = not nics[0].gpudirect and node.gpus and node.gpus.host_link
        if staged:
            gpus = count if index is None else 1
            raw = raw_rate(staged.link_class, staged.count * gpus, classes)
            host = f"host{side}"
            ways = [
                Hop(f"{end}{side}", host, staged.link_class, staged.count * gpus, raw),
                replace(port, start=host),
            ]
        hops += ways if not side else [_turned(way) for way in reversed(ways)]
    return Path(tuple(hops))


def _turned(hop: Hop) -> Hop:
    return replace(hop, start=hop.end, end=hop.start)


def _near(node: NodeType, index: int | None) -> list[Nic]:
    """The NICs near a GPU; all where the site does not say which, or for all GPUs together."""
    near = [nic for nic in node.nics if index in nic.near_gpus]
    return near or list(node.nics)


def _chosen_engine(site: Site, question: Question) -> str | None:
    settings = question.settings(site)
    shared = family(site)
    for variable, engines in shared.engine_by.items():
        if settings.get(variable) in engines:
            return engines[settings[variable]]
    return shared.default_engine


def _engine(site: Site, question: Question, link: LinkClass) -> str | None:
    """The engine that was asked for or that the family uses; None where the class knows none."""
    known = {*link.engines, *(band.engine for band in link.bands if band.engine)}
    engine = question.engine or (_chosen_engine(site, question) if known else None)
    if (engine or known) and engine not in known:
        raise BusbarError(
            f"unknown engine {engine!r}" if engine else "no engine was named",
            where=f"site {site.name}, {question.bench}",
            hint=f"known: {', '.join(sorted(known))}" if known else "its links know none",
        )
    return engine
