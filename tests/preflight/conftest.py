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
    mpi,
    nvidia,
    program,
    rdma,
    variables,
)

_LOAD = cache(sites.load)


@pytest.fixture(autouse=True)
def _sites(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test changes a site, so that each is read once."""
    monkeypatch.setattr(sites, "load", _LOAD)


@pytest.fixture(autouse=True)
def _srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An srun that lists what that of an HPE Cray EX does."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tnone\\n\\tcray_shasta\\n'\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")


def _several(device: str, count: int) -> list[str]:
    """The ports of a node, as many as its site says."""
    return [f"{device}{n}" for n in range(count)]


@pytest.fixture
def cray(tmp_path: Path) -> Case:
    """An MPICH program with RCCL, and a Cray host whose libraries fit it."""
    image, host = tmp_path / "image", tmp_path / "host"
    c_library(image, "2.36")
    own = mpi(image, "libmpi.so.12")
    plugin = library(image / LIB / "librccl-net.so")
    library(image / LIB / "librccl.so.1")
    program(image, [own])
    assert plugin.exists()

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
    library(
        host / "opt/cray/pe/mpich/default/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12",
        needed=[fabric, pmi2, c],
        uses="GLIBC_2.31",
    )
    library(host / "opt/cray/pe/mpich/default/gtl/lib/libmpi_gtl_hsa.so.0")
    devices(host, "kfd", *(f"dri/renderD{128 + n}" for n in range(8)), *_several("cxi", 4))
    release = host / "opt/rocm-6.3.3/.info/version"
    release.parent.mkdir(parents=True)
    release.write_text("6.3.3-74\n")
    return Case(image, host)


@pytest.fixture
def cuda(tmp_path: Path) -> Case:
    """An Open MPI program with UCX and CUDA, and a host with GPUs and InfiniBand devices."""
    image, host = tmp_path / "image", tmp_path / "host"
    c_library(image, "2.36")
    verbs = library(image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_34")
    library(image / LIB / "libmlx5.so.1")
    (image / LIB / "libibverbs").mkdir()
    (image / LIB / "libibverbs/libmlx5-rdmav34.so").symlink_to("../libmlx5.so.1")
    library(image / LIB / "ucx/libuct_ib.so.0", needed=[verbs])
    library(image / LIB / "ucx/libuct_cuda.so.0")
    library(image / LIB / "ucx/libuct_cma.so.0")
    uct = library(image / LIB / "libuct.so.0")
    own = mpi(image, "libmpi.so.40", needed=[uct])
    program(image, [own, library(image / LIB / "libcudart.so.12")])
    c_library(host, "2.36")
    nvidia(host, "570.86.15")
    devices(host, *_several("infiniband/uverbs", 4))
    rdma(host, "mlx5_core")
    fingerprint(image, "cuda")
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tpmix\\n\\tpmi2\\n'\n")
    return Case(image, host, site="h20-roce")


@pytest.fixture
def efa(tmp_path: Path) -> Case:
    """An Open MPI program with NCCL and its plugin for EFA, and a host with EFA."""
    image, host = tmp_path / "image", tmp_path / "host"
    c_library(image, "2.36")
    verbs = library(image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_34")
    efa = library(image / LIB / "libefa.so.1", needed=[verbs])
    library(image / LIB / "libibverbs/libefa-rdmav34.so")
    amazon = image / "opt/amazon/efa/lib64"
    fabric = library(amazon / "libfabric.so.1", needed=[efa, verbs], text="FI_EFA_IFACE")
    library(image / "opt/amazon/ofi-nccl/lib64/libnccl-net.so", needed=[fabric])
    library(image / LIB / "libnccl.so.2", text="NCCL version 2.27.7+cuda12.8")
    variables(image, LD_LIBRARY_PATH="/opt/amazon/efa/lib64:/opt/amazon/ofi-nccl/lib64")
    program(image, [mpi(image, "libmpi.so.40", needed=[fabric])])
    c_library(host, "2.36")
    nvidia(host, "570.86.15")
    devices(host, *_several("infiniband/uverbs", 32))
    rdma(host, "efa")
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tpmix\\n'\n")
    return Case(image, host, site="p5")
