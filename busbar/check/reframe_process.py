# SPDX-License-Identifier: MIT
"""The process of :class:`busbar.check.reframe.ReFrame`.

It runs ReFrame's command with the arguments from the first line of standard input, a list in JSON.
When the checks are loaded, it prints how they match the configuration, and goes on at the second
line, which has the hashes of those that are to run and the nodes of a sweep. It ends where
standard input does.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import TypeAdapter
from reframe.core import fields, variables
from reframe.core.pipeline import RegressionTest
from reframe.frontend import cli
from reframe.frontend.loader import RegressionCheckLoader
from reframe.utility import osext

import busbar.check.causes  # noqa: F401 - the checks import it
from busbar.check.listing import CHOSEN, MATCHES, Match, match
from busbar.check.places import Order
from busbar.check.processes import adopt_orphans, end_descendants, end_with_parent
from busbar.check.spread import spread


class _Loader(RegressionCheckLoader):
    def load_all(self, force: bool = False) -> list[RegressionTest]:
        checks = super().load_all(force)
        matches = [match(check) for check in checks if not check.is_fixture()]
        sys.stdout.write(f"\n{MATCHES}{TypeAdapter(list[Match]).dump_json(matches).decode()}\n")
        line = sys.stdin.readline()
        if not line:
            sys.exit()
        order = TypeAdapter(Order).validate_json(line)
        chosen = [check for check in checks if check.hashcode in order.hashes]
        if order.sweep:
            partitions = {
                each.hash: dict.fromkeys(place.partition("+")[0] for place in each.runs_in)
                for each in matches
            }
            checks = spread(chosen, partitions, order.sweep, self._external_vars)
            chosen = [check for check in checks if not check.is_fixture()]
        for check in chosen:
            check.tags |= {CHOSEN}
        return checks


def _set_variables(*arguments: Any, _inject: Any = variables.VarSpace.inject) -> None:
    """Set the variables of a check as ReFrame does, which uses a deprecated one itself.

    To warn, it would look at all modules each time: a third of the time of loading.
    """
    warn = variables.user_deprecation_warning
    fields.user_deprecation_warning = variables.user_deprecation_warning = lambda *_: None
    try:
        _inject(*arguments)
    finally:
        fields.user_deprecation_warning = variables.user_deprecation_warning = warn


def main() -> None:
    """Wait for the arguments and run ReFrame; leave no process behind."""
    adopt_orphans()
    end_with_parent()
    line = sys.stdin.readline()
    if not line:
        return
    # ReFrame has no hook between the loading of checks and the filtering of those that cannot run.
    cli.RegressionCheckLoader = _Loader  # type: ignore[misc]
    variables.VarSpace.inject = _set_variables  # type: ignore[assignment]
    # Until it has read its configuration, ReFrame logs to a file in /tmp, which it leaves there.
    osext.mkstemp_path = lambda **_: "/dev/null"  # type: ignore[attr-defined]
    sys.argv = ["reframe", *json.loads(line)]
    try:
        cli.main()
    finally:
        end_descendants()


if __name__ == "__main__":
    main()
