# SPDX-License-Identifier: MIT
"""What an output shows of its run: collective, ranks, nodes, site, environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from busbar.engine.job_output import Device, JobOutput
from busbar.engine.reading import Evidence
from busbar.engine.run import Run
from busbar.engine.tool import tool_of
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES
from busbar.parse import nccl_log, numbers
from busbar.parse.events import Copy, Event, Flag, Placed, Rank, Start
from busbar.parse.tables import beside
from busbar.site.load import find, link_classes, load, names, ships
from busbar.site.model import NodeType, Site

_TABLES = beside(__file__)
_OPERATIONS: Mapping[str, str] = _TABLES["operations"]
_VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def ranks_of(facts: JobOutput) -> int | None:
    """Return how many ranks the output shows: printed, requested or by their processes.

    None if it does not. Of several communicators at once it is the ranks of the first.
    """
    requested = [command.ranks for command, _ in facts.commands if command.ranks]
    started = max(requested, default=0) or len(facts.processes) or None
    return len(communicator(facts)) or _printed_ranks(facts) or started


def communicator(facts: JobOutput) -> list[Device]:
    """Return the GPUs of the first of several communicators (NCCL_TESTS_SPLIT_MASK), if any."""
    first, *others = sorted({device.group for device in facts.devices.values()}) or [0]
    return [each for each in facts.devices.values() if others and each.group == first]


def _printed_ranks(facts: JobOutput) -> int | None:
    if facts.ranks:
        return facts.ranks
    printed = [*facts.values("nccl.init", "ranks"), *facts.values("nccl.nodes", "ranks")]
    if printed:
        return max(map(numbers.count, printed))
    if facts.devices:
        return max(d.rank for d in facts.devices.values()) + 1
    tool = tool_of(facts.tool)
    if tool and tool.ranks and (ranks := tool.ranks(facts)):
        return ranks
    places = [place.ranks for place, _ in facts.events_of(Placed) if place.ranks]
    return max(places, default=None)


def nodes_of(facts: JobOutput) -> int | None:
    """Return how many nodes the output shows; None if it does not.

    NCCL counts each rank as a node if the network is their only connection. So host names take
    precedence over its count if all ranks are seen.
    """
    if one := communicator(facts):
        return len({device.host for device in one})
    tool = tool_of(facts.tool)
    if tool and tool.nodes and (listed := tool.nodes(facts)):
        return listed
    printed = max((numbers.count(v) for v in facts.values("nccl.nodes", "nodes")), default=0)
    ranks = ranks_of(facts)
    if printed and (not ranks or len(facts.processes) < ranks):
        return max(printed, len(facts.hosts))
    asked = max((command.nodes or 0 for command, _ in facts.commands), default=0)
    return max(len(facts.hosts), min(asked, ranks or 0)) or None


def named_operation(facts: JobOutput) -> tuple[str, Evidence | None] | None:
    """Return the collective that the output, a command line, NCCL's log or the file name names."""
    for name, evidence in facts.names:
        return name, evidence
    for command, evidence in facts.commands:
        if command.program:
            return command.bench, evidence
    ran = Counter(v for v in facts.values("nccl.algorithm", "operation") if v in _OPERATIONS)
    if len(ran) == 1:
        return _OPERATIONS[next(iter(ran))], facts.seen("nccl.algorithm")[0].evidence
    tool = tool_of(facts.tool)
    operation = tool.operation(facts) if tool and tool.operation else None
    return (operation, None) if operation else None


def gpu_models(facts: JobOutput) -> set[str]:
    """The names of the GPUs that the output lists."""
    return {d.name for d in facts.devices.values()} | {
        rank.device_name for rank, _ in facts.events_of(Rank) if rank.device_name
    }


def nccl_versions(facts: JobOutput) -> dict[str, Evidence]:
    """Return the versions of NCCL or RCCL that ran, by its log and by the tool.

    PyTorch names the version that it was built with; that version is not included.
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
    instances, across = _instances(facts), (nodes or 1) > 1
    most = max(ranks_per_host(facts).values(), default=0)
    fitting, alike = [], set()
    for site in sites_like(facts, nodes):
        node = site.node_type()
        if ships(site):
            alike.add(_speed(site, across=across))
        # Only the name identifies a cloud's instance: others have the same GPUs.
        known = bool(instances) or site.proof != "none" or not ships(site)
        # One GPU per node does not identify the network between nodes.
        whole = node.gpus is not None and most == node.gpus.count > across
        if instances or (not node.instance_type and (known or whole)):
            fitting.append(site)
    own = [site for site in fitting if not ships(site)]
    if own or len(alike) > 1:
        return own[0] if len(own) == 1 else None
    return min(fitting, key=lambda site: getattr(site.node_type().gpus, "count", 0), default=None)


def sites_like(facts: JobOutput, nodes: int | None) -> list[Site]:
    """Return the known sites whose nodes have the GPUs, or are the instances, of the output."""
    models, instances = gpu_models(facts), _instances(facts)
    most = max(ranks_per_host(facts).values(), default=0)
    if len(models) > 1 or not (models or instances):
        return []
    found = []
    for site in filter(None, (_loaded(find(name)) for name in names())):
        node = site.node_type()
        if models and (not node.gpus or node.gpus.model not in models or most > node.gpus.count):
            continue
        if (nodes or 1) > 1 and site.fabric is None and not node.nics:
            continue
        if not instances or node.instance_type in instances:
            found.append(site)
    return found


def _instances(facts: JobOutput) -> set[str]:
    return {name for name in facts.values("ofi.topology", "instance") if name}


def _speed(site: Site, *, across: bool) -> str:
    """Return what decides the speed of a run: links and, between nodes, the network."""
    node = site.node_type()
    rates = {name: one.raw_gb_per_s for name, one in link_classes(site).items()}
    network = [(nic.count, nic.near_gpus, rates.get(nic.link_class)) for nic in node.nics]
    provider = site.fabric.provider if site.fabric else ""
    return repr([node.gpus and node.gpus.links, (network, provider) if across else ()])


@cache
def _loaded(file: Path) -> Site | None:
    try:
        return load(file)
    except BusbarError:
        return None  # a broken site must not keep a log from being read; busbar site lint names it


# ---- what is known of a run
def algorithms_of(output: JobOutput) -> dict[tuple[str, int], str]:
    """Return the algorithm of each collective and size, from the log of NCCL or RCCL."""
    found: dict[tuple[str, int], set[str]] = {}
    for message in output.seen("nccl.algorithm"):
        name = nccl_log.algorithm_name(message["algorithm"])
        key = (_OPERATIONS.get(message["operation"], ""), numbers.count(message["nbytes"]))
        found.setdefault(key, set()).add(_TABLES["algorithms"].get(name, ""))
    return {
        key: names.pop() for key, names in found.items() if len(names) == 1 and "" not in names
    }


def of_output(run: Run, output: JobOutput) -> Run:
    """Complete what a launch asks by what its output shows of algorithms, GPUs and copies."""
    places = {place.rank: place for place, _ in output.events_of(Rank) if place.device}
    return replace(
        run,
        algorithms=algorithms_of(output),
        gpus=_gpus_of_ranks(run, output) if places else run.gpus,
        # Readings of mixed buffers on a host are compared with copies of the same run, or nothing.
        copies=copies_of(output) if output.device == "host" and not run.memory else None,
    )


def from_output(known: Run, output: JobOutput, operation: str | None) -> Run:
    """Complete ``known`` by what the output shows.

    ``operation`` is the collective as the output names it or as its columns show it.
    """
    shown = {name: list(values)[-1] for name, values in output.environment.items()}
    listed = known.listed
    if known.environment is not None:
        shown, listed = {**known.environment, **shown}, ("",)
    bench, tool = output.tool, tool_of(output.tool)
    if (tool and bench in tool.outputs) or (not bench and operation in COLLECTIVES):
        bench = operation or ""
    asked = tool or tool_of(operation or "")  # it may have died before it printed a line
    places = [(device.group, device.host) for device in output.devices.values()]
    buffers = output.buffers or (asked.buffers(output) if asked and asked.buffers else "")
    run = replace(
        known,
        bench=bench,
        placed=Counter(places) if communicator(output) else {},
        harness=known.harness or (tool.harness(known, output) if tool and tool.harness else None),
        lane=known.lane or _lane(output),
        environment=shown,
        listed=listed or _listed(output),
        engine=known.engine or shown_engine(output),
        gpus=_gpus(known, output),
        buffers=buffers,
        memory=_memory(output, buffers),
        copies=(copies_of(output) or None) if output.device == "host" else None,
        algorithms=algorithms_of(output),
    )
    if run.partition is None and run.site is not None:
        fitting = [
            each.name
            for each in run.site.partitions
            if each.name in run.partitions
            and _may_be(run.site.node_type(each.name), run, run.nodes or each.nodes, output)
        ]
        if len(fitting) == 1:
            run = replace(run, partition=fitting[0])
    return run


def _may_be(node: NodeType, run: Run, nodes: int, output: JobOutput) -> bool:
    """Whether the devices that the output lists can belong to as many nodes of one type."""
    if node.gpus is None:
        return not gpu_models(output)
    models = gpu_models(output)
    per_node = (run.ranks or 0) // nodes
    most = max((per_node, *ranks_per_host(output).values()))
    if (models and models != {node.gpus.model}) or most > node.gpus.count:
        return False
    places = Counter((device.host, device.bus) for device in output.devices.values())
    if most < 2 or not places:
        return True
    # Partitions of one accelerator share its place on the PCI bus.
    divided = node.gpus.partitioning is not None and node.gpus.partitioning.compute_count > 1
    return divided == (max(places.values()) > 1)


def _memory(output: JobOutput, buffers: str) -> Literal["", "host", "device"]:
    if output.device == "host":
        return "host"
    return "device" if output.device or "D" in buffers else ""


def _lane(output: JobOutput) -> str | None:
    mismatch = output.first("ucx.api-mismatch")
    version = mismatch["loaded"] if mismatch else next(output.values("ucx.version", "version"), "")
    if not version:
        return None
    return "ucx-1.14" if version.startswith("1.14") else "ucx-current"


def _listed(output: JobOutput) -> tuple[str, ...]:
    """The libraries that list their variables: UCX all of them, NCCL and RCCL those set."""
    ucx = ("UCX_",) if output.first("ucx.env") else ()
    nccl = ("NCCL_", "RCCL_") if output.first("nccl.env") else ()
    return (*ucx, *nccl)


def shown_engine(output: JobOutput) -> str | None:
    """``sdma`` or ``kernel`` if the output shows ``HSA_ENABLE_SDMA``."""
    setting = output.setting("HSA_ENABLE_SDMA")
    return {"0": "kernel", "1": "sdma"}.get(setting.value) if setting else None


def _gpus(known: Run, output: JobOutput) -> dict[int, int]:
    if any(place.device for place, _ in output.events_of(Rank)):
        return _gpus_of_ranks(known, output)
    return dict(enumerate(visible_gpus(output)))


def visible_gpus(output: JobOutput) -> tuple[int, ...]:
    """The GPUs in the order of the ``*_VISIBLE_DEVICES`` that the output shows; (0, 1) if none."""
    setting = output.setting(*_VISIBLE)
    if setting:
        listed = tuple(
            numbers.count(n) for n in setting.value.split(",") if numbers.is_whole(n.strip())
        )
        if len(listed) >= 2:
            return listed
    return (0, 1)


def _gpus_of_ranks(run: Run, output: JobOutput) -> dict[int, int]:
    gpus = run.site.node_type(run.partition).gpus if run.site else None
    bus_ids = gpus.bus_ids if gpus and gpus.bus_ids else ()
    found: dict[int, int] = {}
    for place, _ in output.events_of(Rank):
        on_site = place.device in bus_ids
        found[place.rank] = bus_ids.index(place.device) if on_site else place.node_rank
    return found


def copies_of(output: JobOutput) -> tuple[Event, ...]:
    """Return the plain copies that a program measured next to MPI, and for which MPI, or ()."""
    copies = [event for event, _ in output.events if isinstance(event, Copy | Flag)]
    starts = [start for start, _ in output.events_of(Start)]
    return (*starts, *copies) if copies else ()
