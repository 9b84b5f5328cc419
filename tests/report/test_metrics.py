# SPDX-License-Identifier: MIT
"""The metrics are what Prometheus' own parser reads, and alerts and board use no others."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from busbar import cli
from busbar.cluster.nodes.record import NodeRecord
from busbar.engine.reading import Cause
from busbar.gate.findings import Basis, concluded
from busbar.gate.output import metrics as gate_metrics
from busbar.job.judge import JobAnswer
from busbar.job.rules_host import JobPort
from busbar.report.job import job_metrics
from busbar.report.prometheus import metrics, node_metrics
from busbar.verdict import Verdict
from tests.cases import cases
from tests.said import ran

from .documents import MARKUP, document, matrix_rows, row, snapshot

MONITORING = Path(__file__).parents[2] / "ci" / "monitoring"


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        family.name: [(each.labels, each.value) for each in family.samples]
        for family in text_string_to_metric_families(text)
    }


def test_readings_bands_and_verdicts_in_base_units(tmp_path: Path) -> None:
    rows = [
        *matrix_rows(slow=2),
        row("net", 2.5, metric="latency", bytes=8, low=1.0, high=2.0, verdict=Verdict.DEGRADED),
    ]
    found = samples(metrics(snapshot(tmp_path, rows, verdict="degraded")))
    verdicts = {labels["verdict"]: value for labels, value in found["busbar_run_verdict"]}
    assert verdicts.pop("degraded") == 1
    assert set(verdicts.values()) == {0}
    severity = {labels["check"]: value for labels, value in found["busbar_check_severity"]}
    assert severity == {"link_matrix": Verdict.DEGRADED.severity, "net": Verdict.DEGRADED.severity}
    assert found["busbar_run_timestamp_seconds"] == [({"site": "h200x4"}, 1795317120.0)]
    ((labels, value),) = found["busbar_latency_seconds"]
    assert (labels["check"], labels["bytes"], value) == ("net", "8", pytest.approx(2.5e-6))
    rates = found["busbar_bandwidth_bytes_per_second"]
    assert len(rates) == 24
    assert {len(labels) for labels, _ in rates} == {9}
    for bound, factor in (("low", 0.92), ("high", 1.06)):
        values = [value for _, value in found[f"busbar_bandwidth_{bound}_bytes_per_second"]]
        assert max(values) == pytest.approx(375e9 * factor)
    limits = [value for _, value in found["busbar_bandwidth_limit_bytes_per_second"]]
    assert set(limits) == {450e9}


def test_forged_text_and_numbers_that_are_none(tmp_path: Path) -> None:
    text = MARKUP + '"} 1\nbusbar_run_verdict{a="\\'
    rows = [row(text, value, where=text, pair=text, bytes=8) for value in (1.0, 2.0)]
    found = samples(metrics(snapshot(tmp_path, rows, site=text)))
    assert len(found["busbar_run_verdict"]) == len(Verdict)
    # Of equal labels one reading stays: two are an error for Prometheus.
    ((labels, value),) = found["busbar_bandwidth_bytes_per_second"]
    assert value == 1e9
    assert "\x1b" not in labels["node"]
    assert labels["node"].startswith("<script>")


def test_the_command_writes_them(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path / "none"))
    results, file = tmp_path / "results.json", tmp_path / "busbar.prom"
    results.write_text(json.dumps(document([row(value=1.0, bytes=8)])))
    assert cli.main(["report", str(results), "--prometheus", str(file)]) == 0
    assert samples(file.read_text())["busbar_checks"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["busbar.prom", "results.json"]


def promtool(*words: str, text: str = "") -> None:
    """Run Prometheus' own tool, of Debian's package prometheus."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    done = ran("promtool", *words, input=text, cwd=MONITORING)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_rules_and_the_metrics(tmp_path: Path) -> None:
    promtool("check", "rules", "alerts.yaml")
    rows = [*matrix_rows(), row("net", 2.0, metric="latency", limit=1.0, low=1.0, high=3.0)]
    promtool("check", "metrics", text=metrics(snapshot(tmp_path, rows)))


def test_each_alert_fires_for_its_fault_only() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    cases = yaml.safe_load((MONITORING / "alerts.test.yaml").read_text())["tests"]
    names = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    tested = [each for case in cases for each in case["alert_rule_test"]]
    for fires in (True, False):
        assert {e["alertname"] for e in tested if bool(e.get("exp_alerts")) == fires} == names
    promtool("test", "rules", "alerts.test.yaml")


def expressions(node: Any) -> list[str]:
    """Every query in a document."""
    if isinstance(node, list):
        return [each for part in node for each in expressions(part)]
    if not isinstance(node, dict):
        return []
    own = [node[key] for key in ("expr", "query", "series") if isinstance(node.get(key), str)]
    return own + [each for part in node.values() for each in expressions(part)]


def live_job() -> JobAnswer:
    """The answer of `busbar job` for a job with a cause and a port."""
    name = Cause("rank-late", "likely", "late", (), "look")
    port = JobPort("n1", "mlx5_0", 9.0, 12.0, 50.0, 50.0)
    answer = JobAnswer(
        job="7", verdict=Verdict.DEGRADED, headline="", causes=(name,), nodes=("n1",)
    )
    return replace(answer, ports=(port,))


@cases("name", ["alerts.yaml", "alerts.test.yaml", "grafana.json", "jobs.json"])
def test_alerts_and_board_use_what_is_written(name: str, tmp_path: Path) -> None:
    rows = [*matrix_rows(), row("net", 2.0, metric="latency", limit=1.0, low=1.0, high=3.0)]
    found = samples(metrics(snapshot(tmp_path, rows)))
    found |= samples(gate_metrics(concluded("n1", Basis(), [], at=0, seconds=0)))
    found |= samples(node_metrics([NodeRecord("n1", "faulty")]))
    found |= samples(job_metrics(live_job(), "c"))
    queries = expressions(yaml.safe_load((MONITORING / name).read_text()))
    used = {each for query in queries for each in re.findall(r"\bbusbar_\w+", query)}
    assert len(used) >= 4
    assert used <= set(found)
    labels = {key for each in found.values() for names, _ in each for key in names}
    labels |= {"instance", "__name__"}
    for query in queries:
        assert set(re.findall(r"(\w+)[=!]~?\"", query)) <= labels
    text = (MONITORING / name).read_text()
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels
