# SPDX-License-Identifier: MIT
"""The state of a node: each fault is found, and what is no certain fault drains nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from busbar.gate.passive import mount_state
from busbar.gate.run import run
from busbar.gate.site import MountRule
from busbar.gate.slurm import SlurmContext
from busbar.parse.machine.nvidia_xml import parse_report
from busbar.verdict import Verdict
from tests.cases import some

from .node import NVLINK, OLD, Node, found, gpu, kmsg, report

PORT = "sys/class/infiniband/mlx5_0/ports/1"
pytestmark = pytest.mark.usefixtures("uptime")


def test_a_healthy_node_passes(node: Node) -> None:
    result = run(node.options())
    assert (result.verdict, found(result), result.reason) == (Verdict.PASS, set(), "")
    checks = {each.check for each in result.checks}
    expected = "cpu_count gpu_count gpu_ecc gpu_model gpu_recovery gpu_remap gpu_throttle gpu_xid"
    assert checks >= {*expected.split(), "nic_rate", "nic_state", "nvlink_fabric", "nvlink_links"}


Change = Callable[[Node], object]
FAULTS: dict[str, tuple[Change, str]] = {
    "a GPU is missing": (
        lambda node: node.smi(report(gpu(1)), NVLINK.partition("GPU 1")[0]),
        "gpu_count 1 vs 2: reboot; reseat the GPU",
    ),
    "a GPU is lost": (
        lambda node: node.smi(
            report(gpu(1), gpu(2, ("<processes></processes>", "<x>GPU is lost</x>")))
        ),
        "gpu_count 1 vs 2: reboot; reseat the GPU",
    ),
    "a GPU requests a reset": (
        lambda node: node.smi(report(gpu(1), gpu(2, ("action>None<", "action>Reset<")))),
        "gpu_recovery gpu1 reset vs none: reset the GPU",
    ),
    "a GPU requests a reboot": (
        lambda node: node.smi(report(gpu(1), gpu(2, ("action>None<", "action>Reboot<")))),
        "gpu_recovery gpu1 reboot vs none: reboot the node",
    ),
    "uncorrectable errors": (
        lambda node: node.smi(report(gpu(1, ("dram_uncorrectable>0", "dram_uncorrectable>3")))),
        "",
    ),
    "a row could not be remapped": (
        lambda node: node.smi(report(gpu(1), gpu(2, ("failure>No", "failure>Yes")))),
        "gpu_remap gpu1 failed vs no failure: replace the GPU",
    ),
    "links are down": (
        lambda node: node.smi(links=NVLINK.replace("Link 7: 26.562 GB/s", "Link 7: <inactive>")),
        "nvlink_links gpu0 17 active vs 18: reset the GPU; check NVSwitches (+1 more)",
    ),
    "no fabric manager": (
        lambda node: node.smi(report(gpu(1, ("Completed", "In Progress")), gpu(2))),
        "nvlink_fabric gpu0 in progress success vs completed: start nvidia-fabricmanager",
    ),
    "a port is down": (
        lambda node: node.write(f"{PORT}/state", "1: DOWN\n"),
        "nic_state mlx5_0 down (linkup) vs active: check cable and switch",
    ),
    "a port is slow": (
        lambda node: node.write(f"{PORT}/rate", "200 Gb/sec (4X HDR)\n"),
        "nic_rate mlx5_0 200 Gb/s vs 400 Gb/s: check cable and switch",
    ),
    "CPUs are offline": (
        lambda node: node.write("sys/devices/system/cpu/online", "0-2\n"),
        "cpu_count 3 vs 4 or more: reboot; check BIOS and DIMMs",
    ),
    "an Xid of hardware": (
        lambda node: (
            node.smi(report(gpu(1, OLD), gpu(2, OLD))),
            node.write("dev/kmsg", kmsg("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off")),
        ),
        "gpu_xid 0000:02:00 Xid 79 1 min ago vs none: drain the node and reboot it; check power,"
        " temperature and seating, replace the GPU if it returns",
    ),
    "an SXid": (
        lambda node: (
            node.write("sys/bus/pci/devices/0000:c5:00.0/vendor", "0x10de\n"),
            node.write(
                "dev/kmsg",
                kmsg("nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM"),
            ),
        ),
        "gpu_xid 0000:c5:00.0 SXid 20034 1 min ago vs none: reset the GPU",
    ),
}


@pytest.mark.parametrize("name", some(FAULTS, 2))
def test_a_fault_drains_and_names_itself(node: Node, name: str) -> None:
    change, reason = FAULTS[name]
    change(node)
    result = run(node.options())
    assert result.drain, found(result)
    if reason:
        body, more, rest = reason.partition(" (+")
        assert result.reason == f"[node_problem] {body}{more}{rest} (busbar)"


def test_a_fault_that_the_site_observes_is_only_reported(node: Node) -> None:
    node.write(f"{PORT}/state", "1: DOWN\n")
    node.site(enforced=())
    result = run(node.options())
    assert (result.reason, result.verdict) == ("", Verdict.FAILED)
    node.site("    nic_state: {mode: skip}\n", enforced=())
    assert found(run(node.options())) == set()


NO_FAULTS: dict[str, Change] = {
    "the site says another model only as a warning": lambda node: node.smi(
        report(gpu(1, ("NVIDIA H200", "NVIDIA H100 80GB HBM3")), gpu(2))
    ),
    "a GPU is hot, which is a warning": lambda node: node.smi(
        report(gpu(1, ("hw_slowdown>Not Active", "hw_slowdown>Active")), gpu(2))
    ),
    "an idle GPU has reduced its link": lambda node: node.smi(
        report(gpu(1, ("<current_link_gen>5", "<current_link_gen>1")), gpu(2))
    ),
    "a link has fewer lanes": lambda node: node.smi(
        report(gpu(1, ("<current_link_width>16x", "<current_link_width>8x")), gpu(2))
    ),
    "a row waits for a reset": lambda node: node.smi(
        report(gpu(1, ("pending>No", "pending>Yes")), gpu(2))
    ),
    "a program of a user made an Xid": lambda node: node.write(
        "dev/kmsg", kmsg("NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=python, MMU Fault")
    ),
    "an Xid that nobody knows": lambda node: node.write(
        "dev/kmsg", kmsg("NVRM: Xid (PCI:0000:01:00): 999, unheard of")
    ),
    "the driver says that an Xid is dealt with": lambda node: node.write(
        "dev/kmsg", kmsg("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus")
    ),
    "an Xid of last week": lambda node: (
        node.smi(report(gpu(1, OLD), gpu(2, OLD))),
        node.write("dev/kmsg", kmsg("NVRM: Xid (PCI:0000:02:00): 79, GPU has", 7 * 86400)),
    ),
    "a user writes an Xid into the log": lambda node: (
        node.smi(report(gpu(1, OLD), gpu(2, OLD))),
        node.write("dev/kmsg", kmsg("NVRM: Xid (PCI:0000:02:00): 79, GPU has", level=12)),
    ),
    "a process is named like an Xid": lambda node: (
        node.smi(report(gpu(1, OLD), gpu(2, OLD))),
        node.write("dev/kmsg", kmsg("oom-kill: task=NVRM: Xid (PCI:0000:02:00): 79, GPU")),
    ),
    "an Xid of a GPU that is not here": lambda node: node.write(
        "dev/kmsg", kmsg("NVRM: Xid (PCI:0000:77:00): 79, GPU has fallen off the bus")
    ),
    "an Xid of a device that is no GPU of NVIDIA": lambda node: (
        node.smi(report(gpu(1, OLD), gpu(2, OLD))),
        node.write("sys/bus/pci/devices/0000:c5:00.0/vendor", "0x15b3\n"),
        node.write("dev/kmsg", kmsg("NVRM: Xid (PCI:0000:c5:00): 79, GPU has fallen off the bus")),
    ),
    "a page fault of amdgpu": lambda node: node.write(
        "dev/kmsg", kmsg("amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] page fault (src_id:0 ring:24)")
    ),
    "more GPUs than the site says": lambda node: node.smi(report(gpu(1), gpu(2), gpu(3))),
    "ports have other names": lambda node: (node.root / "sys/class/infiniband/mlx5_0").rename(
        node.root / "sys/class/infiniband/ibp1s0"
    ),
}


@pytest.mark.parametrize("name", some(NO_FAULTS, 2))
def test_what_is_no_certain_fault_drains_nobody(node: Node, name: str) -> None:
    NO_FAULTS[name](node)
    result = run(node.options())
    assert result.reason == ""


def test_a_job_may_not_see_all_gpus(node: Node) -> None:
    node.smi(report(gpu(1)))
    result = run(node.options(SlurmContext("n1", job="7")))
    assert ("unknown", "gpu_count", "") in found(result)
    assert not result.drain
    in_prolog = run(node.options(SlurmContext("n1", job="7", context="prolog_slurmd")))
    assert in_prolog.drain


@pytest.mark.parametrize(
    ("mountinfo", "verdict"),
    [
        ("36 35 98:0 / /scratch rw - lustre a@tcp:/fs rw", "pass"),
        ("36 35 98:0 / /scratch ro - lustre a@tcp:/fs rw", "failed"),
        ("36 35 98:0 / /scratch rw - lustre a@tcp:/fs ro", "failed"),
        ("36 35 98:0 / /scratch rw - nfs4 a:/fs rw", "failed"),
        ("36 35 98:0 / /scratch2 rw - lustre a@tcp:/fs rw", "failed"),
        ("36 35 98:0 / /scratch rw - autofs auto rw", "failed"),
        ("garbage", "failed"),
    ],
)
def test_a_file_system(node: Node, mountinfo: str, verdict: str) -> None:
    rules = "    mount: {mode: enforce}\n  mounts: [{path: /scratch, type: lustre}]\n"
    node.site(rules)
    node.write("proc/self/mountinfo", f"{mountinfo}\n")
    result = run(node.options())
    (mount,) = [each for each in result.checks if each.check == "mount"]
    assert str(mount.verdict) == verdict
    assert bool(result.drain) == (verdict == "failed")


def test_a_path_with_blanks_is_escaped_in_mountinfo() -> None:
    state = mount_state(MountRule("/a b"), r"36 35 98:0 / /a\040b rw - nfs a:/ rw")
    assert state.type == "nfs"


@pytest.mark.parametrize(
    ("version", "verdict"), [("580", "pass"), ("580.65", "pass"), ("580.6", "failed")]
)
def test_the_driver_is_compared_by_whole_numbers(node: Node, version: str, verdict: str) -> None:
    node.site(f'    driver_version: {{mode: enforce}}\n  driver: "{version}"\n')
    result = run(node.options())
    (driver,) = [each for each in result.checks if each.check == "driver_version"]
    assert str(driver.verdict) == verdict


AMD = """\
    gpus:
      vendor: amd
      model: AMD Instinct MI300X
      arch: gfx942
      count: {count}
      {more}
    nics"""


@pytest.mark.parametrize(
    ("count", "more", "errors", "reason"),
    [
        (2, "", "ue: 0\nce: 9\n", ""),
        (2, "", "ue: 2\nce: 0\n", "gpu_ecc gpu0 2 errors vs 0: reset the GPU"),
        (3, "", "ue: 0\n", "gpu_count 2 vs 3: reboot; reseat the GPU"),
        (16, "partitioning: {compute: CPX, memory: NPS4, compute_count: 8}", "", ""),
        (
            24,
            "partitioning: {compute: CPX, memory: NPS4, compute_count: 8}",
            "",
            "gpu_count 2 vs 3",
        ),
    ],
)
def test_gpus_of_amd(node: Node, count: int, more: str, errors: str, reason: str) -> None:
    """By the kernel alone. Of divided accelerators, the bus lists whole ones."""
    site = (node.root / "here/site.yaml").read_text()
    before, _, rest = site.partition("    gpus:\n")
    _, _, after = rest.partition("    nics")
    node.write("here/site.yaml", before + AMD.format(count=count, more=more) + after)
    for n in (1, 2):
        device = f"sys/bus/pci/devices/0000:0{n}:00.0"
        node.write(f"{device}/vendor", "0x1002\n")
        node.write(f"{device}/class", "0x120000\n")
        (node.root / device / "driver").symlink_to("amdgpu")
    node.write("sys/bus/pci/devices/0000:01:00.0/ras/umc_err_count", errors)
    found_reason = run(node.options()).reason
    assert found_reason.startswith(f"[node_problem] {reason}" if reason else "")
    assert bool(found_reason) == bool(reason)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<nvidia_smi_log>",
        "<x/>",
        "Failed to initialize NVML: Driver/library version mismatch",
        '<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log>&b;</nvidia_smi_log>',
    ],
)
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not XML"):
        parse_report(text)


def test_the_report_of_two_h100(data: Path) -> None:
    """Recorded with driver 580.159.04; serial numbers and other identities are removed."""
    text = (data / "h100x2" / "nvidia-smi-q-x.xml").read_text()
    found = parse_report(text)
    assert (found.driver, found.attached, len(found.gpus)) == ("580.159.04", 2, 2)
    first = found.gpus[0]
    assert (first.bus_id, first.model) == ("00000000:00:06.0", "NVIDIA H100 80GB HBM3")
    assert (first.pcie_generation, first.pcie_width) == ((5, 5), (16, 16))
    assert (first.clocks, first.limits, first.percent) == ((345.0, 1980.0), (), 0.0)
    assert (first.ecc, first.uncorrectable, first.recovery) == (True, 0, "None")
    assert (first.remap_pending, first.remap_failed, first.mig, first.lost) == (False,) * 4
    assert (first.fabric_state, first.fabric_status) == ("Completed", "Success")
    assert (first.processes, first.free_mib) == ((), 81079)
