# SPDX-License-Identifier: MIT
"""A site is calibrated by its own runs: what becomes a band, what is refused, what bands do."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from busbar import site as sites
from busbar.check import calibrate as calibration
from busbar.check.calibrate import Accept
from busbar.cli import main
from busbar.data import SITES
from busbar.document import parse_document
from busbar.engine.check_document import CheckDocument
from busbar.engine.expectation import expectation_of
from busbar.engine.reading import Reading
from busbar.engine.results import Result, result_of
from busbar.engine.run import Run
from busbar.engine.series import series_of
from busbar.engine.verdicts import judge_reading
from busbar.errors import BusbarError
from busbar.site.calibration import load, write
from busbar.site.model import Site
from busbar.verdict import Verdict
from tests.cases import cases
from tests.results import verdict_of

SIZE = 1 << 37
"""So large that no model knows it."""
MIB = 1 << 20
CAUSE = {"check": "framework", "confidence": "likely", "evidence": [], "remedy": "wait"}
GPU_SITES = [name for name in sites.names() if sites.load(name).node_type().gpus]


def own_site(name: str, directory: Path) -> Site:
    """A copy of a shipped site that a center would keep."""
    site = sites.load(name).model_copy()
    shutil.copytree(SITES / name, directory / name)
    site._directory = directory / name
    return site


def run_of(site: Site) -> Run:
    node = site.node_type()
    return Run(
        site=site,
        check="framework",
        partition=site.partitions[0].name,
        bench="torch_collectives",
        harness="pytorch",
        nodes=1,
        ranks=node.gpus.count if node.gpus else 2,
        lane="ucx-1.14",
        environment={},
    )


def reading(value: float, operation: str = "all_reduce", nbytes: int = SIZE) -> Reading:
    return Reading("busbw", nbytes, value, operation=operation)


def document(site: Site, readings: list[Reading], where: str = "n1", **more: Any) -> Any:
    run = run_of(site)
    rows = []
    for each in readings:
        row = Result("framework", Verdict.PASS, where=where, pair=each.operation)
        judged = result_of(judge_reading(each, expectation_of(run)), row)
        rows.append(asdict(replace(judged, series=series_of(run, each))))
    return {
        "schema": "busbar-check/1",
        "site": site.name,
        "time": f"2026-11-0{len(readings) % 9 + 1}T00:00:00+00:00",
        "delivery": "wheels",
        "lane": run.lane,
        "versions": {"mpi": "5.0.11"},
        "coverage": "",
        "results": [{**row, "share_of_limit": None, "partition": run.partition} for row in rows],
        "skipped": [],
        "interrupted": None,
        "verdict": verdict_of(rows),
        "causes": [],
        "notes": [],
        **more,
    }


def runs(site: Site, typical: float, count: int = 5, scatter: float = 0.01) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    return {
        f"run{n}": document(
            site,
            [
                reading(float(typical * draw.normal(1, scatter)), op)
                for op in ("all_reduce", "alltoall")
            ],
        )
        for n in range(count)
    }


def calibrate(documents: dict[str, Any], **options: Any) -> Any:
    parsed = {name: parse_document(CheckDocument, each) for name, each in documents.items()}
    return calibration.calibrate(parsed, **options)


def also(document: dict[str, Any], verdict: str) -> None:
    """Add a result of this verdict, which is no reading."""
    row = {"check": "framework", "partition": "gpu", "verdict": verdict, "message": "x"}
    document["results"].append(row)
    document["verdict"] = verdict


@pytest.fixture
def site(tmp_path):
    """Two GPUs of a model of which no reading is known, with the links of an H200."""
    found = own_site("h200x4", tmp_path)
    text = (found.directory / "site.yaml").read_text()
    assert "count: 4" in text
    text = text.replace("count: 4", "count: 2").replace("gpus: [0, 1, 2, 3]", "gpus: [0, 1]")
    (found.directory / "site.yaml").write_text(text)
    return sites.load(str(found.directory))


def test_a_run_whose_output_names_no_node_adds_none(site):
    documents = {f"run{n}": document(site, [reading(300.0)], where="") for n in range(3)}
    assert calibrate(documents, site=site.name).calibration.nodes == ()


@cases("name", GPU_SITES)
def test_after_calibration_the_same_passes_and_less_does_not(name, tmp_path):
    site = own_site(name, tmp_path)
    run = run_of(site)
    try:
        typical = expectation_of(run)(reading(1.0, nbytes=64 * MIB)).typical
    except BusbarError as missing:
        typical = 0.7 * (getattr(missing, "limit", None) or 100)
    series = [reading(typical * share) for share in (0.98, 0.99, 1, 1.01, 1.02)]
    documents = {str(n): document(site, [each]) for n, each in enumerate(series)}
    found = calibrate(documents, site=site.name)
    assert [line.refused for line in found.lines] == [""]
    write(found.calibration, site.directory)
    expect = expectation_of(run)
    for each in series:
        assert judge_reading(each, expect).verdict is Verdict.PASS
        slower = replace(each, value=0.8 * each.value)
        judged = judge_reading(slower, expect)
        assert judged.verdict is Verdict.DEGRADED
        assert judged.expectation.proof == "run"
        # Whoever does not know check and lane judges alike.
        unknown = replace(run, check="", lane=None)
        assert judge_reading(slower, expectation_of(unknown)).verdict is Verdict.DEGRADED


def test_the_limit_of_the_links_stays(site):
    write(calibrate(runs(site, 200), site=site.name).calibration, site.directory)
    expect = expectation_of(run_of(site))
    assert judge_reading(reading(200), expect).verdict is Verdict.PASS
    assert judge_reading(reading(451), expect).verdict is Verdict.IMPOSSIBLE


def test_other_sizes_operations_and_checks_have_no_band(site):
    write(calibrate(runs(site, 200), site=site.name).calibration, site.directory)
    run = run_of(site)
    for other, told in (
        (reading(200, "broadcast"), run),
        (reading(200, nbytes=2 * SIZE), run),
        (reading(200), replace(run, harness="rccl-tests")),
        (reading(200), replace(run, check="framework_nodes")),
        (reading(200), replace(run, lane="ucx-current")),
    ):
        assert judge_reading(other, expectation_of(told)).verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(site="other"), "is a run on site 'other'"),
        (
            lambda d: (
                d["causes"].append({**CAUSE, "id": "cpu-busy", "summary": "16 others"}),
                also(d, "unknown"),
            ),
            "has a fault, cpu-busy: 16 others",
        ),
        (lambda d: also(d, "failed"), "is failed: framework"),
        (lambda d: also(d, "unknown"), "is unknown: framework"),
        (lambda d: d["versions"].update(mpi="4.1"), "ran with mpi 4.1, another run with 5.0.11"),
    ],
)
def test_runs_that_say_nothing_of_a_healthy_site_are_refused(site, change, says):
    documents = runs(site, 200)
    change(documents["run3"])
    with pytest.raises(BusbarError, match=says) as error:
        calibrate(documents, site=site.name)
    assert error.value.where == "run3"


def test_too_few_runs_are_refused(site):
    with pytest.raises(BusbarError, match="2 runs, at least 3 are needed"):
        calibrate(runs(site, 200, count=2), site=site.name)


def test_readings_that_scatter_get_no_band(site):
    documents = runs(site, 200, scatter=0.15)
    found = calibrate(documents, site=site.name)
    assert not found.calibration.bands
    assert all("readings scatter" in line.refused for line in found.lines)


def test_one_stray_reading_of_many_does_no_harm(site):
    documents = runs(site, 200, count=30)
    documents["run7"] = document(site, [reading(120), reading(200, "alltoall")])
    bands = calibrate(documents, site=site.name).calibration.bands
    assert len(bands) == 2
    assert all(185 < band.low < band.typical < band.high < 215 for band in bands)


def test_a_slow_node_is_named(site):
    documents = {
        f"{node}-{n}": document(site, [reading(value)], where=node)
        for node, value in (("n1", 200), ("n2", 201), ("n3", 150), ("n4", 199))
        for n in range(3)
    }
    with pytest.raises(BusbarError, match=r"node n3 differs: .* 150 there, 199\.5 on the others"):
        calibrate(documents, site=site.name)
    two = {name: each for name, each in documents.items() if name[:2] in ("n1", "n3")}
    with pytest.raises(BusbarError, match=r"nodes n1 and n3 differ: .* 200 on n1 and 150 on n3"):
        calibrate(two, site=site.name)
    healthy = {name: each for name, each in documents.items() if name[:2] != "n3"}
    assert calibrate(healthy, site=site.name).calibration.bands


STRICT = Accept()


def recalibrated(site: Site, typical: float, accept: Accept = STRICT) -> None:
    former = load(site)
    found = calibrate(runs(site, typical), site=site.name, former=former, accept=accept)
    write(found.calibration, site.directory)


def test_a_lower_calibration_is_refused(site):
    recalibrated(site, 200)
    with pytest.raises(BusbarError, match="is degraded") as error:
        recalibrated(site, 150)
    assert "--accept-below-previous accepts" in error.value.hint
    recalibrated(site, 150, Accept(below_previous=True))
    band = load(site).bands[0]
    assert band.typical == pytest.approx(150, rel=0.02)
    assert [each.typical for each in band.replaced] == [pytest.approx(200, rel=0.02)]
    assert band.replaced[0].last == "2026-11-03T00:00:00+00:00"
    recalibrated(site, 205)  # better is no question


def test_a_slow_decline_is_seen_against_the_first(site):
    recalibrated(site, 200)
    recalibrated(site, 194)
    for _ in range(2):
        with pytest.raises(
            BusbarError, match=r"18\d.* worse than the calibration of 2026-11-03, 2"
        ):
            recalibrated(site, 188)
    assert load(site).bands[0].typical == pytest.approx(194, rel=0.02)


def test_a_series_that_was_not_measured_again_keeps_its_band(site):
    recalibrated(site, 200)
    documents = {str(n): document(site, [reading(200.0 + n)]) for n in range(3)}
    found = calibrate(documents, site=site.name, former=load(site)).calibration
    assert {band.series.operation for band in found.bands} == {"all_reduce", "alltoall"}
    assert [len(band.replaced) for band in found.bands] == [1, 0]


def test_a_calibrated_fleet_below_the_model_is_accepted_again_or_not(tmp_path):
    site = own_site("h200x4", tmp_path)
    typical = expectation_of(run_of(site))(reading(1.0, nbytes=64 * MIB)).typical
    slow = [reading(0.7 * typical, nbytes=64 * MIB)]
    below = Accept(below_model=True)
    first = calibrate(
        {str(n): document(site, slow) for n in range(3)}, site=site.name, accept=below
    )
    write(first.calibration, site.directory)
    again = {str(n): document(site, slow) for n in range(3)}
    assert again["0"]["results"][0]["verdict"] == "pass"
    with pytest.raises(BusbarError, match=r"is 0\.70 of the model's value"):
        calibrate(again, site=site.name, former=load(site))
    assert calibrate(again, site=site.name, former=load(site), accept=below).calibration.bands


def test_a_calibration_above_the_limit_judges_nothing(site):
    """The site was changed after it."""
    found = calibrate(runs(site, 200), site=site.name).calibration
    bands = [
        b.model_copy(update={"typical": 900.0, "low": 850.0, "high": 950.0}) for b in found.bands
    ]
    write(found.model_copy(update={"bands": tuple(bands)}), site.directory)
    expect = expectation_of(run_of(site))
    assert judge_reading(reading(200), expect).verdict is Verdict.UNJUDGED
    assert judge_reading(reading(900), expect).verdict is Verdict.IMPOSSIBLE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda bands: (*bands, bands[0]), "two bands"),
        (lambda bands: (bands[0].model_copy(update={"low": 999.0}),), "in ascending order"),
    ],
)
def test_bands_that_contradict_each_other_are_refused(site, change, says):
    found = calibrate(runs(site, 200), site=site.name).calibration
    write(found.model_copy(update={"bands": change(found.bands)}), site.directory)
    with pytest.raises(BusbarError, match=says):
        load(site)


def test_a_fleet_below_the_model_is_no_norm_unless_accepted(tmp_path):
    site = own_site("h200x4", tmp_path)
    typical = expectation_of(run_of(site))(reading(1.0, nbytes=64 * MIB)).typical
    slow = {str(n): document(site, [reading(0.7 * typical, nbytes=64 * MIB)]) for n in range(3)}
    with pytest.raises(BusbarError, match="is degraded") as error:
        calibrate(slow, site=site.name)
    assert "--accept-below-model" in error.value.hint
    found = calibrate(slow, site=site.name, accept=Accept(below_model=True))
    assert [line.model for line in found.lines] == [pytest.approx(0.7, rel=0.01)]
    assert found.calibration.bands


def test_the_command_writes_the_file_and_says_what_it_did(site, tmp_path, capfd):
    files = []
    for name, each in runs(site, 200).items():
        (row, *_) = each["results"]
        barrier = {**row, "bytes": 0, "series": {**row["series"], "bytes": 0}}
        each["results"].append(barrier)
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(each))
    arguments = ["site", "calibrate", "--site", str(site.directory), *map(str, files)]
    assert main(arguments) == 0
    shown = capfd.readouterr().out
    assert "no model" in shown
    assert f"wrote {site.directory}/calibration.yaml; next" in shown
    assert len(load(site).bands) == 2
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["series"][0]["readings"] == 5


def test_a_shipped_site_is_not_calibrated(tmp_path, capfd):
    assert main(["site", "calibrate", "--site", "local", str(tmp_path / "none.json")]) == 2
    assert "ships with Busbar" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Expecting property name"),
        ("[]", "document: is not an object"),
        ('{"schema": "x"}', "has the schema 'x', not busbar-check/1"),
    ],
)
def test_a_file_that_is_no_result_is_refused(site, tmp_path, capfd, text, says):
    file = tmp_path / "results.json"
    file.write_text(text)
    assert main(["site", "calibrate", "--site", str(site.directory), str(file)]) == 2
    assert says in capfd.readouterr().err


def test_a_calibration_of_another_site_is_refused(site):
    found = calibrate(runs(site, 200), site=site.name).calibration
    write(found.model_copy(update={"site": "other"}), site.directory)
    with pytest.raises(BusbarError, match="is the calibration of site 'other'"):
        load(site)
