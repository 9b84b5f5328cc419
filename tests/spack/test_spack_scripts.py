# SPDX-License-Identifier: MIT
"""What `make spack` says when it cannot go on, with the next step. Needs no Spack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The part of the repository that the scripts read, where they may write."""
    for part in ("ci/spack", "site/_families/spack", "site/_stacks/cuda-sm_90-local"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "locks").mkdir()
    shutil.copy(ROOT / "locks/spack.txt", tmp_path / "locks")
    return tmp_path


def run(checkout: Path, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if "SPACK" not in k}
    path = os.pathsep.join(
        p for p in clean["PATH"].split(os.pathsep) if not (Path(p) / "spack").exists()
    )
    return subprocess.run(
        [str(checkout / "ci/spack" / script), *args],
        env={**clean, "PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if "fetching" not in line]
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_an_unreachable_git_host_is_named(checkout: Path) -> None:
    config = checkout / "gitconfig"
    gone = checkout / "gone"
    config.write_text(f'[url "{gone}/"]\n\tinsteadOf = https://github.com/\n')
    line = one_line(run(checkout, "setup.sh", GIT_CONFIG_GLOBAL=str(config)))
    assert "could not reach https://github.com/spack/spack.git" in line
    assert "HTTPS_PROXY" in line
    assert "insteadOf" in line
    assert not (checkout / ".spack/env.sh").exists()


def test_a_repository_without_the_pinned_commit_is_named(checkout: Path) -> None:
    other = checkout / "mirror/spack/spack.git"
    identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    subprocess.run(["git", "init", "--quiet", str(other)], check=True)
    commit = ["commit", "--quiet", "--allow-empty", "-m", "other"]
    subprocess.run(["git", "-C", str(other), *identity, *commit], check=True)
    config = checkout / "gitconfig"
    config.write_text(f'[url "{checkout}/mirror/"]\n\tinsteadOf = https://github.com/\n')
    line = one_line(run(checkout, "setup.sh", GIT_CONFIG_GLOBAL=str(config)))
    assert "has no commit 19dabef4" in line


def spack(root: Path, version: str) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "lib/spack/spack").mkdir(parents=True)
    (root / "lib/spack/spack/__init__.py").write_text(f'__version__ = "{version}"\n')
    (root / "bin/spack").touch(mode=0o755)
    return root


def test_a_spack_of_another_series_is_refused(checkout: Path) -> None:
    old = spack(checkout / "old", "0.22.1")
    line = one_line(run(checkout, "setup.sh", SPACK_ROOT=str(old)))
    assert "is Spack 0.22.1, 1.1 is required" in line


def test_a_spack_root_without_spack_is_refused(checkout: Path) -> None:
    assert "has no bin/spack" in one_line(run(checkout, "setup.sh", SPACK_ROOT="/nowhere"))


def test_the_spack_of_the_machine_is_taken(checkout: Path) -> None:
    mine = spack(checkout / "mine", "1.1.1")
    config = checkout / "gitconfig"
    config.write_text(f'[url "{checkout}/gone/"]\n\tinsteadOf = https://github.com/\n')
    # It goes on to the recipes, which are not to be had here, without fetching Spack.
    path = f"{mine / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for env in ({"SPACK_ROOT": str(mine)}, {"PATH": path}):
        line = one_line(run(checkout, "setup.sh", GIT_CONFIG_GLOBAL=str(config), **env))
        assert "could not reach https://github.com/spack/spack-packages.git" in line


def installed(checkout: Path, system: str) -> None:
    """A Spack that knows its operating system and prints what it is asked to do."""
    (checkout / ".spack").mkdir()
    script = checkout / "bin/spack"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *" arch "*) echo {system} ;; *) echo "$@" ;; esac\n'
    )
    script.chmod(0o755)
    (checkout / ".spack/env.sh").write_text(f'PATH="{script.parent}:$PATH"\n')


def test_an_unknown_site_or_lane_is_named(checkout: Path) -> None:
    installed(checkout, "debian12")
    assert "no site 'atlantis'" in one_line(run(checkout, "install.sh", "atlantis"))
    assert "has no lane 'new'" in one_line(run(checkout, "install.sh", "h200x4", "new"))
    assert "cuda-sm_80-efa/spack.lock" in one_line(run(checkout, "install.sh", "p4d"))


def test_a_lock_for_another_system_is_not_installed(checkout: Path) -> None:
    installed(checkout, "ubuntu24.04")
    line = one_line(run(checkout, "install.sh", "h200x4"))
    assert "is for debian12, but this machine is ubuntu24.04; run make spack-externals" in line


def test_a_lock_is_installed_as_it_is(checkout: Path) -> None:
    installed(checkout, "debian12")
    done = run(checkout, "install.sh", "h200x4", "ucx-current", "--jobs", "8")
    scope = checkout / ".spack/modules/h200x4-ucx-current"
    env = "site/_stacks/cuda-sm_90-local/ucx-current"
    assert done.stdout == f"-C {scope} -e {env} install --only-concrete --jobs 8\n"
    settings = yaml.safe_load((scope / "modules.yaml").read_text())
    assert settings["modules"]["default"]["lmod"]["all"]["environment"]["set"]["OMPI_MCA_pml"]


def program(directory: Path, name: str, output: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\ncat <<'X'\n{output}\nX\n")
    (directory / name).chmod(0o755)


def machine(root: Path, *options: str, **env: str) -> dict[str, dict[str, Any]]:
    """The packages of the scope that is written on a machine with the programs in root/bin."""
    script = [sys.executable, str(ROOT / "ci/spack/machine_scope.py"), str(root / "scope")]
    base = {"PATH": f"{root / 'bin'}:/usr/bin:/bin", "CUDA_HOME": "", "ROCM_PATH": str(root)}
    subprocess.run([*script, *options], env=base | env, check=True)
    found: dict[str, dict[str, Any]] = {}
    for path in (root / "scope").glob("*.yaml"):
        found |= yaml.safe_load(path.read_text())
    return found


@pytest.fixture
def sles(tmp_path: Path) -> Path:
    """A SLES with gcc-native, Slurm and the InfiniBand of the system."""
    for name in ("gcc-13", "g++-13", "gfortran-13"):
        program(tmp_path / "bin", name, "13.3.0")
    program(tmp_path / "bin", "scontrol", "slurm 24.05.4")
    program(tmp_path / "bin", "ssh", "OpenSSH_9.6p1, OpenSSL 3.1.4")
    program(tmp_path / "bin", "pkg-config", "1.14.50.0")
    return tmp_path


def test_the_compiler_and_externals_of_a_machine_are_found(sles: Path) -> None:
    cuda = sles / "cuda-12.9"
    program(cuda / "bin", "nvcc", "Cuda compilation tools, release 12.9, V12.9.86")
    found = machine(sles, "--gcc", "gcc-13", "--target", "zen3", CUDA_HOME=str(cuda))
    packages = found["packages"]
    specs = {
        name.rstrip(":"): (settings.get("externals") or settings["externals:"])[0]["spec"]
        for name, settings in packages.items()
        if any(key.startswith("externals") for key in settings)
    }
    assert specs == {
        "gcc": "gcc@13.3.0 languages:='c,c++,fortran'",
        "cuda": "cuda@12.9.86",
        "slurm": "slurm@24-05-4-1 +pmix sysconfdir=/etc/slurm",
        "openssh": "openssh@9.6p1",
        "rdma-core": "rdma-core@50.0 ~pyverbs ~man_pages",
    }
    assert packages["gcc:"]["externals"][0]["extra_attributes"]["compilers"] == {
        "c": str(sles / "bin/gcc-13"),
        "cxx": str(sles / "bin/g++-13"),
        "fortran": str(sles / "bin/gfortran-13"),
    }
    assert packages["all"] == {"target:": ["zen3"]}
    assert found["modules"]["default"]["lmod"]["core_compilers:"] == ["gcc@13.3.0"]


def test_every_package_of_a_rocm_release_is_an_external(sles: Path) -> None:
    rocm = sles / "rocm-6.4.1"
    (rocm / ".info").mkdir(parents=True)
    (rocm / ".info/version").write_text("6.4.1-83\n")
    packages = machine(sles, "--gcc", "gcc-13", ROCM_PATH=str(rocm))["packages"]
    locked = yaml.safe_load((ROOT / "site/_families/spack/rocm-6.3.3/packages.yaml").read_text())
    for name in locked["packages"]:
        (entry,) = packages[f"{name}:"]["externals"]
        assert "@6.4.1" in entry["spec"]
        assert entry["prefix"].startswith(str(rocm))


def test_the_loaded_cray_mpich_is_an_external(sles: Path) -> None:
    program(sles / "bin", "fi_info", "fi_info: 1.22.0\nlibfabric: 1.22.0")
    loaded = {
        "CRAY_MPICH_VERSION": "9.1.0",
        "CRAY_MPICH_DIR": "/opt/cray/pe/mpich/9.1.0/ofi/gnu/12.3",
        "CRAY_PMI_PREFIX": "/opt/cray/pe/pmi/6.1.16",
        "CRAY_ACCEL_TARGET": "nvidia90",
    }
    packages = machine(sles, "--gcc", "gcc-13", **loaded)["packages"]
    (mpich,) = packages["cray-mpich"]["externals:"]
    assert mpich["spec"] == (
        "cray-mpich@9.1.0 +wrappers ~rocm +cuda cuda_arch=90 %c=gcc"
        " ^libfabric@1.22.0 ^cray-pmi@6.1.16"
    )
    assert packages["libfabric"]["externals:"][0]["prefix"] == str(sles)


def test_a_machine_without_a_fortran_compiler_is_told(sles: Path) -> None:
    (sles / "bin/gfortran-13").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        machine(sles, "--gcc", "gcc-13")


@pytest.mark.parametrize(
    ("url", "base", "pushed"),
    [
        (
            "oci://registry/busbar",
            "",
            "push --unsigned --update-index --without-build-dependencies",
        ),
        ("oci://registry/busbar", "debian:12", "--base-image debian:12 oci://registry/busbar"),
        ("file:///cache", "", "push --signed --update-index --without-build-dependencies"),
    ],
)
def test_a_cache_is_signed_unless_it_is_a_registry(
    checkout: Path, url: str, base: str, pushed: str
) -> None:
    installed(checkout, "debian12")
    done = run(checkout, "push.sh", "h200x4", "", url, BASE=base)
    assert done.returncode == 0, done.stderr
    assert pushed in done.stdout
    assert ("gpg publish" in done.stdout) is not url.startswith("oci")
