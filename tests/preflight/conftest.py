# SPDX-License-Identifier: MIT
"""Images and hosts that fit each other, made of real ELF files."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from busbar import site as sites

from .cases import Case
from .trees import (
    LIB,
    c_library,
    devices,
    fingerprint,
    library,
    nvidia,
    program,
    rdma,
    rocm,
    variables,
)

_LOAD = cache(sites.load)


@pytest.fixture(autouse=True)
def _sites(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test changes a site, so that each is read once."""
    monkeypatch.setattr(sites, "load", _LOAD)


@pytest.fixture
def case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Case:
    """A host and an image with a C library."""
    case = Case(tmp_path, capsys)
    c_library(case.image, "2.36")
    c_library(case.host, "2.36")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return case


@pytest.fixture
def cray(case: Case) -> Case:
    """An MPICH program with RCCL, and a Cray host whose libraries fit it."""
    image, host = case.image, case.host
    library(image / LIB / "librccl-net.so")
    library(image / LIB / "librccl.so.1")
    program(image, [library(image / LIB / "libmpi.so.12")])

    c = c_library(host, "2.31")
    cray_lib = host / "opt/cray/pe/lib64"
    cxi = library(cray_lib / "libcxi.so.1")
    fabric = library(
        host / "opt/cray/libfabric/1.15.2.0/lib64/libfabric.so.1",
        needed=[cxi],
        text="FI_CXI_DEFAULT_CQ_SIZE",
        defines="FABRIC_1.5",
    )
    pmi2 = library(cray_lib / "libpmi2.so.0")
    mpich = host / "opt/cray/pe/mpich/default"
    abi = mpich / "ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12"
    library(abi, needed=[fabric, pmi2, c], uses="GLIBC_2.31")
    library(mpich / "gtl/lib/libmpi_gtl_hsa.so.0")
    devices(host, "kfd", *(f"dri/renderD{128 + n}" for n in range(8)))
    devices(host, *(f"cxi{n}" for n in range(4)))
    rocm(host, "6.3.3")
    case.srun("none", "cray_shasta")
    return case


def _with_nvidia(case: Case, site: str, ports: int, module: str) -> Case:
    """The same on a host with GPUs of NVIDIA and RDMA devices, as many as its site says."""
    nvidia(case.host, "570.86.15")
    devices(case.host, *(f"infiniband/uverbs{n}" for n in range(ports)))
    rdma(case.host, module)
    case.site = site
    return case


@pytest.fixture
def cuda(case: Case) -> Case:
    """An Open MPI program with UCX and CUDA, and a host with GPUs and InfiniBand devices."""
    image = case.image
    verbs = library(image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_34")
    library(image / LIB / "libmlx5.so.1")
    (image / LIB / "libibverbs").mkdir()
    (image / LIB / "libibverbs/libmlx5-rdmav34.so").symlink_to("../libmlx5.so.1")
    library(image / LIB / "ucx/libuct_ib.so.0", needed=[verbs])
    library(image / LIB / "ucx/libuct_cuda.so.0")
    library(image / LIB / "ucx/libuct_cma.so.0")
    own = library(image / LIB / "libmpi.so.40", needed=[library(image / LIB / "libuct.so.0")])
    program(image, [own, library(image / LIB / "libcudart.so.12")])
    fingerprint(image, "cuda")
    case.srun("pmix", "pmi2")
    return _with_nvidia(case, "h20-roce", 4, "mlx5_core")


@pytest.fixture
def efa(case: Case) -> Case:
    """An Open MPI program with NCCL and its plugin for EFA, and a host with EFA."""
    image = case.image
    verbs = library(image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_34")
    efa = library(image / LIB / "libefa.so.1", needed=[verbs])
    library(image / LIB / "libibverbs/libefa-rdmav34.so")
    amazon = image / "opt/amazon/efa/lib64"
    fabric = library(amazon / "libfabric.so.1", needed=[efa, verbs], text="FI_EFA_IFACE")
    library(image / "opt/amazon/ofi-nccl/lib64/libnccl-net.so", needed=[fabric])
    library(image / LIB / "libnccl.so.2", text="NCCL version 2.27.7+cuda12.8")
    variables(image, LD_LIBRARY_PATH="/opt/amazon/efa/lib64:/opt/amazon/ofi-nccl/lib64")
    program(image, [library(image / LIB / "libmpi.so.40", needed=[fabric])])
    case.srun("pmix")
    return _with_nvidia(case, "p5", 32, "efa")
