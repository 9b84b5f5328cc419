# SPDX-License-Identifier: MIT
"""The features that checks require: what each is, what provides it, and what a user lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from busbar.engine.tool import Feature, tools

_STACK = "the stack of the delivery"
_PARTITION = "the partition, if the site declares it"
FEATURES = {
    "host": Feature("a stack without GPUs", "a stack without GPUs", _STACK, "a site without GPUs"),
    "cuda": Feature("an NVIDIA GPU", "a stack for NVIDIA GPUs", _STACK, "a site with NVIDIA GPUs"),
    "rocm": Feature("an AMD GPU", "a stack for AMD GPUs", _STACK, "a site with AMD GPUs"),
    "cray": Feature(
        "Cray MPICH", "a stack with Cray MPICH", _STACK, "a delivery with `stack: cray`"
    ),
    **{name: each for tool in tools().values() for name, each in tool.features.items()},
    "collectives": Feature(
        "an MPI with collectives on GPU buffers",
        "MPI collectives that accept GPU buffers",
        "the MPI; not Open MPI from wheels on GPUs",
        "MPICH, Cray MPICH, or an Open MPI that was built with CUDA or ROCm",
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
