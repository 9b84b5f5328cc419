# SPDX-License-Identifier: MIT
"""The process of :class:`busbar.check.reframe.ReFrame`.

Runs ReFrame's command with the arguments in the first line of standard input, a JSON list. Once
the checks are loaded, prints how they match the configuration. Continues after the second line,
which has the hashes of the checks to run and the nodes to test. Ends at the end of standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from reframe.core import builtins, fields, variables
from reframe.core.decorators import TestRegistry
from reframe.core.meta import make_test
from reframe.core.pipeline import RegressionTest
from reframe.core.runtime import runtime
from reframe.frontend import cli
from reframe.frontend.loader import RegressionCheckLoader
from reframe.utility import osext

import busbar.check.causes  # noqa: F401 - the checks import it
from busbar.check.listing import CHOSEN, MATCHES, Match, match
from busbar.check.names import PLACE
from busbar.check.places import NodePlace, NodeSweep, Order
from busbar.check.processes import adopt_orphans, end_descendants, end_with_parent
from busbar.parse import numbers

_DEFAULT_NODES = "2"


def spread(
    checks: Iterable[RegressionTest],
    partitions: Mapping[str, Iterable[str]],
    sweep: NodeSweep,
    variables: Mapping[str, str],
) -> list[RegressionTest]:
    """Return copies of the checks for all their places, with fixtures.

    ``partitions`` maps each check's hash to the partitions that it can run in. ``variables`` are
    user-defined values for the fixtures.
    """
    registry = TestRegistry()
    for check in checks:
        places = [
            place
            for partition in partitions[check.hashcode]
            for place in sweep.places(partition, _node_count(check, sweep, partition))
        ]
        if places:
            _add(registry, check, places)
    return registry.instantiate_all(external_vars=dict(variables))


def _add(registry: TestRegistry, check: RegressionTest, places: list[NodePlace]) -> None:
    cls = type(check)
    clone = make_test(
        cls.__name__,
        (cls,),
        {PLACE: builtins.parameter(places, fmt=lambda place: ",".join(place.nodes))},
        methods=[
            builtins.run_after("init")(_limit_to_partition),
            builtins.run_after("setup")(_pin_nodes),
        ],
        module=cls.__module__,
    )
    clone._rfm_custom_prefix = check.prefix  # like ReFrame's own copies
    original = cls.get_variant_info(check.variant_num, recurse=True)
    for number in range(clone.num_variants):
        variant = clone.get_variant_info(number, recurse=True)
        variant["params"].pop(PLACE)
        if variant == original:
            registry.add(clone, variant_num=number)


def _limit_to_partition(check: RegressionTest) -> None:
    check.valid_systems = [f"{runtime().system.name}:{getattr(check, PLACE).partition}"]


def _pin_nodes(check: RegressionTest) -> None:
    check.job.pin_nodes = list(getattr(check, PLACE).nodes)


def _node_count(check: RegressionTest, sweep: NodeSweep, partition: str) -> int:
    """Return the number of nodes of a check; a user-defined number takes precedence."""
    if getattr(check, "any_nodes", False) and getattr(check, "nodes", "") != _DEFAULT_NODES:
        count = numbers.whole(getattr(check, "nodes", ""))
        return count or len(sweep.nodes.get(partition, ()))
    return int(getattr(check, "node_count", 1))


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
    """Set the variables of a check like ReFrame, without deprecation warnings.

    ReFrame itself uses a deprecated variable. To warn, it would search all modules every time,
    which takes a third of the loading time.
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
    # ReFrame has no hook between loading checks and filtering those that cannot run.
    cli.RegressionCheckLoader = _Loader  # type: ignore[misc]
    variables.VarSpace.inject = _set_variables  # type: ignore[assignment]
    # Before it has read its configuration, ReFrame logs to a file in /tmp and leaves it there.
    osext.mkstemp_path = lambda **_: "/dev/null"  # type: ignore[attr-defined]
    sys.argv = ["reframe", *json.loads(line)]
    try:
        cli.main()
    finally:
        end_descendants()


if __name__ == "__main__":
    main()
