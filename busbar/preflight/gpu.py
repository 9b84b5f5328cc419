# SPDX-License-Identifier: MIT
"""GPUs: devices, the driver's libraries, UCX's GPU modules, Cray MPICH's GTL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import driver, elf
from busbar.preflight.loader import Found
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.plan import ImagePlan, gtl

_DEVICES = {
    "nvidia": {r"nvidia\d+": "a GPU", r"nvidiactl": "control", r"nvidia-uvm": "memory"},
    "amd": {r"kfd": "the driver", r"dri/renderD\d+": "a GPU"},
}


def gpu_lines(plan: ImagePlan, libraries: dict[str, Found | None]) -> Iterator[Line]:
    """The lines of the GPUs; one line where the site has none."""
    gpus = plan.site.node_type().gpus
    if gpus is None:
        yield ready("gpu", "the site has no GPUs")
        return
    yield _devices(plan, gpus.vendor, gpus.count)
    if gpus.vendor == "nvidia":
        yield _driver_libraries(plan)
        yield driver.cuda(plan, libraries)
    else:
        yield driver.rocm(plan, libraries)
    yield _ucx(plan, libraries, gpus.vendor)
    if plan.environment.get("MPICH_GPU_SUPPORT_ENABLED") == "1":
        yield _gtl(plan, gpus.vendor)


def _devices(plan: ImagePlan, vendor: str, count: int) -> Line:
    missing = [
        f"{pattern.replace(chr(92) + 'd+', 'N')} ({what})"
        for pattern, what in _DEVICES[vendor].items()
        if not any(re.fullmatch(pattern, device) for device in plan.host.devices)
    ]
    if missing:
        return Line(
            "gpu-devices",
            Status.BROKEN,
            f"this host has no /dev/{', /dev/'.join(missing)}; {plan.gpu_option} binds them",
            "run preflight on a compute node",
        )
    pattern = next(p for p, what in _DEVICES[vendor].items() if what == "a GPU")
    seen = sum(bool(re.fullmatch(pattern, device)) for device in plan.host.devices)
    # A partitioned accelerator (CPX) has one node for all its devices, so the packages count.
    gpus = plan.site.node_type().gpus
    if gpus and seen < gpus.packages:
        return Line(
            "gpu-devices",
            Status.BROKEN,
            f"{seen} GPUs here, {count} by the site",
            "run preflight on a whole compute node; on one, look for the GPU that fell off",
        )
    return ready(
        "gpu-devices", f"{seen} GPUs here, {count} by the site; {plan.gpu_option} binds them"
    )


def _driver_libraries(plan: ImagePlan) -> Line:
    missing = [
        name
        for name in ("libcuda.so.1", "libnvidia-ml.so.1")
        if not ((found := plan.host.view.search(name)) and elf.read(found.local))
    ]
    if missing:
        return Line(
            "gpu-libraries",
            Status.BROKEN,
            f"the host's loader finds no {', '.join(missing)}, so --nv has nothing to bind",
            "run preflight on a compute node; on one, install the driver's libraries",
        )
    return ready("gpu-libraries", "--nv finds libcuda and libnvidia-ml")


def _ucx(plan: ImagePlan, libraries: dict[str, Found | None], vendor: str) -> Line:
    name = "cuda" if vendor == "nvidia" else "rocm"
    transport = next((f for n, f in libraries.items() if n.startswith("libuct.so") and f), None)
    if transport is None or plan.stack == "cray":
        return ready("ucx-gpu", "MPI's device buffers do not go through UCX")
    modules = plan.view.names(transport.path.parent / "ucx")
    module = next((m for m in modules if m.startswith(f"libuct_{name}.so")), None)
    found = plan.view.find(transport.path.parent / "ucx" / module) if module else None
    faults = plan.view.faults(found) if found else []
    if found and not faults:
        return ready("ucx-gpu", f"libuct_{name} beside {transport.path} ({transport.origin})")
    if found:
        return Line(
            "ucx-gpu",
            Status.BROKEN,
            f"{found.path} does not load, {faults[0]}: a device pointer given to MPI is read as"
            " host memory, and the program dies",
            f"install it in the image; libraries of the driver come with {plan.gpu_option}",
        )
    return Line(
        "ucx-gpu",
        Status.BROKEN,
        f"the UCX at {transport.path} has no libuct_{name}: a device pointer given to MPI is read"
        " as host memory, and the program dies",
        f"put a UCX with {name} first in LD_LIBRARY_PATH",
    )


def _gtl(plan: ImagePlan, vendor: str) -> Line:
    name = "libmpi_gtl_cuda.so" if vendor == "nvidia" else "libmpi_gtl_hsa.so"
    found = gtl(plan.view, vendor)
    if found is None:
        return Line(
            "gtl",
            Status.BROKEN,
            f"MPICH_GPU_SUPPORT_ENABLED=1 and no {name}: MPI_Init of Cray MPICH aborts",
            "inject the gtl directory of Cray MPICH with --inject",
        )
    if faults := plan.view.faults(found):
        return Line(
            "gtl",
            Status.BROKEN,
            f"{found.path} does not load, {faults[0]}: MPI_Init aborts",
            "build the image with the GPU runtime that this GTL was linked with",
        )
    how = (
        "preloaded, since the program does not link it" if plan.preload else "the program links it"
    )
    return ready("gtl", f"{found.path} ({found.origin}), {how}")
