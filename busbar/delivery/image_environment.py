# SPDX-License-Identifier: MIT
"""Find the environment of a run in an image."""

from __future__ import annotations

from dataclasses import replace

from busbar import mpi
from busbar.delivery.environment import Environment, Image
from busbar.delivery.environments import Parts, environment_of, site_variables
from busbar.site.delivery import Delivery
from busbar.site.model import Site


def image_environment(site: Site, image: Image) -> Environment:
    """Return the environment of an image, by its fingerprint and its preflight."""
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
