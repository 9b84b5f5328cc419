# SPDX-License-Identifier: MIT
"""Ten machines as their owners posted them, and runs that they or their readers call healthy.

The words of the matrices are theirs; the rest is in the form of the tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .saved import inventory

GIB = 1 << 30
Words = Callable[[int, int], object]


def port(device: str, rate: int, layer: str, state: str = "Active") -> str:
    return (
        f"CA '{device}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n"
        f"\t\tState: {state}\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
    )


def showtopo(gpus: int, **values: object) -> str:
    """``rocm-smi --showtopo``, all pairs alike."""
    names = [f"GPU{n}" for n in range(gpus)]
    lines = [" ROCm System Management Interface ".center(80, "=")]
    for table, value in values.items():
        lines.append(f" {table.replace('_', ' ')} between two GPUs ".center(80, "="))
        lines.append(" " * 7 + "".join(f"{name:<13}" for name in names))
        for name in names:
            cells = "".join(f"{0 if name == other else value!s:<13}" for other in names)
            lines.append(f"{name:<7}{cells}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Nvidia:
    model: str
    architecture: str
    gpus: int
    words: Words
    """Of ``nvidia-smi topo -m``, for two GPUs."""
    near: Sequence[tuple[int, ...]] = ()
    """The GPUs near each NIC."""
    rate: int = 0
    """Of a NIC, in Gb/s."""
    layer: str = "InfiniBand"
    runs: Sequence[tuple[int, int, int, float]] = ()
    """All-reduce: nodes, ranks, bytes, and bus bandwidth in GB/s."""

    @property
    def outputs(self) -> dict[str, str]:
        names = [f"mlx5_{n}" for n in range(len(self.near))]
        return {
            "nvidia-smi -q": inventory(self.model, self.architecture, 40960, self.gpus),
            "nvidia-smi topo": self._matrix(),
            **(
                {"ibstat": "".join(port(n, self.rate, self.layer) for n in names)} if names else {}
            ),
        }

    def _matrix(self) -> str:
        gpus, nics = range(self.gpus), range(len(self.near))
        heads = [*(f"GPU{n}" for n in gpus), *(f"NIC{n}" for n in nics)]
        places = [["PIX" if gpu in near else "SYS" for gpu in gpus] for near in self.near]
        lines = ["\t" + "\t".join([*heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
        for n in gpus:
            words = [" X " if n == m else str(self.words(n, m)) for m in gpus]
            lines.append("\t".join([heads[n], *words, *(p[n] for p in places), "0-63\t0\tN/A"]))
        for n in nics:
            others = [" X " if n == m else "SYS" for m in nics]
            lines.append("\t".join([f"NIC{n}", *places[n], *others]))
        legend = [f"  NIC{n}: mlx5_{n}" for n in nics]
        return "\n".join([*lines, "", "Legend:", "", "NIC Legend:", "", *legend, ""])


@dataclass(frozen=True)
class Amd:
    outputs: dict[str, str]
    runs: Sequence[tuple[int, int, int, float]] = ()


def sockets(n: int, m: int) -> str:
    """Two sockets of four GPUs, without switches."""
    return "NODE" if n // 4 == m // 4 else "SYS"


def switches(n: int, m: int) -> str:
    """Four switches of two GPUs on two sockets."""
    return "PIX" if n // 2 == m // 2 else "PHB" if n // 4 == m // 4 else "SYS"


PAIRS = [(2 * n, 2 * n + 1) for n in range(8)]
EACH = [(n,) for n in range(8)]
FRESH = {
    # NVIDIA/nccl-tests issue 251: more than the ports carry one way, by a tree
    "V100 with EDR": Nvidia(
        *("Tesla V100-SXM2-16GB", "Volta", 4, lambda *_: "NV2", [(0, 1), (2, 3)], 100),
        runs=[(2, 8, GIB, 41.55)],
    ),
    # NVIDIA/nccl-tests issue 78
    "16 x V100": Nvidia(
        *("Tesla V100-SXM3-32GB", "Volta", 16, lambda *_: "NV6", PAIRS, 100),
        runs=[(16, 256, GIB >> 3, 62.71), (16, 256, GIB, 71.55), (16, 256, 2 * GIB, 78.7)],
    ),
    # NVIDIA/nccl issue 837: its two releases without the fault
    "A100 with two NICs": Nvidia(
        *("NVIDIA A100-SXM4-80GB", "Ampere", 8, lambda *_: "NV12", [(0, 1), (4, 5)], 200),
        runs=[(2, 16, GIB, 53.95), (2, 16, GIB, 57.06)],
    ),
    # NVIDIA/nccl issue 495: 600 Gb/s, "roughly matching our expectation"
    "A100 with RoCE": Nvidia(
        *("NVIDIA A100-SXM4-40GB", "Ampere", 8, lambda *_: "NV12", EACH, 100, "Ethernet"),
        runs=[(2, 16, GIB, 75.0)],
    ),
    # NVIDIA/nccl issue 1639: "impressed that you can achieve 28GB/s with 8 GPUs"
    "RTX 5090": Nvidia(
        *("NVIDIA GeForce RTX 5090", "Blackwell", 8, sockets),
        runs=[(1, 8, 8 * GIB, 28.0), (1, 4, 8 * GIB, 35.0)],
    ),
    # tinygrad/open-gpu-kernel-modules issue 36: a driver with peer access
    "RTX 4090": Nvidia(
        *("NVIDIA GeForce RTX 4090", "Ada Lovelace", 4, sockets),
        runs=[(1, 4, GIB >> 2, 25.72), (1, 4, GIB >> 1, 25.82), (1, 4, GIB, 25.95)],
    ),
    # NVIDIA/nccl issue 1439
    "four switches": Nvidia("NVIDIA GeForce RTX 3090", "Ampere", 8, switches),
    # NVIDIA/nccl issue 1374
    "H800": Nvidia(
        *("NVIDIA H800", "Hopper", 8, lambda *_: "NV8", EACH, 400),
        runs=[(1, 8, 8 * GIB, 215.0)],
    ),
    # NVIDIA/nccl issue 595: two of four GPUs are near no NIC
    "A100 with two near GPUs": Nvidia(
        *("NVIDIA A100-SXM4-40GB", "Ampere", 4, lambda *_: "NV4", [(1,), (2,)], 200)
    ),
    # ROCm/rocm_smi_lib issue 108: each card on a NUMA node of its own
    "four cards of AMD": Amd({"rocm-smi": showtopo(4, Weight=52, Hops=3, Link_Type="PCIE")}),
}
