# SPDX-License-Identifier: MIT
"""The model of a system: the keys of `site/<name>/site.yaml`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from busbar.boundary import refuse_command
from busbar.errors import require_known
from busbar.parse.cpulist import checked_cpu_list
from busbar.site import backends
from busbar.site.delivery import STACK_OF, Delivery, Stack, Vendor
from busbar.site.gate import Gate, NodePolicy
from busbar.site.links import Bundle, Count, Index, Links, Name, Place, Socket
from busbar.site.record import Record

InNode = Annotated[int, Field(ge=1, le=128)]
"""A number per node; at most twice the number of the largest node among the shipped sites."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Variable = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
Value = Annotated[str, AfterValidator(refuse_command)]
"""The value of an environment variable: one line, as scripts and job prologues print it."""
Proof = Literal["run", "replay", "none"]
PartitionFeature = Literal["efa", "cxi", "ib", "roce", "cpx"]
Provider = Literal["verbs", "efa", "cxi", "opx", "tcp"]
PointBench = Literal["osu_bw", "osu_bibw", "osu_mbw_mr", "osu_latency", "copy"]
"""The benchmarks of OSU, and ``copy``: by the GPU's copy engine, without MPI."""
CollectiveBench = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"
]
Bench = PointBench | CollectiveBench
Algorithm = Literal["ring", "tree", "nvls"]


_HOPPER = 90
"""Compute capability times ten of the first GPUs with NVLink SHARP."""


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"invalid regular expression {text!r}: {error}") from error
    return text


class Partitioning(Record):
    """The partitioning of each AMD accelerator, by the vendor's mode names."""

    compute: Literal["SPX", "DPX", "TPX", "QPX", "CPX"]
    """Compute mode: SPX keeps an accelerator whole."""
    memory: Literal["NPS1", "NPS2", "NPS4", "NPS8"]
    """Memory mode: NPS1 keeps the memory whole."""
    compute_count: Count
    """Compute partitions of one accelerator: 1 for SPX, the number of dies for CPX."""

    @property
    def memory_count(self) -> int:
        """Memory partitions of one accelerator."""
        return int(self.memory.removeprefix("NPS"))


class Gpus(Record):
    """The GPUs of one node; each device of the runtime is one GPU, such as a GCD or partition."""

    vendor: Vendor
    """Selects CUDA or ROCm."""
    model: str
    """The model name, as the vendor's tool prints it."""
    arch: Annotated[str, Field(pattern=r"^(sm_\d+[a-z]?|gfx[0-9a-f]+)$")]
    """Architecture: ``sm_90``, ``gfx942``."""
    count: InNode
    """GPUs of one node."""
    memory_mib: Count | None = None
    """Memory of one GPU in MiB, as the vendor's tool prints it."""
    bus_ids: tuple[str, ...] | None = None
    """PCI addresses in device order, if they are the same on every node."""
    links: Links | None = None
    """Links between the GPUs of a node."""
    host_link: Bundle | None = None
    """Links of one GPU to its host."""
    multicast: bool | None = None
    """The switch supports reduction and multicast (NVLink SHARP), and the driver enables it.

    Omit it if you do not know: limits then allow for it, and no band asks for it."""
    partitioning: Partitioning | None = None
    """How AMD accelerators are divided; omit it for whole ones, and for other GPUs."""

    @property
    def stack(self) -> Stack:
        """The stack for these GPUs."""
        return STACK_OF[self.vendor]

    def link_classes(self, ranks: int | None = None) -> set[str]:
        """Return the link classes that join the first ``ranks`` GPUs; None: all of them.

        GPUs that direct links do not join are joined by their host links.
        """
        if self.links is None:
            return set()
        if not self.links.through_host or self.host_link is None:
            return self.links.classes()
        if ranks is None:
            return self.links.classes() | {self.host_link.link_class}
        group, last = {0}, 0
        while len(group) > last:
            last = len(group)
            for link in self.links.pairs:
                if group.intersection(link.between) and max(link.between) < ranks:
                    group.update(link.between)
        return self.links.classes() if len(group) == ranks else {self.host_link.link_class}

    @model_validator(mode="after")
    def _through_a_link(self) -> Gpus:
        package = self.links.package if self.links else None
        if package and self.count % package.devices:
            what = f"{self.count} GPUs do not fill packages of {package.devices}"
            raise ValueError(f"{what}; correct count or devices")
        if self.links and self.links.through_host and not self.host_link:
            raise ValueError("links.through_host needs host_link, the link from a GPU to its host")
        return self

    @property
    def can_multicast(self) -> bool:
        """Whether the switch can reduce: NVSwitches do from Hopper on."""
        switched = self.links is not None and self.links.switched is not None
        return switched and self.vendor == "nvidia" and int(self.arch[3:].rstrip("abf")) >= _HOPPER

    @property
    def may_multicast(self) -> bool:
        """Whether it may: unless it is turned off."""
        return self.can_multicast if self.multicast is None else self.multicast

    @property
    def packages(self) -> int:
        """The number of accelerators that contain these devices."""
        inside = self.links.package if self.links else None
        return self.count // inside.devices if inside else self.count


class Nic(Record):
    """A network port, or several ports near the same GPUs."""

    name: str
    """Device name: ``mlx5_0``."""
    link_class: Name = Field(alias="class")
    """A link class of ``site/_families/links.yaml``."""
    count: InNode = 1
    """Number of ports."""
    near_gpus: tuple[Index, ...] = ()
    """GPUs that reach it without crossing to another socket or switch."""
    gpudirect: bool = True
    """The NIC accesses GPU memory; otherwise data is staged through host memory."""
    rail: Index | None = None
    """The rail that the port is on."""


class Numa(Record):
    """One NUMA domain."""

    id: Index
    """Number of the domain."""
    cpus: Annotated[str, AfterValidator(checked_cpu_list)]
    """CPU list: ``0-15,64-79``."""
    gpus: tuple[Index, ...] = ()
    """GPUs of the domain."""


class NodeType(Record):
    """The hardware of one kind of node."""

    gpus: Gpus | None = None
    """The GPUs; omit it for a node without any."""
    nics: tuple[Nic, ...] = ()
    """Network ports."""
    numa: tuple[Numa, ...] = ()
    """NUMA domains."""
    pcie: tuple[Socket, ...] = ()
    """By socket, where GPUs and NICs are on PCI Express; pairs of GPUs without other links differ
    by it. Omit it if you do not know."""
    cores: Count | None = None
    """Logical CPUs that a job can use."""
    threads_per_core: Annotated[int, Field(ge=1, le=8)] | None = None
    """Logical CPUs of one core that a job can use."""
    sockets: Annotated[int, Field(ge=1, le=64)] | None = None
    """CPU packages of one node."""
    instance_type: str | None = None
    """Instance type of the cloud."""

    @model_validator(mode="after")
    def _pcie_of_this_node(self) -> NodeType:
        """Check that each GPU has one place, and that all names are of this node."""
        if not self.pcie:
            return self
        count = self.gpus.count if self.gpus else 0
        listed = sorted(gpu for socket in self.pcie for gpu in socket.all_gpus)
        if listed != [*range(count)]:
            raise ValueError(f"pcie lists GPUs {listed}; list each of 0 to {count - 1} once")
        names = {nic.name for nic in self.nics}
        switches = [switch for socket in self.pcie for switch in socket.switches]
        for name, count in Counter(name for each in switches for name in each.nics).items():
            if name not in names:
                raise ValueError(f"pcie lists NIC {name}, which the node does not have")
            if count > 1:
                raise ValueError(f"pcie lists NIC {name} below several switches")
        return self

    def place(self, src: int, dst: int) -> Place | None:
        """Return what two GPUs share on PCI Express; None if the site does not say."""
        for socket in self.pcie:
            if any({src, dst} <= {*switch.gpus} for switch in socket.switches):
                return "switch"
            if {src, dst} <= {*socket.all_gpus}:
                return "socket"
        return "node" if self.pcie else None

    @property
    def nic_count(self) -> int:
        """The number of ports of one node."""
        return sum(nic.count for nic in self.nics)


class Partition(Record):
    """A partition of the scheduler, or the machine itself."""

    name: Name
    """Name of the partition in Slurm and in ReFrame."""
    node_type: Name
    """A key of ``node_types``."""
    launcher: Annotated[str, AfterValidator(backends.launcher)] = "srun"
    """What starts the ranks, by ReFrame's name, or ``flux-run``."""
    access: tuple[str, ...] = ()
    """Scheduler options that give access to it; for Slurm by default ``--partition=NAME``."""
    exclusive: bool = True
    """Whether Slurm gives a job whole nodes: other jobs on a node would be measured, too."""
    max_jobs: Count = 1
    """Jobs that ReFrame submits at once; if it is not set, all jobs of ``--nodelist`` at once."""
    nodes: Count = 1
    """Nodes that a check may use."""
    nodelist: str = ""
    """Names of all its nodes, as Slurm writes them: ``gpu[001-130]``. By it ``busbar gate`` knows
    the type of a node; needed if the site has several."""
    features: tuple[PartitionFeature, ...] = ()
    """What the network or the mode of the GPUs is, for checks that need it."""
    deliveries: tuple[Delivery, ...] = ()
    """The stacks of this partition; by default the stacks of the site that fit its GPUs."""


class Fabric(Record):
    """The network between nodes."""

    provider: Provider
    """The transport that must carry the traffic: ``verbs`` for InfiniBand and RoCE, ``cxi`` for
    Slingshot, ``opx`` for Omni-Path."""
    rails: Count
    """Separate networks; each node has a NIC on each."""
    switches: str = ""
    """Description of the switches."""
    uplinks: str = ""
    """Links between switches, in words."""
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1
    """Ports of nodes over uplinks, by rate: 2 if a switch has half as much to other switches. Jobs
    may lie below one switch, so it lowers the low ends of bands, and no limit."""
    rails_per_pair: Count = 1
    """NICs that one pair of ranks can use at once."""


class ContainerRuntime(Record):
    """The container runtime, and the libraries that it injects into a container."""

    runtime: Literal["apptainer", "docker", "podman", "enroot", "sarus"]
    """The runtime that starts containers."""
    injects: tuple[str, ...] = ()
    """Host libraries that the runtime puts into a container."""


class Reference(Record):
    """A published or measured reading; `busbar site lint` compares it with limit and band.

    The value is the bus bandwidth of a collective, else the figure that the benchmark prints. The
    optional keys state the settings that changed the value.
    """

    bench: Bench
    """The benchmark."""
    gb_per_s: Positive | None = None
    """The reading; not for ``osu_latency``."""
    us: Positive | None = None
    """For ``osu_latency`` only, instead of ``gb_per_s``."""
    bytes: Count | None = None
    """Message size."""
    nodes: Count = 1
    """Nodes of the run."""
    ranks: Count | None = None
    """Ranks on all nodes; None: one per GPU."""
    pair: tuple[Index, Index] | None = None
    """GPUs of a point-to-point reading; with two nodes, one on each node."""
    engine: Name | None = None
    """What copied: ``sdma`` or ``kernel``."""
    algo: str | None = None
    """Algorithm: ``ring``, ``tree``, ``nvls``."""
    protocol: str | None = None
    """Protocol of NCCL or RCCL."""
    harness: str | None = None
    """What measured: ``nccl-tests``, ``rccl-tests``, ``pytorch``."""
    partition: Name | None = None
    """The partition of the run; default: the first."""
    profile: Name | None = None
    """Tuning profile of the run; None: the default environment of the family."""
    source: str
    """Where the number was published or measured."""

    @property
    def value(self) -> float:
        """The reading in ``unit``."""
        value = self.gb_per_s if self.us is None else self.us
        assert value is not None
        return value

    @property
    def unit(self) -> str:
        """``GB/s`` or ``us``."""
        return "GB/s" if self.us is None else "us"

    @model_validator(mode="after")
    def _one_value(self) -> Reference:
        unit, other = ("us", "gb_per_s") if self.bench == "osu_latency" else ("gb_per_s", "us")
        if getattr(self, unit) is None or getattr(self, other) is not None:
            raise ValueError(f"{self.bench} needs {unit}, and no {other}")
        if self.pair and self.nodes == 1 and self.pair[0] == self.pair[1]:
            raise ValueError(f"pair {list(self.pair)} is one GPU, which uses no link")
        return self


class Site(Record):
    """One system."""

    name: Name
    """Name of the directory."""
    description: str
    """One line that describes the system."""
    family: Name
    """The family that the hardware belongs to: a file in ``site/_families/``."""
    proof: Proof = "none"
    """How far the bands are proven: on this hardware, by a published record, or not."""
    scheduler: Annotated[str, AfterValidator(backends.scheduler)] = "local"
    """The scheduler, by ReFrame's name. ``slurm`` works with and without accounting; ``squeue``
    never reads it."""
    os: Annotated[str, Field(pattern=r"^[a-z][a-z_-]*[0-9.]*$")] | None = None
    """The operating system of the nodes, as Spack names it: ``sles15``, ``rhel9``,
    ``ubuntu24.04``. It selects the Spack environment on a machine of another system."""
    partitions: Annotated[tuple[Partition, ...], Field(min_length=1)]
    """Where checks run."""
    node_types: Annotated[dict[Name, NodeType], Field(min_length=1)]
    """The hardware, by a name of your choice."""
    nodes_like: Name | None = None
    """Another site with the same node types, except for the keys of this file."""
    fabric: Fabric | None = None
    """The network between nodes; omit it for a single node."""
    deliveries: Annotated[tuple[Delivery, ...], Field(min_length=1)]
    """The stacks that jobs can use, each on the partitions whose GPUs it fits. Deliveries of stack
    ``host`` are for partitions without another one."""
    containers: ContainerRuntime | None = None
    """Containers; omit it if the system has none."""
    references: tuple[Reference, ...] = ()
    """Published and measured readings."""
    gate: Gate | None = None
    """What ``busbar gate`` acts on; without it, all faults are only reported."""
    nodes: NodePolicy = NodePolicy()
    """What to do about nodes with evidence against them."""
    tuning: dict[Variable, Value] = Field(default_factory=dict)
    """Variables that this cluster sets in addition to its family: interface names, GID index."""
    hosts: Annotated[str, Field(min_length=1), AfterValidator(_expression)] = ".*"
    """A regular expression that matches its host names."""

    @model_validator(mode="after")
    def _cray_of_the_vendor(self) -> Site:
        """Make the stack ``cray`` the vendor's, if all GPUs are of one."""
        vendors = {node.gpus.vendor for node in self.node_types.values() if node.gpus}
        if len(vendors) != 1:
            return self
        (vendor,) = vendors
        deliveries = tuple(each.on(vendor) or each for each in self.deliveries)
        return self.model_copy(update={"deliveries": deliveries})

    _directory: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | str:
        """Its site.yaml; empty for a site that is in no file."""
        return self._directory / "site.yaml" if self._directory else ""

    @property
    def directory(self) -> Path | None:
        """The directory of its `site.yaml`; None for a site that was not read from a file."""
        return self._directory

    @property
    def node(self) -> NodeType:
        """The hardware of the first partition."""
        return self.node_type()

    def node_type(self, partition: str | None = None) -> NodeType:
        """Return the hardware of a partition; None: of the first one.

        Raises ``BusbarError`` for an unknown partition.
        """
        return self.node_types[self._partition(partition).node_type]

    @property
    def unlisted(self) -> tuple[Partition, ...]:
        """The partitions without a nodelist, if the site has nodes of several types."""
        several = len({partition.node_type for partition in self.partitions}) > 1
        return tuple(each for each in self.partitions if several and not each.nodelist)

    def only(self, partition: str | None = None) -> Site:
        """Return the site as if it had one partition (None: the first) and what fits it.

        Raises ``BusbarError`` for an unknown partition.
        """
        chosen = self._partition(partition)
        return self.model_copy(
            update={
                "partitions": (chosen,),
                "node_types": {chosen.node_type: self.node_types[chosen.node_type]},
                "deliveries": self.deliveries_of(chosen),
            }
        )

    def deliveries_of(self, partition: Partition) -> tuple[Delivery, ...]:
        """Return the deliveries of a partition: its own, else the site's that fit it."""
        gpus = self.node_types[partition.node_type].gpus
        fitting = [
            fitted
            for delivery in partition.deliveries or self.deliveries
            if (fitted := delivery.on(gpus.vendor if gpus else None))
        ]
        of_gpus = tuple(fitted for fitted in fitting if fitted.stack != "host")
        return tuple(fitting) if partition.deliveries else of_gpus or tuple(fitting)

    @property
    def all_deliveries(self) -> tuple[Delivery, ...]:
        """The deliveries of the site, then those that partitions list."""
        return (*self.deliveries, *(own for p in self.partitions for own in p.deliveries))

    def _partition(self, name: str | None) -> Partition:
        named = {each.name: each for each in self.partitions}
        if name is None:
            return self.partitions[0]
        require_known("no partition", name, named, f"site {self.name}")
        return named[name]
