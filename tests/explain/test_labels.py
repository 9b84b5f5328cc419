# SPDX-License-Identifier: MIT
"""Every recorded run is explained as its label says, without its command line and its name."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.explain import Explanation, Source, explain
from tests.cases import cases
from tests.files import read_table

from .outputs import load

DATA = Path(__file__).parents[1] / "data"
LABELS: list[dict[str, Any]] = [
    label
    for table in sorted(Path(__file__).parent.glob("labels*.yaml"))
    for label in read_table(table)
]
FOLDERS = (
    "h200x2/nccl",
    "h200x2/prefix-a",
    "h200x2/prefix-b",
    "h20-roce",
    "h200x2",
    "h200x4",
    "h200x4-image",
    "h200x4-labelled",
    "local-busy",
    "mi250x",
    "p4d-efa",
)
NO_RUN = {
    "h200x2/osu_tuning.tsv",
    "h200x2/torch_collectives.tsv",
    "h200x2/gpu_aware_driver_us.log",
}
"""Tables that this project wrote; no tool prints them."""
_GENERAL = {
    "no-band",
    "site-recognised",
    "setting-harmless",
    "setting-not-judged",
    "error-shown",
    "slow-at-one-size",
}


def neutral(path: Path) -> Source:
    """A copy without its first line, unless that is part of the format, and without its name."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix != ".json":
        data = data.split(b"\n", 1)[1]
    return Source.from_text("job.out", data)


def explained(label: dict[str, Any], **options: Any) -> Explanation:
    """The one explanation of a labelled file."""
    site = load(label["site"]) if "site" in label else None
    engine = label.get("engine")
    more = (
        [Source.from_path(path) for path in sorted(DATA.glob(label["with"]))]
        if "with" in label
        else []
    )
    sources = [neutral(DATA / label["file"]), *more]
    (found,) = explain(sources, site=site, **{"engine": engine, **options})
    return found


@cases("label", LABELS)
def test_recorded_run(label: dict[str, Any]) -> None:
    found = explained(label)
    causes = {cause.id for cause in found.causes}
    assert str(found.verdict) == label["verdict"], to_json(found)["causes"]
    assert set(label.get("causes", ())) <= causes
    assert causes <= set(label.get("causes", ())) | set(label.get("may", ()))
    assert {note.id for note in found.notes} - _GENERAL == set(label.get("notes", ()))
    for cause in found.causes:
        assert cause.evidence, cause.id
        assert cause.remedy


def test_every_recorded_file_is_labelled() -> None:
    recorded = {
        str(path.relative_to(DATA))
        for folder in FOLDERS
        for path in (DATA / folder).glob("*")
        if path.is_file() and path.name != "README.md"
    }
    labelled = {label["file"] for label in LABELS} | NO_RUN
    for label in LABELS:
        if "with" in label:
            labelled |= {str(path.relative_to(DATA)) for path in DATA.glob(label["with"])}
    assert recorded == labelled


def test_a_file_of_no_known_tool_is_bad_input() -> None:
    with pytest.raises(BusbarError, match="no known tool output found"):
        explain([neutral(DATA / "h200x2/osu_tuning.tsv")])


def test_rails_of_the_published_run() -> None:
    (label,) = [entry for entry in LABELS if entry["file"].startswith("h20-roce")]
    cause = next(c for c in explained(label).causes if c.id == "rail-mismatch")
    assert cause.details["pairs"] == [
        "10-0", "2-8", "1-10", "9-2", "6-12", "14-4", "5-14", "13-6",
    ]  # fmt: skip
    assert cause.details["nics"] == ["mlx5_0<->mlx5_2", "mlx5_3<->mlx5_4"]
    assert "one switch per rail" in cause.remedy


@pytest.mark.parametrize("gcd", range(1, 8))
def test_sdma_judged_against_the_kernel_engine(gcd: int) -> None:
    label = {"file": f"mi250x/osu_bw_sdma1_gcd0_gcd{gcd}.log", "site": "mi250x"}
    found = explained(label, engine="kernel")
    if gcd in (1, 6, 7):
        assert str(found.verdict) == "degraded"
        assert [cause.id for cause in found.causes] == ["sdma-cap"]
    else:  # one link carries no more than the copy engine does
        assert str(found.verdict) == "pass"
        assert not found.causes


def test_a_published_name_that_the_columns_contradict() -> None:
    source = neutral(DATA / "p4d-efa/all_reduce_2x8.log")
    (found,) = explain([Source("all_reduce.log", source.open)])
    note = next(n for n in found.notes if n.id == "mislabelled-collective")
    assert found.operation == "reduce_scatter"
    assert "reduce_scatter" in note.summary


def test_a_plugin_of_which_a_post_leaves_the_first_lines_out_is_loaded() -> None:
    lines = (DATA / "p4d-efa/all_reduce_2x8.log").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if "NET/OFI Init" not in line and "Selected" not in line)
    assert "NET/OFI" in text
    (found,) = explain([Source.from_text("job.out", text)])
    assert (str(found.verdict), found.causes) == ("pass", ())
