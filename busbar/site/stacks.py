# SPDX-License-Identifier: MIT
"""The Spack environments that sites share, by lane and operating system.

They are `_stacks/NAME-SYSTEM` and, for a second lane, `_stacks/NAME-SYSTEM/LANE`; without SYSTEM
they are for the system of images, Debian 12. What a machine concretizes for a site has these names
in `spack` in the directory of the site, and is used instead.
"""

from __future__ import annotations

from pathlib import Path

from busbar import data
from busbar.errors import BusbarError, suggestion
from busbar.site import systems
from busbar.site.delivery import Delivery, DeliveryKind
from busbar.site.manifests import MANIFEST, SECOND_LANE, STACKS, shared
from busbar.site.model import Site

OWN = "spack"
"""The directory of a site with what a machine concretized for it."""


def environment_name(
    site: Site, delivery: Delivery, lane: str, system: str = systems.BASE
) -> str | None:
    """Return the environment of a delivery, lane and system; None if the delivery names none."""
    if delivery.environment is None:
        return None
    gpus = site.node.gpus
    name = delivery.environment.format(arch=gpus.arch if gpus else "")
    name += f"-{system}" if system != systems.BASE else ""
    return f"{name}/{lane}" if lane == SECOND_LANE else name


def environment_directory(
    site: Site, delivery: Delivery, lane: str, system: str | None = None
) -> Path | None:
    """Return the directory of an environment; None if there is none for the delivery and lane.

    It is in the directory of the site or beside it, or ships with Busbar. Without ``system`` it is
    the one for the system of this machine, else for that of the site, else for Debian 12. An image
    always has the one of its base image.
    """
    candidates = [systems.of_machine(), site.os or systems.BASE, systems.BASE]
    if system:
        candidates = [system]
    if delivery.kind == "image":
        candidates = [systems.BASE]
    roots = [data.SITES / STACKS]
    if site.directory:
        roots.insert(0, site.directory.parent / STACKS)
        if delivery.kind != "image":
            roots.insert(0, site.directory / OWN)
    for each in dict.fromkeys(name for one in candidates for name in (one, systems.locked(one))):
        name = environment_name(site, delivery, lane, each)
        for directory in [root / name for root in roots] if name else []:
            if (directory / MANIFEST).is_file() or shared(directory):
                return directory
    return None


def delivery_with_environment(
    site: Site, kind: DeliveryKind = "spack", lane: str | None = None
) -> Delivery:
    """Return the delivery that names the environment of a site: the first, or that of a lane.

    An image is built from the environment that its own delivery names, else from that of the
    delivery ``spack``. Raises ``BusbarError`` if the site has none.
    """
    for own in dict.fromkeys((kind, "spack")):
        found = [each for each in site.deliveries if each.kind == own and each.environment]
        if found:
            return next((each for each in found if lane in each.lanes), found[0])
    raise BusbarError(
        f"site {site.name!r} has no delivery `spack` with `environment`",
        where=str(site.directory / "site.yaml") if site.directory else "",
        hint=f"name a directory of {data.SITES / STACKS}",
    )


def find_environment(
    site: Site,
    lane: str | None = None,
    kind: DeliveryKind = "spack",
    system: str | None = None,
) -> tuple[Path, Delivery, str]:
    """Return the environment of a site, with the delivery that names it and the lane.

    The default lane is the first of the delivery. Raises ``BusbarError`` for an unknown lane, and
    if no such environment exists.
    """
    delivery = delivery_with_environment(site, kind, lane)
    chosen = lane or delivery.lanes[0]
    if chosen not in delivery.lanes:
        others = (d for d in site.deliveries if d.kind == delivery.kind and d.environment)
        raise BusbarError(
            f"site {site.name!r} has no lane {lane!r} by Spack",
            where="--lane",
            hint=suggestion(chosen, dict.fromkeys(lane for each in others for lane in each.lanes)),
        )
    if kind == "image":
        system = systems.BASE
    directory = environment_directory(site, delivery, chosen, system)
    if directory is None:
        name = environment_name(site, delivery, chosen, system or systems.BASE)
        raise BusbarError(
            f"no environment {name!r}",
            where=str(site.directory / "site.yaml") if site.directory else "",
            hint=f"name a directory of {data.SITES / STACKS}; a wheel of Busbar contains none",
        )
    return directory, delivery, chosen
