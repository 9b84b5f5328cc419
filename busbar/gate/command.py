# SPDX-License-Identifier: MIT
"""The options of ``busbar gate``, and the gate by itself: ``python -I -m busbar.gate``.

It imports the standard library alone, so that it starts in an instant, and reads what
``busbar gate compile`` wrote of the site.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import starmap
from pathlib import Path
from pkgutil import get_data

from busbar.arguments import Parser, described, option
from busbar.boundary import metric_label, refuse_foreign, replace_file
from busbar.errors import BusbarError, of_os
from busbar.gate import site as sites
from busbar.gate import slurm as scheduler
from busbar.gate.findings import GateDocument, gravest_first
from busbar.gate.memory import recall
from busbar.gate.run import GateOptions, run
from busbar.gate.site import GateSite, Xid
from busbar.plain import Column, Part, Plain, stderr, stdout
from busbar.redact import redact
from busbar.verdict import STYLES, Verdict

# ---- The result of the gate as text or metrics
DRAIN = "drain: "
"""What the line with the reason begins with. The scripts for Slurm look for it."""
_RANKS = {"verdict": 0, "check": 0, "where": 1, "value": 2, "band": 3, "mode": 5, "note": 4}
_COLUMNS = tuple(Column(name, rank=rank) for name, rank in _RANKS.items())
_MOST_FAULTS = 3


def show(result: GateDocument, screen: Plain) -> None:
    """Print what is wrong, a line for each check that did not pass, and the reason of a drain."""
    verdict = (str(result.verdict), STYLES[result.verdict])
    screen.line(verdict, f": {result.node}: {_sentence(result)}")
    rows: list[list[Part]] = [
        [
            (str(row.verdict), STYLES[row.verdict]),
            *(row.check, row.where, row.value, row.band, row.mode, row.note),
        ]
        for row in gravest_first(result.checks)
        if row.verdict is not Verdict.PASS or row.gb_per_s is not None
    ]
    if rows:
        screen.fitted(_COLUMNS, rows)
    for problem in result.problems:
        screen.line(f"not complete: {problem}")
    if step := _next(result):
        screen.line(f"next: {step}")
    passed = sum(row.verdict is Verdict.PASS for row in result.checks)
    kind = "state only" if result.passive else "state and copies"
    site = f"site {result.site}" if result.site else "no site"
    screen.line(
        f"{passed} of {len(result.checks)} checks pass, {kind}, {site}, {result.seconds:.1f} s"
    )
    if result.reason:
        screen.line(f"{'' if result.drain else 'would '}{DRAIN}{result.reason}")


def _sentence(result: GateDocument) -> str:
    faults = [row for row in gravest_first(result.checks) if row.is_fault]
    if faults:
        parts = [
            f"{row.check} {row.where}".strip()
            + f" is {row.value}"
            + f", not {row.band}" * bool(row.band)
            for row in faults
        ]
        ending = "; the site only observes this: the node stays in service"
        if result.reason:
            ending = "" if result.drain else "; a dry run drains nothing"
        return "; ".join(parts[:_MOST_FAULTS]) + _more(parts) + ending
    doubtful = [row for row in result.checks if row.verdict is Verdict.UNKNOWN]
    open_ = [*result.problems, *(f"{row.check}: {row.note}" for row in doubtful)]
    if open_:
        return f"no certain fault was found; {open_[0]}" + _more(open_, 1)
    return "no fault was found, it is fit for jobs"


def _next(result: GateDocument) -> str:
    """Return what to do; empty if nothing is wrong."""
    called = f"busbar gate --site {result.site}" if result.site else "busbar gate"
    if sys.argv[0].endswith(".pyz"):
        called = f"python3 -I {shlex.quote(sys.argv[0])}"
    if result.problems:
        return f"{result.problems[0]}; then run {called} again"
    if not result.site:
        return "busbar site list, then busbar gate --site NAME, which checks more"
    if faults := [row for row in gravest_first(result.checks) if row.is_fault]:
        first = faults[0]
        return f"{f'{first.check} {first.where}'.strip()}: {first.remedy}; then run {called} again"
    open_ = [row.check for row in result.checks if row.verdict is Verdict.UNKNOWN]
    return f"nothing to repair; the line for {open_[0]} gives the reason" if open_ else ""


def _more(parts: Sequence[str], shown: int = _MOST_FAULTS) -> str:
    return f"; and {len(parts) - shown} more" if len(parts) > shown else ""


def write_metrics(result: GateDocument, path: Path) -> None:
    """Write the metrics for node_exporter's textfile collector; it never sees half a file."""
    refuse_foreign(path.parent, str(path))
    replace_file(path, metrics(result), public=True)


def metrics(result: GateDocument) -> str:
    """Return the metrics in the text format of Prometheus."""
    at = datetime.fromisoformat(result.time).timestamp()
    places = [(row, {"check": row.check, "where": row.where}) for row in result.checks]
    gauges: tuple[tuple[str, str, list[tuple[dict[str, str], float]]], ...] = (
        ("drain", "Whether the node must leave service", [({}, result.drain)]),
        ("complete", "Whether all checks ran", [({}, not result.problems)]),
        ("duration_seconds", "How long the gate took", [({}, result.seconds)]),
        ("timestamp_seconds", "When the gate began", [({}, at)]),
        (
            *("verdict", "1 for the verdict of the last run"),
            [({"verdict": str(each)}, each is result.verdict) for each in Verdict],
        ),
        (
            *("fault", "Whether a check found a fault"),
            [(place | {"mode": row.mode}, row.is_fault) for row, place in places],
        ),
        (
            *("unknown", "Whether the state of a check is unknown"),
            [(place, row.verdict is Verdict.UNKNOWN) for row, place in places],
        ),
        (
            *("copy_bytes_per_second", "Rate of a copy"),
            [(place, row.gb_per_s * 1e9) for row, place in places if row.gb_per_s is not None],
        ),
    )
    lines = []
    for name, text, samples in gauges:
        full = f"busbar_gate_{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} gauge"]
        for labels, value in samples:
            words = ",".join(f'{key}="{metric_label(label)}"' for key, label in labels.items())
            lines.append(f"{full}{f'{{{words}}}' if words else ''} {float(value)!r}")
    return "\n".join(lines) + "\n"


# ---- The command
EXIT_FAULT = 1
_EXIT_USAGE = 2
_LEAST_S, _MOST_S = 2.0, 3600.0


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _LEAST_S <= value <= _MOST_S:
        raise argparse.ArgumentTypeError(
            f"must be {_LEAST_S:g} to {_MOST_S:g} seconds, got {text!r}"
        )
    return value


_DEADLINE = "seconds after which the gate reports what it has"
OPTIONS = (
    *starmap(option, json.loads(get_data(__name__, "options.json") or "").items()),
    option("--deadline S", _DEADLINE, type=_seconds, default=45),
)
"""All options except the site."""


def usage_status() -> int:
    """Return 2, but 0 in a prolog: a wrong option must not drain a node."""
    hook = os.environ.get("SLURM_SCRIPT_CONTEXT", "").startswith(scheduler.HOOKS)
    return 0 if hook else _EXIT_USAGE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the gate without the rest of Busbar."""
    _, text = described(run_gate)
    parser = Parser(prog="busbar-gate", description=text)
    site = "site file written by busbar gate compile (default: no site)"
    for each in (option("--site FILE", site), *OPTIONS):
        each(parser)
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:
        return usage_status() if end.code else 0
    slurm = scheduler.from_environment()
    load = partial(sites.read, args.site) if args.site else lambda: None
    return run_gate(args, slurm, load, stdout())


def run_gate(
    args: argparse.Namespace,
    slurm: scheduler.SlurmContext,
    load: Callable[[], GateSite | None],
    screen: Plain,
    xid: Callable[[int], Xid] | None = None,
) -> int:
    """Check in seconds whether this node may take jobs.

    Reads the state of this node, moves bytes over each link of its GPUs, and judges both by the
    site. docs/gate.md shows how Slurm runs it.

    Exit status: 0 the node may take jobs, or nothing certain is known against it, also after an
    error of the gate; 1 a fault that the site enforces; 2 invalid options, or the site or the type
    of this node is unknown, but 0 in a prolog or epilog, so that a mistake drains no node.

    Examples:

        busbar gate --site alpha
        busbar gate --site alpha --passive --json
        busbar gate compile --site alpha --output /etc/slurm/busbar
    """
    status = 0
    try:
        commands = (args.drain * (2 if args.memory else 1) + args.recheck) * scheduler.COMMANDS_S
        result = run(
            GateOptions(
                slurm=slurm,
                load=load,
                xid=xid,
                partition=args.partition or "",
                passive=args.passive,
                dry_run=args.dry_run,
                deadline_s=max(args.deadline - commands, _LEAST_S),
                memory=args.memory,
            )
        )
        mistake = usage_status() if result.misconfigured else 0
        status = EXIT_FAULT if result.drain else mistake
        if result.misconfigured:
            _complain(result.problems[0])
        _report(args, result, screen)
        _act(args, result, slurm)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:  # noqa: BLE001 - an internal error must not drain the node
        with contextlib.suppress(OSError):
            _complain(f"internal error: {redact(repr(error))[:300]}")
    return status


def _complain(text: str) -> None:
    stderr().line(f"busbar gate: {text}")


def _report(args: argparse.Namespace, result: GateDocument, screen: Plain) -> None:
    if args.prometheus:
        try:
            write_metrics(result, args.prometheus)
        except OSError as error:
            _complain(str(of_os(error, "cannot be written", args.prometheus)))
        except BusbarError as error:
            _complain(str(error))
    if args.json:
        screen.document(asdict(result), 2)
    else:
        show(result, screen)


def _act(args: argparse.Namespace, result: GateDocument, slurm: scheduler.SlurmContext) -> None:
    if args.dry_run:
        return
    if (args.drain or args.recheck) and slurm.in_prolog:
        _complain(
            "--drain and --recheck have no effect in a prolog or epilog: its "
            "exit status drains the node"
        )
        return
    if args.drain and args.memory and not slurm.in_job:
        _explain_refusal(args.memory, slurm)
    if args.drain and result.drain:
        _complain(scheduler.drain_node(result, slurm))
    if args.recheck:
        _complain(scheduler.resume_node(result, slurm))


def _explain_refusal(path: Path, slurm: scheduler.SlurmContext) -> None:
    """Tell Slurm why a prolog or epilog has failed, which must not run Slurm's commands itself."""
    memory = recall(path, Path("/"))
    if memory.refused:
        said, known = scheduler.name_reason(slurm.node, memory.refused)
        _complain(said)
        if known:
            memory.refused = ""
            memory.write()
