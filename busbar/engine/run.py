# SPDX-License-Identifier: MIT
"""What is known of the run that a reading comes from.

A check knows it from what it started, an explanation from what the output shows. Both fill the
same record, so both get the same expectation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from busbar.engine.identify import NCCL_NAMES, gpu_models, ranks_per_host
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch
from busbar.expect import COLLECTIVES
from busbar.parse import nccl_log, numbers
from busbar.parse.events import Copy, Event, Flag, Rank, Start
from busbar.site.model import NodeType, Site

NCCL_TESTS = "nccl-tests"
RCCL_TESTS = "rccl-tests"
PYTORCH = "pytorch"
_ALGORITHMS = {"RING": "ring", "TREE": "tree", "NVLS": "nvls", "NVLS_TREE": "nvls"}
_VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Run:
    """One launch of a benchmark; None or empty for what is not known."""

    site: Site | None = None
    partition: str | None = None
    check: str = ""
    """The check that started it, without its parameters."""
    bench: str = ""
    """``osu_bw``, ``gpu_aware``...; for nccl-tests and rccl-tests the collective."""
    harness: str | None = None
    """What timed a collective: ``nccl-tests``, ``rccl-tests`` or ``pytorch``."""
    nodes: int | None = None
    ranks: int | None = None
    """Ranks of all nodes."""
    lane: str | None = None
    environment: Mapping[str, str] | None = None
    """Variables that are known to be set; None if the site's own are assumed."""
    listed: tuple[str, ...] = ()
    """Prefixes of variables that are unset if ``environment`` lacks them; ``""`` for all."""
    engine: str | None = None
    """``sdma`` or ``kernel`` on AMD GPUs."""
    gpus: Mapping[int, int] = field(default_factory=dict)
    """The GPU of each rank."""
    buffers: str = ""
    """``D D``, ``H D``: memory of sender and receiver."""
    memory: Literal["", "host", "device"] = ""
    """Where the buffers are: in host memory on both sides, or on a GPU on at least one."""
    copies: tuple[Event, ...] | None = None
    """Copies without MPI that the run measured beside its readings."""
    algorithms: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """By collective (empty if not named) and size: the algorithm that NCCL's log names."""

    def algorithm(self, operation: str, nbytes: int) -> str | None:
        """Return the algorithm that ran; None if the log does not show it or the user chose it.

        What the user forces says nothing of what the library would reach.
        """
        if "NCCL_ALGO" in (self.environment or {}):
            return None
        of_size = {self.algorithms.get((name, nbytes)) for name in (operation, "")} - {None}
        of_any = {algo for (name, _), algo in self.algorithms.items() if name in (operation, "")}
        found = of_size or of_any
        return found.pop() if len(found) == 1 else None

    def gpu(self, rank: int) -> int:
        """Return the GPU of a rank; ranks use the GPUs in order unless known otherwise."""
        return self.gpus.get(rank, rank)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that the run may have used."""
        if self.site is None or self.partition:
            return (self.partition,) if self.partition else ()
        first_of_each_type = {p.node_type: p.name for p in reversed(self.site.partitions)}
        return tuple(p.name for p in self.site.partitions if p.name in first_of_each_type.values())


def of_launch(known: Run, launch: BenchLaunch) -> Run:
    """Complete ``known`` by what a check asks of one launch."""
    settings = {**(known.environment or {}), **dict(launch.environment)}
    each = launch.gpus
    gpus = {rank: each[rank % len(each)] for rank in range(launch.ranks) if each}
    return replace(
        known,
        bench=launch.bench,
        nodes=launch.nodes,
        ranks=launch.ranks,
        environment=settings,
        listed=("",),
        gpus=gpus,
        buffers=launch.buffers,
        memory="host" if launch.buffers == "H H" else "device",
    )


def algorithms_of(output: JobOutput) -> dict[tuple[str, int], str]:
    """Return the algorithm of each collective and size, from the log of NCCL or RCCL."""
    found: dict[tuple[str, int], set[str]] = {}
    for message in output.seen("nccl.algorithm"):
        name = nccl_log.algorithm_name(message["algorithm"])
        key = (NCCL_NAMES.get(message["operation"], ""), numbers.count(message["nbytes"]))
        found.setdefault(key, set()).add(_ALGORITHMS.get(name, ""))
    return {
        key: names.pop() for key, names in found.items() if len(names) == 1 and "" not in names
    }


def from_output(known: Run, output: JobOutput, operation: str | None) -> Run:
    """Complete ``known`` by what the output shows.

    ``operation`` is the collective as the output names it or as its columns show it.
    """
    shown = {name: list(values)[-1] for name, values in output.environment.items()}
    listed = known.listed
    if known.environment is not None:
        shown, listed = {**known.environment, **shown}, ("",)
    bench = output.tool
    if bench == NCCL_TESTS or (not bench and operation in COLLECTIVES):
        bench = operation or ""
    run = replace(
        known,
        bench=bench,
        harness=known.harness or _harness(known, output),
        lane=known.lane or _lane(output),
        environment=shown,
        listed=listed or _listed(output),
        engine=known.engine or shown_engine(output),
        gpus=_gpus(known, output),
        buffers=output.buffers or _buffers(output),
        memory=_memory(output, output.buffers or _buffers(output)),
        copies=(copies_of(output) or None) if output.device == "host" else None,
        algorithms=algorithms_of(output),
    )
    if run.partition is None and run.site is not None:
        fitting = [
            partition.name
            for partition in run.site.partitions
            if partition.name in run.partitions
            and _may_be(
                run.site.node_type(partition.name), run, run.nodes or partition.nodes, output
            )
        ]
        if len(fitting) == 1:
            run = replace(run, partition=fitting[0])
    return run


def _may_be(node: NodeType, run: Run, nodes: int, output: JobOutput) -> bool:
    """Whether the devices that the output lists can be those of as many nodes of a type."""
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


def _buffers(output: JobOutput) -> str:
    """``H D`` and the like from the command line: OSU 7.4 does not print them."""
    for command, _ in output.commands:
        kinds = command.arguments[-2:]
        if len(kinds) == 2 and set(kinds) <= {"D", "H"}:
            return " ".join(kinds)
    return ""


def _memory(output: JobOutput, buffers: str) -> Literal["", "host", "device"]:
    if output.device == "host":
        return "host"
    return "device" if output.device or "D" in buffers else ""


def _harness(known: Run, output: JobOutput) -> str | None:
    if output.tool == "torch_collectives":
        return PYTORCH
    if output.tool != NCCL_TESTS:
        return None
    gpus = known.site.node_type(known.partition).gpus if known.site else None
    if gpus:
        return RCCL_TESTS if gpus.vendor == "amd" else NCCL_TESTS
    models = gpu_models(output)
    if not models:
        return None
    return RCCL_TESTS if any("AMD" in model for model in models) else NCCL_TESTS


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
    if output.tool == "gpu_aware":
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
    """Return the plain copies that ``gpu_aware --copy`` measured, and for which MPI; else ()."""
    copies = [event for event, _ in output.events if isinstance(event, Copy | Flag)]
    starts = [start for start, _ in output.events_of(Start)]
    return (*starts, *copies) if copies else ()
