# SPDX-License-Identifier: MIT
"""The files of every site that are the same for all, and what detection writes."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.check import default_site
from busbar.detect.machine import compose, recorded
from busbar.detect.write import REFRAME_FILE, write
from tests.cases import cases
from tests.said import ran

BIN = Path(sys.executable).parent


@cases("name", sites.names())
def test_every_site_has_the_same_reframe_configuration(root, name):
    file = root / "site" / name / "reframe.py"
    assert file.read_text() == REFRAME_FILE
    assert file.is_symlink() is (name != "local")


def test_a_detected_site_can_be_linted_and_loaded(root, tmp_path):
    saved = root / "tests" / "data" / "h200x4"
    names = ("nvidia-smi-topo.log", "nvlink.log", "nvidia-smi-q-gpu0.log")
    files = [saved / name for name in names]
    write(compose(recorded(files)).site, tmp_path / "mine")
    assert sites.load(str(tmp_path / "mine")).name == "mine"
    done = ran(BIN / "busbar", "site", "lint", tmp_path / "mine")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def machine():
    """What is detected on this machine, asked once."""
    return default_site.detect()


@pytest.fixture
def _detected(machine, monkeypatch):
    monkeypatch.setattr(default_site, "detect", lambda: machine)


@pytest.mark.usefixtures("_detected")
def test_a_machine_that_no_site_describes_is_checked_by_its_own_facts(tmp_path, monkeypatch):
    monkeypatch.setattr(default_site, "match", lambda _detected: None)
    monkeypatch.setattr(default_site, "cluster_name", lambda: "")
    said = []
    directory = Path(default_site.default_site(tmp_path, said.append))
    assert (directory / "site.yaml").is_file()
    assert (directory / "reframe.py").is_file()
    assert sites.load(str(directory)).partitions
    assert len(said) == 1


@pytest.mark.parametrize(("scheduler", "own"), [("local", True), ("flux", True), ("slurm", False)])
def test_a_shipped_site_with_another_scheduler_is_not_this_machine(
    scheduler, own, tmp_path, monkeypatch, machine
):
    detected = machine
    site = detected.site.model_copy(update={"scheduler": scheduler})
    monkeypatch.setattr(default_site, "detect", lambda: dataclasses.replace(detected, site=site))
    monkeypatch.setattr(default_site, "match", lambda _detected: "dgx-h100")
    monkeypatch.setattr(default_site, "cluster_name", lambda: "")
    said = []
    assert (default_site.default_site(tmp_path, said.append) == "dgx-h100") is not own
    assert any("site dgx-h100 has a different scheduler than" in line for line in said) is own


@pytest.mark.parametrize(
    ("cluster", "chosen"),
    [
        ("Mine", ("mine", "site mine, by the name of this Slurm cluster")),
        (
            "other",
            ("local", "testing only this host: no site has the name of this Slurm cluster, other"),
        ),
        (
            "local",
            ("local", "testing only this host: no site has the name of this Slurm cluster, local"),
        ),
        ("", ("local", "")),
    ],
)
@pytest.mark.usefixtures("_detected")
def test_on_a_cluster_its_site_is_taken(root, tmp_path, monkeypatch, cluster, chosen):
    """By name, if it has Slurm; otherwise a message states that only this host is tested."""
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(tmp_path))
    text = (root / "site" / "h20-roce" / "site.yaml").read_text().replace("h20-roce", "mine", 1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "site.yaml").write_text(text)
    monkeypatch.setattr(default_site, "match", lambda _detected: "local")
    monkeypatch.setattr(default_site, "cluster_name", lambda: cluster)
    said = []
    assert default_site.default_site(tmp_path, said.append) == chosen[0]
    assert " ".join(said).startswith(chosen[1])


def test_a_host_of_a_cluster_without_a_site_submits_nothing(tmp_path, monkeypatch, machine):
    """Also if it has GPUs that no site has: its own facts make a site without Slurm."""
    detected = machine
    partition = detected.site.partitions[0].model_copy(
        update={"launcher": "srun", "access": ("--partition=gpu",), "nodes": 8}
    )
    update = {"scheduler": "slurm", "partitions": (partition,)}
    site = detected.site.model_copy(update=update)
    monkeypatch.setattr(default_site, "detect", lambda: dataclasses.replace(detected, site=site))
    monkeypatch.setattr(default_site, "match", lambda _detected: "dgx-h100")
    monkeypatch.setattr(default_site, "cluster_name", lambda: "alpha")
    said = []
    found = sites.load(default_site.default_site(tmp_path, said.append))
    assert found.scheduler == "local"
    (alone,) = found.partitions
    assert (alone.launcher, alone.access, alone.nodes) == ("mpirun", (), 1)
    assert said[-1].startswith(
        "testing only this host: no site has the name of this Slurm cluster, alpha"
    )
