# SPDX-License-Identifier: MIT
"""The options of ``busbar gate``, and the gate by itself: ``python -I -m busbar.gate``.

It imports only the standard library, so it starts quickly, and reads the site from the output of
``busbar gate compile``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import starmap
from pathlib import Path
from pkgutil import get_data

from busbar.arguments import Parser, described, option
from busbar.errors import BusbarError, of_os
from busbar.gate import site as sites, slurm as scheduler
from busbar.gate.findings import GateDocument
from busbar.gate.memory import recall
from busbar.gate.output import show, write_metrics
from busbar.gate.run import GateOptions, run
from busbar.gate.site import GateSite, Xid
from busbar.plain import Plain, stderr, stdout
from busbar.redact import redact
from busbar.seal import sealed

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
        screen.document(sealed(asdict(result)), 2)
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
