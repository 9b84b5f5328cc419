# SPDX-License-Identifier: MIT
"""Golden job scripts of every scheduler and launcher that ReFrame has, by ReFrame's own backends.

``GOLDEN=write`` in the environment writes them again; the change is then reviewed by eye.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from busbar.delivery.choice import Choice
from busbar.delivery.reframe import configuration
from busbar.errors import BusbarError
from busbar.site.backends import OWN_LAUNCHERS, backends
from busbar.site.load import load
from tests.cases import some

from .dry import ROOT, jobs, reframe, without_root
from .flux import flux_bindings

pytestmark = pytest.mark.run

GOLDEN = ROOT / "tests" / "golden" / "schedulers"
# The launcher that a site of the scheduler would take, and the options that give access.
SCHEDULERS = {
    "local": ("mpirun", ""),
    "slurm": ("srun", "--partition=gpu, --account=abc, --qos=high, --gpus-per-node=8"),
    "squeue": ("srun", "--partition=gpu, --reservation=tests, --exclusive"),
    "flux": ("flux-run", ""),
    "pbs": ("mpiexec", "-q gpu, -A abc, ngpus=8"),
    "pbspro": ("mpiexec", "-q gpu, -A abc, ngpus=8"),
    "torque": ("mpirun", "-q gpu"),
    "lsf": ("mpirun", "-q gpu, -P abc"),
    "sge": ("mpirun", "-q gpu.q, -pe mpi 16"),
    "oar": ("mpirun", "-q gpu"),
    "ssh": ("mpirun", "gpu01"),
}


def test_every_scheduler_has_a_script() -> None:
    assert set(SCHEDULERS) == set(backends("scheduler"))


def site(directory: Path, scheduler: str, launcher: str, access: str) -> Path:
    place = directory / "sites" / "h20-roce"
    place.mkdir(parents=True)
    facts = (ROOT / "site" / "h20-roce" / "site.yaml").read_text()
    facts = facts.replace("scheduler: slurm", f"scheduler: {scheduler}")
    facts = facts.replace("launcher: mpirun", f"launcher: {launcher}")
    (place / "site.yaml").write_text(facts.replace("[--exclusive]", f"[{access}]"))
    (place / "reframe.py").write_text((ROOT / "site" / "h20-roce" / "reframe.py").read_text())
    return place


def script(place: Path, directory: Path) -> str:
    done = reframe(
        *(directory, place / "reframe.py", "-p", "spack"),
        *("-n", "xccl_nodes%size_set=full%collective=all_reduce"),
        BUSBAR_SITE_PATH=f"{place.parent}:{ROOT / 'site'}",
        PYTHONPATH=str(flux_bindings(directory)),
    )
    scripts = jobs(directory)
    assert scripts, done.stdout + done.stderr
    text = without_root(scripts[0]).replace(str(directory), "PREFIX")
    text = re.sub(r"_[0-9a-f]{8}\b", "_HASH", text)
    return re.sub(r"(?m)^export (?:PATH|LD_LIBRARY_PATH|BUSBAR_NONCE)=.*\n", "", text)


@pytest.mark.parametrize("scheduler", some(SCHEDULERS, 3))
def test_job_script(scheduler: str, tmp_path: Path) -> None:
    launcher, access = SCHEDULERS[scheduler]
    text = script(site(tmp_path, scheduler, launcher, access), tmp_path)
    golden = GOLDEN / f"{scheduler}.sh"
    if os.environ.get("GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
    for option in filter(None, access.split(", ")):
        assert option in text or scheduler == "ssh"  # there it is the host
    # The command that is shown is the one that runs.
    commands = re.findall(
        r"(?m)^(?:printf '%s.n' '\$ )?(flux run|\S*run|mpiexec) (.*?) BUSBAR", text
    )
    assert len(commands) == 2
    assert commands[0] == commands[1]


def test_a_scheduler_that_is_not_here_lists_checks_only(tmp_path: Path) -> None:
    place = site(tmp_path, "flux", "flux-run", "")
    with pytest.raises(BusbarError, match="scheduler flux: no flux Python bindings found") as said:
        configuration(place, Choice())
    assert "run within an allocation with scheduler local" in said.value.hint
    (system,) = configuration(place, Choice(declared=True))["systems"]
    assert {partition["scheduler"] for partition in system["partitions"]} == {"local"}


@pytest.mark.parametrize(
    "launcher", sorted({*backends("launcher"), *OWN_LAUNCHERS} - {"local", "srun", "mpirun"})
)
def test_every_launcher_can_be_stated(launcher: str, tmp_path: Path) -> None:
    place = site(tmp_path, "slurm", launcher, "--exclusive")
    assert load(place).partitions[0].launcher == launcher


@pytest.mark.parametrize("launcher", some(["mpiexec", "lrun", "alps"], 3))
def test_job_script_of_a_launcher(launcher: str, tmp_path: Path) -> None:
    text = script(site(tmp_path, "slurm", launcher, "--exclusive"), tmp_path)
    command = {"alps": "aprun"}.get(launcher, launcher)
    ranks = "-N 2 -T 8" if launcher == "lrun" else "-n 16"
    assert re.search(rf"^{command} .*{ranks} .*all_reduce_perf", text, re.MULTILINE)
