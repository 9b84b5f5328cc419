# SPDX-License-Identifier: MIT
"""Fit the numbers of a band to readings: one set per link class, not per pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from busbar.errors import BusbarError
from busbar.expect.graph import Path, gpu, widest_path
from busbar.expect.topology import node_graph
from busbar.site.load import link_classes
from busbar.site.model import Site


@dataclass(frozen=True)
class Reading:
    """A bandwidth between two GPUs in GB/s, at one size, copied by one engine."""

    src: int
    dst: int
    engine: str
    gb_per_s: float


@dataclass(frozen=True)
class Fit:
    """The fitted numbers of one link class."""

    share: dict[str, float]
    """Share of the raw rate, by engine."""
    hop_share: float
    """Share that each forwarding GPU leaves of a copy by kernel; a DMA engine streams through."""
    cap_share: dict[str, float]
    """Share of the engine's ceiling, if that binds."""
    caps: dict[str, float]

    @property
    def parameters(self) -> int:
        """The number of fitted numbers."""
        return len(self.share) + len(self.cap_share) + (self.hop_share != 1)

    def predict(self, path: Path, engine: str) -> float:
        """Return the bandwidth over a path in GB/s."""
        hops = 0 if engine in self.caps else path.forwarding_gpus
        carried = path.gb_per_s * self.share[engine] * self.hop_share**hops
        if engine in self.cap_share:
            carried = min(carried, self.caps[engine] * self.cap_share[engine])
        return carried


def fit(site: Site, readings: Sequence[Reading]) -> Fit:
    """Fit all readings of one link class at one message size, by least squares of logarithms.

    Raises ``BusbarError`` for readings over several link classes or without links.
    """
    classes = link_classes(site)
    graph = node_graph(site.node_type(), classes)
    paths: list[Path] = []
    for reading in readings:
        path = widest_path(graph, gpu(reading.src), gpu(reading.dst))
        if path is None:
            raise BusbarError(f"no links from GPU {reading.src} to GPU {reading.dst}")
        paths.append(path)
    names = {path.binding.link_class for path in paths}
    if len(names) != 1:
        raise BusbarError(
            f"the readings are over {', '.join(sorted(names)) or 'no link'}, not one class"
        )
    caps = {n: e.cap_gb_per_s for n, e in classes[names.pop()].engines.items()}

    share: dict[str, float] = {}
    cap_share: dict[str, float] = {}
    hop_share = 1.0
    for engine in sorted({reading.engine for reading in readings}):
        mine = [(r, p) for r, p in zip(readings, paths, strict=True) if r.engine == engine]
        free = [(r, p) for r, p in mine if p.gb_per_s <= caps.get(engine, np.inf)]
        capped = [
            r.gb_per_s / caps[engine] for r, p in mine if p.gb_per_s > caps.get(engine, np.inf)
        ]
        logs = np.array([np.log(r.gb_per_s / p.gb_per_s) for r, p in free])
        hops = np.array([p.forwarding_gpus for _, p in free], dtype=float)
        if engine in caps or len(set(hops)) < 2:
            share[engine] = float(np.exp(logs.mean()))
        else:
            slope, intercept = np.polyfit(hops, logs, 1)
            share[engine], hop_share = float(np.exp(intercept)), float(np.exp(slope))
        if capped:
            cap_share[engine] = float(np.exp(np.log(capped).mean()))
    return Fit(share, hop_share, cap_share, caps)


def fit_time(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit latency in us and GB/s to pairs of bytes and us, by least squares of relative errors."""
    sizes, times = np.array(points, dtype=float).T
    weighted = np.column_stack([1 / times, sizes / times])
    (latency_us, us_per_byte), *_ = np.linalg.lstsq(weighted, np.ones(len(points)), rcond=None)
    return float(latency_us), float(1e-3 / us_per_byte)
