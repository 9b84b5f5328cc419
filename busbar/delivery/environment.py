# SPDX-License-Identifier: MIT
"""The facts that checks read: of an environment, of its image, of a partition.

They reach the checks in ReFrame's configuration, as ``extras``. Only this module knows the
names of the keys there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from busbar.preflight.model import Fingerprint, PreflightReport
from busbar.site.delivery import DeliveryKind, MpiFamily, Stack

if TYPE_CHECKING:
    from reframe.core.environments import ProgEnvironment
    from reframe.core.systems import SystemPartition


@dataclass(frozen=True)
class Image:
    """An image on a site."""

    reference: str
    """The image as the runtime knows it: a path, or a name in its store."""
    runtime: str
    """``apptainer``, ``docker`` or ``podman``."""
    fingerprint: Fingerprint
    programs: dict[str, str]
    """Name to path inside the image."""
    settings: dict[str, str]
    """The variables that the image sets."""
    preflight: PreflightReport
    digest: str = ""
    """SHA-256 of the file or of the stored image; may be empty."""

    @property
    def features(self) -> list[str]:
        """The features of the fingerprint, and collectives if Open MPI takes the buffers."""
        implied = (self.fingerprint.stack, self.fingerprint.delivery)
        features = [each for each in self.fingerprint.features if each not in implied]
        return [*features, "collectives"] if self.fingerprint.stack == "host" else features

    def entered(self, names: Iterable[str], sources: Path, directory: str) -> list[str]:
        """Return the words before a command that runs inside.

        ``names`` are variables of the job to pass on, ``directory`` is the working directory:
        Apptainer passes on both by itself, Docker and podman do not. ``sources`` is mounted at the
        same path.
        """
        *words, reference = self.preflight.launch.enter
        flag = "--bind" if self.runtime == "apptainer" else "--volume"
        words += [flag, f"{sources}:{sources}:ro"]
        if self.runtime != "apptainer":
            words += [f"--env={name}" for name in dict.fromkeys(names)]
            words += ["--volume", f"{directory}:{directory}", f"--workdir={directory}"]
        return [*words, reference]

    def prevailing(self, name: str) -> list[str]:
        """Return the names to export a variable by, so that it overrides the image."""
        return [name, *([f"APPTAINERENV_{name}"] if self.runtime == "apptainer" else [])]


@dataclass(frozen=True)
class Environment:
    """One stack by one delivery, as a programming environment of ReFrame."""

    name: str
    features: tuple[str, ...]
    """What checks can ask for."""
    variables: dict[str, str]
    """As a job script exports them: values are quoted and may refer to other variables."""
    compiler: str
    """The C++ compiler of the MPI."""
    delivery: DeliveryKind
    stack: Stack
    lane: str
    mpi: MpiFamily
    transports: tuple[str, ...]
    """UCX transports; one of them must connect two ranks of a node. Empty: any."""
    across: tuple[str, ...]
    """UCX transports; one of them must be in each connection if ranks are on several nodes."""
    provider: str
    """The libfabric provider that must connect the nodes; empty: any."""
    srun: tuple[str, ...]
    """The options of srun that select the PMI."""
    programs: dict[str, str] = field(default_factory=dict)
    """Name to path of benchmarks and tools."""
    cxxflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    lacking: dict[str, str] = field(default_factory=dict)
    """Missing features whose reason is known, with the reason."""
    image: Image | None = None
    """The image that the checks run in."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of libraries that its lock names, as ``busbar explain --expect-version`` does."""
    locked: dict[str, str] = field(default_factory=dict)
    """What the history keeps of the stack: ``lock.NAME`` and the version of each package, and
    ``lock_hash``."""

    def to_reframe(self) -> dict[str, Any]:
        """Return the entry of ReFrame's ``environments``."""
        extras = _adapter(Environment).dump_python(self, mode="json")
        return {
            "name": extras.pop("name"),
            "cc": "mpicc",
            "cxx": extras.pop("compiler"),
            "features": extras.pop("features"),
            "env_vars": [[name, value] for name, value in extras.pop("variables").items()],
            "extras": extras,
        }

    @classmethod
    def from_configuration(cls, entry: Mapping[str, Any]) -> Environment:
        """Restore an environment from an entry of ReFrame's ``environments``."""
        restored: Environment = _adapter(Environment).validate_python(
            {
                **entry["extras"],
                "name": entry["name"],
                "compiler": entry["cxx"],
                "features": list(entry["features"]),
                "variables": dict(entry["env_vars"]),
            }
        )
        return restored

    @classmethod
    def from_reframe(cls, environ: ProgEnvironment) -> Environment:
        """Restore an environment from ReFrame's object."""
        keys = ("name", "cxx", "features", "env_vars", "extras")
        return cls.from_configuration({key: getattr(environ, key) for key in keys})


@dataclass(frozen=True)
class PartitionFacts:
    """What checks read about a partition in addition to ReFrame's data."""

    site: Path
    """The directory of the site."""
    nodes: int
    ranks_per_node: int
    gpus: int
    """GPUs of a node."""
    bus_ids: tuple[str, ...]
    """Bus IDs of these GPUs in topology order; empty if the site does not state them."""
    no_environment: str = ""
    """Why the partition has no environment; empty if it has one."""

    def to_reframe(self) -> dict[str, Any]:
        """Return the ``extras`` of the partition."""
        return dict(_adapter(PartitionFacts).dump_python(self, mode="json"))

    @classmethod
    def from_reframe(cls, partition: SystemPartition) -> PartitionFacts:
        """Restore the facts from ReFrame's object."""
        restored: PartitionFacts = _adapter(PartitionFacts).validate_python(partition.extras)
        return restored


_adapter = cache(TypeAdapter)
"""Loaded when needed: they take longer than most commands."""
