# SPDX-License-Identifier: MIT
"""Check a site against the rules that its schema cannot express."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from busbar.data import LIKE, SITES
from busbar.errors import BusbarError, suggestion
from busbar.expect import COLLECTIVES, Question, expect
from busbar.expect.collective import bands as collective_bands, harnesses
from busbar.expect.expectation import Expectation, NoExpectation
from busbar.expect.lint_nodes import (
    Key,
    Violation,
    breach,
    gpu_violations,
    island_violations,
    place_violations,
    uplink_violations,
)
from busbar.expect.model import compute_mode, fitted
from busbar.expect.topology import domain_nodes
from busbar.near import misspelled
from busbar.site.delivery import Delivery
from busbar.site.family import Band, LinkKind
from busbar.site.load import family, find, link_classes, load, read, shadowed
from busbar.site.model import NodeType, Partition, Reference, Site
from busbar.site.tuning import profiles
from busbar.slurm.nodes import partition_by_node
from busbar.slurm.options import sbatch_options

_SLURM = ("slurm", "squeue")
_NETWORKS = {"ib": "ib-", "roce": "roce-", "efa": "efa-", "cxi": "slingshot-"}
"""How the classes of ports begin that have a feature."""


@dataclass(frozen=True)
class LintFinding:
    """A violation of one rule."""

    site: str
    where: str
    """File, line and key."""
    rule: str
    hint: str

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}; {self.hint}"


def lint(name_or_path: str | Path) -> list[LintFinding]:
    """Return the findings on a site; only the schema's if the file violates it.

    Raises ``BusbarError`` for an unknown site.
    """
    file = find(name_or_path)
    try:
        site = load(file)
        document = read(file)
        family(site)
        link_classes(site)
    except BusbarError as error:
        return [
            LintFinding(str(name_or_path), one.where, one.what, one.hint or "correct the file")
            for one in (error, *error.others)
        ]
    found = [
        *(*_files(site), *_nodes(site), *_partitions(site), *_fabric(site)),
        *_networks(site),
        *(*_deliveries(site), *_proof(site), *_references(site)),
    ]
    first = {what: key for key, what, _ in reversed(found)}
    found = [each for each in found if first[each[1]] == each[0] or "link class" not in each[1]]
    findings = [LintFinding(site.name, document.where(key), *words) for key, *words in found]
    for where, name in shadowed(site.directory):
        findings.append(LintFinding(site.name, where, *breach((), "shadowed", name=name)[1:]))
    return findings


def _nodes(site: Site) -> Iterator[Violation]:
    classes = link_classes(site)
    for name, node in site.node_types.items():
        base: Key = ("node_types", name)
        if name not in {partition.node_type for partition in site.partitions}:
            yield breach(base, "no-partition")
        if node.gpus:
            for key, rule, hint in gpu_violations(node.gpus, classes):
                yield (*base, "gpus", *key), rule, hint
        used = [*_used(node)]
        for key, link_class, place in used:
            if link_class not in classes:
                hint = suggestion(link_class, sorted(classes))
                yield (*base, *key), f"unknown link class {link_class!r}", hint
            elif (kind := classes[link_class].kind) not in (None, place):
                yield breach((*base, *key), f"{place}-link", name=link_class, kind=kind)
            elif node.gpus and not node.gpus.arch.startswith(classes[link_class].archs or ""):
                words = {"name": link_class, "archs": " and ".join(classes[link_class].archs)}
                yield breach((*base, *key), "link-arch", of=node.gpus, **words)
        places = [*place_violations(node)]
        if {link_class for _, link_class, _ in used} <= classes.keys():
            places += [*uplink_violations(node, classes), *island_violations(node, classes)]
        yield from ((((*base, *key)), rule, hint) for key, rule, hint in places)


def _used(node: NodeType) -> Iterator[tuple[Key, str, LinkKind]]:
    """Yield the key, the link class, and the kind of link that the key needs."""
    if node.gpus and node.gpus.links:
        for name in sorted(node.gpus.links.classes()):
            yield ("gpus", "links"), name, "GPU"
    if node.gpus and node.gpus.host_link:
        yield ("gpus", "host_link", "class"), node.gpus.host_link.link_class, "host"
    for index, nic in enumerate(node.nics):
        yield ("nics", index, "class"), nic.link_class, "network"
    for number, socket in enumerate(node.pcie):
        if socket.link:
            yield ("pcie", number, "link", "class"), socket.link.link_class, "host"
        for at, switch in enumerate(socket.switches):
            if switch.uplink:
                key: Key = ("pcie", number, "switches", at, "uplink", "class")
                yield key, switch.uplink.link_class, "host"


def _partitions(site: Site) -> Iterator[Violation]:
    names: set[str] = set()
    for index, partition in enumerate(site.partitions):
        if partition.name in names:
            yield breach(("partitions", index, "name"), "partition-twice", name=partition.name)
        names.add(partition.name)
        for at, given in enumerate(partition.access if site.scheduler in _SLURM else ()):
            option = re.split("[= ]", given)[0]
            meant = misspelled(option, sbatch_options()) if option.startswith("--") else option
            if meant not in ("", option):  # what is like none may be of a plugin
                key: Key = ("partitions", index, "access", at)
                yield breach(key, "sbatch", option=option, known=meant)
    try:
        listed = [*partition_by_node(site).values()]
        for index, partition in enumerate(site.partitions):
            if partition.nodelist and partition.nodes > (count := listed.count(partition.name)):
                key = ("partitions", index, "nodelist")
                yield breach(key, "nodelist", count=count, nodes=partition.nodes)
    except BusbarError as error:
        yield ("partitions",), f"{error.where}: {error.what}", error.hint
    for partition in site.unlisted if site.gate else ():
        key = ("partitions", site.partitions.index(partition))
        yield breach(key, "unlisted", type=partition.node_type)


def _files(site: Site) -> Iterator[Violation]:
    if site.directory and not (site.directory / "reframe.py").is_file():
        yield breach((), "no-configuration", sites=SITES, directory=site.directory)

    if site.description.startswith(LIKE):
        yield breach(("description",), "as-copied")


def _fabric(site: Site) -> Iterator[Violation]:
    nodes = site.node_types
    for index, partition in enumerate(site.partitions):
        key, node = ("partitions", index), nodes[partition.node_type]
        lacks = [*(["fabric"] * (not site.fabric)), *(["its nics"] * (not node.nics))]
        if partition.nodes > domain_nodes(node) and lacks:
            words = {"type": partition.node_type, "lacks": " and ".join(lacks)}
            yield breach((*key, "nodes"), "no-network", **words)
        if partition.launcher == "srun" and site.scheduler not in _SLURM:
            yield breach((*key, "launcher"), "srun", scheduler=site.scheduler)
    rails = {nic.rail for node in nodes.values() for nic in node.nics if nic.rail is not None}
    if site.fabric and rails and len(rails) != site.fabric.rails:
        yield breach(("fabric", "rails"), "rails", stated=site.fabric.rails, found=len(rails))


def _networks(site: Site) -> Iterator[Violation]:
    """Compare the NICs of each type of nodes with the provider, and with the features."""
    classes = link_classes(site)
    for name, node in site.node_types.items():
        ports = sorted({nic.link_class for nic in node.nics})
        able = [classes[port].providers if port in classes else () for port in ports]
        if not all(able):
            continue  # a class of the site can be of any network
        needed = sorted({provider for each in able for provider in each})
        if site.fabric and needed and site.fabric.provider not in ("tcp", *needed):
            words = {"type": name, "names": ", ".join(ports), "needed": " or ".join(needed)}
            at = ("fabric", "provider")
            yield breach(at, "provider", provider=site.fabric.provider, **words)
        has = {f for f, start in _NETWORKS.items() if any(p.startswith(start) for p in ports)}
        has |= {"cpx"} if node.gpus and compute_mode(node.gpus) == "CPX" else set()
        for index, partition in enumerate(site.partitions):
            if partition.node_type == name and (lacks := sorted({*partition.features} - has)):
                key = ("partitions", index, "features")
                yield breach(key, "feature", type=name, features=", ".join(lacks))


def _deliveries(site: Site) -> Iterator[Violation]:
    """Compare deliveries with the partitions that share a list: each must fit one, and each needs
    one."""
    lists: list[tuple[Key, tuple[Delivery, ...], list[Partition]]] = [
        (("partitions", index, "deliveries"), partition.deliveries, [partition])
        for index, partition in enumerate(site.partitions)
        if partition.deliveries
    ]
    shared = [partition for partition in site.partitions if not partition.deliveries]
    for key, stated, partitions in [(("deliveries",), site.deliveries, shared), *lists]:
        fitting = {partition.name: _stated(site, partition) for partition in partitions}
        for index, delivery in enumerate(stated):
            if delivery.kind == "image" and not site.containers:
                yield breach((*key, index), "no-runtime")
            if not any(delivery in used for used in fitting.values()):
                yield from _unfit(site, delivery, (*key, index), partitions)
        for partition in partitions:
            if not fitting[partition.name] and any(fitting.values()):
                stack, place = _needed(site, [partition]), site.partitions.index(partition)
                words = {"name": partition.name, "stack": stack}
                yield breach(("partitions", place, "node_type"), "none-fits", **words)
            names: set[str] = set()
            gpus = site.node_types[partition.node_type].gpus
            for delivery in fitting[partition.name]:
                at = (*key, stated.index(delivery))
                arch = re.search(r"sm_\d+|gfx[0-9a-f]+", delivery.environment or "")
                if gpus and arch and not gpus.arch.startswith(arch[0]):
                    words = {"stated": arch[0], "partition": partition.name, "arch": gpus.arch}
                    yield breach((*at, "environment"), "environment", **words)
                if names.intersection(delivery.names()):
                    words = {"name": delivery.names()[0], "partition": partition.name}
                    yield breach(at, "same-name", **words)
                names.update(delivery.names())


def _stated(site: Site, partition: Partition) -> list[Delivery]:
    """Return the deliveries of a partition, as `site.yaml` states them."""
    gpus = site.node_types[partition.node_type].gpus
    used = site.deliveries_of(partition)
    vendor = gpus.vendor if gpus else None
    return [each for each in partition.deliveries or site.deliveries if each.on(vendor) in used]


def _unfit(
    site: Site, delivery: Delivery, key: Key, partitions: Collection[Partition]
) -> Iterator[Violation]:
    if not partitions:
        yield breach(key, "unused")
    elif delivery.stack == "host":
        yield breach((*key, "stack"), "host-unused")
    else:
        needed = _needed(site, partitions)
        yield breach((*key, "stack"), "other-stack", stack=delivery.stack, needed=needed)


def _needed(site: Site, partitions: Iterable[Partition]) -> str:
    nodes = [site.node_types[partition.node_type] for partition in partitions]
    return ", ".join(sorted({node.gpus.stack for node in nodes if node.gpus})) or "host"


def _proof(site: Site) -> Iterator[Violation]:
    """Check that a band measured on the site's GPUs has at least the proof of the site."""
    models = {node.gpus.model for node in site.node_types.values() if node.gpus}
    if site.proof == "none" or not models:
        return
    classes = link_classes(site)
    bands: list[Band] = [*collective_bands(site)]
    used = {c for n in site.node_types.values() for _, c, kind in _used(n) if kind != "network"}
    bands += [band for name in used & set(classes) for band in classes[name].bands]
    proofs: set[str] = {band.proof for band in bands if models.intersection(band.models)}
    proofs |= {"replay"} if site.references or models.intersection(fitted().models) else set()
    if site.proof not in proofs and "run" not in proofs:
        yield breach(("proof",), "proof", proof=site.proof, models=", ".join(sorted(models)))


def _references(site: Site) -> Iterator[Violation]:
    choices = {"harness": harnesses(site), "profile": profiles(site)}
    for index, reference in enumerate(site.references):
        key: Key = ("references", index)
        stated = {name: getattr(reference, name) for name in choices}
        unknown = [name for name in choices if stated[name] not in (None, *choices[name])]
        for name in unknown:
            words = {"value": stated[name], "known": ", ".join(choices[name]) or "none"}
            yield breach((*key, name), "unknown", name=name, **words)
        if not unknown:
            yield from _reading(site, reference, key)


def _reading(site: Site, reference: Reference, key: Key) -> Iterator[Violation]:
    """Compare the reading with its limit and band; without data only the limit may be known."""
    band: Expectation | None = None
    try:
        band = expect(site, question_of(reference))
        limit, path = band.limit, band.path
    except NoExpectation as error:
        if error.limit is None:
            if reference.bench in COLLECTIVES:
                yield key, error.what, "correct its partition, or bench"
            return
        limit, path = error.limit, error.path
    except BusbarError as error:
        yield key, error.what, error.hint or "correct the reference"
        return
    at = (*key, "us" if reference.us is not None else "gb_per_s")
    value, unit, latency = reference.value, reference.unit, reference.us is not None
    reading = f"{reference.bench} {value:g} {unit}"
    if value < limit if latency else value > limit:
        nodes = f" on {reference.nodes} nodes" if reference.nodes > 1 else ""
        reading = f"{reference.bench}{nodes} {value:g} {unit}"
        side, way = "below" if latency else "above", "; ".join(path)
        words = {"side": side, "limit": limit, "unit": unit, "path": way}
        yield breach(at, "beyond", reading=reading, **words)
    elif band and not band.outside and not band.low <= value <= band.high:
        words = {"low": band.low, "high": band.high, "unit": band.unit}
        yield breach(at, "outside", reading=reading, **words)


def question_of(reference: Reference) -> Question:
    """Return the run that a reference states."""
    src, dst = reference.pair or (0, 1 if reference.nodes == 1 else 0)
    shared = {each.name for each in fields(Question)}
    return Question(
        **reference.model_dump(include=shared), nbytes=reference.bytes, src=src, dst=dst
    )
