# SPDX-License-Identifier: MIT
"""What ``busbar sweep run`` prints at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from busbar.cluster.measure.run import SweepOutcome
from busbar.cluster.sweep.accusation import WORDS, Accusation
from busbar.cluster.sweep.document import GoneNode, RunAccusation, SweepRun
from busbar.cluster.sweep.rows import PairState
from busbar.slurm.hostlist import fold
from busbar.terminal import stdout
from busbar.verdict import Verdict
from busbar.words import counted, grouped, names_text

_SHOWN = 10
NEXT_STEP = "test a slow node by itself: busbar check --site SITE --nodelist NODE"


def document(outcome: SweepOutcome, verdict: Verdict, output: Path) -> SweepRun:
    """Return the JSON document."""
    found = outcome.analysis
    times = outcome.times
    return SweepRun(
        verdict=verdict,
        nodes=tuple(outcome.nodes),
        median_gb_per_s=outcome.median,
        accused=tuple(
            RunAccusation(
                **vars(one), confirmed=one.id in outcome.confirmed or one.fault != "slow"
            )
            for one in (found.accused if found else ())
        ),
        suspects=found.suspects if found else (),
        unsteady=tuple(outcome.unsteady),
        wrong_data=tuple(row.id for row in outcome.wrong),
        unmeasured=tuple(unmeasured(outcome)),
        gone=tuple(GoneNode(node, why) for node, why in outcome.gone.items()),
        stopped=outcome.stopped,
        notes=found.notes if found else (),
        rounds=times.rounds,
        steps=times.steps,
        launch_s=round(times.launch, 3),
        measured_s=round(times.measured, 3),
        output=str(output),
    )


def unmeasured(outcome: SweepOutcome) -> list[str]:
    """Return what could not be measured: nodes, NICs and pairs."""
    if not outcome.analysis:
        return list(outcome.nodes)
    missing = dict.fromkeys([*outcome.gone, *outcome.absent, *outcome.analysis.unmeasured])
    measured = [row for row in outcome.rows if row.state is PairState.OK and not row.inside]
    seen = {node for row in measured for node in (row.a, row.b)}
    missing |= dict.fromkeys(node for node in outcome.nodes if node not in seen)
    pairs = (f"{row.a}-{row.b}" for row in outcome.left if not {row.a, row.b} & missing.keys())
    return list(missing | dict.fromkeys(pairs))


def slow_text(accused: Sequence[Accusation]) -> str:
    """Return what is slow, or has another fault, for the first sentence."""
    of = grouped((WORDS[one.fault], f"{one.kind} {one.id}") for one in accused)
    return "; ".join(
        f"{names_text(names)} {'are' if names[1:] else 'is'} {words}"
        for words, names in of.items()
    )


def print_run(run: SweepRun, *, judged: bool) -> None:
    """Print the verdict on one screen."""
    terminal = stdout()
    parts = [slow_text(run.accused)] if run.accused else []
    gone = [one.node for one in run.gone]
    parts += [f"{names_text(gone)} did not answer"] if gone else []
    parts += ["wrong data arrived"] if run.wrong_data else []
    parts += [counted(len(run.nodes), "node") + f" in {counted(run.rounds, 'round')}"]
    terminal.headline(run.verdict, "; ".join(parts), NEXT_STEP if run.accused else "")
    if run.median_gb_per_s:
        terminal.line(f"median of all pairs: {run.median_gb_per_s:.4g} GB/s")
    for one in run.accused[:_SHOWN]:
        how = "certain, confirmed" if one.confirmed else "certain"
        text = f" is {WORDS[one.fault]} ({how}): {one.evidence}"
        terminal.line((f"{one.kind} {one.id}", "bold"), text)
    for line in _lines(run):
        terminal.line(line)
    if not judged:
        terminal.line("compared with each other only: give --limit, or calibrate the site")
    if run.stopped:
        terminal.line(f"ended early: {run.stopped}; --resume continues it")
    for note in run.notes:
        terminal.line(f"note: {note}")
    seconds = f"{run.launch_s:.1f} s of launch and {run.measured_s:.1f} s of measurement"
    terminal.line(f"{seconds}; results: {run.output}")


def _lines(run: SweepRun) -> Iterator[str]:
    """Yield what else is slow, wrong, gone, not measured or not decided."""
    if rest := [one.id for one in run.accused[_SHOWN:]]:
        yield f"and {len(rest)} more: {', '.join(rest)}"
    if run.wrong_data:
        yield f"wrong data between {', '.join(sorted({*run.wrong_data})[:_SHOWN])}"
    yield from (f"node {one.node} {one.reason}" for one in run.gone)
    if run.unsteady:
        yield f"slow at times, and not accused: {', '.join(run.unsteady)}"
    nodes = [name for name in run.unmeasured if name in run.nodes]
    others = [name for name in run.unmeasured if name not in run.nodes]
    if names := [*([fold(nodes)] if nodes else []), *others]:
        yield f"not measured: {names_text(names, _SHOWN)}"
    if run.suspects:
        yield f"undecided: {len(run.suspects)} pairs; --json lists them"
