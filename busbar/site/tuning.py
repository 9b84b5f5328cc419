# SPDX-License-Identifier: MIT
"""The environment for a site's fabric, each variable with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from busbar.errors import require_known
from busbar.site.delivery import CRAY_STACKS
from busbar.site.family import Variable
from busbar.site.load import family
from busbar.site.model import Site

Buffers: TypeAlias = Literal["device", "host"]


def environment(
    site: Site,
    *,
    stack: str | None = None,
    lane: str | None = None,
    profile: str | None = None,
    gpus: int | None = None,
    buffers: Buffers = "device",
) -> dict[str, str]:
    """Return the environment of jobs on ``site``; see ``variables`` for the arguments."""
    chosen = variables(site, stack=stack, lane=lane, profile=profile, gpus=gpus, buffers=buffers)
    return {variable.name: variable.value for variable in chosen}


def variables(
    site: Site,
    *,
    stack: str | None = None,
    lane: str | None = None,
    profile: str | None = None,
    gpus: int | None = None,
    buffers: Buffers = "device",
) -> list[Variable]:
    """Return the variables of the family, overridden by those of the site.

    ``stack`` defaults to the stack of the first delivery. ``lane`` None selects the variables for
    all lanes. ``profile`` adds the variables of one profile. ``gpus`` is the number of GPUs per
    node that the job uses (None: all). ``buffers`` ``host`` omits variables that slow down
    programs with host buffers.
    """
    stack = stack or next((delivery.stack for delivery in site.deliveries), "host")
    archs = {node.gpus.arch for node in site.node_types.values() if node.gpus}
    chosen: dict[str, Variable] = {}
    for variable in family(site).variables:
        if (
            _applies(variable, stack, lane, gpus)
            and variable.profile in (None, profile)
            and (buffers == "device" or variable.buffers == "any")
            and not (variable.without_rdma and site.fabric and site.fabric.provider != "tcp")
            and (not variable.archs or archs.intersection(variable.archs))
        ):
            chosen[variable.name] = variable
    for name, value in site.tuning.items():
        chosen[name] = Variable(
            name=name,
            value=value,
            reason="specific to this cluster",
            source=f"site/{site.name}/site.yaml: tuning",
        )
    return list(chosen.values())


def profiles(site: Site) -> list[str]:
    """Return the tuning profiles of the site's family."""
    return sorted({v.profile for v in family(site).variables if v.profile})


def lanes(site: Site) -> list[str]:
    """Return the lanes of the site's deliveries."""
    return sorted({lane for delivery in site.all_deliveries for lane in delivery.lanes})


def refuse_unknown(site: Site, option: str, value: str | None, choices: Sequence[str]) -> None:
    """Raise ``BusbarError`` if ``value`` is not None and not one of ``choices``."""
    if value is not None:
        require_known(f"site {site.name} has no {option}", value, choices, f"--{option}")


def _applies(variable: Variable, stack: str, lane: str | None, gpus: int | None) -> bool:
    stacks = {stack, *(("cray",) if stack in CRAY_STACKS else ())}
    return (
        (not variable.stacks or not stacks.isdisjoint(variable.stacks))
        and (not variable.lanes or lane in variable.lanes)
        and (variable.gpus_below is None or (gpus is not None and gpus < variable.gpus_below))
    )
