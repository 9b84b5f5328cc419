# SPDX-License-Identifier: MIT
"""The keys ``gate`` and ``nodes`` of a site: which faults of a node are acted on, and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from busbar.gate.site import CHECKS, GateAction, GateMode, GateSeverity
from busbar.site.record import Record


class GateRule(Record):
    """What a site does about one check; a key that is omitted keeps the default of the check."""

    mode: GateMode = "observe"
    """``observe`` reports a fault, ``enforce`` also acts on it, ``skip`` leaves the check out."""
    severity: GateSeverity | None = None
    """Only ``critical`` faults take a node out of service."""
    action: GateAction | None = None
    """What repairs the fault. All but ``note`` drain the node first."""


def absolute(text: str) -> str:
    """Return an absolute path; raise ``ValueError`` for anything else."""
    if not text.startswith("/") or (len(text) > 1 and text.endswith("/")) or "//" in text:
        raise ValueError("must be an absolute path without a trailing slash")
    return text


class GateMount(Record):
    """A file system that must be mounted on every node."""

    path: Annotated[str, AfterValidator(absolute)]
    """Where it is mounted."""
    type: Annotated[str, Field(min_length=1)] | None = None
    """The type as `/proc/mounts` names it: ``lustre``, ``nfs4``; None: any."""
    read_only: bool = False
    """Whether it may be mounted read-only."""
    free_percent: Annotated[float, Field(gt=0, lt=100)] | None = None
    """Least free space. Users can fill a file system that they can write to."""


class GateCommand(Record):
    """A program of the site that checks the node.

    It ends as a plugin of Nagios does: 0 OK, 1 warning, 2 critical, others unknown. The first line
    that it prints is shown.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,30}$")]
    """Name in the results and in the reason of a drain."""
    run: Annotated[tuple[str, ...], Field(min_length=1)]
    """The program, by its absolute path, and its arguments. No shell reads them."""
    seconds: Annotated[float, Field(gt=0, le=30)] = 5
    """After this time it is killed; its check is then unknown."""
    mode: GateMode = "observe"
    """As the setting of a check, so that a new command can be tried for some time."""
    severity: GateSeverity = "critical"
    """Of status 2; status 1 is a warning."""
    remedy: str = "see the command"
    """What repairs the fault, in the words of the reason."""

    @model_validator(mode="after")
    def _absolute(self) -> GateCommand:
        absolute(self.run[0])
        return self


class Gate(Record):
    """What ``busbar gate`` checks on the nodes of the site, and what it acts on."""

    checks: dict[Literal[*CHECKS], GateRule] = Field(default_factory=dict)  # type: ignore[valid-type]
    """By check; all others are only reported."""
    mounts: tuple[GateMount, ...] = ()
    """File systems of every node."""
    commands: tuple[GateCommand, ...] = ()
    """Programs of the site, which run in every look, also in a prolog."""
    driver: Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")] | None = None
    """The version of the GPU driver, as a prefix: ``570.133`` accepts 570.133.20."""
    xid_hours: Annotated[float, Field(gt=0, le=8760)] = 24
    """How old, in hours, an Xid or an error of amdgpu can be that counts as a fault."""

    @model_validator(mode="after")
    def _enforceable(self) -> Gate:
        enforced = {name for name, rule in self.checks.items() if rule.mode == "enforce"}
        if "pcie_link" in enforced:
            raise ValueError(
                "checks.pcie_link cannot be enforced: idle GPUs reduce their link as well;"
                " enforce host_copy"
            )
        if "mount" in enforced and not self.mounts:
            raise ValueError("checks.mount is enforced, but mounts lists no file system")
        if "mount_space" in enforced and not any(each.free_percent for each in self.mounts):
            raise ValueError("checks.mount_space is enforced, but no mount has free_percent")
        names = [each.name for each in self.commands]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two commands have the name {twice[0]}")
        if "driver_version" in enforced and self.driver is None:
            raise ValueError("checks.driver_version is enforced, but driver is not set")
        return self


NodeSource = Literal["gate", "sweep", "check", "history"]
NodeAction = Literal["retest", "drain", "reset", "reboot", "ticket", "resume"]
NodeCommand = NodeAction | Literal["changed"]


_Path = AfterValidator(lambda words: (absolute(words[0]), *words[1:]))
NodeProgram = Annotated[tuple[str, ...], Field(min_length=1), _Path]


class NodePolicy(Record):
    """What to do about a node, and what Busbar may do by itself: nothing without a command."""

    actions: dict[NodeSource, NodeAction] = Field(default_factory=dict)
    """What repairs a fault that a source has found; the gate's own have an action by check."""
    commands: dict[NodeCommand, NodeProgram] = Field(default_factory=dict)
    """Programs that Busbar runs when an action is next, and, as ``changed``, whenever the record
    of a node is another one. Each is an absolute path and its arguments, which no shell reads,
    with ``{node}`` for the node and ``{reason}`` for a reason for Slurm. It gets the record as
    JSON on its standard input."""
