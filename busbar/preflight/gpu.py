# SPDX-License-Identifier: MIT
"""GPUs: driver against toolkit, the compatibility package, UCX's GPU modules, GTL, devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from busbar.preflight.host import rocm_release
from busbar.preflight.loader import Found
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.plan import Plan

# The oldest driver branch for each CUDA major version (CUDA Compatibility guide, minor version
# compatibility, table of minimum drivers).
_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
_DEVICES = {
    "nvidia": {r"nvidia\d+": "a GPU", r"nvidiactl": "control", r"nvidia-uvm": "memory"},
    "amd": {r"kfd": "the driver", r"dri/renderD\d+": "a GPU"},
}
# ROCm keeps driver and user space compatible over two minor releases (ROCm documentation, "User
# and kernel-space support matrix").
_ROCM_MINORS = 2


def gpu_lines(plan: Plan, libraries: dict[str, Found | None]) -> Iterator[Line]:
    """The lines of the GPUs; one line where the site has none."""
    gpus = plan.site.node_type().gpus
    if gpus is None:
        yield ready("gpu", "the site has no GPUs")
        return
    yield _devices(plan, gpus.vendor, gpus.count)
    if gpus.vendor == "nvidia":
        yield _driver_libraries(plan)
        yield _cuda(plan, libraries)
    else:
        yield _rocm(plan)
    yield _ucx(plan, libraries, gpus.vendor)
    if plan.environment.get("MPICH_GPU_SUPPORT_ENABLED") == "1":
        yield _gtl(plan, gpus.vendor)


def _devices(plan: Plan, vendor: str, count: int) -> Line:
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
    return ready(
        "gpu-devices", f"{seen} GPUs here, {count} by the site; {plan.gpu_option} binds them"
    )


def _driver_libraries(plan: Plan) -> Line:
    missing = [
        name for name in ("libcuda.so.1", "libnvidia-ml.so.1") if not plan.host.view.search(name)
    ]
    if missing:
        return Line(
            "gpu-libraries",
            Status.BROKEN,
            f"the host's loader finds no {', '.join(missing)}, so --nv has nothing to bind",
            "run preflight on a compute node; on one, install the driver's libraries",
        )
    return ready("gpu-libraries", "--nv finds libcuda and libnvidia-ml")


def _cuda(plan: Plan, libraries: dict[str, Found | None]) -> Line:
    driver = plan.host.nvidia_driver
    runtime = next((n for n in libraries if re.fullmatch(r"libcudart\.so\.\d+(\.\d+)?", n)), None)
    if driver is None:
        return Line(
            "gpu-driver",
            Status.BROKEN,
            "there is no NVIDIA driver on this host (/proc/driver/nvidia/version)",
            "run preflight on a compute node",
        )
    shown = ".".join(map(str, driver))
    if compat := _compat(plan):
        path, version, first = compat
        dotted = ".".join(map(str, version))
        if first and version < driver:
            return Line(
                "gpu-driver",
                Status.BROKEN,
                f"cuda-compat {dotted} ({path}) comes before the libcuda of --nv and is older than"
                f" the driver {shown}: CUDA ends with a driver mismatch (error 803)",
                "take the compat directory out of LD_LIBRARY_PATH and /etc/ld.so.conf.d",
            )
        if first:
            return ready("gpu-driver", f"driver {shown} with cuda-compat {dotted} in the image")
    return _runtime(runtime, driver[0], shown)


def _runtime(runtime: str | None, branch: int, shown: str) -> Line:
    if runtime is None:
        return ready("gpu-driver", f"driver {shown}; the program loads no CUDA runtime")
    major = int(runtime.split(".")[2])
    oldest = _OLDEST_DRIVER.get(major)
    if oldest is None:
        return Line(
            "gpu-driver",
            Status.BROKEN,
            f"nothing is known of the driver that CUDA {major} needs",
            "add it to the table in busbar/preflight/gpu.py",
        )
    if branch < oldest:
        return Line(
            "gpu-driver",
            Status.BROKEN,
            f"CUDA {major} ({runtime}) needs driver {oldest} or newer, the host has {shown}",
            "use a CUDA of the driver's time; cuda-compat helps on data center GPUs only",
        )
    return ready("gpu-driver", f"driver {shown} runs CUDA {major} ({runtime})")


def _compat(plan: Plan) -> tuple[PurePosixPath, tuple[int, ...], bool] | None:
    """The image's own libcuda: where, its version, and whether the loader takes it first."""
    taken = plan.view.search("libcuda.so.1")
    for name in plan.view.names(PurePosixPath("/usr/local")):
        directory = PurePosixPath("/usr/local", name, "compat")
        for entry in plan.view.names(directory):
            if found := re.fullmatch(r"libcuda\.so\.(\d+(?:\.\d+)+)", entry):
                version = tuple(int(part) for part in found[1].split("."))
                first = bool(taken and taken.origin == "image")
                return directory / entry, version, first
    return None


def _rocm(plan: Plan) -> Line:
    inside, outside = rocm_release(plan.view.image), plan.host.rocm
    if outside is None:
        return Line(
            "gpu-driver",
            Status.BROKEN,
            "there is no ROCm on this host (/opt/rocm*/.info/version), so its release is unknown",
            "run preflight on a compute node",
        )
    if inside is None:
        return ready("gpu-driver", "the image brings no ROCm of its own")
    shown = [".".join(map(str, version)) for version in (inside, outside)]
    if inside[0] != outside[0] or abs(inside[1] - outside[1]) > _ROCM_MINORS:
        return Line(
            "gpu-driver",
            Status.BROKEN,
            f"ROCm {shown[0]} in the image and {shown[1]} on the host are further apart than AMD"
            " supports",
            "build the image with a ROCm within two minor releases of the host's",
        )
    return ready("gpu-driver", f"ROCm {shown[0]} in the image, {shown[1]} on the host")


def _ucx(plan: Plan, libraries: dict[str, Found | None], vendor: str) -> Line:
    name = "cuda" if vendor == "nvidia" else "rocm"
    transport = next((f for n, f in libraries.items() if n.startswith("libuct.so") and f), None)
    if transport is None or plan.stack == "cray":
        return ready("ucx-gpu", "MPI's device buffers do not go through UCX")
    modules = plan.view.names(transport.path.parent / "ucx")
    if any(module.startswith(f"libuct_{name}.so") for module in modules):
        return ready("ucx-gpu", f"libuct_{name} beside {transport.path} ({transport.origin})")
    return Line(
        "ucx-gpu",
        Status.BROKEN,
        f"the UCX at {transport.path} has no libuct_{name}: a device pointer given to MPI is read"
        " as host memory, and the program dies",
        f"put a UCX with {name} first in LD_LIBRARY_PATH",
    )


def _gtl(plan: Plan, vendor: str) -> Line:
    name = "libmpi_gtl_cuda.so" if vendor == "nvidia" else "libmpi_gtl_hsa.so"
    found = plan.view.matching(rf"{re.escape(name)}(\.\d+)*")
    if found:
        return ready("gtl", f"{found[0].path} ({found[0].origin})")
    return Line(
        "gtl",
        Status.BROKEN,
        f"MPICH_GPU_SUPPORT_ENABLED=1 and no {name}: MPI_Init of Cray MPICH aborts",
        "inject the gtl directory of Cray MPICH with --inject",
    )
