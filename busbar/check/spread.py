# SPDX-License-Identifier: MIT
"""Copies of checks that run on given nodes, in the process of ReFrame.

ReFrame's own ``--distribute`` knows single nodes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reframe.core import builtins
from reframe.core.decorators import TestRegistry
from reframe.core.meta import make_test
from reframe.core.pipeline import RegressionTest
from reframe.core.runtime import runtime

from busbar.check.names import PLACE
from busbar.check.places import NodePlace, NodeSweep
from busbar.parse import numbers

_DEFAULT_NODES = "2"


def spread(
    checks: Iterable[RegressionTest],
    partitions: Mapping[str, Iterable[str]],
    sweep: NodeSweep,
    variables: Mapping[str, str],
) -> list[RegressionTest]:
    """Return copies of the checks for all their places, with the fixtures of these.

    ``partitions`` are those that each check can run in, by its hash. ``variables`` are those that
    the user sets, for the fixtures.
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
    clone._rfm_custom_prefix = check.prefix  # as ReFrame's own copies
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
    """Return the nodes that a check takes; a number that the user sets takes precedence."""
    if getattr(check, "any_nodes", False) and getattr(check, "nodes", "") != _DEFAULT_NODES:
        count = numbers.whole(getattr(check, "nodes", ""))
        return count or len(sweep.nodes.get(partition, ()))
    return int(getattr(check, "node_count", 1))
