# SPDX-License-Identifier: MIT
"""Lines of the GPUs: devices, driver libraries, UCX's GPU modules, Cray MPICH's GTL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import driver, elf
from busbar.preflight.loader import Libraries, ucx_core
from busbar.preflight.model import PreflightAnswer, broken, ready
from busbar.preflight.plan import ImagePlan, gtl
from busbar.site.delivery import CRAY_STACKS
from busbar.site.model import Gpus

_DEVICES = {
    "nvidia": {r"nvidia\d+": "a GPU", r"nvidiactl": "control", r"nvidia-uvm": "memory"},
    "amd": {r"kfd": "the driver", r"dri/renderD\d+": "a GPU"},
}


def gpu_lines(plan: ImagePlan, libraries: Libraries) -> Iterator[tuple[str, PreflightAnswer]]:
    """Yield the lines of the GPUs; one line if the site has none."""
    gpus = plan.site.node_type().gpus
    if gpus is None:
        yield "gpu", ready("the site has no GPUs")
        return
    yield "gpu-devices", _devices(plan, gpus)
    if gpus.vendor == "nvidia":
        yield "gpu-libraries", _driver_libraries(plan)
        yield "gpu-driver", driver.cuda(plan, libraries)
    else:
        yield "gpu-driver", driver.rocm(plan, libraries)
    yield "ucx-gpu", _ucx(plan, libraries, gpus.vendor)
    if plan.environment.get("MPICH_GPU_SUPPORT_ENABLED") == "1":
        yield "gtl", _gtl(plan, gpus.vendor)


def _devices(plan: ImagePlan, gpus: Gpus) -> PreflightAnswer:
    missing = [
        f"{pattern.replace(chr(92) + 'd+', 'N')} ({what})"
        for pattern, what in _DEVICES[gpus.vendor].items()
        if not any(re.fullmatch(pattern, device) for device in plan.host.devices)
    ]
    if missing:
        return broken(
            f"this host lacks /dev/{', /dev/'.join(missing)}, which {plan.gpu_option} binds",
            "run preflight on a compute node",
        )
    pattern = next(p for p, what in _DEVICES[gpus.vendor].items() if what == "a GPU")
    present = sum(bool(re.fullmatch(pattern, device)) for device in plan.host.devices)
    # All devices of a partitioned accelerator (CPX) share one device file, so packages count.
    counts = f"{present} GPUs on this host, {gpus.count} in site.yaml"
    if present < gpus.packages:
        return broken(
            counts,
            "run preflight on a whole compute node; if this is one, look for a GPU that failed",
        )
    return ready(f"{counts}; {plan.gpu_option} binds them")


def _driver_libraries(plan: ImagePlan) -> PreflightAnswer:
    missing = [
        name
        for name in ("libcuda.so.1", "libnvidia-ml.so.1")
        if not ((library := plan.host.view.search(name)) and elf.read(library))
    ]
    if missing:
        return broken(
            f"the host's loader does not find {', '.join(missing)}, so --nv cannot bind it",
            "run preflight on a compute node; if this is one, install the driver's libraries",
        )
    return ready("--nv finds libcuda and libnvidia-ml")


def _ucx(plan: ImagePlan, libraries: Libraries, vendor: str) -> PreflightAnswer:
    name = "cuda" if vendor == "nvidia" else "rocm"
    transport = ucx_core(libraries)
    if transport is None or plan.stack in CRAY_STACKS:
        return ready("MPI does not pass device buffers to UCX")
    found = plan.view.ucx_modules(transport, rf"libuct_{name}\.so.*")
    module = found[0][1] if found else None
    faults = plan.view.faults(module) if module else []
    if module and not faults:
        return ready(f"libuct_{name} beside {transport.path} ({transport.origin})")
    effect = "MPI reads a device pointer as host memory, and the program crashes"
    if module:
        return broken(
            f"{module.path} does not load, {faults[0]}: {effect}",
            f"install it in the image; libraries of the driver come with {plan.gpu_option}",
        )
    return broken(
        f"the UCX at {transport.path} has no libuct_{name}: {effect}",
        f"put a UCX with {name} first in LD_LIBRARY_PATH",
    )


def _gtl(plan: ImagePlan, vendor: str) -> PreflightAnswer:
    name = "libmpi_gtl_cuda.so" if vendor == "nvidia" else "libmpi_gtl_hsa.so"
    library = gtl(plan.view, vendor)
    if library is None:
        return broken(
            f"MPICH_GPU_SUPPORT_ENABLED=1 without {name}: MPI_Init of Cray MPICH aborts",
            "inject the gtl directory of Cray MPICH with --inject",
        )
    if faults := plan.view.faults(library):
        return broken(
            f"{library.path} does not load, {faults[0]}: MPI_Init aborts",
            "build the image with the GPU runtime that this GTL was linked with",
        )
    how = "preloaded, as the program does not link it" if plan.preload else "linked by the program"
    return ready(f"{library.path} ({library.origin}), {how}")
