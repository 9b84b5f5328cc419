# SPDX-License-Identifier: MIT
"""Run the tools of this machine and read the facts of its kernel."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from busbar import mpi
from busbar.data import PYTHON
from busbar.detect.pci import Place, place, without_tool
from busbar.gate.sysfs import compute_gpus, text_in
from busbar.parse import numbers
from busbar.parse.tables import beside
from busbar.program import call
from busbar.site.delivery import MpiFamily
from busbar.slurm.nodes import describing

TOOLS: Mapping[str, Mapping[str, str]] = beside(__file__)
_TIMEOUT_S = 30
_ETHERNET = "1"
"""ARPHRD_ETHER: not loopback, InfiniBand or a tunnel."""


@dataclass(frozen=True)
class Software:
    """What is installed, as the environment of this process shows it."""

    mpi: MpiFamily | None = None
    """The MPI on PATH."""
    modules: bool = False
    """Modules are loaded."""
    cray_mpich: bool = False
    spack_view: bool = False
    """A Spack environment with a view is active."""
    features: tuple[str, ...] = ()
    """``osu`` and ``xccl`` if their programs are on PATH."""


@dataclass(frozen=True)
class Outputs:
    """The output of each tool, and the errors of tools that failed."""

    text: dict[str, str] = field(default_factory=dict)
    """By the names of the tools, ``rate <device>`` for each RDMA device, and ``ethernet
    <interface>`` for each other port of Ethernet."""
    failed: dict[str, str] = field(default_factory=dict)
    """The first error line of each installed tool that failed."""
    host: str = ""
    cpus: tuple[int, ...] = ()
    """Logical CPUs that this process may use."""
    instance_type: str | None = None
    unseen_gpus: tuple[str, ...] = ()
    """One sentence for each vendor whose GPUs are there without a tool that describes them."""
    places: dict[str, Place] = field(default_factory=dict)
    """Place on the PCI bus by the name of a NIC, or by the address of a GPU."""
    multicast: bool | None = None
    """What NVIDIA's driver reports of its first GPU."""
    nvls_off: bool = False
    """NCCL_NVLS_ENABLE=0 is set for the processes of this machine."""
    software: Software = field(default_factory=Software)
    recorded: bool = False
    """The outputs were saved on another machine; nothing else is known about it."""
    rdma_listed: bool = False
    """RDMA devices were listed, so if ``text`` has none, the machine has none."""


def gather(root: Path = Path("/")) -> Outputs:
    """Run the installed tools; ``root`` is the directory that contains `sys` and `dev`."""
    host = socket.gethostname()
    tools = {
        name: tuple(row["command"].split()) for name, row in TOOLS.items() if "command" in row
    }
    tools |= describing(host.split(".")[0])
    installed = {name: command for name, command in tools.items() if shutil.which(command[0])}
    # In parallel: each tool initializes the same driver, which may take seconds.
    with ThreadPoolExecutor(max_workers=max(len(installed), 1)) as pool:
        results = dict(zip(installed, pool.map(_run, installed.values()), strict=True))
    text = {name: output for name, (succeeded, output) in results.items() if succeeded}
    failed = {
        name: output
        for name, (succeeded, output) in results.items()
        if not succeeded and "optional" not in TOOLS[name]
    }
    text |= _ports(root) | _ethernet(root)
    gpus = compute_gpus(root)
    return Outputs(
        text=text,
        failed=failed,
        host=host,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        instance_type=_instance_type(root),
        unseen_gpus=tuple(without_tool(gpus, frozenset(c[0] for c in installed.values()))),
        places=_places(root, [gpu.address for gpu in gpus]),
        multicast=_multicast() if "nvidia-smi -q" in text else None,
        nvls_off=os.environ.get("NCCL_NVLS_ENABLE") == "0",
        software=_software(),
        rdma_listed=True,
    )


def _ports(root: Path) -> dict[str, str]:
    """Return rate and layer of each active RDMA port, named ``DEVICE`` or ``DEVICE/PORT``."""
    text: dict[str, str] = {}
    for rate in sorted(root.glob("sys/class/infiniband/*/ports/*/rate")):
        device, number = rate.parts[-4], rate.parts[-2]
        name = device if number == "1" else f"{device}/{number}"
        state = rate.parent / "state"
        if not state.is_file() or "ACTIVE" in state.read_text():
            text[f"rate {name}"] = rate.read_text()
            text[f"layer {name}"] = (rate.parent / "link_layer").read_text()
    return text


def _ethernet(root: Path) -> dict[str, str]:
    """Return the Mbit/s of each port without RDMA, named ``ethernet INTERFACE``.

    A bond replaces its ports. If some ports have an IPv4 route, the others carry nothing.
    """
    ports = {
        path.name: speed
        for path in sorted(root.glob("sys/class/net/*"))
        if _is_port(path) and (speed := numbers.whole(text_in(path / "speed"))) and speed > 0
    }
    routed = {line.split()[0] for line in text_in(root / "proc/net/route").splitlines() if line}
    used = ports.keys() & routed or ports.keys()
    return {f"ethernet {name}": str(speed) for name, speed in ports.items() if name in used}


def _is_port(path: Path) -> bool:
    """Return whether an interface is a port with a link: a device, or a bond of some."""
    return (
        text_in(path / "type") == _ETHERNET
        and text_in(path / "operstate") == "up"
        and ((path / "device").exists() or (path / "bonding").exists())
        and not (path / "device" / "infiniband").exists()
        and not (path / "master" / "bonding").exists()
    )


def _places(root: Path, gpus: list[str]) -> dict[str, Place]:
    kinds = ("infiniband", "cxi", "net")
    nics = [path for kind in kinds for path in sorted(root.glob(f"sys/class/{kind}/*"))]
    places = {nic.name: place(nic / "device") for nic in nics if (nic / "device").exists()}
    devices = {address: root / "sys/bus/pci/devices" / address for address in gpus}
    return places | {name: place(path) for name, path in devices.items() if path.exists()}


def _multicast() -> bool | None:
    """Ask NVIDIA's driver whether the first GPU supports multicast; None without an answer.

    Uses a separate process, because the driver can crash or hang.
    """
    succeeded, output = _run((*PYTHON, "busbar.detect.multicast"))
    return output.strip() == "1" if succeeded else None


def _software() -> Software:
    mpirun = shutil.which("mpirun")
    programs = {"osu": "osu_bw", "xccl": "all_reduce_perf"}
    return Software(
        mpi=mpi.family_of(Path(mpirun).parent) if mpirun else None,
        modules=bool(os.environ.get("LOADEDMODULES")),
        cray_mpich=bool(os.environ.get("CRAY_MPICH_DIR")),
        spack_view=Path(os.environ.get("SPACK_ENV_VIEW") or os.devnull).is_dir(),
        features=tuple(feature for feature, name in programs.items() if shutil.which(name)),
    )


def _run(command: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether a tool succeeded, and its output or error."""
    done = call(command, _TIMEOUT_S)
    if not done.returncode:
        return True, done.stdout
    lines = (done.stderr or done.stdout).strip().splitlines()
    return False, lines[0] if lines else f"exit status {done.returncode}"


def _instance_type(root: Path) -> str | None:
    """Return the EC2 instance type, which is the name of the product; None elsewhere."""
    dmi = root / "sys/class/dmi/id"
    of_amazon = text_in(dmi / "sys_vendor") == "Amazon EC2"
    return (text_in(dmi / "product_name") or None) if of_amazon else None
