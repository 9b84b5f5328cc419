# SPDX-License-Identifier: MIT
"""``busbar explain``: find the cause of a slow or failed run in its output."""

from __future__ import annotations

import argparse

from busbar import explain as causes
from busbar.document import to_json
from busbar.engine.run import Run
from busbar.errors import BusbarError, require_known
from busbar.explain.catalog import CAUSES
from busbar.explain.page import page
from busbar.explain.render import print_explanations
from busbar.site import load
from busbar.terminal import stdout
from busbar.verdict import combined, exit_status


def explain(args: argparse.Namespace) -> int:
    """Find the cause of a slow or failed run in its output.

    Reads the output of one job: stdout, stderr, the NCCL_DEBUG_FILE of each rank, and the logs of
    the scheduler and the kernel. Files may be plain or compressed, or in a directory or an archive
    (tar, zip). Lines may have any prefix of a launcher or log collector. Prints what ran, the
    verdict, and the causes with their evidence. JSON output is one object, or a list for several
    runs.

    {EXIT_STATUSES}

    Examples:

        busbar explain slurm-4711.out
        busbar explain --site h200x4 --expect-version nccl=2.28 slurm-4711.out nccl-debug/
        busbar explain --cause nccl-socket-fallback
    """
    if args.cause:
        hint = "see docs/reference/causes.md"
        require_known("unknown cause", args.cause, CAUSES, "--cause", hint)
        stdout().text("\n".join(page(args.cause)).rstrip() + "\n")
        return 0
    if not args.files:
        raise BusbarError("no files given", hint="pass the job's output, or use --cause ID")
    site = load(args.site) if args.site else None
    if site and args.partition:
        site.node_type(args.partition)  # refuse a partition that the site does not have
    known = Run(site=site, partition=args.partition, engine=args.engine)
    explanations = causes.explain(args.files, known=known, asked=dict(args.expect_version))
    if args.json:
        documents = to_json(explanations)
        stdout().document(documents[0] if len(documents) == 1 else documents)
    else:
        print_explanations(explanations, stdout(), verbose=args.verbose)
    return exit_status(combined(each.verdict for each in explanations))
