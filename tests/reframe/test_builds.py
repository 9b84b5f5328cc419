# SPDX-License-Identifier: MIT
"""How the MPI program is compiled for AMD GPUs with each MPI, as the build scripts hold it."""

from __future__ import annotations

import pytest

from busbar.data import CHECKS

from .dry import ROOT, reframe

pytestmark = pytest.mark.run

HIP = "-O2 -std=c++17 -pthread -DGPU_HIP -D__HIP_PLATFORM_AMD__ -I/opt/rocm/include"
LIBRARIES = "-L/opt/rocm/lib -lamdhip64 -lhsa-runtime64 -ldl"
GTL = "-Wl,--no-as-needed $PE_MPICH_GTL_DIR_amd_gfx90a $PE_MPICH_GTL_LIBS_amd_gfx90a"
CRAY = ("mi250x-cray", "modules")
OPEN_MPI = ("mi250x", "spack")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The lines of each build script, by site and program."""

    def build(site: str, delivery: str) -> dict[str, list[str]]:
        prefix = tmp_path_factory.mktemp(site)
        config, checks = ROOT / "site" / site / "reframe.py", CHECKS / "gpu_aware.py"
        options = ("-n", r"gpu_aware(_hipcc)?$", "-p", delivery)
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("ROCM_PATH", raising=False)
            done = reframe(prefix, config, *options, checks=checks)
        scripts = {p.parent.name.partition("_")[0]: p for p in prefix.rglob("rfm_build.sh")}
        assert set(scripts) == {"BuildGpuAware", "BuildByHipcc"}, done.stdout + done.stderr
        return {name: path.read_text().splitlines() for name, path in scripts.items()}

    return {site: build(*site) for site in (CRAY, OPEN_MPI)}


@pytest.mark.parametrize(
    ("site", "program", "line"),
    [
        (CRAY, "BuildGpuAware", f"CC {HIP} gpu_aware.cpp -o gpu_aware {LIBRARIES} {GTL}"),
        (
            *(CRAY, "BuildByHipcc"),
            f"hipcc {HIP} -I$MPICH_DIR/include gpu_aware.cpp -o gpu_aware {LIBRARIES} {GTL}"
            " -L$MPICH_DIR/lib -lmpi",
        ),
        (CRAY, "BuildByHipcc", "export MPICH_GPU_SUPPORT_ENABLED=1"),
        (OPEN_MPI, "BuildGpuAware", f"mpic++ {HIP} gpu_aware.cpp -o gpu_aware {LIBRARIES}"),
        (OPEN_MPI, "BuildByHipcc", f"mpic++ {HIP} gpu_aware.cpp -o gpu_aware {LIBRARIES}"),
        (OPEN_MPI, "BuildByHipcc", "export OMPI_CXX=hipcc"),
    ],
)
def test_build(built, site, program, line):
    lines = built[site][program]
    assert any(each == line or each.endswith(f"busbar.check.build {line}") for each in lines)


def test_wrappers_are_told_of_hipcc_only_where_it_is_asked_for(built):
    assert not any("hipcc" in line for line in built[OPEN_MPI]["BuildGpuAware"])
    assert not any("hipcc" in line for line in built[CRAY]["BuildGpuAware"])
