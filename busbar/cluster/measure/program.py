# SPDX-License-Identifier: MIT
"""The pair program: how it is compiled for a site, and how one ``srun`` starts it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from busbar.data import CHECKS
from busbar.delivery.choice import Choice
from busbar.delivery.environment import Environment
from busbar.delivery.environments import environments
from busbar.expect.topology import raw_rate
from busbar.parse.tables import beside, refused
from busbar.program import call
from busbar.site import Site, link_classes
from busbar.site.model import Nic, NodeType, Partition
from busbar.slurm.steps import srun

_SOURCE = CHECKS / "src" / "sweep.cpp"
_COMPILE_S = 300
_QUIET = {"UCX_LOG_LEVEL": "warn", "UCX_WARN_UNUSED_ENV_VARS": "n"}
"""Other levels log every connection, and a sweep has millions of them."""
_SMALLEST, _LARGEST, _USUAL = 1 << 16, 1 << 22, 1 << 20
_MESSAGES_PER_S = 2000
"""A message should take half a millisecond: a reading has hundreds, few of them at its end."""


@dataclass(frozen=True)
class Rail:
    """What rank i of a node uses."""

    name: str
    """The rail's own NIC, or ``gpu0`` if it has none."""
    device: str = ""
    """The NIC as UCX names it; empty leaves the choice to the transport."""


@dataclass(frozen=True)
class Program:
    """The compiled program, and what a step that runs it needs."""

    path: Path
    environment: Environment
    rails: tuple[Rail, ...]
    message: int
    """Bytes of a message."""
    seconds: float
    """Time of one reading and direction."""

    def script(self, nodes: Sequence[str], ranks_per_cpu: bool, patience: float) -> str:
        """Return the text for bash that starts it on nodes of the allocation."""
        ranks = len(nodes) * len(self.rails)
        nics = ",".join(rail.device for rail in self.rails)
        variables = self.environment.variables | _QUIET
        words = [
            *srun(nodes, len(self.rails)),
            *("--input=all", "--distribution=block", "--cpu-bind=none"),
            *(["--overcommit"] if ranks_per_cpu else []),
            *self.environment.srun,
            str(self.path),
            *(f"--ranks={ranks}", f"--per-node={len(self.rails)}"),
            f"--bytes={self.message}",
            *(f"--seconds={self.seconds}", f"--patience={patience}"),
            *([f"--nics={nics}"] if nics.strip(",") else []),
        ]
        exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
        return f"{beside(__file__)['forget']}{exports}exec {shlex.join(words)}\n"


def prepare(
    site: Site, partition: Partition, choice: Choice, seconds: float, directory: Path
) -> Program:
    """Compile the program for the first delivery of the site that is installed."""
    node = site.node_types[partition.node_type]
    environment = environments(site.only(partition.name), choice, max(len(node.nics), 1))[0]
    if environment.image:
        raise refused(__file__, "in-an-image", f"site {site.name}")
    path = _compiled(environment, directory)
    rails = rails_of(node, environment, site.fabric.provider if site.fabric else "")
    rate = port_rate(site, partition)
    return Program(path, environment, rails, message_bytes(rate and rate / len(rails)), seconds)


def rails_of(node: NodeType, environment: Environment, provider: str) -> tuple[Rail, ...]:
    """Return one rail per GPU, or per NIC if the stack has no GPU.

    A rail has its own NIC if the transport lets the program choose it, as UCX does.
    """
    chosen = bool(environment.across)
    if node.gpus and environment.stack != "host":
        near = [
            [nic for nic in node.nics if gpu in nic.near_gpus] for gpu in range(node.gpus.count)
        ]
        users = Counter(nics[0].name for nics in near if len(nics) == 1)
        return tuple(
            Rail(
                nics[0].name if chosen and own and users[nics[0].name] == 1 else f"gpu{gpu}",
                _device(nics[0], provider) if chosen and own else "",
            )
            for gpu, nics in enumerate(near)
            for own in [len(nics) == 1 and nics[0].count == 1]
        )
    if not chosen or not node.nics or any(nic.count > 1 for nic in node.nics):
        return (Rail("all"),)
    return tuple(Rail(nic.name, _device(nic, provider)) for nic in node.nics)


def _device(nic: Nic, provider: str) -> str:
    """Return the name of UCX: a network interface, or a port of an InfiniBand device."""
    return nic.name if provider == "tcp" else f"{nic.name}:1"


def port_rate(site: Site, partition: Partition) -> float | None:
    """Return the raw rate of all NICs of a node in GB/s; None if the site lists none."""
    nics = site.node_types[partition.node_type].nics
    classes = link_classes(site)
    return sum(raw_rate(nic.link_class, nic.count, classes) for nic in nics) or None


def message_bytes(rate: float | None) -> int:
    """Return a size of messages that suits a rate in GB/s."""
    if rate is None:
        return _USUAL
    size = _SMALLEST
    while size < min(rate * 1e9 / _MESSAGES_PER_S, _LARGEST):
        size *= 2
    return size


def _compiled(environment: Environment, directory: Path) -> Path:
    program = directory / "sweep"
    exports = "".join(f"export {name}={v}\n" for name, v in environment.variables.items())
    command = " ".join(
        [
            *(environment.compiler, "-O2", "-std=c++17", "-pthread", *environment.cxxflags),
            *(shlex.quote(str(_SOURCE)), "-o", shlex.quote(str(program)), *environment.ldflags),
        ]
    )
    done = call(["bash", "-c", f"{exports}exec {command}"], _COMPILE_S)
    if done.returncode:
        said = done.stderr.splitlines()
        lines = [line for line in said if "error" in line] or said[-1:] or ["no message"]
        words = {"compiler": environment.compiler, "environment": environment.name}
        raise refused(__file__, "not-compiled", _SOURCE, line=lines[0][:300], **words)
    return program
