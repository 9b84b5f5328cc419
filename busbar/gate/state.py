# SPDX-License-Identifier: MIT
"""Judge the state of a node by its site. Nothing here measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from busbar.gate.findings import GateFinding, compared, unknown
from busbar.gate.kernel_log import KernelError
from busbar.gate.passive import Facts
from busbar.gate.site import UNKNOWN_XID, GateAction, NodeGpus, NodeKind, Rules, Xid
from busbar.gate.sysfs import short_address
from busbar.parse.machine.nvidia_xml import SmiGpu
from busbar.verdict import Verdict

_HOUR_S = 3600.0
_NO_SITE = "not in site.yaml"
_RECOVERIES: dict[str, tuple[GateAction, str]] = {
    "Reset": ("reset_gpu", "reset the GPU"),
    "Reboot": ("reboot", "reboot the node"),
    "Drain P2P": ("drain", "end the programs that use NVLink"),
    "Drain and Reset": ("reset_gpu", "end all programs and reset the GPU"),
}
"""What drivers from 550 on request, and its action."""


def unknown_xid(_: int) -> Xid:
    """Return the entry of a code that is not in a catalog."""
    return UNKNOWN_XID


@dataclass(frozen=True)
class Stated:
    """The site's description of the node; None for each fact that it omits."""

    node: NodeKind | None = None
    rules: Rules = field(default_factory=Rules)
    xid: Callable[[int], Xid] = unknown_xid
    confined: bool = False
    """Whether this process is in a job, whose cgroup can hide GPUs."""


def judge_state(facts: Facts, stated: Stated) -> Iterator[GateFinding]:
    """Yield one finding for each check of the state and each place."""
    gpus = stated.node.gpus if stated.node else None
    yield from _cpus(facts, stated)
    yield from _count(facts, stated, gpus)
    yield from _driver(facts, stated, gpus)
    if facts.smi:
        for index, gpu in enumerate(facts.smi.gpus):
            yield from _gpu(f"gpu{index}", gpu, gpus)
    elif facts.smi_problem:
        for check in ("gpu_model", "gpu_recovery", "gpu_ecc", "gpu_remap", "gpu_throttle"):
            yield unknown(check, facts.smi_problem)
    yield from _of_kernel(facts)
    yield from _errors(facts, stated)
    yield from _nvlinks(facts, gpus)
    yield from _mounts(facts)


def _cpus(facts: Facts, stated: Stated) -> Iterator[GateFinding]:
    if facts.system is None:
        yield unknown("cpu_count", facts.system_problem)
        return
    cores, online = stated.node.cores if stated.node else None, facts.system.cpus
    if online is None or cores is None:
        value = "" if online is None else str(online)
        yield GateFinding("cpu_count", Verdict.UNJUDGED, value=value, note=_NO_SITE)
    else:
        yield compared("cpu_count", online >= cores, "", str(online), f"{cores} or more")


def _count(facts: Facts, stated: Stated, gpus: NodeGpus | None) -> Iterator[GateFinding]:
    """Compare the GPUs that the driver can use; the bus also shows broken ones."""
    if facts.system is None and facts.smi is None:
        yield unknown("gpu_count", facts.system_problem or facts.smi_problem, silent=True)
        return
    on_bus = len(facts.system.gpus) if facts.system else 0
    if facts.smi:
        found = sum(not gpu.lost for gpu in facts.smi.gpus)
    elif facts.smi_problem and (on_bus or gpus):
        fewer = gpus and not stated.confined and facts.system and on_bus < gpus.count
        if not fewer:
            yield unknown("gpu_count", facts.smi_problem, silent=gpus is not None)
            return
        found = on_bus
    else:
        found = on_bus
        idle = sum(not gpu.driven for gpu in facts.system.gpus) if facts.system else 0
        if idle and not (gpus and on_bus < gpus.accelerators):
            why = f"no driver is bound to {idle} of {on_bus} GPUs"
            yield unknown("gpu_count", why, silent=gpus is not None)
            return
    finding = GateFinding("gpu_count", Verdict.PASS, value=str(found))
    if stated.node is None:
        yield replace(finding, verdict=Verdict.UNJUDGED, note=_NO_SITE)
        return
    count = gpus.accelerators if gpus else 0
    finding = replace(finding, band=str(count))
    if found == count:
        yield finding
    elif stated.confined and found < count:
        note = "the job's cgroup may hide GPUs"
        yield replace(finding, verdict=Verdict.UNKNOWN, note=note)
    elif found < count:
        note = f"{on_bus} are on the PCI bus" if on_bus != found else ""
        yield replace(finding, verdict=Verdict.FAILED, note=note)
    else:
        note = "more than in site.yaml; correct its node type or nodelist"
        yield replace(finding, verdict=Verdict.UNKNOWN, note=note)


def _driver(facts: Facts, stated: Stated, gpus: NodeGpus | None) -> Iterator[GateFinding]:
    wanted = stated.rules.driver
    if not wanted or (stated.node and not gpus):
        return
    module = "amdgpu" if gpus and gpus.vendor == "amd" else "nvidia"
    found = dict(facts.system.drivers).get(module, "") if facts.system else ""
    if not found and facts.smi and module == "nvidia":
        found = facts.smi.driver
    if not found:
        yield unknown("driver_version", f"the version of the module {module} is not known")
        return
    yield compared("driver_version", f"{found}.".startswith(f"{wanted}."), "", found, wanted)


def _gpu(where: str, gpu: SmiGpu, gpus: NodeGpus | None) -> Iterator[GateFinding]:
    """Yield the findings of one GPU that nvidia-smi describes."""
    if gpu.lost:
        yield unknown("gpu_recovery", "the driver has lost the GPU", where)
        return
    if gpus and gpus.model and gpu.model:
        yield compared("gpu_model", gpu.model == gpus.model, where, gpu.model, gpus.model)
    if gpu.recovery is not None:
        action, remedy = _RECOVERIES.get(gpu.recovery, ("reset_gpu", ""))
        needed = gpu.recovery != "None"
        yield GateFinding(
            *("gpu_recovery", Verdict.FAILED if needed else Verdict.PASS, where),
            *(gpu.recovery.lower(), "none"),
            action=action if needed else None,
            remedy=remedy if needed else "",
        )
    yield from _uncorrectable(where, gpu.uncorrectable)
    if gpu.remap_failed:
        yield compared("gpu_remap", False, where, "failed", "no failure")
    elif gpu.remap_pending:
        yield GateFinding(
            *("gpu_remap", Verdict.FAILED, where, "pending", "none pending"),
            severity="warning",
            action="reset_gpu",
            remedy="reset the GPU when it is idle",
        )
    elif gpu.ecc:
        yield compared("gpu_remap", True, where, "none", "none pending")
    at = f" at {gpu.clocks[0]:.0f} of {gpu.clocks[1]:.0f} MHz" if gpu.clocks else ""
    verdict = Verdict.DEGRADED if gpu.limits else Verdict.PASS
    value = f"{', '.join(gpu.limits)}{at}" if gpu.limits else f"no limit{at}"
    yield GateFinding("gpu_throttle", verdict, where, value, "no limit")
    yield from _link(where, gpu.pcie_width, gpu.pcie_generation)
    if gpu.fabric_state is not None:
        done = gpu.fabric_state == "Completed" and gpu.fabric_status in (None, "Success")
        value = " ".join(filter(None, (gpu.fabric_state, gpu.fabric_status))).lower()
        yield compared("nvlink_fabric", done, where, value, "completed")


def _uncorrectable(where: str, count: int | None) -> Iterator[GateFinding]:
    if count is not None:
        yield compared("gpu_ecc", not count, where, f"{count} errors", "0")


def _link(
    where: str, width: tuple[int, int] | None, generation: tuple[int, int] | None
) -> Iterator[GateFinding]:
    if width is None or generation is None:
        return
    verdict, note = Verdict.PASS, ""
    if width[0] < width[1]:
        verdict, note = Verdict.DEGRADED, "fewer lanes than GPU and slot support"
    elif generation[0] < generation[1]:
        verdict, note = Verdict.UNJUDGED, "idle GPUs reduce the speed"
    value, band = f"x{width[0]} gen {generation[0]}", f"x{width[1]} gen {generation[1]}"
    yield GateFinding("pcie_link", verdict, where, value, band, note)


def _of_kernel(facts: Facts) -> Iterator[GateFinding]:
    """Yield what only the kernel shows: the links of GPUs without nvidia-smi, and AMD's errors."""
    gpus = facts.system.gpus if facts.system else ()
    for index, gpu in enumerate(gpus):
        if not facts.smi:
            yield from _link(f"gpu{index}", gpu.width, gpu.generation)
        yield from _uncorrectable(f"gpu{index}", gpu.uncorrectable)


def _errors(facts: Facts, stated: Stated) -> Iterator[GateFinding]:
    """Yield the errors of GPUs in the kernel log, the same one of a GPU once."""
    log = facts.log
    if log is None:
        yield unknown("gpu_xid", facts.log_problem or "the kernel log was not read")
        return
    finding = GateFinding("gpu_xid", Verdict.PASS, value="none", band="none")
    gpus_of_kernel = facts.system is None or facts.system.gpus
    if log.lost_until_s is not None and (not stated.node or stated.node.gpus or gpus_of_kernel):
        kept_s = facts.uptime_s - log.lost_until_s
        note = f"the kernel log has lost lines; only the last {_age(kept_s)} are complete"
        covers = kept_s >= stated.rules.xid_hours * _HOUR_S
        finding = replace(
            finding, verdict=Verdict.UNJUDGED if covers else Verdict.UNKNOWN, note=note
        )
    if not log.errors or finding.verdict is Verdict.UNKNOWN:
        yield finding
    recoveries = {
        short_address(gpu.bus_id).rpartition(".")[0]: gpu.recovery
        for gpu in (facts.smi.gpus if facts.smi else ())
    }
    for error in log.errors:
        recovery = recoveries.get(short_address(error.bus_id).partition(".")[0])
        found = _logged(error, facts.uptime_s - error.seconds, stated, recovery)
        if not log.certain:
            note = f"{found.note}; any program could have written it where only dmesg shows it"
            found = replace(found, verdict=Verdict.UNKNOWN, note=note)
        yield found


def _logged(error: KernelError, age_s: float, stated: Stated, recovery: str | None) -> GateFinding:
    names = {"xid": f"Xid {error.code}", "sxid": f"SXid {error.code}", "amdgpu": "amdgpu error"}
    finding = GateFinding(
        "gpu_xid",
        Verdict.FAILED,
        error.bus_id,
        f"{names[error.kind]} {_age(age_s)} ago",
        "none",
        note=error.text,
    )
    if error.kind == "xid":
        xid = stated.xid(error.code)
        finding = replace(finding, note=xid.meaning, remedy=xid.action)
        if xid.kind != "hardware":
            note = f"{xid.meaning}: may not be a fault of the node"
            return replace(finding, verdict=Verdict.UNKNOWN, note=note)
    elif error.may_be_a_job:
        note = f"{error.text}; a program may be the cause"
        return replace(finding, verdict=Verdict.UNKNOWN, note=note)
    if recovery == "None":
        note = f"{finding.note}; the driver requests no recovery"
        return replace(finding, verdict=Verdict.UNKNOWN, note=note)
    if age_s > stated.rules.xid_hours * _HOUR_S:
        return replace(finding, verdict=Verdict.UNKNOWN, note=f"{finding.note}; too old to count")
    return finding


def _age(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _nvlinks(facts: Facts, gpus: NodeGpus | None) -> Iterator[GateFinding]:
    wanted = gpus.nvlinks if gpus else ()
    if not any(wanted):
        return
    if facts.nvlinks is None:
        why = facts.nvlinks_problem
        yield unknown("nvlink_links", why or "nvidia-smi was not run", silent=bool(why))
        return
    if len(facts.nvlinks) != len(wanted) and len(set(wanted)) > 1:
        yield unknown("nvlink_links", "unknown which GPUs they belong to: some are missing")
        return
    for index, active in enumerate(facts.nvlinks):
        count = wanted[min(index, len(wanted) - 1)]
        value = f"{active} active"
        yield compared("nvlink_links", active >= count, f"gpu{index}", value, str(count))


def _mounts(facts: Facts) -> Iterator[GateFinding]:
    for state in facts.mounts:
        wanted = state.wanted
        band = wanted.type or "mounted"
        if state.problem:
            yield unknown("mount", state.problem, wanted.path, silent=True)
        elif not state.type:
            yield compared("mount", False, wanted.path, "not mounted", band)
        elif wanted.type in (None, state.type) and state.read_only and not wanted.read_only:
            yield compared("mount", False, wanted.path, "read-only", "read-write")
        else:
            right = wanted.type in (None, state.type)
            yield compared("mount", right, wanted.path, state.type, band)
        if state.type and wanted.free_percent is not None:
            yield _space(wanted.path, state.free_percent, wanted.free_percent)


def _space(path: str, free: float | None, least: float) -> GateFinding:
    if free is None:
        return unknown("mount_space", "the file system does not report its size", path)
    value, band = f"{free:.3g} % free", f"{least:g} % or more"
    return compared("mount_space", free >= least, path, value, band)
