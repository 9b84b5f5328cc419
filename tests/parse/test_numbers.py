# SPDX-License-Identifier: MIT
"""No number raises what nobody catches, and no parser reads numbers in another way."""

from __future__ import annotations

import ast
import math
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from busbar.parse import numbers
from tests.cases import cases, some
from tests.files import syntax

ROOT = Path(__file__).parents[2]
ODD = st.one_of(
    st.text(max_size=80),
    st.text(st.sampled_from("0123456789+-.eEinfa_ x²٣"), max_size=500),
    st.sampled_from(
        ["9" * 5000, "1e400", "²", "٣", "1_0", "-inf", "nan", "0x10", " 7\n", "1e-999"]
    ),
)


@given(ODD)
def test_nothing_raises_and_all_is_bounded(text: str) -> None:
    for each in (text, text.encode("utf-8", "surrogatepass")):
        whole = numbers.whole(each)
        assert whole is None or abs(whole) <= numbers.MOST
        assert abs(numbers.count(each)) <= numbers.MOST
        real = numbers.real(each)
        assert real is None or isinstance(real, float)
    if numbers.is_whole(text):
        assert numbers.whole(text) == numbers.count(text) == int(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17", 17),
        (" -3 ", -3),
        ("²", None),
        ("٣", None),
        ("1_0", None),
        ("9" * 19, None),
        ("", None),
    ],
)
def test_whole(text: str, value: int | None) -> None:
    assert numbers.whole(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.5", 1.5), (".5", 0.5), ("1e3", 1e3), ("inf", math.inf), ("1e400", None), ("0x1", None)],
)
def test_real(text: str, value: float | None) -> None:
    assert numbers.real(text) == value


@cases(
    "text",
    [
        *("[" * 100_000, '{"a":' * 10**6, "1" * 40, "9" * 10**6, "[1e400]", "-1e400", "", "\x00"),
        *("{", "{" * 5, '"' + "\\u0000" * 10, "\ud800", b"\xff", '{"a": 1' + "0" * 5000 + "}"),
    ],
)
def test_json(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the class is all that callers know
        numbers.load_json(text)
    read = numbers.load_json(f'[1.5e300, "x", {-(2**63)}, {2**64 - 1}, NaN]')
    assert read[:4] == [1.5e300, "x", -(2**63), 2**64 - 1]


@cases("value", [None, True, [], {}, "x", 1.5, math.inf, math.nan, 10**18, "1e3"])
def test_values_of_json(value: object) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        numbers.json_whole(value)


# int(float) of a bounded float, and masks of CPUs in base 16.
ALLOWED = {
    "busbar/tools/nccl_tests/parse.py",
    "busbar/parse/machine/hwloc.py",
    "busbar/parse/cpulist.py",
}
ALLOWED |= {"busbar/explain/rules_machine.py"}


def test_parsers_read_numbers_in_one_way() -> None:
    found = set()
    for part in ("parse", "engine", "tools", "explain"):
        for path in (ROOT / "busbar" / part).rglob("*.py"):
            for node in ast.walk(syntax(path.read_text())):
                match node:
                    case (
                        ast.Call(func=ast.Name(id="int" | "float"))
                        | ast.Attribute(attr="isdecimal" | "isnumeric")
                        | ast.Attribute(value=ast.Name(id="json"), attr="loads" | "load")
                    ):
                        found.add(path.relative_to(ROOT).as_posix())
    assert found == ALLOWED | {"busbar/parse/numbers.py"}


LINES = {
    "#wrong is inf": "  1048576 262144 float sum -1 10.0 1.0 1.0 inf 10.0 1.0 1.0 inf",
    "400 digits": '{"event":"reading","metric":"bandwidth","bytes":8,"wrong":0,"from":0,"to":1,'
    f'"gb_per_s":{"9" * 400},"buffers":"H H"}}',
    "400 digits, driver": '{"event":"reading","metric":"latency","bytes":8,"wrong":0,"from":0,'
    f'"to":1,"us":1,"driver_us":{"9" * 400},"buffers":"D D"}}',
    "a digit of another script": "$ mpirun -np 2 osu_bw -m 1:²",
    "ranks of another script": "$ mpirun -np ² osu_bw",
    "a long maxBytes": f"# nThread 1 nGpus 1 minBytes 8 maxBytes {'9' * 400} step: 2(factor)",
    "a long option": f"$ all_reduce_perf -m 1:{'9' * 400}",
    "a quote in a variable": '{"placed":{"rank":0,"host":"n","pid":1,"node_rank":0,"cpus":"0",'
    '"visible":"0"1"}}',
    "a long UCX size": f"UCX_RNDV_THRESH={'9' * 5000}",
    "nested": '{"event":' + "[" * 50_000,
    "#wrong is a list": '{"results":[{"size":1e400,"count":1}],"config":{}}',
    "errors are objects": '{"results":[],"config":{},"errors":[{"a":1}]}',
    "config is a list": '{"results":[],"config":[]}',
    "visible": "$ export CUDA_VISIBLE_DEVICES=²,٣,99999999999999999999999999",
}


@cases(("name", "place"), some(product(LINES, ["alone", "before", "after", "instead"]), 3))
def test_odd_numbers_in_a_log(
    name: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from busbar.cli import main

    log = tmp_path / "job.out"
    healthy = (ROOT / "tests/data/h200x4/osu_bibw_healthy.log").read_text()
    line = LINES[name] + "\n"
    text = {"alone": line, "before": line + healthy, "after": healthy + line}.get(place)
    log.write_text(text or healthy.replace(healthy.splitlines()[-1], line))
    main(["explain", str(log)])
    main(["explain", "--json", str(log)])
    assert "internal error" not in capsys.readouterr().err
