# SPDX-License-Identifier: MIT
"""Lines of the GPUs: devices, driver libraries, UCX's GPU modules, Cray MPICH's GTL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from busbar.preflight import elf
from busbar.preflight.elf import dotted, numbers
from busbar.preflight.files import TABLES
from busbar.preflight.host import rocm_release
from busbar.preflight.loader import ContainerFile, Libraries, View, ucx_core
from busbar.preflight.model import PreflightAnswer, answer
from busbar.preflight.plan import ImagePlan, gtl
from busbar.site.delivery import CRAY_STACKS
from busbar.site.model import Gpus

Version = tuple[int, ...]

_TABLES = yaml.safe_load(Path(__file__).with_name("drivers.yaml").read_text("utf-8"))
_OLDEST_DRIVER: dict[Version, Version] = {
    numbers(cuda): numbers(driver) for cuda, driver in _TABLES["cuda"].items()
}
_ROCM: dict[Version, tuple[Version, Version]] = {
    numbers(release): (numbers(oldest), numbers(newest))
    for release, (oldest, newest) in _TABLES["rocm"].items()
}
_NCCL_CUDA = re.compile(rb"NCCL version [\d.]{1,32}\+cuda(?P<version>\d{1,4}\.\d{1,4})")


def _cuda_driver(plan: ImagePlan, libraries: Libraries) -> PreflightAnswer:
    """Check that the driver supports every CUDA version that the program loads."""
    driver = plan.host.nvidia_driver
    if driver is None:
        return answer("no-nvidia-driver")
    driver_text = f"driver {dotted(driver)}"
    libcuda = plan.view.search("libcuda.so.1")
    if libcuda and libcuda.origin == "image":
        if fault := _libcuda_fault(libcuda, driver):
            return fault
        driver = numbers(libcuda.path.name.partition(".so.")[2])
        driver_text += f" with cuda-compat {dotted(driver)} in the image"
    toolkits = []
    for toolkit, source in _toolkits(plan, libraries):
        if fault := _toolkit_fault(toolkit, source, driver, driver_text):
            return fault
        toolkits.append(f"CUDA {dotted(toolkit or ())} ({source})")
    if not toolkits:
        return answer("no-cuda", driver=driver_text)
    return answer("driver-runs-cuda", driver=driver_text, toolkits=", ".join(toolkits))


def _libcuda_fault(libcuda: ContainerFile, driver: Version) -> PreflightAnswer | None:
    """Check a libcuda of the image that the loader finds before the driver's."""
    if "stubs" in libcuda.path.parts:
        return answer("libcuda-stub", library=libcuda)
    version = re.fullmatch(r"libcuda\.so\.(?P<version>\d+(?:\.\d+)+)", libcuda.path.name)
    if version is None:
        return answer("libcuda-without-version", library=libcuda)
    if numbers(version["version"]) < driver:
        facts = {"version": version["version"], "driver": dotted(driver)}
        return answer("old-libcuda", library=libcuda, **facts)
    return None


def _toolkit_fault(
    toolkit: Version | None, source: str, driver: Version, driver_text: str
) -> PreflightAnswer | None:
    """Check one CUDA version against the driver."""
    if toolkit is None:
        return answer("unknown-cuda", source=source)
    facts = {"toolkit": dotted(toolkit), "source": source, "driver": driver_text}
    oldest = _OLDEST_DRIVER.get(toolkit[:1]) or _OLDEST_DRIVER.get(toolkit[:2])
    if oldest is None:
        return answer("unlisted-cuda", **facts)
    return answer("old-driver", oldest=dotted(oldest), **facts) if driver < oldest else None


def _toolkits(plan: ImagePlan, libraries: Libraries) -> Iterator[tuple[Version | None, str]]:
    """Yield the version of each CUDA that is loaded, None if unknown, and the file it is from."""
    shared = False
    for name, library in libraries.items():
        if runtime := re.fullmatch(r"libcudart\.so\.(?P<version>\d+(?:\.\d+)?)", name):
            shared = True
            yield numbers(runtime["version"]), name
        elif (
            library
            and name.startswith("libnccl.so")
            and (built := elf.search(library, _NCCL_CUDA))
        ):
            version = built["version"].decode()
            yield numbers(version)[:1], f"{name}, built with {version}"
    # The static runtime opens the driver's library by its name.
    if plan.program and not shared and elf.mentions(plan.program, b"libcuda.so.1"):
        version = plan.environment.get("CUDA_VERSION", "")
        yield (numbers(version)[:2] if version else None), str(plan.program.path)


def _rocm_driver(plan: ImagePlan, libraries: Libraries) -> PreflightAnswer:
    """Check that AMD supports the image's ROCm on the host's driver."""
    outside = plan.host.rocm
    if outside is None:
        return answer("no-rocm-on-host")
    inside = rocm_release(View.of(plan.contents.files)) or _hip_release(libraries)
    if inside is None:
        return answer("no-rocm")
    supported = _ROCM.get(outside[:2])
    releases = f"ROCm {dotted(inside)} in the image, {dotted(outside)} on the host"
    if supported is None:
        return answer("unlisted-rocm", releases=releases)
    oldest, newest = supported
    length = len(inside[:2])  # a soname gives only the major version
    if not oldest[:length] <= inside[:2] <= newest[:length]:
        facts = {"oldest": dotted(oldest), "newest": dotted(newest)}
        return answer("other-rocm", releases=releases, **facts)
    return answer("rocm", releases=releases)


def _hip_release(libraries: Libraries) -> Version | None:
    """Return the major release of a ROCm outside /opt, from the soname of libamdhip64."""
    for name, library in libraries.items():
        if library and (hip := re.fullmatch(r"libamdhip64\.so\.(?P<major>\d+)", name)):
            return numbers(hip["major"])
    return None


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
        yield "gpu-driver", _cuda_driver(plan, libraries)
    else:
        yield "gpu-driver", _rocm_driver(plan, libraries)
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
    how = "preloaded, not linked by the program" if plan.preload else "linked by the program"
    return answer("gtl", library=library, how=how)
