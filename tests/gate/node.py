# SPDX-License-Identifier: MIT
"""A node with two GPUs that this machine does not have: files of `/sys`, `/proc` and `/dev`, and
an ``nvidia-smi`` that prints what a test chooses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from busbar.commands.gate import _xid, compile_site
from busbar.gate.findings import GateDocument
from busbar.gate.run import GateOptions
from busbar.gate.site import GateSite
from busbar.gate.slurm import SlurmContext
from busbar.site.load import load
from busbar.verdict import Verdict
from tests.files import executable

UPTIME_S = 1e6
RECOVERY = "<gpu_recovery_action>None</gpu_recovery_action>"
OLD = (RECOVERY, "")  # drivers before 550 have none
SITE = """\
name: here
description: two GPUs
family: nvlink4
scheduler: slurm
partitions:
  - {{name: gpu, node_type: node}}
node_types:
  node:
    cores: 4
    gpus:
      vendor: nvidia
      model: NVIDIA H200
      arch: sm_90
      count: 2
      links: {{switched: {{class: nvlink4, count: 18}}}}
      host_link: {{class: pcie5-x16, count: 1}}
    nics: [{{name: mlx5_0, class: ib-400g}}]
deliveries:
  - {{kind: wheels, stack: cuda}}
gate:
{gate}
"""
ENFORCED = (
    *("cpu_count", "gpu_count", "gpu_model", "gpu_recovery", "gpu_ecc", "gpu_remap", "gpu_xid"),
    *("nvlink_links", "nvlink_fabric", "nic_state", "nic_rate", "host_copy", "peer_copy"),
    *("copy_data", "gpu_throttle"),
)
GPU = """\
<gpu id="00000000:0{n}:00.0">
 <product_name>NVIDIA H200</product_name>
 <mig_mode><current_mig>Disabled</current_mig></mig_mode>
 <gpu_reset_status><reset_required>Requested functionality has been deprecated</reset_required>
 </gpu_reset_status>
 <gpu_recovery_action>None</gpu_recovery_action>
 <pci><pci_gpu_link_info>
  <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>5</current_link_gen></pcie_gen>
  <link_widths><max_link_width>16x</max_link_width>
   <current_link_width>16x</current_link_width></link_widths>
 </pci_gpu_link_info></pci>
 <clocks_event_reasons>
  <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
  <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
  <clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
  <clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
 </clocks_event_reasons>
 <fb_memory_usage><total>143771 MiB</total><free>143156 MiB</free></fb_memory_usage>
 <utilization><gpu_util>0 %</gpu_util></utilization>
 <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
 <ecc_errors><volatile>
  <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
  <dram_uncorrectable>0</dram_uncorrectable>
 </volatile></ecc_errors>
 <remapped_rows><remapped_row_pending>No</remapped_row_pending>
  <remapped_row_failure>No</remapped_row_failure></remapped_rows>
 <clocks><sm_clock>345 MHz</sm_clock></clocks>
 <max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>
 <fabric><state>Completed</state><status>Success</status></fabric>
 <processes></processes>
</gpu>"""
NVLINK = "".join(
    f"GPU {gpu}: NVIDIA H200 (UUID: GPU-{gpu})\n"
    + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18))
    for gpu in range(2)
)


def report(*gpus: str) -> str:
    """What ``nvidia-smi -q -x`` prints."""
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
        "<nvidia_smi_log><driver_version>580.65.06</driver_version>"
        f"<attached_gpus>{len(gpus)}</attached_gpus>{''.join(gpus)}</nvidia_smi_log>\n"
    )


def gpu(n: int, *changes: tuple[str, str]) -> str:
    """One GPU of the report, with texts replaced."""
    text = GPU.format(n=n)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


_COMPILED: dict[tuple[str, bool], GateSite] = {}
"""By the text of the site: most tests have the same one."""


@dataclass
class Node:
    """Where the files of the node are."""

    root: Path

    def write(self, name: str, text: str) -> None:
        """Write a file of the node."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def smi(self, text: str = "", links: str = NVLINK, script: str = "") -> None:
        """Make ``nvidia-smi`` print a report."""
        self.write("smi.xml", text or report(gpu(1), gpu(2)))
        self.write("links.txt", links)
        files = f"{self.root}/smi.xml", f"{self.root}/links.txt"
        default = f'if [ "$1" = -q ]; then cat {files[0]}; else cat {files[1]}; fi'
        self.program("nvidia-smi", script or default)

    def program(self, name: str, script: str) -> None:
        """Write a program that is found first."""
        executable(self.root / "bin" / name, script)

    def site(self, gate: str = "", enforced: tuple[str, ...] = ENFORCED) -> None:
        """Write the site of the node, with rules that enforce."""
        rules = "".join(f"    {name}: {{mode: enforce}}\n" for name in enforced)
        checks = f"  checks:\n{rules}" if rules or gate else "  checks: {}\n"
        self.write("here/site.yaml", SITE.format(gate=f"{checks}{gate}"))

    def load(self, *, copies: bool = True) -> GateSite:
        """Read the site."""
        path = self.root / "here"
        text = (path / "site.yaml").read_text()
        if (text, copies) not in _COMPILED:
            _COMPILED[text, copies] = compile_site(load(str(path)), copies=copies)
        return _COMPILED[text, copies]

    def options(
        self, slurm: SlurmContext | None = None, *, passive: bool = True, **more: Any
    ) -> GateOptions:
        """Options of a run on this node."""
        values = {"load": partial(self.load, copies=not passive), "deadline_s": 20.0} | more
        return GateOptions(
            slurm or SlurmContext("n1"), xid=_xid, root=self.root, passive=passive, **values
        )


def healthy(root: Path) -> Node:
    """A node without a fault."""
    node = Node(root)
    node.smi()
    node.site()
    node.write("sys/devices/system/cpu/online", "0-3\n")
    node.write("sys/module/nvidia/version", "580.65.06\n")
    node.write("proc/driver/nvidia/version", "")
    node.write("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
    node.write("proc/self/mountinfo", "36 35 98:0 / /scratch rw,noatime - lustre a@tcp:/fs rw\n")
    node.write("dev/kmsg", "6,0,5140900,-;NET: Registered protocol family 10\n")
    for n in (1, 2):
        device = f"sys/bus/pci/devices/0000:0{n}:00.0"
        node.write(f"{device}/vendor", "0x10de\n")
        node.write(f"{device}/class", "0x030200\n")
        node.write(f"{device}/device", "0x2335\n")
    port = "sys/class/infiniband/mlx5_0/ports/1"
    node.write(f"{port}/state", "4: ACTIVE\n")
    node.write(f"{port}/phys_state", "5: LinkUp\n")
    node.write(f"{port}/rate", "400 Gb/sec (4X NDR)\n")
    node.write(f"{port}/counters/link_downed", "0\n")
    return node


def kmsg(text: str, ago_s: float = 60, level: int = 3, number: int = 0) -> str:
    """A record of the kernel log."""
    at = int((UPTIME_S - ago_s) * 1e6)
    device = text.startswith("amdgpu 0000:") and f" SUBSYSTEM=pci\n DEVICE=+pci:{text[7:19]}\n"
    return f"{level},{number},{at},-;{text}\n{device or ''}"


def found(result: GateDocument) -> set[tuple[str, str, str]]:
    """The checks that did not pass."""
    return {
        (str(each.verdict), each.check, each.where)
        for each in result.checks
        if each.verdict is not Verdict.PASS
    }
