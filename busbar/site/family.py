# SPDX-License-Identifier: MIT
"""The model of a family, the facts that sites share: link classes, bands and environment."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from busbar.site.delivery import Stack
from busbar.site.links import Count, Name, Place
from busbar.site.model import Algorithm, CollectiveBench, PointBench, Positive, Proof, Provider
from busbar.site.record import Record

Share = Annotated[float, Field(gt=0, le=1)]
LinkKind = Literal["GPU", "host", "network"]


class Band(Record):
    """The range of readings of healthy machines, relative to the typical value."""

    low: Share
    """Lowest healthy reading over the typical one."""
    high: Annotated[float, Field(ge=1, le=2)]
    """Highest healthy reading over the typical one."""
    bytes: tuple[Count, Count]
    """The smallest and largest message that the data supports."""
    proof: Proof
    """How far the band is proven."""
    models: tuple[str, ...] = ()
    """GPU models that the readings come from; on others the band is not proven."""
    readings: Annotated[int, Field(ge=0)]
    """Number of readings that it is based on."""
    source: str
    """Where the number was published or measured."""
    when: dict[str, str] = Field(default_factory=dict)
    """Environment that it requires; ``""`` means that a variable is not set."""

    def covers(self, nbytes: int | None) -> bool:
        """Return whether the data supports a message size; None stands for any."""
        return nbytes is None or self.bytes[0] <= nbytes <= self.bytes[1]


class Transfer(Band):
    """Between two GPUs over one link class: time = latency + size / (share of the raw rate)."""

    bench: PointBench
    """The benchmark."""
    engine: Name | None = None
    """None: any engine."""
    lanes: tuple[Name, ...] = ()
    """Empty: all."""
    buffers: str = "D D"
    """Memory of sender and receiver, device or host: ``D D``, ``H D``."""
    place: Place | None = None
    """What two GPUs on PCI Express share; None: any, or another kind of link."""
    latency_us: Annotated[float, Field(ge=0)]
    """Time of an empty message."""
    share: Share
    """Share of the raw rate of the binding links (of both directions for ``osu_bibw``)."""
    hop_share: Share = 1
    """Share that each forwarding GPU leaves."""
    driver_us: Positive | None = None
    """Time of the shortest copy within a GPU on the machine of the readings. If it is longer in a
    run, the latency may be longer by the same factor."""
    fitted: tuple[str, ...]
    """Which of latency_us, share and hop_share were fitted to the readings of ``source``."""


class Engine(Record):
    """A copy engine: a DMA engine with a ceiling, or a kernel without one."""

    cap_gb_per_s: Positive
    """The most that the engine copies."""
    share: Share
    """Of the ceiling, what it reaches."""
    fitted: tuple[str, ...] = ()
    """Which of these numbers come from the readings."""
    readings: Annotated[int, Field(ge=0)] = 0
    """Number of readings."""
    source: str
    """Where the number was published or measured."""


class Collective(Band):
    """Bus bandwidth of a collective within a node, with the settings that change it.

    time = latency + size * factor / (share of the bound), with the factor of nccl-tests.
    """

    collective: CollectiveBench
    """The collective."""
    algo: Algorithm | None = None
    """None: the library chose, and the source does not state it."""
    protocol: str | None = None
    """Protocol of NCCL or RCCL."""
    harness: str
    """What measured: ``nccl-tests``, ``rccl-tests``, ``pytorch``."""
    mode: str | None = None
    """Compute partitioning, such as ``CPX``."""
    ranks_per_node: tuple[Count, ...]
    """Ranks on each node."""
    latency_us: Annotated[float, Field(ge=0)] = 0
    """Time of an empty message."""
    share: Share
    """Of the bound, what large messages reach."""
    fitted: tuple[str, ...]
    """Which of latency_us and share come from the readings."""


class LinkClass(Record):
    """One kind of link."""

    raw_gb_per_s: Positive
    """Per link and direction."""
    source: str
    """Where the number was published or measured."""
    kind: LinkKind | None = None
    """What it connects: ``GPU`` to GPU, GPU to ``host``, or nodes by a ``network``."""
    archs: tuple[str, ...] = ()
    """Architectures of the GPUs that have such links; empty: any."""
    providers: tuple[Provider, ...] = ()
    """Transports of such ports besides ``tcp``; empty: any."""
    most_links: Count | None = None
    """Links of one GPU, or of one accelerator that is divided into several."""
    forwards: bool = True
    """Whether a GPU forwards data from one such link to another."""
    engines: dict[Name, Engine] = Field(default_factory=dict)
    """Engines that copy over the link, by name."""
    reduces: bool = False
    """Whether switches may reduce on the way (SHARP), which only raises limits."""
    bands: tuple[Transfer, ...] = ()
    """Bands of the point-to-point benchmarks."""
    collectives: tuple[Collective, ...] = ()
    """Bands of collectives within a node whose GPUs have such links."""

    def __hash__(self) -> int:
        # `engines` has no hash, and each question about a link asks for all of them.
        return hash(self.source)


class Variable(Record):
    """One environment variable with its reason."""

    name: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: str
    """Its value."""
    stacks: tuple[Stack, ...] = ()
    """Empty: all."""
    lanes: tuple[Name, ...] = ()
    """Empty: all."""
    profile: Name | None = None
    """Set only in this profile."""
    gpus_below: Count | None = None
    """Set only for jobs that use fewer GPUs per node."""
    archs: tuple[str, ...] = ()
    """Set only for these GPU architectures; empty: all."""
    buffers: Literal["device", "any"] = "any"
    """``device``: set only for programs that pass GPU buffers to MPI; it slows host buffers."""
    without_rdma: bool = False
    """Set only where no adapter reads remote memory: no fabric, or TCP."""
    reason: str
    """Why it is set."""
    source: str
    """Where this is documented."""


class OperatorStep(Record):
    """A step for the operator of a node; checks verify it, but never perform it."""

    name: Name
    """Short name."""
    command: str
    """What the operator runs."""
    reason: str
    """Why."""
    source: str
    """Where this is documented."""


class Instance(Record):
    """The network of one instance type of a cloud."""

    nics: Count
    """Adapters with OS bypass."""
    gpudirect: bool = True
    """The adapters read GPU memory."""
    topology_file: str = ""
    """The file that the network plugin or the user passes to NCCL; empty: none, or written at run
    time."""
    source: str
    """Where this is documented."""


class LaunchRule(Record):
    """A rule for launching jobs."""

    rule: str
    """What to do."""
    reason: str
    """Why."""
    source: str
    """Where this is documented."""


class Family(Record):
    """Hardware-specific settings."""

    family: Name
    """Name of the file."""
    includes: tuple[Name, ...] = ()
    """Families whose variables, bands and facts also apply; its own take precedence."""
    description: str
    """One line that describes the hardware."""
    default_engine: Name | None = None
    """The copy engine between GPUs unless the environment selects one."""
    engine_by: dict[str, dict[str, Name]] = Field(default_factory=dict)
    """By variable, and by its value: the engine that it selects."""
    variables: tuple[Variable, ...] = ()
    """The environment that the hardware needs."""
    operator_steps: tuple[OperatorStep, ...] = ()
    """What operators do to nodes."""
    launch_rules: tuple[LaunchRule, ...] = ()
    """How jobs are launched."""
    instances: dict[str, Instance] = Field(default_factory=dict)
    """By instance type."""
    site: dict[str, Any] = Field(default_factory=dict)
    """Keys shared by every site of the family; the site's own keys take precedence."""

    @model_validator(mode="after")
    def _variables_once(self) -> Family:
        keys = ((v.name, v.stacks, v.lanes, v.profile, v.buffers) for v in self.variables)
        for (name, *_), count in Counter(keys).items():
            if count > 1:
                raise ValueError(f"variable {name} is set twice for the same stack")
        return self


class LinkClasses(Record):
    """The file `site/_families/links.yaml`."""

    link_classes: Annotated[dict[Name, LinkClass], Field(min_length=1)]
    """Every link class, by name."""
