# SPDX-License-Identifier: MIT
"""A wheel, installed where no checkout is, has what its commands need, and refuses the rest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.check.names import short_name
from tests.cases import sampled
from tests.said import ran

pytestmark = pytest.mark.run

DATA = Path(__file__).parent / "data"


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    return subprocess.check_output(["git", *identity, *words], cwd=directory, text=True).strip()


def build(source: Path, kind: str, target: Path) -> Path:
    """Build ``wheel`` or ``sdist`` from a directory, as pip does without build isolation."""
    target.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(target)!r}))"
    command = [sys.executable, "-c", code]
    done = ran(*command, cwd=source)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def source(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit of what the checkout has, without the tests."""
    copy = tmp_path_factory.mktemp("source")
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard", ":!tests")
    for name in listed.splitlines():
        if (root / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, copy / name, follow_symlinks=False)
    git(copy, "init", "--quiet")
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "--message=All")
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build(source, "wheel", source / "dist")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, which sees the requirements of this one."""
    prefix = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    pip = [sys.executable, "-m", "pip", "--python", prefix, "--quiet", "install"]
    subprocess.run([*pip, "--no-index", "--no-deps", wheel], check=True)
    (packages,) = prefix.glob("lib/python*/site-packages")
    # Files of that directory that end in .pth, as of an editable busbar, are not read from here.
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return prefix


def run(environment: Path, cwd: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return ran(
        environment / "bin" / words[0],
        *words[1:],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "BUSBAR_SITE_PATH")},
    )


def test_the_installed_one_runs(environment: Path, tmp_path: Path) -> None:
    code = "import busbar.data as d; print(d.__file__, d.SITES, d.CHECKS, d.CHECKOUT)"
    *places, checkout = run(environment, tmp_path, "python", "-c", code).stdout.split()
    assert len(places) == 3
    assert all(Path(place).is_relative_to(environment) for place in places)
    assert checkout == "None"


def test_every_site_ships(environment: Path, tmp_path: Path) -> None:
    done = run(environment, tmp_path, "busbar", "site", "list", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == sites.names()
    assert {row["from"] for row in rows} == {"busbar"}


def test_every_check_ships(environment: Path, tmp_path: Path, root: Path) -> None:
    done = run(environment, tmp_path, "busbar", "check", "--list", "--site", "h200x4", "--json")
    assert done.returncode == 0, done.stderr
    golden = (root / "tests" / "golden" / "h200x4.txt").read_text()
    assert {short_name(row["name"]) for row in json.loads(done.stdout) if row["runs"]} == {
        line.split(" [")[0] for line in golden.splitlines() if not line.startswith("cannot run, ")
    }
    assert list(tmp_path.iterdir()) == []


@sampled(
    2,
    ("command", "status", "says"),
    [
        ("expect --site h200x4 --from 0 --to 1", 0, "limit"),
        ("expect --site local", 2, "the site does not describe this machine's links"),
        ("site env p5 --shell", 0, "export FI_EFA_FORK_SAFE=1"),
        ("site lint", 0, " 0 findings"),
        (f"explain {DATA / 'h200x4' / 'nccl_p2p_disabled.log'}", 1, "nccl-p2p-off"),
        ("site env p5 --modules", 2, "wheels of Busbar do not contain any"),
        ("site lint atlantis", 2, "no site 'atlantis'"),
        ("preflight . --site local", 2, "not a root file system"),
        ("demo", 0, "node n23: "),
    ],
)
def test_command(environment: Path, tmp_path: Path, command: str, status: int, says: str) -> None:
    done = run(environment, tmp_path, "python", "-m", "busbar", *command.split())
    assert (done.returncode, says in done.stdout + done.stderr) == (status, True), done


def test_the_version_names_the_commit(environment: Path, source: Path, tmp_path: Path) -> None:
    commit = git(source, "rev-parse", "--short=7", "HEAD")
    done = run(environment, tmp_path, "busbar", "--version")
    assert done.stdout == f"busbar 0.1.0 ({commit})\n"
    # A checkout asks git.
    with (source / "README.md").open("a") as file:
        file.write("changed\n")
    done = run(environment, source, "python", "-m", "busbar", "--version")
    git(source, "checkout", "--quiet", "README.md")
    assert done.stdout == f"busbar 0.1.0 ({commit}+dirty)\n"


def test_a_wheel_is_the_same_from_an_sdist(wheel: Path, source: Path, tmp_path: Path) -> None:
    archive = build(source, "sdist", tmp_path / "sdist")
    ran("tar", "--extract", "--file", archive, "--directory", tmp_path, check=True)
    again = build(tmp_path / "busbar_hpc-0.1.0", "wheel", tmp_path / "dist")
    assert contents(again) == contents(wheel)


@pytest.mark.long
def test_a_wheel_without_git_says_so(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "copy", ignore=shutil.ignore_patterns(".git", "build"))
    made = contents(build(tmp_path / "copy", "wheel", tmp_path / "dist"))
    assert made["busbar/commit.txt"] == b"commit unknown\n"
    environments = {name for name in made if "spack.lock" in name or "spack.yaml" in name}
    assert environments <= {"busbar/spack.yaml"}  # the refusals of busbar/spack.py
