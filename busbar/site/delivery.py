# SPDX-License-Identifier: MIT
"""The key ``deliveries`` of a site: how stacks reach its jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from busbar.site.record import Record

Vendor = Literal["nvidia", "amd"]
Stack = Literal["host", "cuda", "rocm", "cray", "cray-cuda"]
"""``cray`` is Cray MPICH with ROCm, ``cray-cuda`` Cray MPICH with CUDA."""
GPU_STACKS: dict[Stack, Literal["cuda", "rocm"]] = {
    "cuda": "cuda",
    "rocm": "rocm",
    "cray": "rocm",
    "cray-cuda": "cuda",
}
"""The run time of the GPUs by stack."""
STACK_OF: dict[Vendor, Stack] = {"nvidia": "cuda", "amd": "rocm"}
CRAY_STACKS: tuple[Stack, ...] = ("cray", "cray-cuda")
MpiFamily = Literal["openmpi", "mpich", "cray-mpich"]
DeliveryKind = Literal["wheels", "spack", "image", "modules", "prefix"]
Lane = Literal["ucx-1.14", "ucx-current", "cray-mpich", "openmpi", "mpich"]
"""A lane of the wheels and manifests, or the MPI of modules or of a prefix."""
_ProgramFeature = Literal["osu", "xccl", "collectives", "ucx", "libfabric", "ofi-tests", "torch"]
_OwnFeature = Literal["gpu_aware", "memory"]
_FabricFeature = Literal["efa", "cxi", "ib", "roce"]
DeliveryFeature = Literal[_ProgramFeature, _OwnFeature, _FabricFeature]


class Delivery(Record):
    """A way in which a stack reaches a job."""

    kind: DeliveryKind
    """What provides the stack."""
    stack: Stack
    """The stack that it provides. On nodes with NVIDIA GPUs, ``cray`` means ``cray-cuda``."""
    lanes: Annotated[tuple[Lane, ...], Field(min_length=1)] = ("ucx-1.14",)
    """The lanes that it provides; for modules the MPI."""
    features: tuple[DeliveryFeature, ...] = ()
    """What checks can use."""
    environment: Annotated[str, Field(pattern=r"^[a-z]([\w.-]|\{arch\})*$")] | None = None
    """The Spack environment: one of ``site/_stacks/stacks.yaml``. ``{arch}`` stands for the
    architecture of the GPUs. The lane ``ucx-current`` is in the subdirectory of that name."""
    mpi: MpiFamily = "openmpi"
    """Which MPI it provides."""

    def on(self, vendor: Vendor | None) -> Delivery | None:
        """Return the delivery on nodes with such GPUs, or none; None if it does not fit them."""
        if self.stack == "cray" and vendor == "nvidia":
            return self.model_copy(update={"stack": "cray-cuda"})
        fits = self.stack == "host" or (vendor and GPU_STACKS[self.stack] == STACK_OF[vendor])
        return self if fits else None

    def names(self) -> tuple[str, ...]:
        """Return the names of its environments in ReFrame, which allows no dot, by lane."""
        return tuple(f"{self.kind}-{lane}".replace(".", "_") for lane in self.lanes)
