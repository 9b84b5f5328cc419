# SPDX-License-Identifier: MIT
"""Inspect an image: convert or load it, read its fingerprint and programs, run preflight."""

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

from busbar.boundary import refuse_unsafe, refuse_unsafe_reference
from busbar.data import busbar
from busbar.delivery.bounds import export, refuse_too_large, run_bounded
from busbar.delivery.environment import Image
from busbar.delivery.programs import patterns
from busbar.errors import BusbarError
from busbar.parse.numbers import load_json
from busbar.preflight.host import gather
from busbar.preflight.lines import examine
from busbar.preflight.loader import View
from busbar.preflight.model import PreflightReport
from busbar.preflight.packed import Archive, archive_kind
from busbar.preflight.plan import (
    FINGERPRINT,
    LONGEST_VALUE,
    Contents,
    fingerprint_of,
    make_plan,
)
from busbar.preflight.tarball import is_archive
from busbar.program import call
from busbar.site.model import Site
from busbar.slurm.steps import on_a_node

_PROGRAMS = PurePosixPath("/opt/busbar")
_MOST_FILES = 100_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PINNED = re.compile(r"@sha256:(?P<hex>[0-9a-f]{64})$")
_RUNTIMES = ("apptainer", "docker", "podman")
_TAKEN_BY: dict[str, Sequence[str]] = {
    "sif": _RUNTIMES[:1],
    "archive": _RUNTIMES,
    "registry": _RUNTIMES[:1],
    "store": _RUNTIMES[1:],
}
"""The runtimes for what an image can be; best first."""


def inspect(reference: str, site: Site, inject: Sequence[str], scratch: Path | None) -> Image:
    """Inspect a SIF, a sandbox, an OCI archive or a name in a container store.

    An archive is first converted into ``scratch`` or loaded into the store. Without ``scratch``,
    ``BusbarError`` is raised for an image that must be converted.
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
    kind = _kind(reference)
    runtime = _runtime(reference, kind, site)
    digest = image_digest(reference, runtime)
    if runtime == "apptainer":
        reference = str(_sif(reference, kind, scratch))
        contents = Contents.of_file(Path(reference))
    else:
        if site.scheduler != "local":
            raise BusbarError(
                f"{runtime} does not join ranks that {site.scheduler} has started",
                where=f"site {site.name}, containers",
                hint="convert the image to a SIF and run it by Apptainer",
            )
        reference = _loaded(runtime, reference, kind)
        contents = _exported(runtime, reference, scratch)
    if contents.fingerprint is None:
        raise BusbarError(
            f"has no {FINGERPRINT}, which says what checks can run in it",
            where=reference,
            hint="build it with make image; busbar preflight judges any image",
        )
    return Image(
        reference=reference,
        runtime=runtime,
        fingerprint=contents.fingerprint,
        programs=_programs(View.of(contents.files), reference),
        settings=contents.variables,
        preflight=_preflight(contents, site, inject, runtime),
        digest=digest,
    )


def image_digest(reference: str, runtime: str) -> str:
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
    if runtime == "apptainer":
        return ""
    found = call([runtime, "image", "inspect", reference.removeprefix("docker://")])
    return "" if found.returncode else _inspected(found.stdout, reference)[0]


def _kind(reference: str) -> str:
    """Return ``sif`` (or a sandbox), ``archive``, ``registry`` or a name in a ``store``."""
    path = Path(reference)
    if path.is_file():
        return "archive" if is_archive(path) else "sif"
    if path.is_dir():
        return "sif"
    return "registry" if "://" in reference else "store"


def _runtime(reference: str, kind: str, site: Site) -> str:
    """Return the runtime of the site, else the first available one that takes the image."""
    configured = site.containers.runtime if site.containers else None
    if configured and configured not in _RUNTIMES:
        raise BusbarError(
            f"checks cannot run with {configured}",
            where=f"site {site.name}, containers.runtime",
            hint=f"use one of {', '.join(_RUNTIMES)}",
        )
    if configured in ("docker", "podman") and kind == "sif":
        raise BusbarError(
            f"the site's runtime is {configured}, which cannot run a SIF or a sandbox",
            where=reference,
            hint="build it with FORMAT=oci",
        )
    candidates = [configured] if configured else _TAKEN_BY[kind]
    for runtime in candidates:
        if shutil.which(runtime) and _answers(runtime):
            return runtime
    if kind == "store":
        raise _no_image(reference)
    raise BusbarError(
        f"no container runtime that takes it is installed ({', '.join(candidates)})",
        where=reference,
        hint="put one on PATH; ci/lab/install.sh installs Apptainer into build/apptainer/bin",
    )


def _no_image(reference: str, *, stores: bool = True) -> BusbarError:
    searched = ", and no image with this name in Docker or Podman" if stores else ""
    return BusbarError(
        f"no such file{searched}",
        where=reference,
        hint="give a SIF, a sandbox, an OCI archive, docker://NAME, or an image that was pulled",
    )


def _answers(runtime: str) -> bool:
    """Return whether the runtime works; Docker needs its daemon."""
    return runtime != "docker" or not call([runtime, "info"]).returncode


def _sif(reference: str, kind: str, scratch: Path) -> Path:
    """Return the SIF or sandbox; an archive or an image in a registry is converted to a SIF."""
    path, source = Path(reference).absolute(), reference
    if kind == "sif":
        return path
    if kind == "store":
        raise _no_image(reference, stores=False)
    target = scratch / "image.sif"
    target.parent.mkdir(parents=True, exist_ok=True)
    # It is used once: zstd at a low level takes a quarter of the time of gzip.
    squash = "--mksquashfs-args=-comp zstd -Xcompression-level 3"
    if kind == "archive":
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


def _loaded(runtime: str, reference: str, kind: str) -> str:
    """Return the name in the store of the runtime; an archive is loaded into the store."""
    if kind == "archive":
        _archive_kind(Path(reference))
        refuse_too_large(Path(reference), [])
        output = run_bounded([runtime, "load", "--input", reference], reference)
        names = re.findall(r"(?m)^Loaded image(?:\(s\))?(?: ID)?: (?P<image>\S+)$", output)
        if not names:
            raise BusbarError(
                f"{runtime} load names no image: {output.strip()}",
                where=reference,
                hint=f"load it, and give its name in the list of `{runtime} image ls`",
            )
        refuse_unsafe_reference(names[-1], reference)
        return str(names[-1])
    name = reference.removeprefix("docker://")
    if call([runtime, "image", "inspect", name]).returncode:
        raise _no_image(reference)
    return name


def _exported(runtime: str, reference: str, scratch: Path) -> Contents:
    """Export an image of a store into one archive, which preflight reads without unpacking it."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=scratch, suffix=".tar") as archive:
        container = run_bounded([runtime, "create", reference, "true"], reference).split()[-1]
        try:
            export([runtime, "export", container], reference, archive)
        finally:
            call([runtime, "rm", container])
        files = Archive(Path(archive.name), reference)  # it stays readable once it is removed
    output = run_bounded([runtime, "image", "inspect", reference], reference)
    variables = variables_of(output, reference)
    return Contents(reference, files, fingerprint_of(View.of(files), reference), variables)


def variables_of(inspected: str, reference: str) -> dict[str, str]:
    """Return the variables in what ``docker image inspect`` or ``podman image inspect`` prints."""
    _, lines = _inspected(inspected, reference)
    pairs = [line.partition("=") for line in lines]
    variables = {name: value for name, _, value in pairs if _VARIABLE.fullmatch(name)}
    for name, value in variables.items():
        if len(value) > LONGEST_VALUE:
            what = f"{name[:80]} has more than {LONGEST_VALUE} characters"
            raise BusbarError(what, where=f"{reference}, Env")
    return variables


def _inspected(text: str, reference: str) -> tuple[str, list[str]]:
    """Return the id and the variables in what a runtime prints of an image."""
    try:
        image = load_json(text)[0]
        digest = str(image.get("Id", "")).removeprefix("sha256:")
        return digest, [str(line) for line in image["Config"].get("Env") or ()]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BusbarError(
            "its configuration cannot be read", where=reference, hint="build or pull it again"
        ) from error


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


def _preflight(
    contents: Contents, site: Site, inject: Sequence[str], runtime: str
) -> PreflightReport:
    """Run preflight on a compute node: on this host, or where the scheduler puts it."""
    if site.scheduler != "local" and shutil.which("srun"):
        return _on_a_node(contents.reference, site, inject)
    return examine(make_plan(contents, site, gather(Path("/"), site), inject, None, runtime))


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
