# SPDX-License-Identifier: MIT
"""``busbar check``: run the checks, print verdicts, write a report."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

from busbar.check.reframe import ReFrame
from busbar.check.surroundings import set_home
from busbar.detect.gather import gather
from busbar.errors import BusbarError


def check(args: argparse.Namespace) -> int:
    """Run the checks on this machine and print verdicts.

    Runs ReFrame on reframe_checks/ with the site's configuration, prints the verdict and one line
    per check, and writes report.html and results.json. Progress goes to standard error.

    {EXIT_STATUSES} 128 + N after signal N: results so far are written.

    Examples:

        busbar check
        busbar check --list
        busbar check --site alpha --nodelist all --summary
        busbar check -n xccl -t full --prefix /opt/nccl-tests
    """
    if args.inject and not args.image:
        raise BusbarError("requires an image", where="--inject", hint="pass --image")
    set_home()
    with ReFrame() as reframe, ThreadPoolExecutor(1) as pool:
        # Both processes import their modules in parallel with the tools of this machine.
        args.gathered = None if args.site else pool.submit(gather)
        from busbar.commands.check_run import started  # noqa: PLC0415

        return started(args, reframe)
