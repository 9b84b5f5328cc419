# SPDX-License-Identifier: MIT
"""``busbar expect``: print limit and band of a benchmark on a site, with path and sources."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from itertools import product
from typing import Any

from busbar import site as sites
from busbar.commands.declare import command, show
from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES, NoExpectation, Question, expect, show as shown
from busbar.expect.collective import PROTOCOLS, harnesses
from busbar.expect.lint_nodes import uplink_violations
from busbar.expect.point import BUFFERS
from busbar.expect.split import split
from busbar.parse.tables import beside, refused
from busbar.site.load import find, link_classes, read
from busbar.site.model import Site
from busbar.site.tuning import lanes, profiles, refuse_unknown
from busbar.terminal import stdout

POINT_BENCHES = ("osu_bw", "osu_bibw", "osu_latency")
_MOST_ROWS = 16
"""Only nodes with partitioned accelerators have more GPUs; their rows are all alike."""


def add_parser(subparsers: Any) -> None:
    """Add ``busbar expect``."""
    benches = [*POINT_BENCHES, "osu_mbw_mr", *COLLECTIVES]
    command(subparsers, _expect, BENCHES=benches, BUFFERS=BUFFERS)


def _expect(args: argparse.Namespace) -> int:
    """Print the limit and band of a benchmark on a site.

    Prints the limit, the low, typical and high values, the data path, and the source of each
    number. If no data supports a band, prints the limit and the reason.

    For point-to-point benchmarks, prints the matrix of all pairs; with --from, only the row of
    that GPU. On nodes with more than 16 GPUs, the default is the row of GPU 0.

    Exit status: 0 printed, 2 invalid input.

    Examples:

        busbar expect --site mi250x
        busbar expect --site p5 --bench all_reduce --nodes 2 --bytes 2G
        busbar expect --site p5 --bench all_reduce --nodes 2 --split-mask 0x7
    """
    site = sites.load(args.site)
    _refuse_uplinks(site, args)
    if args.src is None and args.dst is not None:
        raise BusbarError("needs a sending GPU", where="--to", hint="add --from")
    _refuse_inapplicable(args)
    choices = {
        "lane": lanes(site),
        "profile": profiles(site),
        "harness": harnesses(site),
        "protocol": list(PROTOCOLS),
    }
    for key, names in choices.items():
        refuse_unknown(site, key, getattr(args, key), names)
    given = {name: value for name, value in vars(args).items() if value is not None}
    named = {each.name: given[each.name] for each in fields(Question) if each.name in given}
    question = Question(**named, environment=_environment(args.env))
    if args.bench in POINT_BENCHES and args.dst is None:
        if site.node_type(args.partition).gpus or args.nodes == 1:
            return _matrix(args, site, question)
        question = replace(question, src=0, dst=0, buffers=args.buffers or "H H")
    if args.split_mask is not None:
        question = split(site, question, args.split_mask)
    answer = _ask(site, question)
    document = shown.ExpectDocument(site=site.name, bench=args.bench, answer=answer)
    show(args, document, shown.single(site, args.bench, answer), indent=2)
    return 0


def _refuse_uplinks(site: Site, args: argparse.Namespace) -> None:
    """Refuse a PCIe switch whose uplink is faster than the devices below it."""
    used = site.node_type(args.partition)
    name = next(name for name, node in site.node_types.items() if node is used)
    for key, what, hint in uplink_violations(used, link_classes(site)):
        place = read(find(args.site)).where(("node_types", name, *key))
        raise BusbarError(what, where=place, hint=hint)


def _refuse_inapplicable(args: argparse.Namespace) -> None:
    if args.bench in POINT_BENCHES:
        applies = {"two GPUs"}
    else:
        applies = {"several ranks"} | ({"collectives"} if args.bench in COLLECTIVES else set())
    names = {"src": "from", "dst": "to", "split_mask": "split-mask"}
    for key, kind in beside(__file__)["only-for"].items():
        if getattr(args, key) is not None and kind not in applies:
            option = f"--{names.get(key, key)}"
            raise refused(__file__, "not-for-it", option, bench=args.bench, kind=kind)
    if args.engine and args.nodes > 1:
        raise refused(__file__, "between-nodes", "--engine")


def _matrix(args: argparse.Namespace, site: Site, question: Question) -> int:
    gpus = site.node_type(args.partition).gpus
    count = gpus.count if gpus else 0
    senders = range(count if count <= _MOST_ROWS else 1) if args.src is None else [args.src]
    pairs = [(a, b) for a, b in product(senders, range(count)) if a != b or args.nodes > 1]
    answers = {(src, dst): _ask(site, replace(question, src=src, dst=dst)) for src, dst in pairs}
    if not answers:
        # Raises an error with the reason: no GPUs, or only one.
        expect(site, replace(question, src=0, dst=min(1, count - 1)))
    counts = max((each.counts for each in answers.values()), key=lambda fit: fit.readings)
    if args.json:
        rows = tuple(shown.PairAnswer(*ends, answer) for ends, answer in answers.items())
        document = shown.MatrixDocument(
            site=site.name, bench=args.bench, counts=counts, pairs=rows
        )
        stdout().document(to_json(document), indent=2)
    else:
        shown.print_matrix(site, args.bench, answers, stdout())
        stdout().line(counts.line)
    return 0


def _ask(site: Site, question: Question) -> shown.Answer:
    try:
        return shown.Answer.of(expect(site, question))
    except NoExpectation as error:
        if error.limit is None:
            raise
        return shown.Answer.of(error)


def _environment(assignments: list[str] | None) -> dict[str, str] | None:
    if assignments is None:
        return None
    pairs = [text.partition("=") for text in assignments if text]
    for name, equals, _ in pairs:
        if not equals:
            raise BusbarError(f"{name!r} has no '='", where="--env", hint="write NAME=VALUE")
    return {name: value for name, _, value in pairs}
