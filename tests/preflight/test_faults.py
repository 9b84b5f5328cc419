# SPDX-License-Identifier: MIT
"""Each line of preflight on an image or a host that is broken in one way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import some

from .cases import REAL_LIBRARIES, Case
from .trees import LIB, c_library, fingerprint, library, program, rocm, variables

pytestmark = REAL_LIBRARIES
Fault = tuple[Callable[[Case], object], str, str, str]
"""What breaks it, the line that says so, its status, words of its reason."""
IMAGE, HOST = f"image/{LIB}", f"host/{LIB}"
MPICH = "host/opt/cray/pe/mpich/default"
ABI = f"{MPICH}/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12"
FABRIC = "host/opt/cray/libfabric/1.15.2.0/lib64"
RDMAV = f"{IMAGE}/libibverbs/libmlx5-rdmav34.so"


def gone(pattern: str) -> Callable[[Case], None]:
    """Files or directories are missing."""

    def change(case: Case) -> None:
        found = list(case.root.glob(pattern))
        assert found
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def other(path: str, **facts: Any) -> Callable[[Case], object]:
    """One library is another one."""
    return lambda case: library(case.root / path, **facts)


def needs(path: str, soname: str, version: str = "") -> Callable[[Case], None]:
    """A library needs another one, or a version of it, that is not there."""

    def change(case: Case) -> None:
        missing = library(case.root / "missing" / soname, defines=version)
        library(case.root / path, needed=[missing], uses=version)

    return change


def damaged(path: str, data: bytes = b"no library") -> Callable[[Case], object]:
    return lambda case: (case.root / path).write_bytes(data)


def renamed(path: str, name: str) -> Callable[[Case], object]:
    return lambda case: (case.root / path).rename((case.root / path).with_name(name))


def needed_too(soname: str, own: str = "libmpi.so.40") -> Callable[[Case], None]:
    """The program needs one more library, which the image has."""

    def change(case: Case) -> None:
        lib = case.image / LIB
        program(case.image, [lib / own, library(lib / soname)])

    return change


def other_mpi(soname: str) -> Callable[[Case], None]:
    return lambda case: program(case.image, [library(case.image / LIB / soname)])


def _newer_libnuma_of_the_host(case: Case) -> None:
    needs(f"{HOST}/libnuma.so.1", "libc.so.6", "GLIBC_2.38")(case)
    program(case.image, [case.image / LIB / "libmpi.so.12", case.host / LIB / "libnuma.so.1"])


def _another_machine(case: Case) -> None:
    libc = case.image / LIB / "libc.so.6"
    header = bytearray(libc.read_bytes())
    header[18] = 183  # e_machine: AArch64
    libc.write_bytes(header)


def _damaged_library(case: Case) -> None:
    libc = case.image / LIB / "libc.so.6"
    libc.write_bytes(libc.read_bytes()[:100])


def _newer_libstdcxx_of_the_host(case: Case) -> None:
    """What is injected was compiled by a newer gcc; the image's libstdc++ is found first."""
    library(case.image / LIB / "libstdc++.so.6", defines="GLIBCXX_3.4.28")
    newer = library(case.host / LIB / "libstdc++.so.6", defines="GLIBCXX_3.4.28 GLIBCXX_3.4.30")
    fabric = case.root / FABRIC / "libfabric.so.1"
    library(case.root / ABI, needed=[fabric, newer], uses="GLIBCXX_3.4.30")


def _open_mpi(case: Case) -> None:
    (case.image / LIB / "libmpi.so.12").unlink()
    other_mpi("libmpi.so.40")(case)


# The provider is a plugin of the host that no library names.
_PROVIDER = f"{FABRIC}/libfabric/libcxi-fi.so"
_plugin_that_must_be_named = renamed(f"{IMAGE}/librccl-net.so", "librccl-net-ofi.so")
_no_provider = other(f"{FABRIC}/libfabric.so.1", text="FI_TCP_IFACE")
_hip_outside_opt = needed_too("libamdhip64.so.5", "libmpi.so.12")
_GTL = f"{MPICH}/gtl/lib/libmpi_gtl_hsa.so.0"
CRAY: list[Fault] = [
    (_newer_libstdcxx_of_the_host, "libraries", "broken", "needs GLIBCXX_3.4.30, which"),
    (needs(_PROVIDER, "libc.so.6", "GLIBC_2.38"), "libfabric", "slow", "needs GLIBC_2.38, which"),
    (other_mpi("libmpich.so.12"), "mpi-abi", "broken", "libmpich.so.12, the MPICH of Debian"),
    (needs(_GTL, "libamdhip64.so.6"), "gtl", "broken", "libamdhip64.so.6 is missing"),
    (
        needs(f"{IMAGE}/librccl-net.so", "libhwloc.so.15"),
        *("net-plugin", "broken", "libhwloc.so.15 is missing"),
    ),
    (_plugin_that_must_be_named, "net-plugin", "broken", "does not load librccl-net-ofi.so by"),
    (_newer_libnuma_of_the_host, "glibc", "broken", "libnuma.so.1 of the host needs glibc 2.38"),
    (_another_machine, "glibc", "broken", "for AArch64, the host's for x64"),
    (_damaged_library, "glibc", "broken", "no readable C library"),
    (
        lambda case: c_library(case.image, "2.28"),
        *("glibc", "broken", "needs glibc 2.31, the image has 2.28"),
    ),
    (_open_mpi, "mpi-abi", "broken", "libmpi.so.40"),
    (gone("host/opt/cray"), "mpi-abi", "slow", "Cray MPICH is not on this host"),
    (_no_provider, "libfabric", "slow", "no provider cxi"),
    (gone("host/opt/cray/pe/lib64/libcxi*"), "libfabric", "slow", "libcxi.so.1 is missing"),
    (needs(ABI, "libfabric.so.1", "FABRIC_1.9"), "libraries", "broken", "needs FABRIC_1.9, which"),
    (gone(f"{MPICH}/gtl"), "gtl", "broken", "MPICH_GPU_SUPPORT_ENABLED=1"),
    (
        renamed(f"{IMAGE}/librccl-net.so", "libnccl-net.so"),
        *("net-plugin", "broken", "does not load libnccl-net.so by"),
    ),
    (gone("host/dev/kfd"), "gpu-devices", "broken", "/dev/kfd"),
    (gone("host/dev/cxi*"), "fabric-devices", "broken", "cxi"),
    (lambda case: rocm(case.image, "7.2.0"), "gpu-driver", "broken", "ROCm 7.2.0"),
    (lambda case: fingerprint(case.image, "host"), "fingerprint", "broken", "stack host"),
    (_hip_outside_opt, "gpu-driver", "broken", "ROCm 5 in the image"),
]


def _old_driver(case: Case) -> None:
    version = case.host / "proc/driver/nvidia/version"
    version.write_text(version.read_text().replace("570.86.15", "470.82.01"))


def compat(cuda: str, driver: str) -> Callable[[Case], None]:
    """The image's cuda-compat stands before the driver of the host."""

    def change(case: Case) -> None:
        directory = f"usr/local/cuda-{cuda}/compat"
        library(case.image / directory / f"libcuda.so.{driver}")
        (case.image / directory / "libcuda.so.1").symlink_to(f"libcuda.so.{driver}")
        variables(case.image, LD_LIBRARY_PATH=f"/{directory}")

    return change


def _other_pmi(case: Case) -> None:
    case.srun("pmi2", "none")


def _ucx_over_tcp(case: Case) -> None:
    variables(case.image, UCX_TLS="tcp,self,cuda")


def _missing_library(case: Case) -> None:
    needed_too("libextra.so.1")(case)
    (case.image / LIB / "libextra.so.1").unlink()


def _stub_first(case: Case) -> None:
    stubs = "usr/local/cuda-12.4/targets/x86_64-linux/lib/stubs"
    library(case.image / stubs / "libcuda.so.1")
    variables(case.image, LD_LIBRARY_PATH=f"/{stubs}")


_newer_runtime = needed_too("libcudart.so.13")
_newer_nccl = other(f"{IMAGE}/libnccl.so.2", text="NCCL version 2.28.9+cuda13.0")


def _newer_cuda_than_compat(case: Case) -> None:
    compat("12.8", "575.57.08")(case)
    _newer_runtime(case)


def _static_runtime(case: Case) -> None:
    own = case.image / LIB / "libmpi.so.40"
    library(case.image / "usr/bin/app", needed=[own], text="libcuda.so.1")


def _newer_static_runtime(case: Case) -> None:
    _static_runtime(case)
    variables(case.image, CUDA_VERSION="13.0.1")


_rdma_core_of_two = other(f"{IMAGE}/libibverbs.so.1", defines="IBVERBS_PRIVATE_25")
_UCT = f"{IMAGE}/ucx/libuct"
CUDA: list[Fault] = [
    (
        damaged(f"{IMAGE}/libmpi.so.40"),
        *("libraries", "broken", "libmpi.so.40 (image) is not a readable"),
    ),
    (damaged(f"{HOST}/libcuda.so.1", b""), "gpu-libraries", "broken", "not find libcuda.so.1"),
    (damaged(RDMAV), "ucx", "slow", "libmlx5-rdmav34.so does not load"),
    (_stub_first, "gpu-driver", "broken", "a stub for linking"),
    (_newer_runtime, "gpu-driver", "broken", "CUDA 13 (libcudart.so.13) needs driver 580"),
    (_newer_cuda_than_compat, "gpu-driver", "broken", "with cuda-compat 575.57.8"),
    (_newer_nccl, "gpu-driver", "broken", "built with 13.0) needs driver 580"),
    (_static_runtime, "gpu-driver", "broken", "runtime of unknown version"),
    (_newer_static_runtime, "gpu-driver", "broken", "CUDA 13.0 (/usr/bin/app) needs driver 580"),
    (gone("host/dev/nvidia5"), "gpu-devices", "broken", "7 GPUs on this host, 8 in site.yaml"),
    (
        needs(f"{_UCT}_cuda.so.0", "libcudart.so.11.0"),
        *("ucx-gpu", "broken", "libcudart.so.11.0 is missing"),
    ),
    (_rdma_core_of_two, "ucx", "slow", "libmlx5-rdmav34.so does not match"),
    (renamed(RDMAV, "libefa-rdmav34.so"), "ucx", "slow", "has no libmlx5-rdmav"),
    (_old_driver, "gpu-driver", "broken", "needs driver 525"),
    (compat("12.4", "550.54.14"), "gpu-driver", "broken", "803"),
    (gone("host/proc"), "gpu-driver", "broken", "no NVIDIA driver"),
    (gone(f"{HOST}/libcuda.so.1"), "gpu-libraries", "broken", "libcuda.so.1"),
    (gone(f"{_UCT}_cuda.so.0"), "ucx-gpu", "broken", "libuct_cuda"),
    (gone(f"{_UCT}_ib.so.0"), "ucx", "slow", "no libuct_ib"),
    (gone(f"{_UCT}_cma.so.0"), "shared-memory", "slow", "copied twice"),
    (_ucx_over_tcp, "shared-memory", "slow", "UCX_TLS=tcp,self,cuda"),
    (gone(f"{IMAGE}/libibverbs.so.1"), "ucx", "slow", "libibverbs.so.1 is missing"),
    (gone(RDMAV), "ucx", "slow", "has no libmlx5-rdmav"),
    (other(f"{IMAGE}/libmpi.so.40"), "ucx", "slow", "does not load UCX"),
    (gone("host/dev/infiniband"), "fabric-devices", "broken", "verbs"),
    (
        gone("host/dev/infiniband/uverbs2"),
        *("fabric-devices", "slow", "3 verbs devices under /dev, 4 in"),
    ),
    (gone(f"{HOST}/libc.so.6"), "glibc", "broken", "this host has no readable C library"),
    (_missing_library, "libraries", "broken", "libextra.so.1"),
    (_other_pmi, "pmi", "broken", "each rank would run as its own MPI job"),
]
# libfabric has the provider, and finds no device: the traffic takes tcp without a word.
EFA: list[Fault] = [
    (gone(f"{IMAGE}/libibverbs/libefa-rdmav34.so"), *("libfabric", "slow", "has no libefa-rdmav"))
]
FAULTS = [(n, f) for n, table in (("cray", CRAY), ("cuda", CUDA), ("efa", EFA)) for f in table]


@pytest.mark.parametrize(
    ("name", "fault"), [pytest.param(n, f, id=f"{n}-{f[3]}") for n, f in some(FAULTS, 2)]
)
def test_each_fault_is_found(request: pytest.FixtureRequest, name: str, fault: Fault) -> None:
    case: Case = request.getfixturevalue(name)
    fault[0](case)
    case.finds(*fault[1:])


def test_a_plugin_that_the_image_names_is_found(cray: Case) -> None:
    _plugin_that_must_be_named(cray)
    variables(cray.image, NCCL_NET_PLUGIN="ofi")
    cray.ready()
