# SPDX-License-Identifier: MIT
"""Find the environments of a run in an image: the image, and the delivery to compare it with."""

from __future__ import annotations

from dataclasses import replace

from busbar import mpi
from busbar.delivery.choice import Choice
from busbar.delivery.environment import Environment, Image
from busbar.delivery.environments import Parts, environment_of, environments, site_variables
from busbar.errors import BusbarError
from busbar.site.delivery import Delivery
from busbar.site.model import Site

PARITY = "parity"
"""The only feature of the delivery that the image is compared with."""


def image_environments(
    site: Site, choice: Choice, image: Image, ranks_per_node: int
) -> list[Environment]:
    """Return the environment of the image, then that of another delivery to compare it with.

    Only the comparison runs in the second one.
    """
    inside = _inside(site, image)
    try:
        bare = environments(site, replace(choice, image=None), ranks_per_node)[0]
    except BusbarError as error:
        return [replace(inside, not_compared=str(error))]
    if reason := bare.lacking.get("gpu_aware"):
        return [replace(inside, not_compared=f"{bare.name} has no program for it: {reason}")]
    features = (PARITY,) if "gpu_aware" in image.programs else ()
    return [inside, replace(bare, features=features, compared_image=image)]


def _inside(site: Site, image: Image) -> Environment:
    stack, lane = image.fingerprint.stack, image.fingerprint.lane
    loaded = {library.name for library in image.preflight.libraries}
    families = [family for soname, family in mpi.SONAMES.items() if soname in loaded]
    install = mpi.MpiInstall(families[0] if families else "openmpi")
    delivery = Delivery(kind="image", stack=stack, lanes=(lane,), mpi=install.family)
    parts = Parts(programs=image.programs, features=image.features)
    parts.variables = install.variables(site)
    parts.variables |= site_variables(site, delivery, lane, install)
    # Preflight has selected the PMI on a node.
    mpi_type = image.preflight.launch.mpi_type
    return replace(
        environment_of(site, delivery, lane, parts, install),
        image=image,
        srun=(f"--mpi={mpi_type}",) if mpi_type else (),
    )
