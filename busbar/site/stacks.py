# SPDX-License-Identifier: MIT
"""The Spack environments that sites share, by lane and operating system.

They are `_stacks/NAME-SYSTEM` and, for a second lane, `_stacks/NAME-SYSTEM/LANE`; without SYSTEM
they are for the system of images, Debian 12. What a machine concretizes for a site has these names
in `spack` in the directory of the site, and is used instead. Shared manifests are written from the
table `_stacks/stacks.yaml`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from busbar import data
from busbar.boundary import replace_file
from busbar.errors import file_error, require_known
from busbar.parse.tables import beside, refused
from busbar.site import systems
from busbar.site.delivery import Delivery, DeliveryKind
from busbar.site.model import Site
from busbar.site.record import Record
from busbar.site.yamlfile import Document, parse

STACKS = "_stacks"
MANIFEST = "spack.yaml"
SECOND_LANE = "ucx-current"
"""The lane with a directory of its own; all others are in the directory of the stack."""
_FIRST_LANE = "ucx-1.14"
_TABLE = "stacks.yaml"
_FAMILIES = "_families/spack"


class StackRow(Record):
    """One stack of the table."""

    name: str
    """Of its environments; ``{gpu}`` is replaced by the GPU."""
    specs: tuple[str, ...]
    """The lists that it installs."""
    scopes: tuple[str, ...]
    """In order of precedence."""
    lanes: tuple[str, ...] = ("",)
    """Those that it has; a stack without UCX has none."""
    current: Mapping[str, str] = {}
    """Scopes that replace others in the second lane."""
    packages: Mapping[str, Mapping[str, Any]] = {}
    """Requirements by lane or ``any``; ``{variant}`` is replaced by the variant of the GPU."""


class StackTable(Record):
    """The file ``stacks.yaml``."""

    stacks: Mapping[str, StackRow]
    gpus: Mapping[str, Mapping[str, tuple[str, ...]]]
    """GPU to stacks, and the systems for which locks are derived from those for Debian 12."""


@dataclass(frozen=True)
class SharedEnvironment:
    """An environment of the table."""

    row: StackRow
    gpu: str
    lane: str
    """Empty for a stack without UCX."""
    system: str
    base: str
    """The environment for Debian 12; its own name if it is that."""

    def text(self, directory: Path, families: Path) -> str:
        """Return its manifest for a directory."""
        newer = self.row.current if self.lane == SECOND_LANE else {}
        scopes = [newer.get(scope, scope) for scope in self.row.scopes]
        scopes += [f"lanes/{self.lane}"] if self.lane else []
        scopes = [*scopes, f"systems/{self.system}", "common"]
        above = os.path.relpath(families, directory)
        text: str = beside(__file__)["manifest"].format(
            scopes="\n".join(f"  - {above}/{scope}" for scope in scopes),
            specs="\n".join(f"  - {spec}" for spec in self.row.specs),
        )
        packages = {
            name: settings
            for lane in ("any", self.lane or _FIRST_LANE)
            for name, settings in self.row.packages.get(lane, {}).items()
        }
        if self.gpu == "none":
            return text
        kind = "cuda_arch=" if self.gpu.startswith("sm_") else "amdgpu_target="
        variant = kind + self.gpu.removeprefix("sm_")
        packages = {"all": {"variants": ["{variant}"]}, **packages}
        lines = yaml.safe_dump({"packages": packages}, sort_keys=False, default_flow_style=None)
        lines = lines.replace("{variant}", variant)
        return text + "".join(f"  {line}\n" for line in lines.splitlines())


@lru_cache
def _environments(path: Path, changed: float) -> dict[str, SharedEnvironment]:
    document = Document(path)
    return dict(_rows(parse(StackTable, document.data, [document]), path))


def _rows(table: StackTable, path: Path) -> Iterator[tuple[str, SharedEnvironment]]:
    for gpu, stacks in table.gpus.items():
        for stack, others in stacks.items():
            require_known("no stack", stack, table.stacks, f"{path}: gpus.{gpu}")
            row = table.stacks[stack]
            name = row.name.format(gpu=gpu)
            for system in (systems.BASE, *others):
                for lane in row.lanes:
                    end = f"/{lane}" if lane == SECOND_LANE else ""
                    own = "" if system == systems.BASE else f"-{system}"
                    shared = SharedEnvironment(row, gpu, lane, system, name + end)
                    yield f"{name}{own}{end}", shared


def environments(stacks: Path) -> dict[str, SharedEnvironment]:
    """Return the environments of a directory ``_stacks`` by name; none if it has no table."""
    path = stacks / _TABLE
    return _environments(path, path.stat().st_mtime) if path.is_file() else {}


def shared(directory: Path) -> SharedEnvironment | None:
    """Return the environment of the table that belongs in a directory; None if none does."""
    for stacks in directory.parents:
        if stacks.name == STACKS:
            return environments(stacks).get(directory.relative_to(stacks).as_posix())
    return None


def provide(directory: Path) -> Path:
    """Write the manifest that the table has for a directory, unless it is there; return its path.

    Does nothing for an environment that is not in the table.
    """
    path = directory / MANIFEST
    own = shared(directory)
    if own:
        families = next(d for d in directory.parents if d.name == STACKS).parent / _FAMILIES
        text = own.text(directory, families)
        if not path.is_file() or path.read_text() != text:
            hint = "run the command as the owner of the Busbar installation"
            with file_error("cannot be written", path, hint):
                directory.mkdir(parents=True, exist_ok=True)
                replace_file(path, text)  # another process may read it meanwhile
    return path


OWN = "spack"
"""The directory of a site for the environments that its machines concretized."""


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
    the one for this system, else for the site's system, else for Debian 12. An image always uses
    the one of its base image.
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
    """Return the delivery that names the environment of a site: the first one, or of a lane.

    An image is built from the environment that its own delivery names, else from the one of the
    delivery ``spack``. Raises ``BusbarError`` if the site has none.
    """
    for own in dict.fromkeys((kind, "spack")):
        found = [each for each in site.deliveries if each.kind == own and each.environment]
        if found:
            return next((each for each in found if lane in each.lanes), found[0])
    words = {"site": site.name, "stacks": data.SITES / STACKS}
    raise refused(__file__, "no-environment", site.file, **words)


def find_environment(
    site: Site, lane: str | None = None, kind: DeliveryKind = "spack", system: str | None = None
) -> tuple[Path, Delivery, str]:
    """Return the environment of a site, with the delivery that names it and the lane.

    The default lane is the first of the delivery. Raises ``BusbarError`` for an unknown lane, and
    if no such environment exists.
    """
    delivery = delivery_with_environment(site, kind, lane)
    chosen = lane or delivery.lanes[0]
    alike = (d for d in site.deliveries if d.kind == delivery.kind and d.environment)
    known = dict.fromkeys([*delivery.lanes, *(lane for each in alike for lane in each.lanes)])
    require_known(f"in Spack, site {site.name!r} has no lane", chosen, known, "--lane")
    if kind == "image":
        system = systems.BASE
    directory = environment_directory(site, delivery, chosen, system)
    if directory is None:
        name = environment_name(site, delivery, chosen, system or systems.BASE)
        stacks = data.SITES / STACKS
        raise refused(__file__, "unknown-environment", site.file, name=name, stacks=stacks)
    return directory, delivery, chosen
