# SPDX-License-Identifier: MIT
"""A GPU on the PCI bus without the tools of its vendor is an error, a display is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from busbar.detect.gather import Outputs
from busbar.detect.machine import compose, match
from busbar.detect.pci import Place, without_tool
from busbar.detect.pcie import sockets
from busbar.expect import NoExpectation, Question, expect
from busbar.gate.sysfs import PciGpu, compute_gpus
from busbar.parse.machine.hwloc import parse_machine
from busbar.site.model import NodeType, Site
from tests.cases import cases
from tests.expect.test_model import L40S, site

# name: (class, vendor, device, driver, boot_vga)
COMPUTE = {
    "H100": ("0x030200", "0x10de", "0x2330", "nvidia", None),
    "H100 without a driver": ("0x030200", "0x10de", "0x2330", None, None),
    "A100 with nouveau": ("0x030200", "0x10de", "0x20b0", "nouveau", None),
    "RTX A6000 in a server": ("0x030000", "0x10de", "0x2230", "nvidia", "0"),
    "MI250X": ("0x038000", "0x1002", "0x7408", "amdgpu", None),
    "MI300X": ("0x120000", "0x1002", "0x74a1", "amdgpu", None),
    "MI300A, an APU without a display": ("0x120000", "0x1002", "0x74a0", "amdgpu", None),
    "MI210 without a driver": ("0x038000", "0x1002", "0x740f", None, None),
}
DISPLAY = {
    "ASPEED": ("0x030000", "0x1a03", "0x2000", "ast", "1"),
    "Matrox": ("0x030000", "0x102b", "0x0538", "mgag200", "1"),
    "Intel": ("0x030000", "0x8086", "0x3e9b", "i915", "1"),
    "Virtio": ("0x038000", "0x1af4", "0x1050", "virtio-pci", None),
    "GeForce as the console": ("0x030000", "0x10de", "0x1c82", "nvidia", "1"),
    "GeForce with nouveau": ("0x030000", "0x10de", "0x1c82", "nouveau", "0"),
    "GeForce without a driver": ("0x030000", "0x10de", "0x1c82", None, "0"),
    "sound of a GeForce": ("0x040300", "0x10de", "0x0fb9", "snd_hda_intel", None),
    "NVSwitch": ("0x068000", "0x10de", "0x22a3", "nvidia-nvswitch", None),
    "Radeon": ("0x030000", "0x1002", "0x744c", "amdgpu", "0"),
    "APU with a display": ("0x030000", "0x1002", "0x1638", "amdgpu", "1"),
    "H100 of a virtual machine": ("0x030200", "0x10de", "0x2330", "vfio-pci", None),
    "damaged": ("what", "0x10de", "", None, None),
}


def bus(root: Path, *devices: tuple[str, str, str, str | None, str | None]) -> Path:
    """A directory with `sys` as the kernel shows these devices."""
    for index, (kind, vendor, device, driver, boot) in enumerate(devices):
        directory = root / f"sys/bus/pci/devices/0000:{index:02x}:00.0"
        directory.mkdir(parents=True)
        files = {"class": kind, "vendor": vendor, "device": device, "boot_vga": boot}
        for name, text in files.items():
            if text is not None:
                (directory / name).write_text(f"{text}\n")
        if driver:
            (directory / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    return root


@cases("name", COMPUTE)
def test_a_gpu_for_computing_counts(name: str, tmp_path: Path) -> None:
    (gpu,) = compute_gpus(bus(tmp_path, DISPLAY["ASPEED"], COMPUTE[name]))
    assert gpu.address == "0000:01:00.0"
    assert gpu.device == COMPUTE[name][2].removeprefix("0x")


@cases("name", DISPLAY)
def test_a_display_does_not(name: str, tmp_path: Path) -> None:
    assert compute_gpus(bus(tmp_path, DISPLAY[name])) == ()


def test_device_files_count_where_the_bus_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "kfd", "null"):
        (tmp_path / "dev" / name).touch()
    assert compute_gpus(tmp_path) == (PciGpu("nvidia", "/dev/nvidia0"),)
    bus(tmp_path, DISPLAY["GeForce as the console"])
    assert compute_gpus(tmp_path) == ()


@cases(
    ("name", "installed", "says"),
    [
        (
            "H100",
            {"rocm-smi", "lstopo"},
            "nvidia-smi not found on PATH, install the NVIDIA driver",
        ),
        ("MI300X", {"nvidia-smi"}, "amd-smi and rocm-smi not found on PATH, install ROCm"),
        ("H100", {"nvidia-smi"}, None),
        ("MI300X", {"rocm-smi"}, None),
        ("MI300X", {"amd-smi"}, None),
    ],
)
def test_the_tools_of_the_vendor_are_needed(name, installed, says, tmp_path: Path) -> None:
    gpus = compute_gpus(bus(tmp_path, COMPUTE[name], COMPUTE[name]))
    sentences = [*without_tool(gpus, frozenset(installed))]
    assert len(sentences) == (says is not None)
    assert all("0000:00:00.0 (device " in s and "and 1 more" in s and says in s for s in sentences)


def test_such_a_machine_is_not_local(tmp_path: Path) -> None:
    assert match(compose(Outputs())) == "local"
    sentences = tuple(without_tool(compute_gpus(bus(tmp_path, COMPUTE["H100"])), frozenset()))
    detected = compose(replace(Outputs(), unseen_gpus=sentences))
    assert match(detected) is None
    assert detected.gpu_tool_failed == sentences == detected.remarks


# Two sockets; GPUs 0 and 1 are below a switch, as are 2 and a NIC.
PCIE = [
    {"switches": [{"gpus": [0, 1], "uplink": {"class": "pcie4-x16", "count": 1}}]},
    {"gpus": [3], "switches": [{"gpus": [2], "nics": ["mlx5_0"]}]},
]
LSTOPO = """<topology version="2.0"><object type="Machine"><object type="Package" os_index="0">
 <object type="PU" os_index="0"/><object type="Bridge" bridge_type="0-1">
  <object type="Bridge" pci_busid="0000:15:01.0"><object type="Bridge" pci_busid="0000:16:00.0">
   <object type="PCIDev" pci_busid="0000:17:00.0"/><object type="PCIDev" pci_busid="0000:18:00.0"/>
 </object></object></object></object><object type="Package" os_index="1">
 <object type="Bridge" bridge_type="0-1"><object type="Bridge" pci_busid="0000:95:01.0">
  <object type="PCIDev" pci_busid="0000:97:00.0"/><object type="PCIDev" pci_busid="0000:98:00.0"/>
 </object><object type="PCIDev" pci_busid="0000:99:00.0"/></object></object></object></topology>
"""


def on_pcie() -> Site:
    """Four GPUs on PCI Express 5.0."""
    gpus = L40S | {"links": {"through_host": True}}
    built = site(gpus=gpus, nics=[{"name": "mlx5_0", "class": "ib-400g"}], fabric={"rails": 1})
    types = {"gpu": NodeType.model_validate(built.node.model_dump(by_alias=True) | {"pcie": PCIE})}
    return built.model_copy(update={"node_types": types})


@cases(
    ("pair", "place", "limit"),
    [((0, 1), "switch", 63), ((2, 3), "socket", 63), ((1, 2), "node", 31.5)],
)
def test_pairs_of_gpus_differ_by_what_they_share(
    pair: tuple[int, int], place: str, limit: float
) -> None:
    node = on_pcie()
    assert node.node.place(*pair) == place
    question = Question("copy", 256 << 20, src=pair[0], dst=pair[1])
    with pytest.raises(NoExpectation) as missing:
        expect(node, question)
    assert missing.value.limit == limit


def test_an_uplink_limits_collectives() -> None:
    assert expect(on_pcie(), Question("all_reduce", 1 << 30)).limit < 63
    assert expect(on_pcie(), Question("all_reduce", 1 << 30, ranks=2)).limit == 63


def test_hwloc_shows_what_is_below_a_switch() -> None:
    places = {name: Place(*each) for name, each in parse_machine(LSTOPO).places.items()}
    gpus = [places[f"0000:{bus}:00.0"] for bus in (17, 18, 97, 99)]
    nics = {"mlx5_0": places["0000:98:00.0"]}
    assert sockets(gpus, nics) == [
        {"switches": [{"gpus": [0, 1]}]},
        {"switches": [{"gpus": [2], "nics": ["mlx5_0"]}], "gpus": [3]},
    ]
    assert sockets([Place(gpus[0].path, -1), gpus[1]]) == []
