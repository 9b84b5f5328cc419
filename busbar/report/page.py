# SPDX-License-Identifier: MIT
"""Put a page together: the overview of a run, its failures, and a section for each check."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from busbar.boundary import visible
from busbar.check.names import short_name
from busbar.check.snapshot import Snapshot
from busbar.cluster.nodes.record import NodeRecord
from busbar.engine.results import Outcome
from busbar.report.failures import Failure, failures
from busbar.report.fleet import Fleet, of_outcomes
from busbar.report.headline import Headline, headline, of_news
from busbar.report.news import News
from busbar.report.rows import Namer, namer
from busbar.report.scale import number
from busbar.report.sections import CheckSection, Frame, sections
from busbar.report.trend import Trend
from busbar.units import format_bytes
from busbar.verdict import Verdict
from busbar.words import counted, grouped

_LONGEST = 4000


@dataclass(frozen=True)
class Page:
    """One page of a report."""

    run: Snapshot
    headline: Headline
    counts: tuple[tuple[Verdict, int], ...]
    news: tuple[News, ...]
    """What the history says has changed."""
    before: Snapshot | None
    failures: tuple[Failure, ...]
    fleet: Fleet | None
    sweep: Fleet | None
    records: tuple[NodeRecord, ...]
    """The nodes that are not healthy."""
    checks: tuple[CheckSection, ...]
    others: tuple[Trend, ...]
    """The history of series that this run did not measure."""
    differs: tuple[str, ...]
    """What it ran with that the run before did not."""
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    """Each fact with its checks."""
    unmeasured: tuple[tuple[str, str], ...]
    readings: int
    unjudged: int

    @property
    def judged(self) -> str:
        """How many readings were judged, in words."""
        return f"{counted(self.readings - self.unjudged, 'reading')} judged"


def page_of(
    frame: Frame,
    news: Sequence[News] = (),
    before: Snapshot | None = None,
    sweep: Fleet | None = None,
    nodes: Sequence[NodeRecord] = (),
) -> Page:
    """Return the overview of one run; failures that ``before`` lacks are new."""
    run = frame.run
    records = tuple(one for one in nodes if one.next)
    # As busbar history changes and busbar node say; the checks of this run keep their verdicts.
    faulty = any(one.state == "faulty" for one in records)
    if not run.verdict.is_problem and (faulty or of_news(news)):
        run = replace(run, verdict=Verdict.DEGRADED)
    name = namer(run.outcomes)
    found = failures(run, name, scheduled=frame.scheduled)
    of_checks = {
        id(one)
        for outcome in run.outcomes
        for one in frame.trends_of(outcome.check, outcome.results)
    }
    others = [one for each in frame.trends.values() for one in each if id(one) not in of_checks]
    others.sort(key=lambda one: (not one.fills_a_picture, not one.worse, not one.changed))
    if before:
        known = {
            (each.id, check)
            for each in failures(before, name, scheduled=False)
            for check in each.checks
        }
        for each in found:
            each.new = not any((each.id, check) in known for check in each.checks)
    readings = [row for each in run.outcomes for row in each.results if row.value is not None]
    return Page(
        run=run,
        headline=headline(
            *(run, name, found),
            news=news,
            sweep=sweep,
            series=sum(map(len, frame.trends.values())),
            records=records,
        ),
        counts=counts(run.outcomes),
        news=tuple(news),
        before=before,
        failures=tuple(found),
        fleet=of_outcomes(run.outcomes),
        sweep=sweep,
        records=records,
        checks=tuple(sections(frame)),
        others=tuple(others),
        differs=tuple(_differs(before, run)) if before else (),
        notes=tuple(_notes(run.outcomes, name)),
        unmeasured=tuple(_unmeasured(run, name, sweep)),
        readings=len(readings),
        unjudged=sum(row.verdict is Verdict.UNJUDGED for row in readings),
    )


def counts(outcomes: Iterable[Outcome]) -> tuple[tuple[Verdict, int], ...]:
    """Return the number of checks per verdict, the worst first, ``unjudged`` last."""
    found = Counter(outcome.verdict for outcome in outcomes)
    last = Verdict.UNJUDGED
    return tuple(sorted(found.items(), key=lambda each: (each[0] is last, -each[0].severity)))


def _notes(outcomes: Iterable[Outcome], name: Namer) -> Iterator[tuple[str, tuple[str, ...]]]:
    notes = ((note, name(each)) for each in outcomes for note in each.notes)
    for text, checks in grouped((f"{n.id}: {n.summary}", check) for n, check in notes).items():
        yield text, tuple(dict.fromkeys(checks))


def _unmeasured(run: Snapshot, name: Namer, sweep: Fleet | None) -> Iterator[tuple[str, str]]:
    """Yield what was not measured and why: never assumed to be good."""
    if run.interrupted:
        yield "the rest of the run", f"interrupted by {run.interrupted}"
    for outcome in run.outcomes:
        for row in outcome.results:
            if row.verdict is Verdict.NOT_RUN:
                where = f" on {row.where}" if row.where else ""
                yield name(outcome) + where, row.message
        measured = any(row.value is not None or row.metric for row in outcome.results)
        if not measured and outcome.verdict is not Verdict.NOT_RUN:
            reasons = dict.fromkeys(row.message for row in outcome.results if row.message)
            yield name(outcome), "; ".join(reasons) or "no reading"
    if sweep:
        yield from ((each, "not measured by the sweep") for each in sweep.unmeasured)
        yield from (("the sweep", note) for note in sweep.notes)


def _differs(before: Snapshot, run: Snapshot) -> Iterator[str]:
    old = before.versions
    for name, text in run.versions.items():
        if name != "nodes" and old.get(name, text) != text:
            yield f"{name} {old[name]} -> {text}"


def render(page: Page) -> str:
    """Return one file with everything."""
    return _rendered("report.html.j2", page=page, run=page.run, inline=True)


def render_pages(page: Page) -> Iterator[tuple[str, str]]:
    """Yield name and HTML of the overview and of a page for each check."""
    yield "index.html", _rendered("report.html.j2", page=page, run=page.run, inline=False)
    for check in page.checks:
        yield f"{check.id}.html", _rendered("check.html.j2", check=check, run=page.run)


def _rendered(template: str, **values: object) -> str:
    environment = templates()
    style = environment.get_template("style.css.j2").render()
    script = environment.get_template("script.js.j2").render()
    return environment.get_template(template).render(
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        style_hash=_hash(style),
        script_hash=_hash(script),
        **values,
    )


def _hash(text: str) -> str:
    """Return the hash by which a policy allows an inline text, and no other."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def templates() -> Environment:
    """Return the templates of pages and pictures."""
    environment = Environment(
        loader=PackageLoader("busbar.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = lambda count: format_bytes(count) if count else ""
    environment.filters["number"] = number
    environment.filters["short"] = short_name
    environment.filters["slug"] = lambda verdict: str(verdict).replace(" ", "-")
    return environment


def _shown(value: object) -> object:
    """Make control characters and changes of text direction visible, as on the terminal."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return visible(value if len(value) <= _LONGEST else value[:_LONGEST] + " ...")
