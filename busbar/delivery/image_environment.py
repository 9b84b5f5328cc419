# SPDX-License-Identifier: MIT
"""The ReFrame environments of a run in an image: the image, and what it is compared with."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from busbar import mpi
from busbar.delivery.environments import (
    Choice,
    Parts,
    environment_of,
    environments,
    mpi_extras,
    set_by_site,
)
from busbar.delivery.image import Image, of_choice
from busbar.errors import BusbarError
from busbar.site.model import Delivery, MpiFamily, Site, Stack

PARITY = "parity"
"""The feature of the delivery that the image is compared with, and its only one."""


def image_environments(site: Site, choice: Choice, ranks_per_node: int) -> list[dict[str, Any]]:
    """That of the image, by what it says of itself; then the site's other delivery, if any.

    Other checks than a comparison run in the image alone.
    """
    assert choice.image
    image = of_choice(site, choice.image, choice.inject, choice.image_facts)
    inside = _inside(site, image)
    try:
        bare = environments(site, replace(choice, image=None), ranks_per_node)[0]
    except BusbarError as error:
        inside["extras"]["alone"] = str(error)
        return [inside]
    if why := bare["extras"]["lacking"].get("gpu_aware"):
        inside["extras"]["alone"] = f"{bare['name']} has no program for it: {why}"
        return [inside]
    bare["features"] = [PARITY] if "gpu_aware" in image.programs else []
    bare["extras"]["beside"] = asdict(image)
    return [inside, bare]


def _inside(site: Site, image: Image) -> dict[str, Any]:
    said = image.fingerprint
    stack: Stack = said["stack"]
    lane: str = said["lane"]
    loaded = {library["name"] for library in image.preflight["libraries"]}
    families = [known for name, known in mpi.SONAMES.items() if name in loaded]
    family: MpiFamily = families[0] if families else "openmpi"
    starter = mpi.MpiInstall(family)
    delivery = Delivery(kind="image", stack=stack, lanes=(lane,), mpi=family)
    parts = Parts(programs=image.programs, features=image.features)
    parts.variables = starter.variables(slurm=site.scheduler != "local")
    parts.variables |= set_by_site(site, delivery, lane, starter)
    mpi_type = image.preflight["launch"]["mpi_type"]
    extras = mpi_extras(site, delivery, starter) | {
        "image": asdict(image),
        # As preflight has found it on a node.
        "srun": [f"--mpi={mpi_type}"] if mpi_type else [],
    }
    return environment_of(delivery, lane, parts, {}, extras)
