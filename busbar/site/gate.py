# SPDX-License-Identifier: MIT
"""The key ``gate`` of a site: which faults of a node ``busbar gate`` acts on."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from busbar.gate.site import GateAction, GateCheck, GateMode, GateSeverity
from busbar.site.record import Record


class GateRule(Record):
    """What a site does about one check; a key that is omitted keeps the default of the check."""

    mode: GateMode = "observe"
    """``observe`` reports a fault, ``enforce`` also acts on it, ``skip`` leaves the check out."""
    severity: GateSeverity | None = None
    """Only ``critical`` faults take a node out of service."""
    action: GateAction | None = None
    """What repairs the fault. All but ``note`` drain the node first."""


def _path(text: str) -> str:
    if not text.startswith("/") or (len(text) > 1 and text.endswith("/")) or "//" in text:
        raise ValueError("must be an absolute path without a slash at its end")
    return text


class GateMount(Record):
    """A file system that must be mounted on every node."""

    path: Annotated[str, AfterValidator(_path)]
    """Where it is mounted."""
    type: Annotated[str, Field(min_length=1)] | None = None
    """The type as `/proc/mounts` names it: ``lustre``, ``nfs4``; None: any."""
    read_only: bool = False
    """Whether it may be mounted read-only."""


class Gate(Record):
    """What ``busbar gate`` checks on the nodes of the site, and what it acts on."""

    checks: dict[GateCheck, GateRule] = Field(default_factory=dict)
    """By check; all others are only reported."""
    mounts: tuple[GateMount, ...] = ()
    """File systems of every node."""
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
        if "nic_copy" in enforced:
            raise ValueError("checks.nic_copy cannot be enforced: no band of a loopback is known")
        if "mount" in enforced and not self.mounts:
            raise ValueError("checks.mount is enforced, but mounts lists no file system")
        if "driver_version" in enforced and self.driver is None:
            raise ValueError("checks.driver_version is enforced, but driver is not set")
        return self
