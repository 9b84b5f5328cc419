# SPDX-License-Identifier: MIT
"""What the gate found: one finding for each check and place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from busbar.site.gate import Gate, GateAction, GateCheck, GateMode, GateRule, GateSeverity
from busbar.verdict import Verdict

Category = Literal["cpu", "gpu", "infiniband", "node", "nvlink", "xid"]
"""The categories of NVIDIA Health Validation."""


class CheckFacts(NamedTuple):
    """What is known of a check before it runs."""

    title: str
    category: Category
    severity: GateSeverity
    action: GateAction
    remedy: str


CHECKS: Mapping[GateCheck, CheckFacts] = {
    "cpu_count": CheckFacts(
        "logical CPUs online", "cpu", "critical", "reboot", "reboot; check BIOS and DIMMs"
    ),
    "gpu_count": CheckFacts(
        "GPUs that the driver lists", "node", "critical", "reboot", "reboot; reseat the GPU"
    ),
    "gpu_model": CheckFacts(
        "model of the GPUs", "gpu", "warning", "note", "correct site.yaml or the node"
    ),
    "driver_version": CheckFacts(
        "version of the GPU driver", "node", "critical", "drain", "install the site's driver"
    ),
    "gpu_recovery": CheckFacts(
        "recovery that the driver requests", "gpu", "critical", "reset_gpu", "reset the GPU"
    ),
    "gpu_ecc": CheckFacts(
        "uncorrectable memory errors", "gpu", "critical", "reset_gpu", "reset the GPU"
    ),
    "gpu_remap": CheckFacts(
        "remapping of memory rows", "gpu", "critical", "service", "replace the GPU"
    ),
    "gpu_xid": CheckFacts(
        "errors that the driver logged", "xid", "critical", "reset_gpu", "reset the GPU"
    ),
    "gpu_throttle": CheckFacts(
        "clocks reduced by heat or power", "gpu", "warning", "note", "check cooling and power"
    ),
    "pcie_link": CheckFacts(
        "width and speed of PCI Express",
        "gpu",
        "warning",
        "note",
        "run the gate without --passive",
    ),
    "nvlink_links": CheckFacts(
        "active NVLinks", "nvlink", "critical", "reset_gpu", "reset the GPU; check NVSwitches"
    ),
    "nvlink_fabric": CheckFacts(
        "fabric manager", "nvlink", "critical", "drain", "start nvidia-fabricmanager"
    ),
    "nic_state": CheckFacts(
        "state of network ports", "infiniband", "critical", "service", "check cable and switch"
    ),
    "nic_rate": CheckFacts(
        "rate of network ports", "infiniband", "critical", "service", "check cable and switch"
    ),
    "mount": CheckFacts("file systems", "node", "critical", "drain", "mount it"),
    "host_copy": CheckFacts(
        "copies between GPU and host", "gpu", "critical", "service", "check the PCIe slot"
    ),
    "peer_copy": CheckFacts(
        "copies between GPUs", "nvlink", "critical", "reset_gpu", "reset the GPUs; check NVLinks"
    ),
    "copy_data": CheckFacts("data of the copies", "gpu", "critical", "service", "replace the GPU"),
    "nic_copy": CheckFacts(
        "loopback of RDMA ports", "infiniband", "info", "note", "run busbar check between nodes"
    ),
}
"""Every check: meaning, and the severity and action that a site gets by default."""


@dataclass(frozen=True)
class Finding:
    """The verdict of one check on one GPU, link, port or file system."""

    check: GateCheck
    verdict: Verdict
    where: str = ""
    """``gpu3``, ``gpu0->gpu1``, ``mlx5_0``, ``/scratch``; empty for the node."""
    value: str = ""
    """What was found, with its unit."""
    band: str = ""
    """What was expected, with its unit."""
    note: str = ""
    """Why the verdict is unknown, or evidence: one sentence."""
    gb_per_s: float | None = None
    """The reading of a copy."""
    whole: bool = True
    """Whether all evidence since the boot was there; else it resumes no node."""
    remedy: str = ""
    """If it differs from the usual one of the check."""
    action: GateAction | None = None
    severity: GateSeverity | None = None

    @property
    def is_fault(self) -> bool:
        """Whether it certainly speaks against the node."""
        return self.verdict in (Verdict.DEGRADED, Verdict.FAILED)


@dataclass(frozen=True)
class Ruled:
    """A finding and what the site does about it."""

    finding: Finding
    mode: GateMode
    severity: GateSeverity
    action: GateAction
    remedy: str

    @property
    def drains(self) -> bool:
        """Whether it takes the node out of service."""
        return (
            self.finding.is_fault
            and self.mode == "enforce"
            and self.severity == "critical"
            and self.action != "note"
        )


def ruled(finding: Finding, gate: Gate | None) -> Ruled | None:
    """Apply the rule of the site; None if the site skips the check."""
    rule = gate.checks.get(finding.check, GateRule()) if gate else GateRule()
    if rule.mode == "skip":
        return None
    facts = CHECKS[finding.check]
    return Ruled(
        finding,
        rule.mode,
        rule.severity or finding.severity or facts.severity,
        rule.action or finding.action or facts.action,
        finding.remedy or facts.remedy,
    )


def unknown(check: GateCheck, why: str, where: str = "") -> Finding:
    """Return the finding of a check that could not run."""
    return Finding(check, Verdict.UNKNOWN, where, note=why)
