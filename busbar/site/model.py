# SPDX-License-Identifier: MIT
"""The facts of a system, as `site/<name>/site.yaml` states them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from busbar.errors import BusbarError
from busbar.site.cpulist import parse_cpu_list

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
InNode = Annotated[int, Field(ge=1, le=128)]
"""So many in one node; twice what the most finely divided node that ships has."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Value = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
"""Of an environment variable: one line, as scripts and job prologues print it."""
Stack = Literal["host", "cuda", "rocm", "cray"]
MpiFamily = Literal["openmpi", "mpich", "cray-mpich"]
DeliveryKind = Literal["wheels", "spack", "image", "modules", "prefix"]
Proof = Literal["run", "replay", "none"]
PointBench = Literal["osu_bw", "osu_bibw", "osu_mbw_mr", "osu_latency"]
CollectiveBench = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv"
]
Bench = PointBench | CollectiveBench


def _cpu_list(text: str) -> str:
    parse_cpu_list(text)
    return text


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


class Record(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Bundle(Record):
    """So many parallel links of one class, as one GPU sees them."""

    link_class: Name = Field(alias="class")
    """A link class of ``site/_families/links.yaml``."""
    count: Count
    """Links, in parallel."""


class PairLink(Bundle):
    """Parallel links between two GPUs, in both directions."""

    between: tuple[Index, Index]
    """The two GPUs, or packages."""


class PackageLinks(Record):
    """Devices that share one package, as partitions of an accelerator do, and what joins them."""

    devices: Annotated[int, Field(ge=2)]
    """Devices of one package."""
    link_class: Name = Field(alias="class")
    """A link class of ``site/_families/links.yaml``."""


class Links(Record):
    """How the GPUs of a node are joined; exactly one of ``switched``, ``all_pairs`` and ``pairs``.

    With ``package`` the three speak of packages, not of devices: package ``p`` holds the devices
    ``p * devices`` to ``(p + 1) * devices - 1``.
    """

    switched: Bundle | None = None
    """Every GPU has these links to a switch that does not block."""
    all_pairs: Bundle | None = None
    """Every GPU has these links to every other GPU."""
    pairs: tuple[PairLink, ...] = ()
    """The pairs with a direct link, each once."""
    package: PackageLinks | None = None
    """Set if devices share packages."""

    @model_validator(mode="after")
    def _one_form(self) -> Links:
        forms = [bool(self.switched), bool(self.all_pairs), bool(self.pairs)]
        if sum(forms) != 1:
            raise ValueError("write exactly one of switched, all_pairs and pairs")
        seen = set()
        for link in self.pairs:
            pair = frozenset(link.between)
            if len(pair) != 2:
                raise ValueError(f"pair {list(link.between)} links a GPU to itself")
            if pair in seen:
                raise ValueError(
                    f"pair {sorted(pair)} is listed twice; a link carries both directions, so"
                    " write each pair once with its count"
                )
            seen.add(pair)
        return self

    def direct(self, devices: int) -> Iterator[PairLink]:
        """The direct links among ``devices`` GPUs or packages; none where a switch joins them."""
        if self.all_pairs:
            for pair in combinations(range(devices), 2):
                yield PairLink(
                    between=pair,
                    link_class=self.all_pairs.link_class,
                    count=self.all_pairs.count,
                )
        yield from self.pairs

    def classes(self) -> set[str]:
        """Every link class that is named."""
        bundles = [self.switched, self.all_pairs, *self.pairs]
        found = {bundle.link_class for bundle in bundles if bundle}
        return found | ({self.package.link_class} if self.package else set())


class Partitioning(Record):
    """How each AMD accelerator is divided, by the vendor's names for the modes."""

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
    """The GPUs of one node; a GCD or a partition that the runtime lists as a device is one GPU."""

    vendor: Literal["nvidia", "amd"]
    """Selects CUDA or ROCm."""
    model: str
    """As the vendor's tool prints it."""
    arch: Annotated[str, Field(pattern=r"^(sm_\d+[a-z]?|gfx[0-9a-f]+)$")]
    """Architecture: ``sm_90``, ``gfx942``."""
    count: InNode
    """GPUs of one node."""
    memory_mib: Count | None = None
    """Memory of one GPU as the vendor's tool prints it."""
    bus_ids: tuple[str, ...] | None = None
    """PCI addresses in device order, where they are the same on every node."""
    links: Links | None = None
    """Links between the GPUs of a node."""
    host_link: Bundle | None = None
    """From one GPU to its host."""
    multicast: bool = False
    """The switch reduces and multicasts (NVLink SHARP), and the driver has it on."""
    partitioning: Partitioning | None = None
    """How AMD accelerators are divided; omit it for other GPUs."""

    @property
    def stack(self) -> Stack:
        """The stack that drives these GPUs."""
        return "cuda" if self.vendor == "nvidia" else "rocm"

    @property
    def packages(self) -> int:
        """Accelerators that hold these devices."""
        inside = self.links.package if self.links else None
        return self.count // inside.devices if inside else self.count


class Nic(Record):
    """A network port, or several that have the same GPUs near."""

    name: str
    """Device name: ``mlx5_0``."""
    link_class: Name = Field(alias="class")
    """A link class of ``site/_families/links.yaml``."""
    count: InNode = 1
    """So many ports like this one."""
    near_gpus: tuple[Index, ...] = ()
    """GPUs that reach it without crossing to another socket or switch."""
    gpudirect: bool = True
    """The NIC reads GPU memory itself; else data is staged through host memory."""
    rail: Index | None = None
    """The rail that the port is on."""


class Numa(Record):
    """One NUMA domain."""

    id: Index
    """Number of the domain."""
    cpus: Annotated[str, AfterValidator(_cpu_list)]
    """As in a CPU list: ``0-15,64-79``."""
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
    cores: Count | None = None
    """Logical CPUs that a job can use."""
    threads_per_core: Annotated[int, Field(ge=1, le=8)] | None = None
    """Logical CPUs of one core that a job can use."""
    sockets: Annotated[int, Field(ge=1, le=64)] | None = None
    """CPU packages of one node."""
    instance_type: str | None = None
    """The cloud's name for it."""

    @property
    def nic_count(self) -> int:
        """Ports of one node."""
        return sum(nic.count for nic in self.nics)


class Partition(Record):
    """A scheduler's partition, or the machine itself."""

    name: Name
    """Name of the partition in Slurm and in ReFrame."""
    node_type: Name
    """A key of ``node_types``."""
    launcher: Literal["local", "mpirun", "srun"] = "srun"
    """What starts the ranks."""
    access: tuple[str, ...] = ()
    """Options that the scheduler needs to grant it."""
    max_jobs: Count = 1
    """Jobs that ReFrame submits at once."""
    nodes: Count = 1
    """Nodes that a check may use."""
    features: tuple[str, ...] = ()
    """More features for ReFrame's ``valid_systems``."""


class Fabric(Record):
    """The network between nodes."""

    provider: str
    """The transport that must carry the traffic: ``verbs``, ``efa``, ``cxi``."""
    rails: Count
    """Separate networks; each node has a NIC on each."""
    switches: str = ""
    """How nodes hang on switches, in words."""
    uplinks: str = ""
    """Links between switches, in words."""
    rails_per_pair: Count = 1
    """NICs that one pair of ranks can use at once."""
    topology_file: str = ""
    """The file, by its name, that the network plugin must hand to NCCL; empty: any or none."""
    versions: dict[Literal["aws-ofi-nccl", "libfabric"], str] = Field(default_factory=dict)
    """What must run, as far as it is written: ``1.22`` holds for 1.22.0."""


class Delivery(Record):
    """How a stack reaches a job here."""

    kind: DeliveryKind
    """What provides the stack."""
    stack: Stack
    """The stack that it provides."""
    lanes: tuple[Name, ...] = ("ucx-1.14",)
    """The lanes that it provides."""
    features: tuple[str, ...] = ()
    """What checks can use: ``osu``, ``xccl``, ``torch``."""
    concretize_on_site: bool = False
    """The lock was made with stand-ins and must be concretized again on the system."""
    mpi: MpiFamily = "openmpi"
    """Which MPI it provides."""


class ContainerRuntime(Record):
    """The container runtime and what it puts into a container."""

    runtime: Literal["apptainer", "docker", "podman", "enroot", "sarus"]
    """The runtime that starts containers."""
    injects: tuple[str, ...] = ()
    """Host libraries that the runtime puts into a container."""


class Reference(Record):
    """A published or measured reading; `busbar site lint` holds it against limit and band.

    Bus bandwidth for a collective, else what the benchmark prints; the keys that are given must
    be those that moved the number.
    """

    bench: Bench
    """The benchmark."""
    gb_per_s: Positive | None = None
    """The reading; not for ``osu_latency``."""
    us: Positive | None = None
    """Of ``osu_latency``, which has no ``gb_per_s``."""
    bytes: Count | None = None
    """Message size."""
    nodes: Count = 1
    """Nodes of the run."""
    ranks: Count | None = None
    """Of all nodes; None: one for each GPU."""
    pair: tuple[Index, Index] | None = None
    """GPUs of a point-to-point reading; with two nodes each on its own node."""
    engine: Name | None = None
    """What copied: ``sdma`` or ``kernel``."""
    algo: str | None = None
    """Algorithm: ``ring``, ``tree``, ``nvls``."""
    protocol: str | None = None
    """Protocol of NCCL or RCCL."""
    plugin: str | None = None
    """Network plugin with its major version: ``aws-ofi-nccl-1``."""
    harness: str | None = None
    """What measured: ``nccl-tests``, ``rccl-tests``, ``pytorch``."""
    partition: Name | None = None
    """The partition of the run; default: the first."""
    profile: Name | None = None
    """Mode of the family that the run was in; None: its default environment."""
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
        wanted, other = ("us", "gb_per_s") if self.bench == "osu_latency" else ("gb_per_s", "us")
        if getattr(self, wanted) is None or getattr(self, other) is not None:
            raise ValueError(f"{self.bench} is stated by {wanted}, and by nothing else")
        if self.pair and self.nodes == 1 and self.pair[0] == self.pair[1]:
            raise ValueError(f"pair {list(self.pair)} is one GPU; no link is used")
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
    scheduler: Literal["local", "slurm", "squeue"] = "local"
    """``slurm`` works with and without accounting; ``squeue`` never reads it."""
    partitions: Annotated[tuple[Partition, ...], Field(min_length=1)]
    """Where checks run."""
    node_types: Annotated[dict[Name, NodeType], Field(min_length=1)]
    """The hardware, by a name of your choice."""
    nodes_like: Name | None = None
    """Another site that has the same node types but for the keys written here."""
    fabric: Fabric | None = None
    """The network between nodes; omit it for a single node."""
    deliveries: Annotated[tuple[Delivery, ...], Field(min_length=1)]
    """The stacks that jobs can use."""
    containers: ContainerRuntime | None = None
    """Containers; omit it if the system has none."""
    references: tuple[Reference, ...] = ()
    """Published and measured readings."""
    tuning: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], Value] = Field(
        default_factory=dict
    )
    """What this cluster sets beside its family: interface names, GID index."""
    hosts: Annotated[str, Field(min_length=1), AfterValidator(_expression)] = ".*"
    """A regular expression of the host names that belong to it."""

    _directory: Path | None = PrivateAttr(default=None)

    @property
    def directory(self) -> Path | None:
        """Where its `site.yaml` is; None for a site that was not read from a file."""
        return self._directory

    @property
    def node(self) -> NodeType:
        """The hardware of the first partition."""
        return self.node_type()

    def node_type(self, partition: str | None = None) -> NodeType:
        """The hardware of a partition; of the first where none is named.

        Raises ``BusbarError`` for a partition that the site does not have.
        """
        for candidate in self.partitions:
            if partition in (None, candidate.name):
                return self.node_types[candidate.node_type]
        raise BusbarError(
            f"there is no partition {partition!r}",
            where=f"site {self.name}",
            hint=f"it has {', '.join(p.name for p in self.partitions)}",
        )
