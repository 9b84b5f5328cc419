# SPDX-License-Identifier: MIT
"""Detection from recorded outputs, from synthetic ones, and on this machine."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from busbar import site as sites
from busbar.cli import main
from busbar.detect.compare import differences
from busbar.detect.detected import Detected
from busbar.detect.gather import Outputs, gather
from busbar.detect.machine import compose, match, recorded
from busbar.detect.write import REFRAME_FILE
from busbar.expect.lint import lint
from busbar.parse.machine import amd_smi, fi_info, hwloc, ibstat, nvidia_smi, rocm_smi
from busbar.slurm.nodes import parse_hardware
from tests.cases import cases

from .saved import DATA, detect_text, h200_outputs, inventory, text


def test_recorded_h200_equals_the_site_in_every_fact_it_shows() -> None:
    detected = compose(Outputs(h200_outputs()))
    assert detected.remarks == ()
    assert differences(detected, sites.load("h200x4")) == []
    gpus = detected.site.node.gpus
    assert (gpus.model, gpus.arch, gpus.count, gpus.memory_mib) == (
        *("NVIDIA H200", "sm_90", 4),
        143771,
    )
    assert gpus.links.switched.count == 18
    assert detected.site.node.cores == 64
    assert detected.site.family == "nvlink4"
    assert match(detected) == "h200x4"


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


@cases(
    ("old", "new", "key"),
    [
        ("NV18", "NV12", "gpus.links"),
        ("0-63", "0-31", "cores"),
    ],
)
def test_a_changed_fact_is_a_difference(old: str, new: str, key: str) -> None:
    outputs = h200_outputs()
    outputs["nvidia-smi topo"] = outputs["nvidia-smi topo"].replace(old, new)
    detected = compose(Outputs(outputs))
    found = differences(detected, sites.load("h200x4"))
    assert key in [difference.key for difference in found]
    assert match(detected) == (None if key == "gpus.links" else "h200x4")


@cases(
    ("old", "new", "stated", "found"),
    [
        ("", "", "pcie5-x16", []),
        (": 5\n", ": 4\n", "pcie4-x16", ["gpus.host_link"]),
        (": 16x", ": 8x", None, []),
        (": 16x", ": N/A", None, []),
    ],
)
def test_how_the_gpus_reach_their_host(old: str, new: str, stated: str, found: list[str]) -> None:
    outputs = h200_outputs()
    outputs["nvidia-smi -q"] = outputs["nvidia-smi -q"].replace(old, new)
    detected = compose(Outputs(outputs))
    link = detected.site.node.gpus.host_link
    assert (link.link_class if link else None) == stated
    differs = differences(detected, sites.load("h200x4"))
    assert [difference.key for difference in differs] == found
    assert match(detected) == "h200x4"


def test_rdma_devices_where_the_site_has_none_are_a_difference() -> None:
    outputs = h200_outputs() | {"ibstat": detect_text("ibstat-synthetic.txt")}
    detected = compose(Outputs(outputs))
    assert [d.key for d in differences(detected, sites.load("h200x4"))] == ["nics"]
    assert detected.site.family == "roce"


def test_mi250x_from_amd_smi() -> None:
    detected = compose(
        Outputs(
            {
                "amd-smi topology": detect_text("amd-smi-topology-26.0-synthetic.json"),
                "amd-smi static": detect_text("amd-smi-static-26.0-synthetic.json"),
            },
            rdma_listed=True,
        )
    )
    assert differences(detected, sites.load("mi250x")) == []
    assert match(detected) == "mi250x"  # and not mi250x-cray, which has NICs


def test_mi300x_from_rocm_smi() -> None:
    detected = compose(Outputs({"rocm-smi": detect_text("rocm-smi-showtopo-6.0-synthetic.json")}))
    gpus = detected.site.node.gpus
    assert (gpus.model, gpus.count) == ("AMD Instinct MI300X", 8)
    assert gpus.links.all_pairs.link_class == "xgmi-mi300x"
    assert match(detected) == "mi300x"


def test_cpx_devices_are_grouped_by_accelerator() -> None:
    static = json.loads(detect_text("amd-smi-static-26.0-synthetic.json"))["gpu_data"][0]
    static["asic"] |= {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"}
    static["partition"] = {"compute_partition": "CPX", "memory_partition": "NPS4"}
    devices = [static | {"gpu": index} for index in range(64)]
    links = [
        {
            "gpu": index,
            "links": [
                {"gpu": peer, "link_type": "XGMI", "num_hops": 1, "bandwidth": "64000-64000"}
                for peer in range(64)
                if peer != index
            ],
        }
        for index in range(64)
    ]
    detected = compose(
        Outputs({"amd-smi static": json.dumps(devices), "amd-smi topology": json.dumps(links)})
    )
    found = differences(detected, sites.load("mi300x"), "cpx")
    assert [d.key for d in found if d.key != "gpus.memory_mib"] == []
    assert match(detected) == "mi300x"


def test_hybrid_cube_mesh_and_instance_type() -> None:
    detected = compose(
        Outputs(
            {
                "nvidia-smi topo": detect_text("nvidia-smi-topo-v100-synthetic.txt"),
                "nvidia-smi -q": inventory("Tesla V100-SXM2-32GB", "Volta", 32768, 8),
            },
            instance_type="p3dn.24xlarge",
        )
    )
    assert differences(detected, sites.load("p3dn")) == []
    assert detected.site.family == "efa"
    assert match(detected) == "p3dn"


def test_h20_with_rails() -> None:
    detected = compose(
        Outputs(
            {
                "nvidia-smi topo": detect_text("nvidia-smi-topo-h20-synthetic.txt"),
                "nvidia-smi -q": inventory("NVIDIA H20", "Hopper", 97871, 8),
                "ibstat": detect_text("ibstat-synthetic.txt"),
                "scontrol": detect_text("scontrol-show-node-23.11-synthetic.txt"),
            }
        )
    )
    site = detected.site
    assert [nic.near_gpus for nic in site.node.nics] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert {nic.link_class for nic in site.node.nics} == {"roce-400g"}
    assert (site.family, site.scheduler, site.partitions[0].launcher) == ("roce", "slurm", "srun")
    assert match(detected) == "h20-roce"


def test_efa_adapters_from_libfabric() -> None:
    topology = detect_text("nvidia-smi-topo-h20-synthetic.txt").replace("NV18", "NV12")
    detected = compose(
        Outputs(
            {
                "nvidia-smi topo": topology.split("NIC Legend")[0],
                "nvidia-smi -q": inventory("NVIDIA A100-SXM4-40GB", "Ampere", 40960, 8),
                "fi_info": detect_text("fi_info-efa-1.21-synthetic.txt"),
            },
            instance_type="p4d.24xlarge",
        )
    )
    assert [nic.name for nic in detected.site.node.nics] == [
        *("rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27"),
    ]
    assert detected.site.family == "efa"
    assert match(detected) == "p4d"


def test_four_gpus_joined_directly_are_no_switch() -> None:
    topology = text("h200x4/nvidia-smi-topo.log").replace("NV18", "NV4")
    found = compose(
        Outputs(
            {
                "nvidia-smi topo": topology,
                "nvidia-smi -q": inventory("NVIDIA A100-SXM4-40GB", "Ampere", 40960, 4),
            }
        )
    )
    assert found.site.node.gpus.links.all_pairs.count == 4


def test_one_gpu() -> None:
    detected = compose(
        Outputs({"nvidia-smi -q": inventory("NVIDIA H200", "Hopper", 143771, 1)}, cpus=(0, 1))
    )
    assert detected.remarks == ()
    assert detected.site.node.gpus.count == 1
    assert detected.site.deliveries[0].stack == "cuda"
    assert match(detected) is None


def test_this_machine() -> None:
    """For real: whatever runs these tests gets a usable site."""
    outputs = gather()
    assert len(outputs.cpus) == len(os.sched_getaffinity(0))
    detected = compose(outputs)
    assert detected.site.node.cores == len(outputs.cpus)
    if detected.site.node.gpus is None:
        assert match(detected) == "local"
        assert differences(detected, sites.load("local")) == []


def test_match_is_fast_without_gpu_tools() -> None:
    outputs = gather()
    if any(
        name.startswith(("nvidia", "amd", "rocm")) for name in (*outputs.text, *outputs.failed)
    ):
        pytest.skip("this machine has GPU tools, whose own time counts")
    begin = time.process_time()
    match()
    assert time.process_time() - begin < 30


def test_instance_type_is_asked_of_nobody_else(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("asked"))
    vendor = tmp_path / "sys/class/dmi/id/sys_vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("QEMU\n")
    assert gather(tmp_path).instance_type is None


def test_rates_of_the_kernel(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/infiniband/mlx5_7/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (nic,) = compose(gather(tmp_path)).site.node.nics
    assert (nic.name, nic.link_class) == ("mlx5_7", "ib-400g")


def interface(root: Path, name: str, mbit: int, *parts: str, state: str = "up") -> Path:
    """Write an interface of the kernel, with directories such as ``device``."""
    path = root / "sys/class/net" / name
    for part in parts or ("device",):
        (path / part).mkdir(parents=True)
    for file, value in {"type": "1", "operstate": state, "speed": str(mbit)}.items():
        (path / file).write_text(f"{value}\n")
    return path


def test_ethernet_without_rdma_is_the_network_of_a_node_that_has_no_other(tmp_path: Path) -> None:
    interface(tmp_path, "eno1", 1000)
    interface(tmp_path, "ens1f0", 25000)
    interface(tmp_path, "ens1f1", 25000, state="down")
    interface(tmp_path, "virbr0", 10000, "bridge")
    interface(tmp_path, "tap0", -1)
    detected = compose(gather(tmp_path))
    (nic,) = detected.site.node.nics
    assert (nic.name, nic.link_class) == ("ens1f0", "eth-25g")
    assert detected.site.fabric
    assert (detected.site.fabric.provider, detected.site.fabric.rails) == ("tcp", 1)
    assert any("messages between nodes take TCP" in remark for remark in detected.remarks)
    assert any("eno1 are omitted" in remark for remark in detected.remarks)
    assert not [each for each in differences(detected, sites.load("local")) if each.key == "nics"]
    port = tmp_path / "sys/class/infiniband/mlx5_7/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (nic,) = compose(gather(tmp_path)).site.node.nics
    assert nic.link_class == "ib-200g"


def test_a_bond_stands_for_its_ports_and_ports_without_a_route_carry_nothing(
    tmp_path: Path,
) -> None:
    for name in ("ens1f0", "ens1f1"):
        interface(tmp_path, name, 25000, "device", "master/bonding")
    interface(tmp_path, "bond0", 50000, "bonding")
    interface(tmp_path, "ens2", 100000)
    interface(tmp_path, "ens3", 100000, "device/infiniband")  # its RDMA port is not active
    nics = compose(gather(tmp_path)).site.node.nics
    assert [(nic.name, nic.link_class) for nic in nics] == [("ens2", "eth-100g")]
    routes = tmp_path / "proc/net/route"
    routes.parent.mkdir(parents=True)
    routes.write_text("Iface\tDestination\tGateway\nbond0\t0000000A\t00000000\n")
    nics = compose(gather(tmp_path)).site.node.nics
    assert [(nic.name, nic.link_class) for nic in nics] == [("bond0", "eth-50g")]


def test_command_writes_a_site_that_lints(tmp_path: Path, capsys) -> None:
    directory = tmp_path / "here"
    assert main(["site", "detect", "--output", str(directory)]) == 0
    assert lint(directory) == []
    assert main(["site", "detect", "--output", str(directory)]) == 2
    assert "already exists" in capsys.readouterr().err


def test_command_reads_saved_outputs_by_what_they_say(tmp_path: Path, capsys) -> None:
    files = []
    for number, content in enumerate(h200_outputs().values()):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text(content)
    arguments = ["site", "detect", "--from", *map(str, files)]
    assert main([*arguments, "--compare", "h200x4"]) == 0
    assert main(["site", "detect", "--from", __file__]) == 2
    assert "not a recognised tool output" in capsys.readouterr().err


@cases("file", sorted((DATA / "detect").glob("*synthetic*")))
def test_every_fixture_is_known_by_its_content(file: Path) -> None:
    (name,) = recorded([file]).text
    assert (
        name.split()[0].replace("lstopo-no-graphics", "lstopo")
        == re.match(
            r"nvidia-smi|amd-smi|rocm-smi|lstopo|ibstat|fi_info|scontrol|sinfo|flux|pbsnodes|bhosts",
            file.name,
        )[0]
    )


class Metadata(BaseHTTPRequestHandler):
    """The instance metadata service, version 2: no answer without a token."""

    def do_PUT(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.answer(200 if self.path == "/latest/api/token" else 404, "secret")

    def do_GET(self) -> None:
        allowed = self.headers["X-aws-ec2-metadata-token"] == "secret"
        known = self.path == "/latest/meta-data/instance-type"
        self.answer(200 if allowed and known else 401, "p5.48xlarge")

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_instance_type_by_the_metadata_service(tmp_path: Path, monkeypatch) -> None:
    vendor = tmp_path / "sys/class/dmi/id/sys_vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("Amazon EC2\n")
    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/latest"
        monkeypatch.setattr("busbar.detect.gather._IMDS", address)
        assert gather(tmp_path).instance_type == "p5.48xlarge"
        server.shutdown()
    assert gather(tmp_path).instance_type is None  # and no answer is no fault


def test_command_prints_yaml_and_compares(capsys) -> None:
    assert main(["site", "detect"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["name"] == "detected"
    status = main(["site", "detect", "--compare", "p5"])
    printed = capsys.readouterr().out
    assert status == 1
    assert "gpus.count: the machine has" in printed


def test_detected_sites_lint(tmp_path: Path) -> None:
    site = compose(Outputs(h200_outputs())).site
    file = tmp_path / "detected" / "site.yaml"
    file.parent.mkdir()
    facts = site.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    file.write_text(yaml.safe_dump(facts))
    file.with_name("reframe.py").write_text(REFRAME_FILE)
    assert lint(file.parent) == []
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
        (hwloc.parse_machine, "<topology/>"),
        (hwloc.parse_machine, "<a/>"),
        (ibstat.parse_ibstat, "CA 'x'\n\tPort 1:\n\t\tState: Active\n"),
        (ibstat.parse_rate, "fast"),
        (fi_info.parse_fi_info, "fabric: efa"),
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
