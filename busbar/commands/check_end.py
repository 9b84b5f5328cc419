# SPDX-License-Identifier: MIT
"""The end of ``busbar check``: write and print the results."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from busbar.boundary import replace_file
from busbar.check.document import document_of
from busbar.check.listing import Match
from busbar.check.outcome import interrupted
from busbar.check.processes import Interruption
from busbar.check.snapshot import of_document
from busbar.check.surroundings import refuse_without_space
from busbar.check.target import Target, coverage, untested
from busbar.document import json_text, to_json
from busbar.engine.check_document import CheckDocument
from busbar.engine.results import Outcome
from busbar.parse import numbers
from busbar.report.headline import Headline
from busbar.report.junit import junit
from busbar.report.page import page_of, render
from busbar.report.sections import Frame
from busbar.report.terminal import print_run, summary
from busbar.site import Site
from busbar.terminal import stdout
from busbar.verdict import Verdict, exit_status


@dataclass
class RunState:
    """The state of the run so far."""

    site: str
    lane: str
    model: Site | None = None
    """The site, once loaded."""
    target: Target = field(default_factory=Target)
    chosen: Sequence[Match] = ()
    outcomes: list[Outcome] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)


def conclude(args: argparse.Namespace, output: Path, state: RunState) -> int:
    """Write and print the results, and return the exit status."""
    interruption: Interruption = args.interruption
    failure: OSError | None = None
    while True:
        name = interruption.name
        outcomes = [*state.outcomes, *untested(state.target, state.lane)]
        skipped = [match for match in state.chosen if not match.runs_in]
        if name:
            skipped += _not_run(state, name)
            outcomes.append(interrupted("busbar check", state.lane, f"{name} ended the run"))
        document = document_of(
            *(state.site, state.lane, outcomes, skipped),
            interrupted=name,
            coverage=_coverage(state.target, outcomes),
            # An interrupted run without results leaves the previous run's report in place.
            sessions=_sessions(output) if state.outcomes else [],
        )
        page = page_of(Frame(of_document(document), state.model))
        advised = _with_next_step(page.headline, state.model)
        try:
            replace_file(output / "results.json", json_text(document))
            replace_file(output / "report.html", render(replace(page, headline=advised)))
        except OSError as error:
            failure = error
        if interruption.name == name:
            break
    if args.junit:
        replace_file(args.junit, junit(state.site, outcomes, skipped, document.time))
    _write_metrics(args.prometheus, document)
    try:
        if args.json:
            stdout().document(to_json(document))
        elif args.summary:
            stdout().line(summary(document.verdict, document.coverage, page.headline))
        else:
            print_run(
                document.verdict,
                document.coverage,
                outcomes,
                skipped,
                stdout(),
                headline=advised,
                seconds=time.monotonic() - state.begun,
                report=output / "report.html",
                verbose=args.verbose,
            )
        sys.stdout.flush()
    except OSError:  # the reader or the terminal is gone; the results are in the files
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if failure:
        raise failure
    refuse_without_space(output)
    status = exit_status(document.verdict, require_bands=args.require_bands)
    return interruption.status if name else status


def _with_next_step(headline: Headline, site: Site | None) -> Headline:
    """Suggest the next step after a run without findings."""
    if headline.next or not site:
        return headline
    if site.scheduler == "local":
        step = "for a cluster: busbar site detect --output DIR/NAME, then check --site DIR/NAME"
    else:
        step = f"busbar sweep run --site {site.name} compares all nodes with each other"
    return replace(headline, next=step)


def _write_metrics(file: Path | None, document: CheckDocument) -> None:
    if file:
        # Slow to import, and few runs need it.
        from busbar.report.prometheus import metrics  # noqa: PLC0415

        replace_file(file, metrics(of_document(document)))


def _coverage(target: Target, outcomes: Sequence[Outcome]) -> str:
    """Return how many nodes have a conclusive result."""
    tested = [
        node
        for outcome in outcomes
        if outcome.verdict is not Verdict.NOT_RUN
        for row in outcome.results
        for node in row.where.split(",")
    ]
    return coverage(target, tested)


def _sessions(output: Path) -> list[str]:
    """Return the ID of ReFrame's first session, which ran every check once."""
    try:
        report = numbers.load_json((output / "reframe.json").read_text(encoding="utf-8"))
        return [str(report["session_info"]["uuid"])]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # ReFrame did not finish


def _not_run(state: RunState, name: str) -> list[Match]:
    """Return the checks that an interrupted run did not reach."""
    begun = {outcome.check for outcome in state.outcomes}
    return [
        replace(match, reason=f"{name} ended the run before this check")
        for match in state.chosen
        if match.runs_in and not {match.name, match.test} & begun
    ]
