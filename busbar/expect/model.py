# SPDX-License-Identifier: MIT
"""One model of all collectives: the slowest stage that the data passes, and a latency.

    time ** RAMP = latency ** RAMP + (bytes / rate) ** RAMP

The rate is the least of what the links within a node, the NICs and, without GPUDirect, the host
links carry, each by the share that the algorithm reaches. The latency grows with the steps within
a node and between nodes. `make fit` fits all numbers together to published readings and our own
runs and writes ``fit.json`` with their covariance. A number that hardware without readings would
have is unknown, but spreads at most as much as on other hardware: bands widen with the distance
from the data by themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from busbar.expect.bounds import RING, Shape, factor, inside_bound, network_bound
from busbar.expect.topology import raw_rate
from busbar.site.family import LinkClass
from busbar.site.model import Gpus, NodeType

RAMP = 0.7
"""How times of latency and of bandwidth add up; 1: one after the other. Least squares over eight
published series from 1 MiB to 16 GiB gives 0.6 to 0.75 (tests/expect/test_model.py)."""
WIDTH = 2.25
"""Standard deviations from typical to either end of a band. Systems have longer tails than normal
ones: a model without a system holds 96 % of its readings, with 2.0 94 % (`make published`)."""
BEYOND = 2.0
"""Factor by which a band is wider if no run of its class was measured."""
_STEP = 1e-4
_LATENCY_SCATTER = 5.0
"""Latencies of one system scatter so many times as much as its rates: at 1 MiB readings are 25 %
off the model, at 1 GiB 5 % (tests/data/published/residuals.tsv)."""
_PAIR = (1, 2)
"""Nodes and ranks of each: two GPUs of one node use few channels."""
_CHANNELS = 32
"""Channels that NCCL shares out among the ranks of a node for messages to one neighbour."""
_CHANNEL_BYTES = 16 << 20
"""A channel that has more to send gets another one beside it. One channel of an H100 carries
20 GB/s: 8 GPUs send 64 MiB by 4 channels at 82 GB/s, 128 MiB at 163 and 256 MiB at 299; 4 GPUs
send up to 128 MiB by 8 at 158. One of an A100 carries 14."""
_MOST_OF_A_NODE = 16
"""GPUs."""
_FEW_SYSTEMS = 2
"""A class that fewer systems represent is not known."""


@dataclass(frozen=True)
class Way:
    """How the data of a collective goes by one algorithm: what decides its time."""

    vendor: str
    collective: str
    algo: str
    links: str
    network: str
    """Kind of network; empty within a node or domain."""
    inside: float | None
    """GB/s of bus bandwidth that the links within a node carry; None with one rank on each."""
    between: float | None
    host: float | None
    """What the host links carry if the NICs do not read GPU memory."""
    nodes: int
    per_node: int
    moved: float
    """Bytes: the message size times the factor of nccl-tests."""
    nbytes: int
    peers: bool = True
    """Whether GPUs read the memory of others on PCI Express; host memory, whose rate no tool
    shows, carries what GeForce cards send (NVIDIA/nccl issues 1127 and 1639)."""

    @cached_property
    def kind(self) -> str:
        """The group of collectives that share numbers."""
        return {"reduce_scatter": "all_gather"}.get(self.collective, self.collective)

    @cached_property
    def channels(self) -> int | None:
        """The channels to a neighbour of the node; None if they do not limit the rate."""
        if self.collective != "sendrecv" or self.nodes > 1:
            return None
        share = (_CHANNELS // self.per_node).bit_length() - 1
        needed = (-(-self.nbytes // _CHANNEL_BYTES) - 1).bit_length()
        return min(1 << max(share, needed), _CHANNELS)

    @cached_property
    def racks(self) -> bool:
        """Whether a network joins NVLink domains of many nodes."""
        return self.nodes > 1 and self.per_node > _MOST_OF_A_NODE

    @cached_property
    def steps(self) -> tuple[float, float]:
        """Steps one after the other within nodes and between them."""
        both = 2 if self.collective == "all_reduce" else 1
        if self.algo == RING:
            return both * self.nodes * (self.per_node - 1), both * (self.nodes - 1)
        inside = self.per_node - 1 if self.algo == "tree" else self.per_node / 2
        return both * inside, both * math.log2(self.nodes)

    @cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """By part: the names of the numbers that add up to its logarithm."""
        parts = ["start", "inside", "step"] if self.per_node > 1 else ["start"]
        parts += ["between", "hop"] if self.nodes > 1 else ["channel"] if self.channels else []
        return {part: self._names(part) for part in parts}

    def _names(self, part: str) -> tuple[str, ...]:
        far = part in ("between", "hop") or (part == "start" and self.nodes > 1)
        place = f"network {self.network}" if far else f"links {self.links}"
        if part == "channel":
            return f"channel vendor {self.vendor}", f"channel {place}"
        way = f"{part} way {self.vendor} {self.kind} {self.algo}"
        more = [f"{part} pair {self.vendor}"] if (self.nodes, self.per_node) == _PAIR else []
        more += [f"between racks {self.kind}"] if part == "between" and self.racks else []
        return f"{part} vendor {self.vendor}", way, f"{part} {place}", *more

    @cached_property
    def all_names(self) -> tuple[str, ...]:
        """The names of all numbers that the time depends on."""
        names = [name for names in self.names.values() for name in names]
        way = f"system way {self.kind} {self.algo}"
        return *names, "scale nodes", way, "system rate", "system time"

    @cached_property
    def choice(self) -> str:
        """The class of runs for which the library chooses one algorithm."""
        size = next(name for most, name in _SIZES if self.nbytes <= most)
        ranks = f"{self.nodes} nodes, {self.network or self.links}"
        return f"{self.vendor}, {self.collective}, {ranks}, {size}"

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes that all need measurements for the band to be known."""
        where = next(name for most, name in _NODES if self.nodes <= most)
        size = next(name for most, name in _SIZES if self.nbytes <= most)
        found = [f"{where}, {size}", f"{where}, {self.kind}"]
        found += [f"links {self.links}"] if self.per_node > 1 else []
        found += ["several racks"] if self.racks else []
        found += [] if self.peers else ["GPUs without peer access"]
        found += ["two GPUs of a node"] if (self.nodes, self.per_node) == _PAIR else []
        staged = " through host memory" if self.host else ""
        network = f"network {self.network}{staged}, {self.kind}, {size}"
        found += [network] if self.nodes > 1 else []
        return tuple(f"{self.vendor}, {name}" for name in found)

    def busbw(self, numbers: Mapping[str, float]) -> float:
        """Return the logarithm of the bus bandwidth in GB/s."""

        def of(part: str) -> float:
            return math.exp(sum(numbers.get(name, 0.0) for name in self.names.get(part, ())))

        way = f"system way {self.kind} {self.algo}"
        own = numbers.get("system rate", 0.0) + numbers.get(way, 0.0)
        rates = [self.inside * of("inside")] if self.inside else []
        rates += [self.channels * of("channel")] if self.channels else []
        if self.between:
            many = math.log(self.nodes / 2) * numbers.get("scale nodes", 0.0)
            rates.append(self.between * of("between") * math.exp(many))
        rates += [self.host] if self.host else []
        within, across = self.steps
        latency = of("start") + within * of("step") + across * of("hop")
        latency *= math.exp(numbers.get("system time", 0.0))
        return math.log(bus_bandwidth(latency, min(rates) * math.exp(own), self.moved))


_NODES = ((1, "one node"), (4, "2 to 4 nodes"), (16, "5 to 16 nodes"), (math.inf, "more nodes"))
_SIZES = ((2**20 - 1, "below 1 MiB"), (2**26, "1 to 64 MiB"), (math.inf, "above 64 MiB"))


@dataclass(frozen=True)
class Fit:
    """The numbers of the model, and how well they are known."""

    numbers: Mapping[str, float]
    covariance: Mapping[tuple[str, str], float]
    spread: Mapping[str, float]
    """Standard deviation of the numbers of a group."""
    noise: float
    systems: Mapping[str, tuple[str, ...]]
    """The systems whose readings support each number and each class."""
    chosen: Mapping[str, Mapping[str, tuple[str, ...]]]
    """By class of runs and algorithm: the systems whose library took it."""
    models: tuple[str, ...]
    """GPUs of the readings."""
    readings: int

    def variance(self, way: Way) -> float:
        """Return the variance of a reading's logarithm on a machine that was never measured."""
        slopes = slopes_of(way, self.numbers)
        least = total = (self.noise * scatter(slopes)) ** 2
        for name, slope in slopes.items():
            if name not in self.numbers:
                total += (slope * self.spread[group(name)]) ** 2
                continue
            total += sum(
                slope * other * self.covariance.get((name, key), 0.0)
                for key, other in slopes.items()
            )
        return max(total, least)

    def width(self, way: Way) -> float:
        """Return typical over the low end of the band, and the high end over typical."""
        times = WIDTH if self.known(way) else BEYOND * WIDTH
        return math.exp(times * self.variance(way) ** 0.5)

    def taken(self, way: Way) -> bool:
        """Whether libraries may choose this way; if several systems agree on a way, only that one.

        A tree on two nodes carries twice what a ring does, so at half its rate it would pass as a
        ring.
        """
        took = self.chosen.get(way.choice, {})
        systems = {system for each in took.values() for system in each}
        return len(systems) < _FEW_SYSTEMS or way.algo in took

    def known(self, way: Way) -> bool:
        """Whether systems of the same class were measured."""
        return all(len(self.systems.get(each, ())) >= _FEW_SYSTEMS for each in way.classes)


def group(name: str) -> str:
    """Return the group of a number: the readings of one group spread alike."""
    return " ".join(name.split()[:2])


def scatter(slopes: Mapping[str, float]) -> float:
    """Return how much more a reading scatters than one of a large message."""
    return math.hypot(1.0, _LATENCY_SCATTER * slopes["system time"])


def slopes_of(way: Way, numbers: Mapping[str, float]) -> dict[str, float]:
    """Return how the logarithm of the bus bandwidth depends on each number."""
    base = way.busbw(numbers)
    return {
        name: (way.busbw({**numbers, name: numbers.get(name, 0.0) + _STEP}) - base) / _STEP
        for name in way.all_names
    }


def bus_bandwidth(latency_us: float, gb_per_s: float, moved: float, ramp: float = RAMP) -> float:
    """Return GB/s of ``moved`` bytes: the message size times the factor of nccl-tests."""
    time_us: float = (latency_us**ramp + (moved / gb_per_s * 1e-3) ** ramp) ** (1 / ramp)
    return moved / time_us * 1e-3


@cache
def fitted() -> Fit:
    """Return the numbers that ``make fit`` wrote."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name("fit.json").read_text())
    names = list(content["numbers"])
    covariance = {
        pair: value
        for row, name in zip(content["covariance"], names, strict=True)
        for key, value in zip(names, row, strict=False)
        for pair in ((name, key), (key, name))
    }
    return Fit(
        numbers={name: each["value"] for name, each in content["numbers"].items()},
        covariance=covariance,
        spread=content["spread"],
        noise=content["noise"],
        systems={
            **{name: tuple(each["systems"]) for name, each in content["numbers"].items()},
            **{name: tuple(each) for name, each in content["classes"].items()},
        },
        chosen=content["chosen"],
        models=tuple(content["models"]),
        readings=content["readings"],
    )


def compute_mode(gpus: Gpus) -> str | None:
    """Return the compute mode of AMD accelerators; None if it is unknown, and for other GPUs."""
    if gpus.partitioning:
        return gpus.partitioning.compute
    divided = gpus.links is not None and gpus.links.package is not None
    return "SPX" if gpus.vendor == "amd" and not divided else None


def ways(
    node: NodeType, classes: dict[str, LinkClass], network: str, run: Shape, nbytes: int
) -> Iterator[Way]:
    """Yield how a run can go, by each algorithm that the nodes support."""
    gpus, nodes, per_node = node.gpus, run.nodes, run.per_node
    if gpus is None or compute_mode(gpus) == "CPX":
        return
    host = None
    if nodes > 1 and not all(nic.gpudirect for nic in node.nics) and gpus.host_link:
        link = gpus.host_link
        host = per_node * raw_rate(link.link_class, link.count, classes) / 2
    names = gpus.link_classes(per_node) if per_node > 1 else set()
    for algo in _algorithms(gpus, run):
        shape = replace(run, algo=algo)
        between = None
        if nodes > 1:
            # An inner node of a tree has three neighbours: many nodes are limited as in a ring.
            few = shape if nodes <= _FEW_NODES else replace(run, algo=RING)
            between = network_bound(node, classes, few, near=True)
        yield Way(
            *(gpus.vendor, run.collective, algo, "+".join(sorted(names))),
            network=network if nodes > 1 else "",
            inside=inside_bound(node, classes, shape) if per_node > 1 else None,
            between=between,
            host=host,
            nodes=nodes,
            per_node=per_node,
            moved=nbytes * factor(run.collective, run.ranks),
            nbytes=nbytes,
            peers=not ("GeForce" in gpus.model and any(n.startswith("pcie") for n in names)),
        )


_FEW_NODES = 3
_NVLS_RANKS = 4
"""Minimum number of GPUs for which NCCL reduces in the switch."""


def _algorithms(gpus: Gpus, run: Shape) -> list[str]:
    if run.collective != "all_reduce":
        return [RING]
    found = [RING, *(["tree"] if run.nodes > 1 else [])]
    return [*found, "nvls"] if gpus.may_multicast and run.per_node >= _NVLS_RANKS else found
