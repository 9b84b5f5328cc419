# SPDX-License-Identifier: MIT
"""Inspect an image: convert it, read its fingerprint and programs, run preflight."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter

from busbar.boundary import refuse_unsafe
from busbar.data import busbar
from busbar.delivery.bounds import refuse_too_large, run_bounded
from busbar.delivery.environment import Image
from busbar.delivery.programs import patterns
from busbar.errors import BusbarError
from busbar.preflight.host import gather
from busbar.preflight.lines import examine
from busbar.preflight.loader import View
from busbar.preflight.model import PreflightReport
from busbar.preflight.packed import archive_kind
from busbar.preflight.plan import FINGERPRINT, Contents, make_plan
from busbar.preflight.tarball import is_archive
from busbar.site.model import Site
from busbar.slurm.steps import on_a_node

_PROGRAMS = PurePosixPath("/opt/busbar")
_MOST_FILES = 100_000
_PINNED = re.compile(r"@sha256:(?P<hex>[0-9a-f]{64})$")


def inspect(reference: str, site: Site, inject: Sequence[str], scratch: Path | None) -> Image:
    """Inspect a SIF, a sandbox, an archive, or the address of an image in a registry.

    The last two are first converted into ``scratch``. Without ``scratch``, ``BusbarError`` is
    raised for an image that must be converted.
    """
    if scratch:
        return _inspect(reference, site, inject, scratch)
    with tempfile.TemporaryDirectory(prefix="busbar-image-") as temporary:
        image = _inspect(reference, site, inject, Path(temporary))
        if Path(image.reference).is_relative_to(temporary):
            raise BusbarError(
                "must be converted to a SIF first",
                where=reference,
                hint=f"busbar check --image does that, or: apptainer build image.sif {reference}",
            )
    return image


def _inspect(reference: str, site: Site, inject: Sequence[str], scratch: Path) -> Image:
    digest = image_digest(reference)
    reference = str(_sif(reference, site, scratch))
    contents = Contents.of_file(Path(reference))
    if contents.fingerprint is None:
        raise BusbarError(
            f"has no {FINGERPRINT}, which says what checks can run in it",
            where=reference,
            hint="build it with make image; busbar preflight judges any image",
        )
    return Image(
        reference=reference,
        fingerprint=contents.fingerprint,
        programs=_programs(View.of(contents.files), reference),
        settings=contents.variables,
        preflight=_preflight(contents, site, inject),
        digest=digest,
    )


def image_digest(reference: str) -> str:
    """Return the SHA-256 of what the user names; empty for a sandbox and an unpinned registry.

    That of a converted SIF would differ with each conversion.
    """
    path = Path(reference)
    if path.is_file():
        # What cannot be read is refused with its reason when it is opened.
        with suppress(OSError), path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    elif pinned := _PINNED.search(reference):
        return pinned["hex"]
    return ""


def _refuse_without_apptainer(reference: str, site: Site) -> None:
    configured = site.containers.runtime if site.containers else "apptainer"
    if configured != "apptainer":
        raise BusbarError(
            f"checks cannot run with {configured}",
            where=f"site {site.name}, containers.runtime",
            hint="use apptainer, which also runs images of Docker and Podman",
        )
    if not shutil.which("apptainer"):
        raise BusbarError(
            "Apptainer is not installed",
            where=reference,
            hint="put it on PATH; ci/lab/install.sh installs it into build/apptainer/bin",
        )


def _sif(reference: str, site: Site, scratch: Path) -> Path:
    """Return the SIF or sandbox; an archive or an image in a registry is converted to a SIF."""
    path, source = Path(reference).absolute(), reference
    archive = path.is_file() and is_archive(path)
    if not path.exists() and "://" not in reference:
        raise BusbarError(
            "no such file",
            where=reference,
            hint="give a SIF, a sandbox, an OCI archive or docker://NAME; for an image in the"
            " store of Docker: docker save NAME -o image.tar",
        )
    _refuse_without_apptainer(reference, site)
    if path.exists() and not archive:
        return path
    target = scratch / "image.sif"
    target.parent.mkdir(parents=True, exist_ok=True)
    # It is used once: zstd at a low level takes a quarter of the time of gzip.
    squash = "--mksquashfs-args=-comp zstd -Xcompression-level 3"
    if archive:
        source = f"{_archive_kind(path)}:{path}"
        temporary = Path(os.environ.get("APPTAINER_TMPDIR") or tempfile.gettempdir())
        refuse_too_large(path, [target.parent, temporary])
    command = ["apptainer", "--quiet", "build", "--force", squash, str(target), source]
    run_bounded(command, reference)
    return target


def _archive_kind(path: Path) -> str:
    if kind := archive_kind(path):
        return kind
    raise BusbarError(
        "is a tar archive, but not a container image: it has neither manifest.json nor oci-layout",
        where=str(path),
        hint="make one with docker save, podman save or make image FORMAT=oci",
    )


def _programs(view: View, reference: str) -> dict[str, str]:
    """Return name and path of the programs below /opt/busbar, of the first path of each name."""
    programs: dict[str, PurePosixPath] = {}
    pending, count = [_PROGRAMS], 0
    while pending:
        directory = pending.pop()
        for name in view.names(directory):
            path = directory / name
            count += 1
            if count > _MOST_FILES:
                raise BusbarError(
                    f"has more than {_MOST_FILES:,} files in {_PROGRAMS}", where=reference
                )
            if view.kind(path) == "directory" and not view.link(path):
                pending.append(path)
            elif any(path.match(pattern) for pattern in patterns()):
                refuse_unsafe(str(path), reference)
                programs[name] = min(path, programs.get(name, path))
    return {name: str(path) for name, path in programs.items()}


def _preflight(contents: Contents, site: Site, inject: Sequence[str]) -> PreflightReport:
    """Run preflight on a compute node: on this host, or where the scheduler puts it."""
    if site.scheduler != "local" and shutil.which("srun"):
        return _on_a_node(contents.reference, site, inject)
    return examine(make_plan(contents, site, gather(Path("/"), site), inject, None))


def _on_a_node(image: str, site: Site, inject: Sequence[str]) -> PreflightReport:
    words = [word for directory in inject for word in ("--inject", directory)]
    command = busbar("preflight", image, "--json", "--site", str(site.directory), *words)
    done = on_a_node(site.partitions[0].access, command)
    try:
        return TypeAdapter(PreflightReport).validate_json(done.stdout)
    except ValueError as error:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BusbarError(
            f"preflight did not run on a node: {lines[-1] if lines else 'srun printed nothing'}",
            where=f"site {site.name}",
            hint=f"the nodes must see the Python environment {sys.prefix}",
        ) from error
