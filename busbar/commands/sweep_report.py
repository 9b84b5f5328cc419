# SPDX-License-Identifier: MIT
"""What ``busbar sweep run`` prints at its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from busbar.cluster.measure.run import SweepOutcome
from busbar.cluster.sweep.analyse import Accusation
from busbar.cluster.sweep.document import GoneNode, RunAccusation, SweepRun
from busbar.cluster.sweep.rows import PairState
from busbar.slurm.hostlist import fold
from busbar.terminal import stdout
from busbar.verdict import Verdict
from busbar.words import counted, names_text

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
            RunAccusation(**vars(one), confirmed=one.id in outcome.confirmed)
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
    """Return what is slow, for the first sentence."""
    names = [f"{one.kind} {one.id}" for one in accused]
    return f"{names_text(names)} {'are' if names[1:] else 'is'} slow"


def print_outcome(outcome: SweepOutcome, verdict: Verdict, output: Path) -> None:
    """Print the verdict on one screen."""
    terminal = stdout()
    analysis = outcome.analysis
    times = outcome.times
    accused = analysis.accused if analysis else ()
    parts = [slow_text(accused)] if accused else []
    parts += [f"{names_text(list(outcome.gone))} did not answer"] if outcome.gone else []
    parts += ["wrong data arrived"] if outcome.wrong else []
    parts += [counted(len(outcome.nodes), "node") + f" in {counted(times.rounds, 'round')}"]
    terminal.headline(verdict, "; ".join(parts), NEXT_STEP if accused else "")
    _print_findings(outcome)
    if analysis and analysis.suspects:
        terminal.line(f"undecided: {len(analysis.suspects)} pairs; --json lists them")
    if not outcome.judged:
        terminal.line("compared with each other only: give --limit, or calibrate the site")
    if outcome.stopped:
        terminal.line(f"ended early: {outcome.stopped}; --resume continues it")
    for note in analysis.notes if analysis else ():
        terminal.line(f"note: {note}")
    seconds = f"{times.launch:.1f} s of launch and {times.measured:.1f} s of measurement"
    terminal.line(f"{seconds}; results: {output}")


def _print_findings(outcome: SweepOutcome) -> None:
    """Print what is slow, wrong, gone or not measured."""
    terminal = stdout()
    if outcome.median:
        terminal.line(f"median of all pairs: {outcome.median:.4g} GB/s")
    accused = outcome.analysis.accused if outcome.analysis else ()
    for one in accused[:_SHOWN]:
        how = "certain, confirmed" if one.id in outcome.confirmed else "certain"
        terminal.line((f"{one.kind} {one.id}", "bold"), f" is slow ({how}): {one.evidence}")
    if len(accused) > _SHOWN:
        rest = ", ".join(one.id for one in accused[_SHOWN:])
        terminal.line(f"and {len(accused) - _SHOWN} more: {rest}")
    if outcome.wrong:
        pairs = sorted({row.id for row in outcome.wrong})
        terminal.line(f"wrong data between {', '.join(pairs[:_SHOWN])}")
    for node, why in outcome.gone.items():
        terminal.line((f"node {node}", "bold"), f" {why}")
    if outcome.unsteady:
        terminal.line(f"slow at times, and not accused: {', '.join(outcome.unsteady)}")
    missing = unmeasured(outcome)
    if missing:
        nodes = [name for name in missing if name in outcome.nodes]
        others = [name for name in missing if name not in outcome.nodes]
        names = names_text([*([fold(nodes)] if nodes else []), *others], _SHOWN)
        terminal.line(f"not measured: {names}")
