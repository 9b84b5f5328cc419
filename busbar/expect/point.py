# SPDX-License-Identifier: MIT
"""Expect a point-to-point reading: widest path, engine ceiling, latency + size / bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from busbar.errors import BusbarError, require_known
from busbar.expect import expectation
from busbar.expect.collective import holds, settings_of
from busbar.expect.graph import Path
from busbar.expect.paths import between_nodes, pairs_limit, to_host, within_node
from busbar.expect.question import Question
from busbar.expect.topology import SWITCH
from busbar.parse.tables import refused
from busbar.site.family import Engine, LinkClass, Transfer
from busbar.site.load import family, link_classes
from busbar.site.model import Gpus, PointBench, Proof, Site

BENCHES: tuple[str, ...] = get_args(PointBench)
BANDWIDTH, LATENCY = "osu_bw", "osu_latency"
"""The questions for the rate and the time of messages in one direction."""
BUFFERS = ("D D", "H D", "D H", "H H")
"""Device or host buffers of sender and receiver, in OSU's notation."""
_LATENCY_BYTES = 8
"""Message size of a latency limit if neither the question nor a band gives one."""


def point_to_point(site: Site, question: Question) -> expectation.Expectation:
    """Limit and band of one benchmark between two GPUs, for one message size.

    GB/s for ``osu_bw`` and ``osu_bibw`` (both directions together), us for ``osu_latency``;
    ``osu_mbw_mr`` is asked of `multi_pair`. Raises ``NoExpectation`` where no data supports a
    band.
    """
    if question.bench not in BENCHES or question.bench == "osu_mbw_mr":
        names = ", ".join(name for name in BENCHES if name != "osu_mbw_mr")
        raise refused(__file__, "not-pairwise", bench=question.bench, names=names)
    return _expect(site, question)


def multi_pair(site: Site, question: Question) -> expectation.Expectation:
    """Limit and band of ``osu_mbw_mr`` in GB/s: the first half of the ranks sends to the second.

    Raises ``NoExpectation`` where no data supports a band, ``BusbarError`` for an odd number of
    ranks.
    """
    nodes, gpus = question.nodes, _gpus(site, question.partition)
    ranks = question.ranks or nodes * gpus.count
    if ranks % (2 * nodes) or ranks > nodes * gpus.count:
        words = {"ranks": ranks, "nodes": nodes, "count": gpus.count}
        raise refused(__file__, "no-pairs", f"site {site.name}, osu_mbw_mr", **words)
    question = replace(question, bench="osu_mbw_mr", src=None, dst=None)
    if nodes > 1:
        return _expect(site, question)  # the pairs use all NICs of the node together
    pairs = ranks // 2
    if pairs > 1 and not (gpus.links and gpus.links.switched):
        limit, path = pairs_limit(site.node_type(question.partition), link_classes(site), pairs)
        raise expectation.NoExpectation(
            "no data for several pairs that share direct links",
            where=f"site {site.name}, osu_mbw_mr",
            hint="use one pair with --ranks 2",
            limit=limit,
            path=path,
            nbytes=question.nbytes,
        )
    return _expect(site, replace(question, src=0, dst=pairs, pairs=pairs))


def _expect(site: Site, question: Question) -> expectation.Expectation:
    src, dst, nodes = question.src, question.dst, question.nodes
    node = site.node_type(question.partition)
    where = f"site {site.name}, {question.bench}"
    # Host memory of another node is reached without GPUs.
    alone = node.gpus is None and nodes > 1 and question.buffers == "H H"
    gpus = None if alone else _gpus(site, question.partition)
    require_known("unknown buffers", question.buffers, BUFFERS, where)
    if question.buffers == "H H" and nodes == 1:
        raise expectation.NoExpectation(
            "host buffers do not use GPU links; compare the reading with a copy measured in the"
            " same run",
            where=where,
        )
    for index in (src, dst):
        if index is not None and gpus and not 0 <= index < gpus.count:
            raise refused(__file__, "no-gpu", where, index=index, last=gpus.count - 1)
    classes = link_classes(site)
    try:
        if nodes > 1:
            path = between_nodes(site, node, classes, src, dst)
        elif gpus and question.buffers != "D D":
            path = to_host(gpus, classes, dst if question.buffers.startswith("H") else src)
        else:
            path = within_node(node, classes, src, dst)
    except BusbarError as error:
        raise type(error)(error.what, where=where, hint=error.hint) from error
    link = classes[path.binding.link_class]
    transport = _Transport(path, link, _engine(site, question, link) if nodes == 1 else None)
    band = transport.band(site, question, where)
    return transport.expect(
        question, band, expectation.proven(site, gpus, band) if gpus else "none"
    )


@dataclass(frozen=True)
class _Transport:
    """A path and the engine that copies over it."""

    path: Path
    link: LinkClass
    engine_name: str | None

    @property
    def engine(self) -> Engine | None:
        return self.link.engines.get(self.engine_name) if self.engine_name else None

    def limit(self, question: Question, nbytes: int) -> float:
        """Return the most GB/s that links and engine carry, or the least us for one message."""
        raw = self.path.gb_per_s
        rate = min(raw, self.engine.cap_gb_per_s) if self.engine else raw
        return nbytes / rate * 1e-3 if question.bench == "osu_latency" else rate * question.times

    def expect(self, question: Question, band: Transfer, proof: Proof) -> expectation.Expectation:
        nbytes = question.nbytes or band.bytes[1]
        carried = self.path.gb_per_s * band.share * band.hop_share**self.path.forwarding_gpus
        if self.engine:
            carried = min(carried, self.engine.cap_gb_per_s * self.engine.share)
        latency = question.bench == "osu_latency"
        slower, why = expectation.slowdown(band, question.driver_us if latency else None)
        time_us = band.latency_us * slower + nbytes / carried * 1e-3
        typical = time_us if latency else question.times * nbytes / time_us * 1e-3
        limit = self.limit(question, nbytes)
        fitted, readings = expectation.fitted_in(self.link, question.bench)
        return expectation.Expectation(
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
            outside=band.buffers != question.buffers,
        )

    def describe(self) -> tuple[str, ...]:
        text = self.path.describe()
        if self.engine:
            text += (f"engine {self.engine_name}: at most {self.engine.cap_gb_per_s:g} GB/s",)
        elif self.engine_name:
            text += (f"engine {self.engine_name}: no ceiling",)
        return text

    def sources(self) -> tuple[str, ...]:
        text = (f"{self.path.binding.link_class}: {self.link.source}",)
        return (*text, f"{self.engine_name}: {self.engine.source}") if self.engine else text

    def band(self, site: Site, question: Question, where: str) -> Transfer:
        """Return the matching band, or raise ``NoExpectation`` with the reason."""
        environment = question.settings(site)
        # A NIC reads host memory at least as fast as GPU memory, but this was never measured.
        beside = "D D" if question.nodes > 1 and question.buffers == "H H" else ""
        place = None
        if question.nodes == 1 and question.src is not None and question.dst is not None:
            place = site.node_type(question.partition).place(question.src, question.dst)
        fitting = [
            band
            for band in self.link.bands
            if band.bench == question.bench
            and band.place in (None, place)
            and band.buffers in (question.buffers, beside)
            and band.engine in (None, self.engine_name)
            and (not band.lanes or question.lane in (None, *band.lanes))
        ]
        nbytes = question.nbytes
        by_switches = question.nodes > 1 and self.path.hops[0].end == SWITCH
        if by_switches:
            fitting = []  # those of one node
        sized = [b for b in fitting if b.covers(nbytes)]
        held = [band for band in sized if holds(band, environment)]
        if held:
            # A band of such GPUs first; then the one that reaches furthest.
            gpus = site.node_type(question.partition).gpus
            model = gpus.model if gpus else ""
            own = question.buffers
            return max(held, key=lambda b: (b.buffers == own, model in b.models, b.bytes[1]))
        name = self.path.binding.link_class
        if by_switches:
            # openucx/ucx pull requests 10206 and 10285
            reason = (
                "no reading of MPI over NVLink between nodes is known; UCX uses the network"
                " unless UCX_CUDA_IPC_ENABLE_MNNVL is set and the memory supports it"
            )
        elif not fitting:
            engine = f" by engine {self.engine_name}" if self.engine_name else ""
            reason = f"no data for {question.buffers} buffers over {name}{engine}"
        elif not sized and nbytes is not None:
            reason = f"the data over {name} {expectation.coverage(fitting, nbytes)}"
        else:
            settings = " or ".join(map(settings_of, sized))
            reason = f"the data over {name} was measured with {settings}"
        latency = question.bench == "osu_latency"
        raise expectation.NoExpectation(
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
        raise expectation.NoExpectation(
            "the site does not describe this machine's links; compare the "
            "reading with a copy measured in the same run",
            where=f"site {site.name}",
        )
    return node.gpus


def _chosen_engine(site: Site, question: Question) -> str | None:
    settings = question.settings(site)
    shared = family(site)
    chosen = (by.get(settings.get(name, "")) for name, by in shared.engine_by.items())
    return next(filter(None, chosen), shared.default_engine)


def _engine(site: Site, question: Question, link: LinkClass) -> str | None:
    """Return the engine of the question or of the family; None if the link has no engines."""
    engines = {*link.engines, *(band.engine for band in link.bands if band.engine)}
    engine = question.engine or (_chosen_engine(site, question) if engines else None)
    if (engine or engines) and engine not in engines:
        what = f"unknown engine {engine!r}" if engine else "no engine given"
        hint = f"known: {', '.join(sorted(engines))}" if engines else "these links have none"
        raise BusbarError(what, where=f"site {site.name}, {question.bench}", hint=hint)
    return engine
