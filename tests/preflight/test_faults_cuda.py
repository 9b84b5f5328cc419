# SPDX-License-Identifier: MIT
"""Each line of preflight on a CUDA image that is broken in one way."""

from __future__ import annotations

import shutil

import pytest

from .cases import REAL_LIBRARIES, Case, Fault, assert_line, names
from .trees import (
    LIB,
    library,
    mpi,
    program,
    variables,
)

pytestmark = REAL_LIBRARIES


def _old_driver(case: Case) -> None:
    version = case.host / "proc/driver/nvidia/version"
    version.write_text(version.read_text().replace("570.86.15", "470.82.01"))


def _compat_first(case: Case) -> None:
    compat = case.image / "usr/local/cuda-12.4/compat"
    library(compat / "libcuda.so.550.54.14")
    (compat / "libcuda.so.1").symlink_to("libcuda.so.550.54.14")
    variables(case.image, LD_LIBRARY_PATH="/usr/local/cuda-12.4/compat")


def _no_driver(case: Case) -> None:
    shutil.rmtree(case.host / "proc")


def _no_driver_libraries(case: Case) -> None:
    (case.host / LIB / "libcuda.so.1").unlink()


def _ucx_without_cuda(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_cuda.so.0").unlink()


def _ucx_without_verbs(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_ib.so.0").unlink()


def _ucx_without_cma(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_cma.so.0").unlink()


def _ucx_over_tcp(case: Case) -> None:
    script = case.image / ".singularity.d/env/90-environment.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("export UCX_TLS=tcp,self,cuda\n")


def _no_ibverbs(case: Case) -> None:
    (case.image / LIB / "libibverbs.so.1").unlink()


def _no_rdma_provider(case: Case) -> None:
    (case.image / LIB / "libibverbs/libmlx5-rdmav34.so").unlink()


def _no_ucx(case: Case) -> None:
    mpi(case.image, "libmpi.so.40")


def _no_device(case: Case) -> None:
    shutil.rmtree(case.host / "dev/infiniband")


def _one_device_is_missing(case: Case) -> None:
    (case.host / "dev/infiniband/uverbs2").unlink()


def _a_host_without_a_c_library(case: Case) -> None:
    (case.host / LIB / "libc.so.6").unlink()


def _missing_library(case: Case) -> None:
    extra = library(case.image / LIB / "libextra.so.1")
    program(case.image, [case.image / LIB / "libmpi.so.40", extra])
    extra.unlink()


def _stub_first(case: Case) -> None:
    stubs = case.image / "usr/local/cuda-12.4/targets/x86_64-linux/lib/stubs"
    library(stubs / "libcuda.so.1")
    variables(case.image, LD_LIBRARY_PATH=f"/{stubs.relative_to(case.image)}")


def _newer_cuda_than_compat(case: Case) -> None:
    compat = case.image / "usr/local/cuda-12.8/compat"
    library(compat / "libcuda.so.575.57.08")
    (compat / "libcuda.so.1").symlink_to("libcuda.so.575.57.08")
    variables(case.image, LD_LIBRARY_PATH="/usr/local/cuda-12.8/compat")
    _newer_runtime(case)


def _newer_runtime(case: Case) -> None:
    own = case.image / LIB / "libmpi.so.40"
    program(case.image, [own, library(case.image / LIB / "libcudart.so.13")])


def _newer_nccl(case: Case) -> None:
    library(case.image / LIB / "libnccl.so.2", text="NCCL version 2.28.9+cuda13.0")


def _static_runtime(case: Case) -> None:
    own = case.image / LIB / "libmpi.so.40"
    library(case.image / "usr/bin/app", needed=[own], text="libcuda.so.1")


def _newer_static_runtime(case: Case) -> None:
    _static_runtime(case)
    variables(case.image, CUDA_VERSION="13.0.1")


def _one_gpu_fell_off(case: Case) -> None:
    (case.host / "dev/nvidia5").unlink()


def _uct_cuda_that_does_not_load(case: Case) -> None:
    runtime = library(case.image / LIB / "libcudart.so.11.0")
    library(case.image / LIB / "ucx/libuct_cuda.so.0", needed=[runtime])
    runtime.unlink()


def _rdma_core_of_two(case: Case) -> None:
    library(case.image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_25")


def _rdma_core_without_the_device(case: Case) -> None:
    folder = case.image / LIB / "libibverbs"
    (folder / "libmlx5-rdmav34.so").rename(folder / "libefa-rdmav34.so")


def _damaged_mpi(case: Case) -> None:
    (case.image / LIB / "libmpi.so.40").write_bytes(b"no library")


def _damaged_libcuda_of_the_host(case: Case) -> None:
    (case.host / LIB / "libcuda.so.1").write_bytes(b"")


def _damaged_rdma_driver(case: Case) -> None:
    (case.image / LIB / "libibverbs/libmlx5-rdmav34.so").write_bytes(b"no library")


CUDA = [
    (_damaged_mpi, "libraries", "broken", "libmpi.so.40 (image) is not a readable"),
    (_damaged_libcuda_of_the_host, "gpu-libraries", "broken", "not find libcuda.so.1"),
    (_damaged_rdma_driver, "ucx", "slow", "libmlx5-rdmav34.so does not load"),
    (_stub_first, "gpu-driver", "broken", "a stub for linking"),
    (_newer_runtime, "gpu-driver", "broken", "CUDA 13 (libcudart.so.13) needs driver 580"),
    (_newer_cuda_than_compat, "gpu-driver", "broken", "with cuda-compat 575.57.8"),
    (_newer_nccl, "gpu-driver", "broken", "built with 13.0) needs driver 580"),
    (_static_runtime, "gpu-driver", "broken", "runtime of unknown version"),
    (_newer_static_runtime, "gpu-driver", "broken", "CUDA 13.0 (/usr/bin/app) needs driver 580"),
    (_one_gpu_fell_off, "gpu-devices", "broken", "7 GPUs on this host, 8 in site.yaml"),
    (_uct_cuda_that_does_not_load, "ucx-gpu", "broken", "libcudart.so.11.0 is missing"),
    (_rdma_core_of_two, "ucx", "slow", "libmlx5-rdmav34.so does not match"),
    (_rdma_core_without_the_device, "ucx", "slow", "has no libmlx5-rdmav"),
    (_old_driver, "gpu-driver", "broken", "needs driver 525"),
    (_compat_first, "gpu-driver", "broken", "803"),
    (_no_driver, "gpu-driver", "broken", "no NVIDIA driver"),
    (_no_driver_libraries, "gpu-libraries", "broken", "libcuda.so.1"),
    (_ucx_without_cuda, "ucx-gpu", "broken", "libuct_cuda"),
    (_ucx_without_verbs, "ucx", "slow", "no libuct_ib"),
    (_ucx_without_cma, "shared-memory", "slow", "copied twice"),
    (_ucx_over_tcp, "shared-memory", "slow", "UCX_TLS=tcp,self,cuda"),
    (_no_ibverbs, "ucx", "slow", "libibverbs.so.1 is missing"),
    (_no_rdma_provider, "ucx", "slow", "has no libmlx5-rdmav"),
    (_no_ucx, "ucx", "slow", "does not load UCX"),
    (_no_device, "fabric-devices", "broken", "verbs"),
    (_one_device_is_missing, "fabric-devices", "slow", "3 verbs devices under /dev, 4 in"),
    (_a_host_without_a_c_library, "glibc", "broken", "this host has no readable C library"),
    (_missing_library, "libraries", "broken", "libextra.so.1"),
]


@pytest.mark.parametrize("fault", CUDA, ids=names(CUDA))
def test_each_fault_of_a_cuda_image(
    cuda: Case,
    capsys: pytest.CaptureFixture[str],
    fault: Fault,
) -> None:
    fault[0](cuda)
    assert_line(cuda.run(capsys), *fault[1:])
