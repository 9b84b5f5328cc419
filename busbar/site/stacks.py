# SPDX-License-Identifier: MIT
"""The Spack environments that sites share: `_stacks/NAME`, and `_stacks/NAME/LANE` by lane."""

from __future__ import annotations

from pathlib import Path

from busbar import data
from busbar.errors import BusbarError, suggestion
from busbar.site.model import Delivery, DeliveryKind, Site

STACKS = "_stacks"
MANIFEST = "spack.yaml"
_OWN_DIRECTORY = "ucx-current"
"""The lane with a directory of its own; all others are in the directory of the stack."""


def environment_name(site: Site, delivery: Delivery, lane: str) -> str | None:
    """Return the environment of a delivery and lane; None if the delivery names none."""
    if delivery.environment is None:
        return None
    gpus = site.node.gpus
    name = delivery.environment.format(arch=gpus.arch if gpus else "")
    return f"{name}/{lane}" if lane == _OWN_DIRECTORY else name


def environment_directory(site: Site, delivery: Delivery, lane: str) -> Path | None:
    """Return the directory of an environment; None if there is none for the delivery and lane.

    It is in the directory beside the site, or ships with Busbar.
    """
    name = environment_name(site, delivery, lane)
    own = [site.directory.parent] if site.directory else []
    for root in [*own, data.SITES] if name else []:
        directory = root / STACKS / str(name)
        if (directory / MANIFEST).is_file():
            return directory
    return None


def delivery_with_environment(site: Site, kind: DeliveryKind = "spack") -> Delivery:
    """Return the delivery that names the environment of a site.

    An image is built from the environment that its own delivery names, else from that of the
    delivery ``spack``. Raises ``BusbarError`` if the site has none.
    """
    for wanted in dict.fromkeys((kind, "spack")):
        for delivery in site.deliveries:
            if delivery.kind == wanted and delivery.environment:
                return delivery
    raise BusbarError(
        f"site {site.name!r} has no delivery `spack` with `environment`",
        where=str(site.directory / "site.yaml") if site.directory else "",
        hint=f"name a directory of {data.SITES / STACKS}",
    )


def find_environment(
    site: Site, lane: str | None = None, kind: DeliveryKind = "spack"
) -> tuple[Path, Delivery, str]:
    """Return the environment of a site, with the delivery that names it and the lane.

    The default lane is the first of the delivery. Raises ``BusbarError`` for an unknown lane, and
    if no such environment exists.
    """
    delivery = delivery_with_environment(site, kind)
    chosen = lane or delivery.lanes[0]
    if chosen not in delivery.lanes:
        raise BusbarError(
            f"site {site.name!r} has no lane {lane!r} by Spack",
            where="--lane",
            hint=suggestion(chosen, delivery.lanes),
        )
    directory = environment_directory(site, delivery, chosen)
    if directory is None:
        raise BusbarError(
            f"no environment {environment_name(site, delivery, chosen)!r}",
            where=str(site.directory / "site.yaml") if site.directory else "",
            hint=f"name a directory of {data.SITES / STACKS}; a wheel of Busbar contains none",
        )
    return directory, delivery, chosen
