# SPDX-License-Identifier: MIT
"""Write the outcomes of a run as JUnit, one test case for each check and place."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from busbar.boundary import one_line
from busbar.check.listing import Match
from busbar.cluster.nightly.night import Night, NightlyDocument, NightStage, why_missing
from busbar.cluster.nightly.stages import snapshots
from busbar.engine.results import Outcome, Result
from busbar.verdict import Verdict


def junit(site: str, outcomes: Sequence[Outcome], skipped: Sequence[Match], time: str) -> str:
    """Return the XML: a problem is a failure, what did not run is an error."""
    return document(
        [suite_of(site, outcomes, [(each.name, each.reason) for each in skipped], time)]
    )


def document(suites: Sequence[ET.Element]) -> str:
    """Return the XML of several suites."""
    root = ET.Element("testsuites")
    root.extend(suites)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def suite_of(
    site: str, outcomes: Sequence[Outcome], skipped: Sequence[tuple[str, str]], time: str
) -> ET.Element:
    """Return the suite of a run; ``skipped`` has checks with their reasons."""
    suite = ET.Element("testsuite", name=one_line(f"busbar.{site}"), timestamp=one_line(time))
    counts = {"tests": len(outcomes) + len(skipped), "failures": 0, "errors": 0}
    for outcome in outcomes:
        case = _case(suite, site, outcome.check, outcome.partition, outcome.environment)
        places = dict.fromkeys(row.where for row in outcome.results if row.where)
        properties = ET.SubElement(case, "properties")
        for name, value in (
            ("partition", outcome.partition),
            ("nodes", ";".join(places)),
            ("verdict", str(outcome.verdict)),
        ):
            ET.SubElement(properties, "property", name=name, value=one_line(value))
        case.set("name", one_line(" ".join(filter(None, (outcome.check, ";".join(places))))))
        if outcome.verdict.is_problem:
            kind = "error" if outcome.verdict is Verdict.NOT_RUN else "failure"
            counts["errors" if kind == "error" else "failures"] += 1
            wrong = ET.SubElement(case, kind, type=str(outcome.verdict))
            wrong.set("message", one_line(outcome.sentence()))
        else:
            rows = (row for row in outcome.results if row.value is not None)
            ET.SubElement(case, "system-out").text = "\n".join(map(_line, rows))
    for name, reason in skipped:
        case = _case(suite, site, name, "", "")
        ET.SubElement(case, "skipped", message=one_line(reason))
    suite.set("skipped", str(len(skipped)))
    for name, count in counts.items():
        suite.set(name, str(count))
    return suite


def _case(suite: ET.Element, site: str, name: str, *place: str) -> ET.Element:
    classname = ".".join(one_line(part) for part in (site, *place) if part)
    return ET.SubElement(suite, "testcase", classname=classname, name=one_line(name))


def _line(row: Result) -> str:
    parts = (row.where, row.metric, row.buffers, row.pair, f"{row.bytes} bytes")
    return one_line(f"{' '.join(filter(None, parts))}: {row.value:.6g} {row.unit} {row.verdict}")


def junit_of_night(night: Night, state: NightlyDocument) -> str:
    """Return the JUnit file: a suite for the stages, and one for each set of checks."""
    missing = [
        NightStage(name, Verdict.NOT_RUN, why_missing(state), finished=False)
        for name in state.names
        if not state.stage(name)
    ]
    stages = [_outcome(stage, state) for stage in (*state.stages, *missing)]
    suites = [suite_of(f"{state.site}.nightly", stages, (), state.begun)]
    for name, found in snapshots(night).items():
        skipped = [(each.check, each.reason) for each in found.skipped]
        suites.append(suite_of(f"{found.site}.{name}", found.outcomes, skipped, found.time))
    return document(suites)


def _outcome(stage: NightStage, state: NightlyDocument) -> Outcome:
    """Return a stage as the outcome of a check: its verdict is the verdict of the stage."""
    row = Result(stage.name, stage.verdict, message=stage.message)
    return Outcome(stage.name, "", (row,), partition=state.partition)
