# SPDX-License-Identifier: MIT
"""Whether a machine can install a lock, and the environment for a system that has none."""

from __future__ import annotations

import re
from pathlib import Path

from busbar.errors import BusbarError
from busbar.site import systems
from busbar.site.stacks import MANIFEST, STACKS
from busbar.spack.lock import Lock
from busbar.spack.manifest import Manifest

_AGAIN = "make spack-externals SITE={site}, then make spack-concretize SITE={site}"


def require_installable(lock: Lock, site: str) -> None:
    """Raise ``BusbarError`` unless this machine has the system and the externals of a lock.

    Spack itself installs a lock anywhere, and fails after an hour.
    """
    made = sorted({node.os for node in lock.nodes.values()})
    here = systems.of_machine()
    again = _AGAIN.format(site=site)
    if made not in ([here], [systems.locked(here)]):
        raise BusbarError(
            f"is for {', '.join(made)}, but this machine is {here or 'an unknown system'}",
            where=str(lock.path),
            hint=f"run {again}",
        )
    missing = sorted(
        f"{node.name}@{node.version} ({path})"
        for node in lock.nodes.values()
        if node.prefix
        for path in (node.prefix, *node.compilers)
        if not Path(path).exists()
    )
    if missing:
        raise BusbarError(
            f"needs {', '.join(missing)}, which this machine lacks",
            where=str(lock.path),
            hint=f"install it, or use what is here: {again}",
        )


def derived(manifest: Manifest) -> Path:
    """Return the environment like another one for the system of this machine; write its manifest.

    Its compiler is that of the scope of the system; without one, that of the machine.
    """
    here = systems.locked(systems.of_machine())
    own = manifest.system.name if manifest.system else ""
    if not here or here == own:
        return manifest.path.parent
    stacks = next(path for path in manifest.path.parents if path.name == STACKS)
    name, *lane = manifest.path.parent.relative_to(stacks).parts
    directory = stacks.joinpath(f"{name.removesuffix(f'-{own}')}-{here}", *lane)
    if not (directory / MANIFEST).exists():
        known = (systems.SCOPES / here).is_dir()
        text, count = re.subn(
            r"^( *- \S+/systems/)\S+\n",
            rf"\g<1>{here}\n" if known else "",
            manifest.path.read_text(),
            flags=re.MULTILINE,
        )
        if not count and known:
            raise BusbarError(
                "includes no scope of a system",
                where=str(manifest.path),
                hint=f"include {systems.SCOPES / own} in it",
            )
        directory.mkdir(parents=True, exist_ok=True)
        (directory / MANIFEST).write_text(text)
    return directory
