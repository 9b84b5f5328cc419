# SPDX-License-Identifier: MIT
"""``busbar expect``: print limit and band of a benchmark on a site, with path and sources."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.commands.option_types import positive
from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES, NoExpectation, Question, expect
from busbar.expect.collective import PROTOCOLS, harnesses
from busbar.expect.expectation import fitted_numbers
from busbar.expect.point import BUFFERS
from busbar.expect.show import (
    Answer,
    ExpectDocument,
    FitCounts,
    MatrixDocument,
    PairAnswer,
    matrix_table,
    single,
)
from busbar.site.model import Site
from busbar.site.tuning import lanes, profiles, refuse_unknown
from busbar.terminal import stdout
from busbar.units import format_bytes, parse_bytes

POINT_BENCHES = ("osu_bw", "osu_bibw", "osu_latency")


def add_parser(subparsers: Any) -> None:
    """Add ``busbar expect``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "expect",
        description=(
            "Print limit, low, typical and high, the path of the data, and the source of each"
            " number. Without --from and --to, print the matrix of all pairs for a point-to-point"
            " benchmark. If no data supports a band, print the limit and the reason. Exit status:"
            " 0 printed, 2 invalid input."
        ),
    )
    parser.add_argument("--site", required=True, help="name or directory of a site")
    parser.add_argument(
        "--bench",
        default="osu_bw",
        choices=[*POINT_BENCHES, "osu_mbw_mr", *COLLECTIVES],
        help="benchmark (default: %(default)s)",
    )
    parser.add_argument("--from", dest="src", type=int, metavar="A", help="sending GPU")
    parser.add_argument("--to", dest="dst", type=int, metavar="B", help="receiving GPU")
    parser.add_argument(
        "--nodes", type=positive, default=1, metavar="N", help="number of nodes (default: 1)"
    )
    parser.add_argument(
        "--ranks", type=positive, metavar="N", help="ranks on all nodes (default: one per GPU)"
    )
    parser.add_argument(
        "--bytes",
        dest="nbytes",
        type=_size,
        metavar="SIZE",
        help="message size, such as 16M (default: the largest with data)",
    )
    parser.add_argument(
        "--buffers",
        choices=BUFFERS,
        help="device (D) or host (H) buffers of sender and receiver (default: D D)",
    )
    parser.add_argument(
        "--engine", choices=["sdma", "kernel"], help="copy engine (default: the family's)"
    )
    parser.add_argument(
        "--algo", choices=["ring", "tree", "nvls"], help="algorithm (default: any)"
    )
    parser.add_argument("--protocol", help="protocol of NCCL or RCCL (default: any)")
    parser.add_argument(
        "--plugin", help="network plugin with major version: aws-ofi-nccl-1 (default: any)"
    )
    parser.add_argument("--harness", help="nccl-tests, rccl-tests or pytorch (default: any)")
    parser.add_argument("--partition", help="partition (default: the site's first)")
    parser.add_argument(
        "--profile", help="tuning profile of the family, see `busbar site env` (default: none)"
    )
    parser.add_argument(
        "--env",
        action="append",
        metavar="NAME=VALUE",
        help="environment of the run instead of the site's; repeatable; --env '' for an empty one",
    )
    parser.add_argument("--lane", help="UCX lane: ucx-1.14 or ucx-current (default: any)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the matrix as .svg")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    site = sites.load(args.site)
    if (args.src is None) != (args.dst is None):
        raise BusbarError("--from and --to must be given together", hint="give both or neither")
    _refuse_inapplicable(args)
    choices = {
        "lane": lanes(site),
        "profile": profiles(site),
        "harness": harnesses(site),
        "protocol": list(PROTOCOLS),
    }
    for option, names in choices.items():
        refuse_unknown(site, option, getattr(args, option), names)
    if args.plot:
        from busbar.report.expected import check_name  # noqa: PLC0415 - only with --plot

        check_name(args.plot)
    given = {name: value for name, value in vars(args).items() if value is not None}
    named = {each.name: given[each.name] for each in fields(Question) if each.name in given}
    question = Question(**named, environment=_environment(args.env))
    pair_matrix = args.bench in POINT_BENCHES and args.src is None
    if args.plot and not pair_matrix:
        raise BusbarError("--plot needs a matrix of all pairs", hint="omit --from and --to")
    if pair_matrix:
        return _matrix(args, site, question)
    answer = _ask(site, question)
    if args.json:
        document = ExpectDocument(site=site.name, bench=args.bench, answer=answer)
        stdout().document(to_json(document), indent=2)
    else:
        stdout().show(single(site, args.bench, answer))
    return 0


_ONLY_FOR = {
    "src": "two GPUs",
    "dst": "two GPUs",
    "buffers": "two GPUs",
    "engine": "two GPUs",
    "ranks": "several ranks",
    "algo": "collectives",
    "protocol": "collectives",
    "plugin": "collectives",
    "harness": "collectives",
}
"""The benchmarks to which an option applies; other options apply to all benchmarks."""


def _refuse_inapplicable(args: argparse.Namespace) -> None:
    if args.bench in POINT_BENCHES:
        applies = {"two GPUs"}
    else:
        applies = {"several ranks"} | ({"collectives"} if args.bench in COLLECTIVES else set())
    names = {"src": "from", "dst": "to"}
    for option, kind in _ONLY_FOR.items():
        if getattr(args, option) is not None and kind not in applies:
            raise BusbarError(
                f"does not apply to {args.bench}, only to benchmarks of {kind}",
                where=f"--{names.get(option, option)}",
                hint="omit it",
            )
    if args.engine and args.nodes > 1:
        raise BusbarError(
            "does not apply between nodes, as the NICs copy", where="--engine", hint="omit it"
        )
    if args.env is not None and args.profile:
        raise BusbarError("--env and --profile exclude each other", hint="give one of them")


def _matrix(args: argparse.Namespace, site: Site, question: Question) -> int:
    gpus = site.node_type(args.partition).gpus
    count = gpus.count if gpus else 0
    pairs = [(a, b) for a, b in product(range(count), repeat=2) if a != b or args.nodes > 1]
    answers = {(src, dst): _ask(site, replace(question, src=src, dst=dst)) for src, dst in pairs}
    if not answers:
        # Raises with the reason: no GPUs, or only one.
        expect(site, replace(question, src=0, dst=min(1, count - 1)))
    counts = FitCounts(*fitted_numbers(site, args.bench))
    if args.json:
        rows = tuple(PairAnswer(*ends, answer) for ends, answer in answers.items())
        document = MatrixDocument(site=site.name, bench=args.bench, counts=counts, pairs=rows)
        stdout().document(to_json(document), indent=2)
    else:
        stdout().show(matrix_table(site, args.bench, answers))
        stdout().line(counts.line)
    if args.plot:
        from busbar.report.expected import plot_matrix  # noqa: PLC0415 - only with --plot

        sizes = {answer.bytes for answer in answers.values() if answer.bytes}
        text = ", ".join(format_bytes(size) for size in sorted(sizes))
        plot_matrix(args.plot, f"{args.bench} on {site.name}, typical at {text}", answers)
    return 0


def _ask(site: Site, question: Question) -> Answer:
    try:
        return Answer.of(expect(site, question))
    except NoExpectation as error:
        if error.limit is None:
            raise
        return Answer.of(error)


def _environment(assignments: list[str] | None) -> dict[str, str] | None:
    if assignments is None:
        return None
    pairs = [text.partition("=") for text in assignments if text]
    for name, equals, _ in pairs:
        if not equals:
            raise BusbarError(f"{name!r} has no '='", where="--env", hint="write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _size(text: str) -> int:
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not size:
        raise argparse.ArgumentTypeError("must be at least 1 byte")
    return size
