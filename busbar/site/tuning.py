# SPDX-License-Identifier: MIT
"""The environment that a site's fabric needs, each variable with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from busbar.errors import BusbarError
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
    """Name to value of what jobs on ``site`` set; see ``variables`` for what selects them."""
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
    """The variables of the family, then those of the site, which win.

    ``stack`` defaults to that of the first delivery; ``lane`` None takes what holds for every
    lane; ``profile`` adds the variables of one mode; ``gpus`` is the number of GPUs per node
    that the job uses (None: all of them); ``buffers`` ``host`` leaves out what helps GPU buffers
    at the cost of host buffers, for programs that communicate from host memory.
    """
    stack = stack or site.deliveries[0].stack
    archs = {node.gpus.arch for node in site.node_types.values() if node.gpus}
    chosen: dict[str, Variable] = {}
    for variable in family(site).variables:
        if (
            _holds(variable, stack, lane, gpus)
            and variable.profile in (None, profile)
            and (buffers == "device" or variable.buffers == "any")
            and (not variable.archs or archs.intersection(variable.archs))
        ):
            chosen[variable.name] = variable
    for name, value in site.tuning.items():
        chosen[name] = Variable(
            name=name,
            value=value,
            reason="a fact of this cluster",
            source=f"site/{site.name}/site.yaml: tuning",
        )
    return list(chosen.values())


def profiles(site: Site) -> list[str]:
    """The modes that the site's family has variables for."""
    return sorted({v.profile for v in family(site).variables if v.profile})


def lanes(site: Site) -> list[str]:
    """The lanes of the site's deliveries."""
    return sorted({lane for delivery in site.deliveries for lane in delivery.lanes})


def refuse_unknown(site: Site, option: str, value: str | None, known: Sequence[str]) -> None:
    """Raises ``BusbarError`` with the known names for one that the site does not know."""
    if value is not None and value not in known:
        raise BusbarError(
            f"site {site.name} has no {option} {value!r}",
            where=f"--{option}",
            hint=f"known: {', '.join(known) or 'none'}",
        )


def _holds(variable: Variable, stack: str, lane: str | None, gpus: int | None) -> bool:
    return (
        (not variable.stacks or stack in variable.stacks)
        and (not variable.lanes or lane in variable.lanes)
        and (variable.gpus_below is None or (gpus is not None and gpus < variable.gpus_below))
    )
