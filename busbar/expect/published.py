# SPDX-License-Identifier: MIT
"""What others measured, compared with the model: `site/_published/readings.tsv`.

A row names the hardware of its system in words. They become a site, so that the same code judges
it as judges the sites of files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from busbar import data, text_file
from busbar.documents import PublishedRow
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES, NoExpectation, Question, expect
from busbar.expect.collective import by_algorithm
from busbar.expect.domain import domain_nodes
from busbar.expect.expectation import Expectation
from busbar.parse.published import (
    IntraLinks,
    Network,
    PublishedReading,
    gpus_of_node,
    links_of_pair,
    parse_links,
    parse_network,
    parse_table,
)
from busbar.site.load import link_classes, load
from busbar.site.model import Site
from busbar.site.tuning import profiles

TABLE = data.SITES / "_published" / "readings.tsv"
Place = Literal["inside", "below", "above", "impossible", "no band", "no model"]

_ARCHS = {
    "nvlink2": "sm_70",
    "nvlink3": "sm_80",
    "nvlink4": "sm_90",
    "nvlink5": "sm_100",
    "xgmi-mi250x": "gfx90a",
    "xgmi-mi300a": "gfx942",
    "xgmi-mi300x": "gfx942",
    "xgmi-mi350x": "gfx950",
}
_HOST_LINKS = {
    "nvlink2": "pcie3-x16",
    "nvlink3": "pcie4-x16",
    "xgmi-mi250x": "infinity-fabric-host",
}
"""The link from a GPU to its host by its links to others; PCI Express 5.0 for the rest."""
_CUBES = {"xgmi-mi250x": "mi250x", "nvlink2": "p3dn"}
"""The site whose list of pairs a cube stands for."""
_NETWORKS = {
    "infiniband": ("verbs", "ib-{}g"),
    "roce": ("verbs", "roce-{}g"),
    "efa": ("efa", "efa-{}g"),
    "slingshot11": ("cxi", "slingshot-11"),
}
"""By the kind of network: provider and link class."""
_FAMILIES = {
    ("nvidia", "infiniband"): "infiniband",
    ("nvidia", "roce"): "roce",
    ("nvidia", "efa"): "efa",
    ("nvidia", "slingshot11"): "slingshot-nvidia",
    ("nvidia", ""): "nvlink4",
    ("amd", "slingshot11"): "slingshot",
}
_OF_AMD = {"xgmi-mi250x": "mi250x", "xgmi-mi350x": "mi350x", "xgmi-mi300a": "mi300a"}
_COPIES = {"copy": "D D", "h2d": "H D", "d2h": "D H"}


@dataclass(frozen=True)
class Comparison:
    """A published reading beside what the model expects of its system."""

    reading: PublishedReading
    place: Place
    expected: Expectation | None = None
    """The band that it is in, or else the likeliest one."""
    limit: float | None = None
    reason: str = ""
    """Why there is no band."""

    def as_json(self) -> PublishedRow:
        """Return the documented JSON keys."""
        row, band = self.reading, self.expected
        return {
            "system": row.system,
            "gpu": row.gpu,
            "gpus_per_node": row.gpus_per_node,
            "nodes": row.nodes,
            "intra": row.intra,
            "fabric": row.fabric,
            "bench": row.bench,
            "bytes": row.nbytes,
            "value": row.value,
            "unit": row.unit,
            "algo": row.algo,
            "harness": row.harness,
            "kind": row.kind,
            "source": row.source,
            "limit": self.limit,
            "low": band.low if band else None,
            "typical": band.typical if band else None,
            "high": band.high if band else None,
            "place": self.place,
            "reason": self.reason,
        }


def readings(path: Path = TABLE) -> list[PublishedReading]:
    """Return the readings of a table. Raises ``BusbarError`` for an invalid one."""
    try:
        return parse_table(text_file.read_text(path))
    except (OSError, ValueError) as error:
        raise BusbarError(
            str(error), where=str(path), hint=f"write the columns of {TABLE}, separated by tabs"
        ) from error


def compare(reading: PublishedReading) -> Comparison:
    """Compare a reading with limit and bands of its system.

    Of what the source does not state, each possibility counts: algorithm, and tuning profile.
    """
    try:
        site = site_of(reading)
        found = _expectations(site, _question(site, reading))
    except NoExpectation as missing:
        place: Place = "no band"
        if missing.limit is not None and _impossible(reading, missing.limit):
            place = "impossible"
        return Comparison(reading, place, limit=missing.limit, reason=missing.what)
    except BusbarError as error:
        return Comparison(reading, "no model", reason=error.what)
    limit = max(each.limit for each in found)
    if _impossible(reading, limit):
        return Comparison(reading, "impossible", found[0], limit)
    for each in found:
        if each.low <= reading.value <= each.high:
            return Comparison(reading, "inside", each, limit)
    below = all(reading.value < each.low for each in found)
    return Comparison(reading, "below" if below else "above", found[0], limit)


def _impossible(reading: PublishedReading, limit: float) -> bool:
    return reading.value < limit if reading.unit == "us" else reading.value > limit


def _expectations(site: Site, question: Question) -> list[Expectation]:
    if question.bench not in COLLECTIVES:
        return [expect(site, question)]
    found: list[Expectation] = []
    for profile in (None, *profiles(site)):
        try:
            found += by_algorithm(site, replace(question, profile=profile))
        except NoExpectation:
            if profile is None and not profiles(site):
                raise
    return found or [expect(site, question)]


def _question(site: Site, reading: PublishedReading) -> Question:
    """Ask for what a reading is of. Raises ``NoExpectation`` for a test without a model."""
    node = site.node
    assert node.gpus
    nodes = site.partitions[0].nodes
    bench, buffers = reading.bench, "D D"
    if bench in _COPIES:
        bench, buffers = "copy", _COPIES[bench]
    elif " H H" in reading.harness:
        buffers = "H H"
    collective = bench in COLLECTIVES
    if not collective and bench not in ("osu_bw", "osu_bibw", "osu_latency", "osu_mbw_mr", "copy"):
        raise NoExpectation(f"no model of {bench}", limit=None)
    if reading.gpus_per_node == 0:
        raise NoExpectation("host memory only")
    if bench == "copy" and nodes > 1:
        raise NoExpectation("no model of copies between nodes")
    torch = "torch" in reading.harness
    src, dst = _pair(site, reading) if nodes == 1 else (0, 0)
    if buffers in ("H D", "D H"):
        src = dst = 0
    return Question(
        bench=bench,
        nbytes=reading.nbytes,
        nodes=nodes,
        ranks=reading.gpus_per_node * reading.nodes if collective else None,
        src=None if collective or bench == "osu_mbw_mr" else src,
        dst=None if collective or bench == "osu_mbw_mr" else dst,
        buffers=buffers,
        algo=reading.algo or None,
        harness="pytorch" if torch else None,
    )


def _pair(site: Site, reading: PublishedReading) -> tuple[int, int]:
    """Return a pair of GPUs with the links that the reading is of."""
    if reading.bench == "copy" and reading.gpus_per_node == 1:
        return 0, 0
    links = site.node.gpus.links if site.node.gpus else None
    count = links_of_pair(reading)
    pairs = {link.between: link.count for link in links.pairs} if links else {}
    if count is None or not pairs:
        return 0, 1
    if count == 0:  # over two links where the way between them is as wide, else over one
        return (0, 7) if "direct link, high" in reading.source else (0, 3)
    return next(pair for pair, links_ in pairs.items() if links_ == count)


def site_of(reading: PublishedReading) -> Site:
    """Return the system of a reading as a site.

    Raises ``BusbarError`` for hardware that a site cannot describe.
    """
    links = parse_links(reading.intra)
    if links is None:
        raise BusbarError(f"no link class for {reading.intra!r}")
    network = parse_network(reading.fabric)
    if links.form == "package":
        return _partition_of(load("mi300x"), "cpx")
    vendor = "amd" if "AMD" in reading.gpu else "nvidia"
    nodes, whole = reading.nodes, max(1, gpus_of_node(reading))
    count = whole
    if links.form == "none":  # every GPU that takes part is on its own, behind its NICs
        nodes, count, whole = nodes * reading.gpus_per_node, 1, reading.gpus_per_node
    kind = network.kind if network else ""
    if kind and kind not in _NETWORKS:
        raise BusbarError(f"no link class for {reading.fabric!r}")
    node: dict[str, Any] = {"gpus": _gpus(reading, links, vendor, count)}
    if network:
        node["nics"] = _nics(network, whole, count)
    document: dict[str, Any] = {
        "name": "published",
        "description": f"{reading.gpu}, {reading.intra}, {reading.fabric}",
        "family": _family(vendor, kind, links.link_class),
        "partitions": [{"name": "gpu", "node_type": "gpu", "nodes": nodes}],
        "node_types": {"gpu": node},
        "deliveries": [{"kind": "wheels", "stack": "cuda" if vendor == "nvidia" else "rocm"}],
    }
    if network:
        document["fabric"] = {"provider": _NETWORKS[kind][0], "rails": network.nics}
    try:
        site = Site.model_validate(document)
    except ValidationError as error:
        raise BusbarError(f"no such node: {error.errors()[0]['msg']}") from error
    used = {nic.link_class for nic in site.node.nics}
    used |= site.node.gpus.link_classes() if site.node.gpus else set()
    if missing := used - set(link_classes(site)):
        raise BusbarError(f"no link class {missing.pop()!r}")
    if nodes > domain_nodes(site.node) and not network:
        raise BusbarError("the row states no network between its nodes")
    return site


def _partition_of(site: Site, name: str) -> Site:
    partitions = tuple(each for each in site.partitions if each.name == name)
    return site.model_copy(update={"partitions": partitions})


def _gpus(reading: PublishedReading, links: IntraLinks, vendor: str, count: int) -> dict[str, Any]:
    host = links.link_class if links.form == "host" else _HOST_LINKS.get(links.link_class)
    gpus: dict[str, Any] = {
        "vendor": vendor,
        "model": reading.gpu,
        "arch": _ARCHS.get(links.link_class, "sm_80" if vendor == "nvidia" else "gfx942"),
        "count": count,
        "host_link": {"class": host or "pcie5-x16", "count": 1},
    }
    bundle = {"class": links.link_class, "count": links.links}
    if links.form == "switched":
        domain = links.domain_gpus // count
        gpus["links"] = {"switched": {**bundle, "domain_nodes": max(1, domain)}}
        gpus["multicast"] = gpus["arch"] not in ("sm_70", "sm_80")
    elif links.form == "all pairs" and count > 1:
        gpus["links"] = {"all_pairs": bundle}
    elif links.form in ("cube", "cube mesh"):
        if links.link_class not in _CUBES:
            raise BusbarError(f"no link class for {reading.intra!r}")
        other = load(_CUBES[links.link_class]).node.gpus
        assert other
        gpus |= {"count": other.count, "links": other.links}
    elif links.form == "host":
        gpus["links"] = {"through_host": True}
    if links.link_class in ("xgmi-mi300x", "xgmi-mi350x"):
        gpus["partitioning"] = {"compute": "SPX", "memory": "NPS1", "compute_count": 1}
    return gpus


def _nics(network: Network, whole: int, count: int) -> list[dict[str, Any]]:
    """Return the NICs of a node, near its GPUs in order; of one GPU alone only its own."""
    link_class = _NETWORKS[network.kind][1].format(network.gbit_per_s)
    if count < whole:
        each = max(1, network.nics // whole)
        return [{"name": "nic0", "class": link_class, "count": each, "near_gpus": [0]}]
    nics = []
    for index in range(network.nics):
        first = index * whole // network.nics
        last = max(first + 1, (index + 1) * whole // network.nics)
        near = list(range(first, last))
        nics.append({"name": f"nic{index}", "class": link_class, "near_gpus": near})
    return nics


def _family(vendor: str, network: str, link_class: str) -> str:
    if vendor == "amd" and network != "slingshot11":
        return _OF_AMD.get(link_class, "mi300x")
    return _FAMILIES[vendor, network]
