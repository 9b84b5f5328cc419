# SPDX-License-Identifier: MIT
"""Point to point: the widest path, an engine's ceiling, and latency + size / bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from busbar.errors import BusbarError
from busbar.expect.errors import NoExpectation
from busbar.expect.topology import Path, gpu, node_graph, widest_path
from busbar.site.family import Engine, LinkClass, Transfer
from busbar.site.load import family, link_classes
from busbar.site.model import Gpus, Site
from busbar.site.tuning import environment as family_environment
from busbar.units import format_bytes
from busbar.verdict import Expectation

BENCHES = ("osu_bw", "osu_bibw", "osu_latency")


def point_to_point(
    site: Site,
    *,
    bench: str,
    src: int,
    dst: int,
    nbytes: int,
    buffers: str = "D D",
    engine: str | None = None,
    lane: str | None = None,
    environment: Mapping[str, str] | None = None,
    partition: str | None = None,
) -> Expectation:
    """Limit and band of one benchmark between two GPUs of a node, for one message size.

    GB/s for ``osu_bw`` and ``osu_bibw`` (both directions together), us for ``osu_latency``.
    ``environment`` is what the run had set; None stands for the site's own. ``engine`` None takes
    the family's. Raises ``NoExpectation`` where no data supports a band.
    """
    if bench not in BENCHES:
        raise BusbarError(
            f"{bench!r} is no point-to-point benchmark", hint=f"known: {', '.join(BENCHES)}"
        )
    gpus = _gpus(site, partition)
    for index in (src, dst):
        if not 0 <= index < gpus.count:
            raise BusbarError(
                f"there is no GPU {index}",
                where=f"site {site.name}",
                hint=f"its nodes have GPUs 0 to {gpus.count - 1}",
            )
    if src == dst:
        raise NoExpectation(
            f"both ranks are on GPU {src}, so no link is used", where=f"site {site.name}"
        )
    classes = link_classes()
    chosen_engine = engine or family(site.family).default_engine
    way = _way(site, classes, src, dst, engine=chosen_engine, partition=partition)
    if environment is None:
        environment = family_environment(site, lane=lane)
    return way.expect(site, bench, nbytes, buffers, environment)


@dataclass(frozen=True)
class _Way:
    """A path with what limits it."""

    path: Path
    link: LinkClass
    engine_name: str | None
    engine: Engine | None

    @property
    def limit(self) -> float:
        """GB/s that can pass in one direction."""
        raw = self.path.gb_per_s
        return min(raw, self.engine.cap_gb_per_s) if self.engine else raw

    def expect(
        self, site: Site, bench: str, nbytes: int, buffers: str, environment: Mapping[str, str]
    ) -> Expectation:
        both = 2 if bench == "osu_bibw" else 1
        limit = self.limit * both
        unit = "us" if bench == "osu_latency" else "GB/s"
        if unit == "us":
            limit = nbytes / self.limit * 1e-3
        sources = [self.link.source]
        description = self.path.describe()
        if self.engine:
            sources.append(self.engine.source)
            description += (
                f"engine {self.engine_name}: at most {self.engine.cap_gb_per_s:g} GB/s",
            )
        band, why_not = self._band(bench, nbytes, buffers, environment)
        if band is None:
            raise NoExpectation(
                why_not,
                where=f"site {site.name}, {bench}",
                limit=limit,
                unit=unit,
                path=description,
                sources=tuple(sources),
            )
        carried = self.path.gb_per_s * band.share * band.hop_share**self.path.forwarding_gpus
        if self.engine:
            carried = min(carried, self.engine.cap_gb_per_s * self.engine.share)
        time_us = band.latency_us + nbytes / carried * 1e-3
        typical = time_us if unit == "us" else both * nbytes / time_us * 1e-3
        return Expectation(
            limit=limit,
            low=typical * band.low,
            typical=typical,
            high=typical * band.high if unit == "us" else min(typical * band.high, limit),
            unit=unit,
            path=description,
            sources=(*sources, band.source),
            proof=band.proof if site.proof != "none" else "none",
        )

    def _band(
        self, bench: str, nbytes: int, buffers: str, environment: Mapping[str, str]
    ) -> tuple[Transfer | None, str]:
        name = self.path.binding.link_class
        bands = [b for b in self.link.bands if b.bench == bench and b.buffers == buffers]
        if not bands:
            return None, f"no data for {buffers} over {name}"
        bands = [b for b in bands if b.engine == self.engine_name or b.engine is None]
        if not bands:
            return None, f"no data for engine {self.engine_name} over {name}"
        sized = [b for b in bands if b.bytes[0] <= nbytes <= b.bytes[1]]
        if not sized:
            ranges = ", ".join(
                f"{format_bytes(b.bytes[0])} to {format_bytes(b.bytes[1])}" for b in bands
            )
            return None, f"the data over {name} is of {ranges}, not of {format_bytes(nbytes)}"
        for band in sized:
            if all(environment.get(key, "") == value for key, value in band.when.items()):
                return band, ""
        wanted = " or ".join(
            " ".join(f"{key}={value}" for key, value in b.when.items()) for b in sized
        )
        return None, f"the data of {format_bytes(nbytes)} over {name} was taken with {wanted}"


def _gpus(site: Site, partition: str | None) -> Gpus:
    node = site.node_type(partition)
    if node.gpus is None:
        raise NoExpectation(
            "nothing is known of this machine's links; judge the reading against a copy measured"
            " in the same run",
            where=f"site {site.name}",
        )
    if node.gpus.count < 2:
        raise NoExpectation("its nodes have one GPU, so no pair", where=f"site {site.name}")
    return node.gpus


def _way(
    site: Site,
    classes: dict[str, LinkClass],
    src: int,
    dst: int,
    *,
    engine: str | None,
    partition: str | None,
) -> _Way:
    graph = node_graph(site.node_type(partition), classes)
    # The hop share belongs to the class that binds, which the plain widest path tells.
    path = widest_path(graph, gpu(src), gpu(dst))
    if path is None:
        raise NoExpectation(
            f"no GPU links lead from GPU {src} to GPU {dst}, so bytes pass through the host",
            where=f"site {site.name}",
        )
    link = classes[path.binding.link_class]
    if (
        engine
        and link.engines
        and engine not in link.engines
        and not any(band.engine == engine for band in link.bands)
    ):
        known = {*link.engines, *(band.engine for band in link.bands if band.engine)}
        raise BusbarError(
            f"links of class {path.binding.link_class} know no engine {engine!r}",
            where=f"site {site.name}",
            hint=f"known: {', '.join(sorted(known))}",
        )
    return _Way(path, link, engine, link.engines.get(engine) if engine else None)
