# SPDX-License-Identifier: MIT
"""The features that checks require: what each is, what provides it, and what a user lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Feature(NamedTuple):
    """What a check can require of an environment or a partition."""

    need: str
    """What somebody who lacks it needs."""
    meaning: str
    provider: str
    how: str


_STACK = "the stack of the delivery"
_PARTITION = "the partition, if the site declares it"
FEATURES = {
    "host": Feature("a stack without GPUs", "a stack without GPUs", _STACK, "a site without GPUs"),
    "cuda": Feature("an NVIDIA GPU", "a stack for NVIDIA GPUs", _STACK, "a site with NVIDIA GPUs"),
    "rocm": Feature("an AMD GPU", "a stack for AMD GPUs", _STACK, "a site with AMD GPUs"),
    "cray": Feature(
        "Cray MPICH", "a stack with Cray MPICH", _STACK, "a delivery with `stack: cray`"
    ),
    "gpu_aware": Feature(
        "a compiler of the MPI",
        "the program `gpu_aware`, which checks data and measures pairs",
        "`reframe_checks/src`; an image contains it",
        "the C++ compiler of the MPI (`mpic++`; on Cray `CC`)",
    ),
    "memory": Feature(
        "a compiler of the MPI",
        "the program `memory`, which measures plain copies",
        "`reframe_checks/src`; not in images",
        "the same compiler",
    ),
    "osu": Feature(
        "OSU micro-benchmarks",
        "`osu_bw` and the other MPI benchmarks of OSU",
        "OSU micro-benchmarks",
        "`--prefix DIR`, Spack, modules or an image",
    ),
    "osu-xccl": Feature(
        "OSU micro-benchmarks for NCCL or RCCL",
        "`osu_xccl_allreduce` and the other benchmarks of OSU for NCCL and RCCL",
        "OSU micro-benchmarks, built with NCCL or RCCL",
        "the same",
    ),
    "xccl": Feature(
        "nccl-tests (rccl-tests)",
        "`all_reduce_perf` and the other collectives",
        "nccl-tests or rccl-tests",
        "the same",
    ),
    "npkit": Feature(
        "an RCCL with NPKit",
        "an RCCL with NPKit",
        "RCCL, built with NPKit",
        "`features: [npkit]` of the delivery in `site.yaml`",
    ),
    "collectives": Feature(
        "an MPI with collectives on GPU buffers",
        "MPI collectives that accept GPU buffers",
        "the MPI; not Open MPI from wheels on GPUs",
        "MPICH, Cray MPICH, or an Open MPI that was built with CUDA or ROCm",
    ),
    "ucx": Feature(
        "ucx_perftest",
        "`ucx_perftest`",
        "UCX",
        "the wheels have it; else Spack, modules, `--prefix`",
    ),
    "libfabric": Feature(
        "the tests of libfabric",
        "`fi_pingpong` and `fi_rma_bw`",
        "the tests of libfabric, on PATH or in `/opt/amazon/efa/bin`",
        "the package of the fabric, or `--prefix DIR`",
    ),
    "ofi-tests": Feature(
        "the tests of aws-ofi-nccl",
        "`nccl_message_transfer`",
        "aws-ofi-nccl, with its tests",
        "`--prefix DIR`, Spack or modules",
    ),
    "torch": Feature(
        "PyTorch",
        "PyTorch",
        "`BUSBAR_TORCH_PYTHON`, the Python of Busbar, or `python3` on PATH",
        "`pip install torch` for one of these",
    ),
    "parity": Feature(
        "an image (--image)",
        "a delivery that an image is compared with",
        "`--image`",
        "an image with `gpu_aware`, and a delivery on the host",
    ),
    "remote": Feature(
        "a second node",
        "more than one node",
        "a partition with `nodes: 2` or more",
        "a site with a cluster",
    ),
    "gpu": Feature("a GPU", "GPUs", "a partition with GPUs", "the node type in `site.yaml`"),
    "pair": Feature(
        "a second GPU",
        "two GPUs in a node, or a node without GPUs",
        "the partition",
        "a node with a second GPU",
    ),
    "nvgpu": Feature("an NVIDIA GPU", "NVIDIA GPUs", "a partition with GPUs", "the same"),
    "amdgpu": Feature("an AMD GPU", "AMD GPUs", "a partition with GPUs", "the same"),
    "efa": Feature(
        "EFA", "Elastic Fabric Adapter of AWS", _PARTITION, "`features` in `site.yaml`"
    ),
    "cxi": Feature("Slingshot", "Slingshot", _PARTITION, "the same"),
    "ib": Feature("InfiniBand", "RDMA over InfiniBand", _PARTITION, "the same"),
    "roce": Feature("RoCE", "RDMA over Ethernet", _PARTITION, "the same"),
    "cpx": Feature(
        "MI300X in compute mode CPX", "MI300X in compute mode CPX", _PARTITION, "the same"
    ),
}


_SHOWN = 4


def needs(lacks: Iterable[Iterable[str]]) -> str:
    """Return ``a second node, a GPU or PyTorch`` for the features that each check lacks.

    They are conditions: ``+osu`` is missing, ``-efa`` must not be there. Those that most checks
    lack come first.
    """
    counts = Counter(need for each in lacks for need in dict.fromkeys(map(_need, each)))
    words = [need for need, _ in counts.most_common()]
    if len(words) > _SHOWN:
        words[_SHOWN:] = ["other things"]
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _need(condition: str) -> str:
    name = condition[1:]
    need = FEATURES[name].need if name in FEATURES else f"the feature {name}"
    return need if condition.startswith("+") else f"a system without {need}"
