# SPDX-License-Identifier: MIT
"""What is expected between a GPU and host memory, with a band and without."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from busbar import site as sites
from busbar.engine.verdicts import verdict_on
from busbar.expect import NoExpectation, Question
from busbar.expect.floors import host_copy
from busbar.verdict import Verdict

MIB = 1 << 20
PASS, DEGRADED, IMPOSSIBLE = Verdict.PASS, Verdict.DEGRADED, Verdict.IMPOSSIBLE
UNJUDGED = Verdict.UNJUDGED


def between(name, buffers, nbytes=16 * MIB, lane="ucx-1.14", partition=None):
    site = sites.load(name)
    return host_copy(
        site,
        Question(
            bench="osu_bw",
            src=0,
            dst=1,
            nbytes=nbytes,
            buffers=buffers,
            lane=lane,
            environment=sites.environment(site, lane=lane),
            partition=partition or site.partitions[0].name,
        ),
    )


def test_recorded_runs_are_inside_the_band(data):
    table = (data / "h200x4/osu_bw_hd.log").read_text()
    rows = [(int(n), float(v) / 1e3) for n, v in re.findall(r"^(\d+) +([\d.]+)$", table, re.M)]
    shares = [value / 63 for _, value in rows]
    assert len(rows) == 3
    assert sum(shares) / 3 == pytest.approx(0.01857, rel=1e-3)
    with gzip.open(data / "h200x4-labelled/gpu_aware_host_to_device.log.gz", "rt") as stream:
        events = [json.loads(line) for line in stream if '"event": "reading"' in line]
    rows += [(event["bytes"], event["gb_per_s"]) for event in events]
    assert len(rows) == 15
    for nbytes, value in rows:
        band = between("h200x4", "H D", nbytes)
        assert verdict_on(band, value) is PASS
        assert band.proof == "run"
        assert verdict_on(band, value * 0.8) is DEGRADED


@pytest.mark.parametrize(
    ("name", "buffers", "value", "verdict"),
    [
        ("h200x4", "D H", 1.1, UNJUDGED),
        ("h200x4", "D H", 0.5, DEGRADED),
        ("h200x4", "D H", 64, IMPOSSIBLE),
        ("mi250x", "H D", 26, UNJUDGED),
        ("mi250x", "H D", 5, DEGRADED),
        ("mi250x", "D H", 37, IMPOSSIBLE),
        ("p4d", "H D", 24, UNJUDGED),
    ],
)
def test_without_a_band_a_floor_judges_and_says_so(name, buffers, value, verdict):
    found = between(name, buffers)
    assert verdict_on(found, value) is verdict
    assert found.proof == "none"
    assert found.sources[0].startswith("no band: ")
    assert found.sources[1].startswith("floor: ")


def test_a_site_without_a_host_link_has_no_expectation():
    with pytest.raises(NoExpectation, match="the links between GPUs and host"):
        between("mi300x", "H D", partition="cpx")
