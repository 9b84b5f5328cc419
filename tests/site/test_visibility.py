# SPDX-License-Identifier: MIT
"""What becomes of a caller's choice of GPUs."""

from __future__ import annotations

import json
import os

import pytest

from busbar import site as sites
from busbar.data import CHECKS
from busbar.delivery.choice import Choice
from busbar.delivery.reframe import configuration
from busbar.delivery.visibility import VARIABLES, refuse_hidden_gpus, without_visible_devices
from busbar.errors import BusbarError
from busbar.site.load import find
from tests.cases import cases
from tests.said import ran

ORDERED = "GPU-1,GPU-0,GPU-3,GPU-2"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Without what the tests' own caller has set; all that a test takes away is put back."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "to be put back")
        monkeypatch.delenv(name)


@cases("name", VARIABLES)
@cases("value", ["0,1,2,3", "3, 2,1,0", ORDERED])
def test_another_order_does_not_reach_the_jobs(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    refuse_hidden_gpus(sites.load("h200x4"))
    assert name not in without_visible_devices()
    assert os.environ[name] == value


@cases("value", ["0,1", "", "3,2,1", "0,1,-1,2,3", "0,9,1,2,3", "0,1,2,2", "no"])
def test_hidden_gpus_are_refused(monkeypatch, value):
    name = "CUDA_VISIBLE_DEVICES"
    monkeypatch.setenv(name, value)
    with pytest.raises(BusbarError) as error:
        configuration(find("h200x4").parent, choice=Choice())
    assert f"{name}={value} hides GPUs from the checks, which use all 4" in str(error.value)
    assert os.environ[name] == value


@cases(
    ("name", "value", "site"),
    [
        ("HIP_VISIBLE_DEVICES", "0", "h200x4"),  # of another vendor
        # What the submitting host has set says nothing of the nodes, and must not get there.
        ("HIP_VISIBLE_DEVICES", "1,0", "mi250x"),
        ("CUDA_VISIBLE_DEVICES", "", "local"),  # without GPUs
    ],
)
def test_what_hides_nothing_is_not_refused(monkeypatch, name, value, site):
    monkeypatch.setenv(name, value)
    refuse_hidden_gpus(sites.load(site))


def test_plain_reframe_clears_its_own_environment(monkeypatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1,0")
    monkeypatch.setenv("RFM_WARN_AS_ERROR", "to be put back")
    monkeypatch.delenv("RFM_WARN_AS_ERROR")
    configuration(find("local").parent)
    assert "HIP_VISIBLE_DEVICES" not in os.environ
    assert os.environ["RFM_WARN_AS_ERROR"] == "yes"


@cases(
    ("shown", "visible"),
    [
        ({}, ""),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "ROCR_VISIBLE_DEVICES": "0,1,2,3"}, "0,1,2,3"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "HIP_VISIBLE_DEVICES": "0,3"}, "0,3"),
        ({"ROCR_VISIBLE_DEVICES": "0,1"}, "0,1"),
    ],
)
def test_a_rank_says_what_it_sees(shown, visible):
    """Slurm sets CUDA's variable beside ROCR's; HIP takes its own, which a check sets."""
    script = CHECKS / "src" / "placed.sh"
    done = ran(script, "true", check=True, env={**os.environ, **shown})
    assert json.loads(done.stdout)["placed"]["visible"] == visible


def test_a_list_of_another_machine_refuses_nothing(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    configuration(find("h200x4").parent, choice=Choice(declared=True))
