# SPDX-License-Identifier: MIT
"""Mutation of the checks: each assertion of `minimum.yaml`, taken out, lets a fault through.

A healthy record is broken in one way; all assertions together must notice it, and without the one
assertion it must pass. So each is needed, and none can be lost without a test that fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from busbar.engine import assertions, verdicts
from busbar.engine.collect import show
from busbar.engine.judge import judge
from busbar.engine.reading import Reading
from busbar.engine.verdicts import Expect, Judged
from busbar.tools.nccl_tests import rccl as mode
from busbar.verdict import Verdict, combined
from tests.cases import cases
from tests.files import read_table

from .faults import Kind
from .kinds import KINDS, fabric_ofi

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MINIMUM: dict[str, list[str]] = read_table(HERE / "minimum.yaml")
_BESIDE = {"mode": (mode, "not_in_use"), "plugin": (fabric_ofi, "wrong")}


def verdict(kind: Kind, text: str, directory: Path) -> Verdict:
    """What the check makes of an output."""
    shown = show("record", text.splitlines())
    shown.facts.readings += kind.derive(shown)
    results = judge("check", kind.run, kind.launch, shown).results
    beside = [verdict for verdict, _ in kind.also(kind.launch, shown)]
    return combined([*(result.verdict for result in results), *beside])


def test_every_check_is_on_the_list():
    """A new check without a list of what it asserts is a failure."""
    checks = {
        name
        for path in (ROOT / "reframe_checks").glob("*.py")
        for name in re.findall(r"^@rfm\.simple_test\nclass (\w+)", path.read_text(), re.MULTILINE)
    }
    assert MINIMUM.keys() == checks == KINDS.keys()


def once(cases: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the cases without those of checks that share their record with an earlier one."""
    return [*{(id(KINDS[name]), what): (name, what) for name, what in cases}.values()]


@cases("name", [name for name, _ in once((name, "") for name in KINDS)])
def test_the_record_is_healthy(name, tmp_path):
    assert not verdict(KINDS[name], KINDS[name].text, tmp_path).is_problem


@cases(
    ("name", "assertion"), once((name, each) for name, asked in MINIMUM.items() for each in asked)
)
def test_only_this_assertion_notices(name, assertion, monkeypatch, tmp_path):
    kind = KINDS[name]
    broken = kind.breaks[assertion](kind.text)
    assert broken != kind.text
    assert verdict(kind, broken, tmp_path).is_problem
    take_out(assertion, monkeypatch)
    assert not verdict(kind, broken, tmp_path).is_problem


def take_out(assertion, monkeypatch):
    """Leaves one assertion out of the whole run."""
    lost = {"low": Verdict.DEGRADED, "impossible": Verdict.IMPOSSIBLE}.get(assertion)
    if lost:
        whole = verdicts.judge_reading

        def without(reading: Reading, expect: Expect) -> Judged:
            judged = whole(reading, expect)
            return replace(judged, verdict=Verdict.PASS) if judged.verdict is lost else judged

        monkeypatch.setattr(verdicts, "judge_reading", without)
    elif assertion in _BESIDE:
        owner, name = _BESIDE[assertion]
        monkeypatch.setattr(owner, name, lambda *_, **__: iter(()))
    else:
        monkeypatch.delitem(assertions.ASSERTIONS, assertion)


def test_every_assertion_is_on_the_list():
    asked = {each for names in MINIMUM.values() for each in names}
    assert asked == {*assertions.ASSERTIONS, "low", "impossible", *_BESIDE}
