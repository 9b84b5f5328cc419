# SPDX-License-Identifier: MIT
"""Whole outputs with a record of other programs: what it excuses, and what it never hides."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from busbar.explain import Source, explain
from busbar.site import load
from busbar.verdict import Verdict
from tests.cases import cases, some

from .test_busy import COMPILERS, DATA, QUIET
from .test_busy_gpus import with_stranger

NCCL = DATA / "h200x4/nccl_channels_1.log"


def test_explain_gives_the_verdict_of_the_check() -> None:
    """A fault that the output shows is named beside what others did."""
    text = NCCL.read_text()
    (alone,) = explain([Source.from_text("log", text)])
    assert (alone.verdict, [c.id for c in alone.causes]) == ("degraded", ["nccl-few-channels"])
    worst = min(j.reading.value / j.bound for j in alone.judged if j.bound)
    assert worst < 0.35  # less than one process on the GPUs accounts for
    record = json.dumps(with_stranger(link_gb_per_s=330.0)) + "\n"
    (busy,) = explain([Source.from_text("log", text + record)])
    assert (busy.verdict, [c.id for c in busy.causes]) == ("degraded", ["nccl-few-channels"])
    everyone = json.dumps(COMPILERS) + "\n"
    (unknown,) = explain([Source.from_text("log", text + everyone)])
    assert unknown.verdict == "unknown"
    assert [c.id for c in unknown.causes] == ["nccl-few-channels", "cpu-busy"]


def test_a_healthy_run_passes_on_a_busy_node() -> None:
    text = (DATA / "h200x4/nccl_healthy_a.log").read_text()
    (found,) = explain([Source.from_text("log", text + json.dumps(COMPILERS) + "\n")])
    assert (found.verdict, found.causes) == ("pass", ())


@pytest.mark.parametrize(
    "name", ["gpu_aware_no_cuda_ipc.log", "gpu_aware_tcp_only.log", "nccl_p2p_disabled.log"]
)
def test_a_wrong_transport_stays_degraded_on_a_busy_node(name: str) -> None:
    text = (DATA / "h200x4" / name).read_text()
    (alone,) = explain([Source.from_text("log", text)])
    (busy,) = explain([Source.from_text("log", text + json.dumps(COMPILERS) + "\n")])
    assert alone.verdict == busy.verdict == "degraded"
    assert [c.id for c in busy.causes] == [c.id for c in alone.causes]


@pytest.mark.parametrize(
    ("record", "verdict", "causes"),
    [
        # As recorded beside 17 other programs on two CPUs.
        (COMPILERS | {"own": 0.1503, "others": 1.822, "waiting": 1.837}, "unknown", {"cpu-busy"}),
        (COMPILERS, "failed", set()),
        (QUIET, "failed", set()),
    ],
)
def test_a_run_that_others_kept_from_ending_in_time(
    record: dict[str, object], verdict: str, causes: set[str]
) -> None:
    lines = (DATA / "h200x4/gpu_aware_healthy.log").read_text().splitlines()
    cut = [line for line in lines if '"event": "end"' not in line][:-3]
    log = "\n".join([*cut, json.dumps(record), "job timed out (120.0s > 120.0s)", ""])
    (found,) = explain([Source.from_text("log", log)])
    assert found.verdict == verdict
    assert {cause.id for cause in found.causes} == {"timeout"} | causes


RECORDED = [DATA / f"local-busy/link_matrix_{name}.log" for name in ("compile", "spin")]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_without_its_record_a_slow_run_is_accused(path: Path) -> None:
    """The last line of these logs is the record."""
    lines = path.read_text().splitlines()
    (found,) = explain([Source.from_text("log", "\n".join(lines) + "\n")])
    assert (found.verdict, [cause.id for cause in found.causes]) == ("unknown", ["cpu-busy"])
    idle = json.dumps(json.loads(lines[-1]) | {"others": 0.02, "node_others": 0.02})
    for ending in ([], [idle]):
        (found,) = explain([Source.from_text("log", "\n".join([*lines[:-1], *ending]) + "\n")])
        assert found.verdict in (Verdict.DEGRADED, Verdict.IMPOSSIBLE)
        assert "cpu-busy" not in {cause.id for cause in found.causes}


COPIED = sorted(DATA.glob("h200x2/nccl/busy_copy_*.log.gz"))


@pytest.mark.parametrize("path", COPIED, ids=lambda path: path.name)
def test_collectives_beside_a_copying_process(path: Path) -> None:
    """The runs are recorded, the line of the recorder is synthetic."""
    text = gzip.decompress(path.read_bytes()).decode()
    site = load("h200x4")
    (alone,) = explain([Source.from_text("log", text)], site=site)
    assert alone.verdict is Verdict.DEGRADED
    record = json.dumps(with_stranger(link_gb_per_s=330.0)) + "\n"
    (busy,) = explain([Source.from_text("log", text + record)], site=site)
    assert (busy.verdict, [cause.id for cause in busy.causes]) == ("unknown", ["gpu-busy"])


LOGS = sorted(path for path in DATA.glob("h200x4/*.log") if "synthetic" not in path.name)


@cases("path", some(LOGS, 2))
def test_a_busy_node_never_makes_a_run_better_than_unknown(path: Path) -> None:
    """Nor does it hide what a log shows, or touch a run that passes, fails or is impossible."""
    text = path.read_text()
    alone = explain([Source.from_text("log", text)])
    busy = explain([Source.from_text("log", text + json.dumps(COMPILERS) + "\n")])
    assert [each.verdict for each in busy[:-1]] == [each.verdict for each in alone[:-1]]
    before, after = alone[-1], busy[-1]
    if before.verdict is Verdict.DEGRADED:
        assert after.verdict in (Verdict.UNKNOWN, Verdict.DEGRADED)
        shown = {c.id for c in before.causes if c.id != "below-band-unexplained"}
        assert shown <= {c.id for c in after.causes}
    else:
        assert after.verdict is before.verdict
