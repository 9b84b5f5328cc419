# SPDX-License-Identifier: MIT
"""The files of every site that are the same for all, and what detection writes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.detect.machine import compose, recorded
from busbar.detect.write import REFRAME_FILE, write

BIN = Path(sys.executable).parent


@pytest.mark.parametrize("name", sites.names())
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
    done = subprocess.run(
        [BIN / "busbar", "site", "lint", tmp_path / "mine"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_machine_that_no_site_describes_is_checked_by_its_own_facts(tmp_path, monkeypatch):
    from busbar.commands import check

    monkeypatch.setattr(check, "match", lambda _detected: None)
    directory = Path(check.detected_site(tmp_path))
    assert (directory / "site.yaml").is_file()
    assert (directory / "reframe.py").is_file()
    assert sites.load(str(directory)).partitions


@pytest.mark.parametrize(("scheduler", "own"), [("local", True), ("flux", True), ("slurm", False)])
def test_a_shipped_site_with_another_scheduler_is_not_this_machine(
    scheduler, own, tmp_path, monkeypatch, capsys
):
    from busbar.commands import check

    detected = check.detect()
    site = detected.site.model_copy(update={"scheduler": scheduler})
    monkeypatch.setattr(check, "detect", lambda: dataclasses.replace(detected, site=site))
    monkeypatch.setattr(check, "match", lambda _detected: "dgx-h100")
    found = check.detected_site(tmp_path)
    assert (found == "dgx-h100") is not own
    told = "site dgx-h100 has another scheduler than this machine" in capsys.readouterr().err
    assert told is own
