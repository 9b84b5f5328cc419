# SPDX-License-Identifier: MIT
"""Detection from recorded outputs, from synthetic ones, and on this machine."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from busbar import site as sites
from busbar.detect.compare import differences
from busbar.detect.detected import Detected
from busbar.detect.gather import Outputs, gather
from busbar.detect.machine import compose, match, recorded
from busbar.detect.write import REFRAME_FILE
from busbar.expect.lint import lint
from busbar.parse.machine import amd_smi, hwloc, nvidia_smi, ports, rocm_smi
from busbar.slurm.nodes import parse_hardware
from tests.cases import cases
from tests.said import Command

from .saved import DATA, detect_text, h200_outputs, inventory, wrong

Machine = tuple[Outputs, str | None, dict[str, object]]


def machine(
    site: str | None, text: dict[str, str], more: dict[str, Any], **facts: object
) -> Machine:
    return Outputs(text, **more), site, facts


ONE_H200, A100 = inventory("NVIDIA H200", "Hopper", 143771, 1), "NVIDIA A100-SXM4-40GB"
TOPO, TOPO_H20 = (
    h200_outputs()["nvidia-smi topo"],
    detect_text("nvidia-smi-topo-h20-synthetic.txt"),
)
TOPO_V100 = detect_text("nvidia-smi-topo-v100-synthetic.txt")
SWITCHED, RDMA = {"link_class": "nvlink4", "count": 18}, detect_text("ibstat-synthetic.txt")
H200 = {"model": "NVIDIA H200", "arch": "sm_90", "count": 4, "memory": 143771, "cores": 64}
AMD = {
    "amd-smi topology": detect_text("amd-smi-topology-26.0-synthetic.json"),
    "amd-smi static": detect_text("amd-smi-static-26.0-synthetic.json"),
}
MI300X = {"rocm-smi": detect_text("rocm-smi-showtopo-6.0-synthetic.json")}
V100 = {
    "nvidia-smi topo": TOPO_V100,
    "nvidia-smi -q": inventory("Tesla V100-SXM2-32GB", "Volta", 32768, 8),
}
H20 = {
    "nvidia-smi topo": TOPO_H20,
    "nvidia-smi -q": inventory("NVIDIA H20", "Hopper", 97871, 8),
    "ibstat": RDMA,
    "scontrol": detect_text("scontrol-show-node-23.11-synthetic.txt"),
}
EFA = ["rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27"]
P4D = {
    "nvidia-smi topo": TOPO_H20.replace("NV18", "NV12").split("NIC Legend")[0],
    "nvidia-smi -q": inventory(A100, "Ampere", 40960, 8),
    "fi_info": detect_text("fi_info-efa-1.21-synthetic.txt"),
} | {f"rate {name}": "100 Gb/sec (4X EDR)\n" for name in EFA}
FOUR_A100 = {
    "nvidia-smi topo": TOPO.replace("NV18", "NV4"),
    "nvidia-smi -q": inventory(A100, "Ampere", 40960, 4),
}
NVLINK3, XGMI = {"link_class": "nvlink3", "count": 4}, {"link_class": "xgmi-mi300x", "count": 1}
RAILS = {"near": [(0, 1), (2, 3), (4, 5), (6, 7)], "classes": ["roce-400g"] * 4}
# The site that a machine is, what its tools print and what else is known, and what is found.
MACHINES: list[Machine] = [
    machine("h200x4", h200_outputs(), {}, form={"switched": SWITCHED}, remarks=(), **H200),
    machine("h200x4", h200_outputs(), {}, family="nvlink4", host="pcie5-x16"),
    machine("mi250x", AMD, {"rdma_listed": True}),  # and not mi250x-cray, which has NICs
    machine("mi300x", MI300X, {}, model="AMD Instinct MI300X", count=8, form={"all_pairs": XGMI}),
    machine("p3dn", V100, {"instance_type": "p3dn.24xlarge"}, family="efa"),
    machine("h20-roce", H20, {}, family="roce", scheduler="slurm", launcher="srun", **RAILS),
    machine("p4d", P4D, {"instance_type": "p4d.24xlarge"}, nics=EFA, family="efa"),
    machine("a100x4-slingshot", FOUR_A100, {}, form={"all_pairs": NVLINK3}),
    machine(
        None, {"nvidia-smi -q": ONE_H200}, {"cpus": (0, 1)}, remarks=(), count=1, stack="cuda"
    ),
    machine(None, h200_outputs() | {"ibstat": RDMA}, {}, family="roce"),
]


@cases(("outputs", "site", "facts"), MACHINES)
def test_machines(outputs: Outputs, site: str | None, facts: dict[str, object]) -> None:
    detected = compose(outputs)
    assert wrong(detected, match=site, **facts) == {}
    if site in ("h200x4", "mi250x", "p3dn"):
        assert differences(detected, sites.load(site)) == []


# What is changed in the output of a tool, and the facts that then differ from the site.
CHANGES = [
    ("", "", "", [], "h200x4", {}),
    ("nvidia-smi topo", "NV18", "NV12", ["gpus.links"], None, {}),
    ("nvidia-smi topo", "0-63", "0-31", ["cores"], "h200x4", {}),
    ("nvidia-smi -q", ": 5\n", ": 4\n", ["gpus.host_link"], "h200x4", {"host": "pcie4-x16"}),
    ("nvidia-smi -q", ": 16x", ": 8x", [], "h200x4", {"host": None}),
    ("nvidia-smi -q", ": 16x", ": N/A", [], "h200x4", {"host": None}),
    ("ibstat", "", RDMA, ["nics"], None, {}),
]


@cases(("tool", "old", "new", "differ", "site", "facts"), CHANGES)
def test_differences_from_a_site(  # noqa: PLR0917 - one change a row
    tool: str, old: str, new: str, differ: list[str], site: str | None, facts: dict[str, object]
) -> None:
    outputs = h200_outputs()
    if tool:
        outputs[tool] = outputs.get(tool, "").replace(old, new)
    detected = compose(Outputs(outputs))
    found = [difference.key for difference in differences(detected, sites.load("h200x4"))]
    assert [key for key in found if key in differ] == differ
    assert tool == "nvidia-smi topo" or found == differ
    assert wrong(detected, match=site, **facts) == {}


def test_cpx_devices_are_grouped_by_accelerator() -> None:
    static = json.loads(detect_text("amd-smi-static-26.0-synthetic.json"))["gpu_data"][0]
    static["asic"] |= {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"}
    static["partition"] = {"compute_partition": "CPX", "memory_partition": "NPS4"}
    devices = [static | {"gpu": index} for index in range(64)]
    link = {"link_type": "XGMI", "num_hops": 1, "bandwidth": "64000-64000"}
    links = [
        {"gpu": index, "links": [link | {"gpu": peer} for peer in range(64) if peer != index]}
        for index in range(64)
    ]
    outputs = {"amd-smi static": json.dumps(devices), "amd-smi topology": json.dumps(links)}
    detected = compose(Outputs(outputs))
    found = differences(detected, sites.load("mi300x"), "cpx")
    assert [d.key for d in found if d.key != "gpus.memory_mib"] == []
    assert match(detected) == "mi300x"


def test_a_broken_site_in_the_search_path_is_left_out_and_told_of(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "site.yaml").write_text("name: broken\nno_such_key: 1\n")
    monkeypatch.setenv("BUSBAR_SITE_PATH", f"{tmp_path}:{root / 'site'}")
    assert match(compose(Outputs(h200_outputs()))) == "h200x4"
    said = capsys.readouterr().err
    assert "skipping site 'broken': " in said
    assert "no_such_key" in said or "description" in said


@pytest.fixture(scope="module")
def here() -> Outputs:
    return gather()


def test_this_machine(here: Outputs) -> None:
    """For real: whatever runs these tests gets a usable site."""
    assert len(here.cpus) == len(os.sched_getaffinity(0))
    detected = compose(here)
    assert detected.site.node.cores == len(here.cpus)
    if detected.site.node.gpus is None:
        assert match(detected) == "local"
        assert differences(detected, sites.load("local")) == []
    # As a job hands it over.
    outputs = TypeAdapter(Outputs)
    assert outputs.validate_json(outputs.dump_json(here)) == here


def test_match_is_fast_without_gpu_tools(here: Outputs) -> None:
    if any(name.startswith(("nvidia", "amd", "rocm")) for name in (*here.text, *here.failed)):
        pytest.skip("this machine has GPU tools, whose own time counts")
    begin = time.process_time()
    match()
    assert time.process_time() - begin < 30


def written(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")


@pytest.mark.usefixtures("no_tools")
def test_instance_type_is_the_product_of_amazon(tmp_path: Path) -> None:
    product = {"sys/class/dmi/id/product_name": "p5.48xlarge"}
    for vendor, known in (("QEMU", None), ("Amazon EC2", "p5.48xlarge")):
        written(tmp_path, {"sys/class/dmi/id/sys_vendor": vendor} | product)
        assert gather(tmp_path).instance_type == known


PORT = "sys/class/infiniband/mlx5_7/ports/1"


def interface(root: Path, name: str, mbit: int, *parts: str, state: str = "up") -> None:
    """Write an interface of the kernel, with directories such as ``device``."""
    path = root / "sys/class/net" / name
    for part in parts or ("device",):
        (path / part).mkdir(parents=True)
    written(path, {"type": "1", "operstate": state, "speed": str(mbit)})


@pytest.fixture
def no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the files of a kernel count."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_tools")
def test_the_network_of_the_kernel(tmp_path: Path) -> None:
    """Ethernet without RDMA is that of a node that has no other."""
    interface(tmp_path, "eno1", 1000)
    interface(tmp_path, "ens1f0", 25000)
    interface(tmp_path, "ens1f1", 25000, state="down")
    interface(tmp_path, "virbr0", 10000, "bridge")
    interface(tmp_path, "tap0", -1)
    detected = compose(gather(tmp_path))
    expected = {"nics": ["ens1f0"], "classes": ["eth-25g"], "provider": "tcp", "rails": 1}
    assert wrong(detected, **expected) == {}
    for words in ("messages between nodes use TCP", "eno1 are omitted"):
        assert any(words in remark for remark in detected.remarks)
    assert not [each for each in differences(detected, sites.load("local")) if each.key == "nics"]
    for rate, link_class in (
        ("400 Gb/sec (4X NDR)", "ib-400g"),
        ("200 Gb/sec (4X HDR)", "ib-200g"),
    ):
        written(tmp_path / PORT, {"rate": rate, "link_layer": "InfiniBand"})
        detected = compose(gather(tmp_path))
        assert wrong(detected, nics=["mlx5_7"], classes=[link_class]) == {}


@pytest.mark.usefixtures("no_tools")
def test_a_bond_stands_for_its_ports_and_ports_without_a_route_carry_nothing(
    tmp_path: Path,
) -> None:
    for name in ("ens1f0", "ens1f1"):
        interface(tmp_path, name, 25000, "device", "master/bonding")
    interface(tmp_path, "bond0", 50000, "bonding")
    interface(tmp_path, "ens2", 100000)
    interface(tmp_path, "ens3", 100000, "device/infiniband")  # its RDMA port is not active
    assert wrong(compose(gather(tmp_path)), nics=["ens2"], classes=["eth-100g"]) == {}
    routes = "Iface\tDestination\tGateway\nbond0\t0000000A\t00000000"
    written(tmp_path, {"proc/net/route": routes})
    assert wrong(compose(gather(tmp_path)), nics=["bond0"], classes=["eth-50g"]) == {}


def test_the_command(tmp_path: Path, busbar: Command) -> None:
    directory = tmp_path / "here"
    assert busbar("site detect --output", directory).status == 0
    assert lint(directory) == []
    again = busbar("site detect --output", directory)
    assert again.status == 2
    assert "already exists" in again.err
    said = busbar("site detect --compare p5")
    assert said.status == 1
    assert "gpus.count: the machine has" in said.out
    assert yaml.safe_load(busbar("site detect").out)["name"] == "detected"


def test_command_reads_saved_outputs_by_what_they_say(tmp_path: Path, busbar: Command) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    for file, content in zip(files, h200_outputs().values(), strict=True):
        file.write_text(content)
    assert busbar("site detect --compare h200x4 --from", *files).status == 0
    (tmp_path / "notes").write_text("shopping list\n")
    said = busbar("site detect --from", tmp_path / "notes")
    assert said.status == 2
    assert "not a recognised tool output" in said.err


@cases("file", sorted((DATA / "detect").glob("*synthetic*")))
def test_every_fixture_is_known_by_its_content(file: Path) -> None:
    (name,) = recorded([file]).text
    assert (
        name.split()[0].replace("lstopo-no-graphics", "lstopo")
        == re.match(
            r"nvidia-smi|amd-smi|rocm-smi|lstopo|ibstat|fi_info|scontrol|sinfo", file.name
        )[0]
    )


def test_detected_sites_lint(tmp_path: Path) -> None:
    site = compose(Outputs(h200_outputs())).site
    facts = site.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    directory = tmp_path / "detected"
    written(directory, {"site.yaml": yaml.safe_dump(facts), "reframe.py": REFRAME_FILE})
    assert lint(directory) == []
    assert isinstance(compose(Outputs()), Detected)


@cases(
    ("parser", "bad"),
    [
        (nvidia_smi.parse_topology, "nothing"),
        (nvidia_smi.parse_topology, "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\n"),
        (nvidia_smi.parse_nvlink, ""),
        (nvidia_smi.parse_inventory, "Driver Version : 1\n"),
        (amd_smi.parse_topology, "{}"),
        (amd_smi.parse_topology, '[{"gpu": 0}]'),
        (amd_smi.parse_static, '[{"gpu": 0, "asic": {}}]'),
        (rocm_smi.parse_topology, "{}"),
        (rocm_smi.parse_topology, '{"card9876543": {"GFX Version": "gfx942"}}'),
        (hwloc.parse_machine, "<topology/>"),
        (hwloc.parse_machine, "<a/>"),
        (ports.parse_ibstat, "CA 'x'\n\tPort 1:\n\t\tState: Active\n"),
        (ports.parse_rate, "fast"),
        (ports.parse_fi_info, "fabric: efa"),
        (parse_hardware, "NodeName=a State=IDLE"),
    ],
)
def test_parsers_raise_on_surprise(parser, bad: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parser(bad)


def test_parsers_of_tools_without_a_part_in_the_site() -> None:
    old = amd_smi.parse_topology(detect_text("amd-smi-topology-24.5-synthetic.json"))
    assert [(link.src, link.dst, link.kind, link.hops) for link in old] == [
        (0, 1, "PCIE", 2),
        (1, 0, "PCIE", 2),
    ]
    machine = hwloc.parse_machine(detect_text("lstopo-2.9-synthetic.xml"))
    assert [node.cpus for node in machine.numa] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    first, _ = parse_hardware(detect_text("scontrol-show-node-23.11-synthetic.txt"))
    assert (first.cpus, first.partitions) == (96, ("gpu", "debug"))
