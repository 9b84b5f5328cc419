# SPDX-License-Identifier: MIT
"""Each line of preflight on an image for a Cray system that is broken in one way."""

from __future__ import annotations

import shutil

import pytest

from .cases import REAL_LIBRARIES, Case, Fault, assert_line, names
from .trees import (
    LIB,
    c_library,
    fingerprint,
    library,
    mpi,
    program,
    variables,
)

pytestmark = REAL_LIBRARIES


def _old_glibc(case: Case) -> None:
    c_library(case.image, "2.28")


def _open_mpi(case: Case) -> None:
    (case.image / LIB / "libmpi.so.12").unlink()
    program(case.image, [mpi(case.image, "libmpi.so.40")])


def _no_cray_mpich(case: Case) -> None:
    shutil.rmtree(case.host / "opt/cray")


def _no_provider(case: Case) -> None:
    fabric = case.host / "opt/cray/libfabric/1.15.2.0/lib64/libfabric.so.1"
    library(fabric, text="FI_TCP_IFACE")


def _no_cxi_library(case: Case) -> None:
    (case.host / "opt/cray/pe/lib64/libcxi.so.1").unlink()


def _old_libfabric(case: Case) -> None:
    newer = library(case.host / "newer/libfabric.so.1", defines="FABRIC_1.9")
    mpich = case.host / "opt/cray/pe/mpich/default/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12"
    library(mpich, needed=[newer], uses="FABRIC_1.9")


def _no_gtl(case: Case) -> None:
    shutil.rmtree(case.host / "opt/cray/pe/mpich/default/gtl")


def _plugin_of_the_other_vendor(case: Case) -> None:
    (case.image / LIB / "librccl-net.so").rename(case.image / LIB / "libnccl-net.so")


def _no_kfd(case: Case) -> None:
    (case.host / "dev/kfd").unlink()


def _no_cxi_device(case: Case) -> None:
    for device in (case.host / "dev").glob("cxi*"):
        device.unlink()


def _rocm_too_new(case: Case) -> None:
    release = case.image / "opt/rocm-7.2.0/.info/version"
    release.parent.mkdir(parents=True)
    release.write_text("7.2.0-1\n")


def _wrong_stack(case: Case) -> None:
    fingerprint(case.image, "host")


def _debians_mpich(case: Case) -> None:
    program(case.image, [mpi(case.image, "libmpich.so.12")])


def _gtl_without_hip(case: Case) -> None:
    hip = library(case.host / "hip/libamdhip64.so.6")
    library(case.host / "opt/cray/pe/mpich/default/gtl/lib/libmpi_gtl_hsa.so.0", needed=[hip])
    shutil.rmtree(case.host / "hip")


def _plugin_that_does_not_load(case: Case) -> None:
    newer = library(case.image / LIB / "libhwloc.so.15")
    library(case.image / LIB / "librccl-net.so", needed=[newer])
    newer.unlink()


def _plugin_that_must_be_named(case: Case) -> None:
    (case.image / LIB / "librccl-net.so").rename(case.image / LIB / "librccl-net-ofi.so")


def _newer_libnuma_of_the_host(case: Case) -> None:
    newer = c_library(case.host / "newer", "2.38")
    numa = library(case.host / LIB / "libnuma.so.1", needed=[newer], uses="GLIBC_2.38")
    program(case.image, [case.image / LIB / "libmpi.so.12", numa])


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
    mpich = case.host / "opt/cray/pe/mpich/default/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12"
    fabric = case.host / "opt/cray/libfabric/1.15.2.0/lib64/libfabric.so.1"
    library(mpich, needed=[fabric, newer], uses="GLIBCXX_3.4.30")


def _provider_of_a_newer_system(case: Case) -> None:
    """The provider is a plugin of the host that no library names, and needs a newer C library."""
    newer = c_library(case.host / "newer", "2.38")
    lib64 = case.host / "opt/cray/libfabric/1.15.2.0/lib64"
    library(lib64 / "libfabric/libcxi-fi.so", needed=[newer], uses="GLIBC_2.38")


CRAY = [
    (_newer_libstdcxx_of_the_host, "libraries", "broken", "needs GLIBCXX_3.4.30, which"),
    (_provider_of_a_newer_system, "libfabric", "slow", "needs GLIBC_2.38, which"),
    (_debians_mpich, "mpi-abi", "broken", "libmpich.so.12, the MPICH of Debian"),
    (_gtl_without_hip, "gtl", "broken", "libamdhip64.so.6 is missing"),
    (_plugin_that_does_not_load, "net-plugin", "broken", "libhwloc.so.15 is missing"),
    (_plugin_that_must_be_named, "net-plugin", "broken", "does not load librccl-net-ofi.so by"),
    (_newer_libnuma_of_the_host, "glibc", "broken", "libnuma.so.1 of the host needs glibc 2.38"),
    (_another_machine, "glibc", "broken", "for AArch64, the host's for x64"),
    (_damaged_library, "glibc", "broken", "no readable C library"),
    (_old_glibc, "glibc", "broken", "needs glibc 2.31, the image has 2.28"),
    (_open_mpi, "mpi-abi", "broken", "libmpi.so.40"),
    (_no_cray_mpich, "mpi-abi", "slow", "Cray MPICH is not on this host"),
    (_no_provider, "libfabric", "slow", "no provider cxi"),
    (_no_cxi_library, "libfabric", "slow", "libcxi.so.1 is missing"),
    (_old_libfabric, "libfabric", "broken", "FABRIC_1.9"),
    (_no_gtl, "gtl", "broken", "MPICH_GPU_SUPPORT_ENABLED=1"),
    (_plugin_of_the_other_vendor, "net-plugin", "broken", "does not load libnccl-net.so by"),
    (_no_kfd, "gpu-devices", "broken", "/dev/kfd"),
    (_no_cxi_device, "fabric-devices", "broken", "cxi"),
    (_rocm_too_new, "gpu-driver", "broken", "ROCm 7.2.0"),
    (_wrong_stack, "fingerprint", "broken", "stack host"),
]


@pytest.mark.parametrize("fault", CRAY, ids=names(CRAY))
def test_each_fault_of_a_cray_image(
    cray: Case,
    capsys: pytest.CaptureFixture[str],
    fault: Fault,
) -> None:
    fault[0](cray)
    assert_line(cray.run(capsys), *fault[1:])


def test_a_plugin_that_the_image_names_is_found(
    cray: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    _plugin_that_must_be_named(cray)
    variables(cray.image, NCCL_NET_PLUGIN="ofi")
    assert cray.run(capsys)["verdict"] == "ready"
