# SPDX-License-Identifier: MIT
"""Lines of the GPUs: devices, driver libraries, UCX's GPU modules, Cray MPICH's GTL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import driver, elf
from busbar.preflight.files import TABLES
from busbar.preflight.loader import Libraries, ucx_core
from busbar.preflight.model import PreflightAnswer, answer
from busbar.preflight.plan import ImagePlan, gtl
from busbar.site.delivery import CRAY_STACKS
from busbar.site.model import Gpus

_DEVICES = TABLES["devices"]


def gpu_lines(plan: ImagePlan, libraries: Libraries) -> Iterator[tuple[str, PreflightAnswer]]:
    """Yield the lines of the GPUs; one line if the site has none."""
    gpus = plan.site.node_type().gpus
    if gpus is None:
        yield "gpu", answer("no-gpus")
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
        return answer("missing-devices", names=", /dev/".join(missing), option=plan.gpu_option)
    pattern = next(p for p, what in _DEVICES[gpus.vendor].items() if what == "a GPU")
    present = sum(bool(re.fullmatch(pattern, device)) for device in plan.host.devices)
    # All devices of a partitioned accelerator (CPX) share one device file, so packages count.
    name = "few-gpus" if present < gpus.packages else "gpus"
    return answer(name, present=present, expected=gpus.count, option=plan.gpu_option)


def _driver_libraries(plan: ImagePlan) -> PreflightAnswer:
    missing = [
        name
        for name in ("libcuda.so.1", "libnvidia-ml.so.1")
        if not ((library := plan.host.view.search(name)) and elf.read(library))
    ]
    if missing:
        return answer("missing-driver-libraries", names=", ".join(missing))
    return answer("driver-libraries")


def _ucx(plan: ImagePlan, libraries: Libraries, vendor: str) -> PreflightAnswer:
    name = "cuda" if vendor == "nvidia" else "rocm"
    transport = ucx_core(libraries)
    if transport is None or plan.stack in CRAY_STACKS:
        return answer("no-device-buffers")
    found = plan.view.ucx_modules(transport, rf"libuct_{name}\.so.*")
    module = found[0][1] if found else None
    faults = plan.view.faults(module) if module else []
    if module and not faults:
        return answer("ucx-gpu", name=name, core=transport)
    if module:
        return answer("broken-ucx-gpu", module=module, fault=faults[0], option=plan.gpu_option)
    return answer("no-ucx-gpu", name=name, core=transport)


def _gtl(plan: ImagePlan, vendor: str) -> PreflightAnswer:
    name = "libmpi_gtl_cuda.so" if vendor == "nvidia" else "libmpi_gtl_hsa.so"
    library = gtl(plan.view, vendor)
    if library is None:
        return answer("no-gtl", name=name)
    if faults := plan.view.faults(library):
        return answer("broken-gtl", library=library, fault=faults[0])
    how = "preloaded, as the program does not link it" if plan.preload else "linked by the program"
    return answer("gtl", library=library, how=how)
