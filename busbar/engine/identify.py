# SPDX-License-Identifier: MIT
"""What ran: collective, ranks, nodes, and the site where the output tells it."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path, PurePath
from typing import get_args

from busbar.engine.contradictions import signatures
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.errors import BusbarError
from busbar.parse import nccl_log, nccl_tests, numbers
from busbar.parse.events import Placed, Rank
from busbar.site.load import find, link_classes, load, names, ships
from busbar.site.model import CollectiveBench, Site

NCCL_NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AllToAll": "alltoall",
}


def ranks_of(facts: JobOutput) -> int | None:
    """Return how many ranks the output shows; None if it does not."""
    return _printed_ranks(facts) or _started_ranks(facts)


def _started_ranks(facts: JobOutput) -> int | None:
    """The ranks that the launcher was told to start, or that show their process."""
    requested = [command.ranks for command, _ in facts.commands if command.ranks]
    return max(requested, default=0) or len(facts.processes) or None


def _printed_ranks(facts: JobOutput) -> int | None:
    if facts.ranks:
        return facts.ranks
    printed = [*facts.values("nccl.init", "ranks"), *facts.values("nccl.nodes", "ranks")]
    if printed:
        return max(map(numbers.count, printed))
    if facts.devices:
        return max(d.rank for d in facts.devices.values()) + 1
    if facts.tool == "nccl_message_transfer":
        printed = [*facts.values("ofi.process", "rank"), *facts.values("ofi.completions", "rank")]
        return max(map(numbers.count, printed)) + 1
    if facts.tool in ("osu_bw", "osu_bibw", "osu_latency") and facts.readings:
        return 2  # these tests refuse any other number
    places = [place.ranks for place, _ in facts.events_of(Placed) if place.ranks]
    return max(places, default=None)


def nodes_of(facts: JobOutput) -> int | None:
    """Return how many nodes the output shows; None if it does not.

    NCCL counts each rank as a node if the network is their only connection. So host names take
    precedence over its count if all ranks are seen.
    """
    listed = {d.host for d in facts.devices.values()}
    if listed and facts.tool == "nccl-tests" and not facts.reports:
        return len(listed)
    printed = max((numbers.count(v) for v in facts.values("nccl.nodes", "nodes")), default=0)
    ranks = ranks_of(facts)
    if printed and (not ranks or len(facts.processes) < ranks):
        return max(printed, len(facts.hosts))
    return len(facts.hosts) or None


def named_operation(facts: JobOutput) -> tuple[str, Evidence | None] | None:
    """Return the collective that the output, a command line, NCCL's log or the file name names."""
    for name, evidence in facts.names:
        return name, evidence
    for command, evidence in facts.commands:
        if command.program:
            return command.program.removesuffix("_perf"), evidence
    ran = Counter(v for v in facts.values("nccl.algorithm", "operation") if v in NCCL_NAMES)
    if len(ran) == 1:
        return NCCL_NAMES[next(iter(ran))], facts.seen("nccl.algorithm")[0].evidence
    if facts.tool == "nccl-tests":
        for file in facts.files:
            words = re.sub(r"[^a-z]+", "_", PurePath(file).name.lower())
            for operation in get_args(CollectiveBench):
                if operation in words:
                    return operation, None
    return None


def columns_operation(facts: JobOutput, ranks: int | None) -> set[str]:
    """Return the collectives that fit the columns count, operator, root and busbw over algbw."""
    candidates: set[str] | None = None
    for row, _ in facts.rows[-3:]:
        width = nccl_tests.TYPE_BYTES.get(row.type)
        half = row.out_of_place
        if not width or not row.count or half.algbw < 1 or not ranks or ranks < 2:
            continue
        if not half.busbw > 0:
            continue  # not a number
        fit = {
            name
            for name, (parts, factor, reduces, rooted) in signatures(ranks).items()
            if abs(row.count * width * parts - row.nbytes) <= row.nbytes * 0.02 * parts
            and abs(half.busbw / half.algbw - factor) <= 0.01 * factor + 0.02 / half.algbw
            and (reduces is None or not row.redop or reduces == (row.redop != "none"))
            and (rooted is None or row.root is None or rooted == (row.root >= 0))
        }
        candidates = fit if candidates is None else candidates & fit
    return candidates or set()


def gpu_models(facts: JobOutput) -> set[str]:
    """The names of the GPUs that the output lists."""
    return {d.name for d in facts.devices.values()} | {
        rank.device_name for rank, _ in facts.events_of(Rank) if rank.device_name
    }


def nccl_versions(facts: JobOutput) -> dict[str, Evidence]:
    """Return the versions of NCCL or RCCL that ran, by its log and by nccl-tests.

    PyTorch names the version that it was built with, which is not among them.
    """
    found = {each["version"]: each.evidence for each in facts.seen("nccl.version")}
    for each in facts.seen("tests.nccl"):
        if version := nccl_log.version_of(each["library"]):
            found.setdefault(version, each.evidence)
    return found


def ranks_per_host(facts: JobOutput) -> Counter[str]:
    """How many devices the output lists on each host."""
    return Counter(d.host for d in facts.devices.values())


def recognise_site(facts: JobOutput, nodes: int | None) -> Site | None:
    """Return the site whose GPUs the output names; None when none or several unlike ones fit.

    Sites of ``BUSBAR_SITE_PATH`` come before those that ship. Many systems have the GPUs of a
    site without proof: it is taken only if all GPUs of its nodes ran, and if no other known site
    has these GPUs with other links or, for a run over several nodes, another network.
    """
    models = gpu_models(facts)
    instances = {v for v in facts.values("ofi.topology", "instance") if v}
    if len(models) > 1 or not (models or instances):
        return None
    most = max(ranks_per_host(facts).values(), default=0)
    across = (nodes or 1) > 1
    fitting, alike = [], set()
    for site in filter(None, (_loaded(find(name)) for name in names())):
        node = site.node_type()
        if models and (not node.gpus or node.gpus.model not in models or most > node.gpus.count):
            continue
        if across and site.fabric is None and not node.nics:
            continue
        if instances and node.instance_type not in instances:
            continue
        if ships(site):
            alike.add(_speed(site, across=across))
        # A cloud's instance is known by its name alone: others have the same GPUs.
        known = bool(instances) or site.proof != "none" or not ships(site)
        whole = node.gpus is not None and most == node.gpus.count
        if instances or (not node.instance_type and (known or whole)):
            fitting.append(site)
    own = [site for site in fitting if not ships(site)]
    if own or len(alike) > 1:
        return own[0] if len(own) == 1 else None
    return min(fitting, key=_gpu_count, default=None)


def _speed(site: Site, *, across: bool) -> str:
    """Return what decides the speed of a run: links and, between nodes, the network."""
    node = site.node_type()
    network = [(nic.count, nic.near_gpus, _rate(site, nic.link_class)) for nic in node.nics]
    provider = site.fabric.provider if site.fabric else ""
    return repr([node.gpus and node.gpus.links, (network, provider) if across else ()])


def _rate(site: Site, link_class: str) -> float:
    found = link_classes(site).get(link_class)
    return found.raw_gb_per_s if found else 0


def _gpu_count(site: Site) -> int:
    gpus = site.node_type().gpus
    return gpus.count if gpus else 0


@cache
def _loaded(file: Path) -> Site | None:
    try:
        return load(file)
    except BusbarError:
        return None  # a broken site must not keep a log from being read; busbar site lint names it
