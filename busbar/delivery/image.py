# SPDX-License-Identifier: MIT
"""Inspect an image: convert or load it, read its fingerprint and programs, run preflight."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter

from busbar.delivery.environment import Image
from busbar.delivery.programs import PATTERNS
from busbar.errors import BusbarError
from busbar.preflight.files import Files, archive_kind, open_image
from busbar.preflight.host import gather
from busbar.preflight.lines import examine
from busbar.preflight.model import Fingerprint, PreflightReport
from busbar.preflight.plan import FINGERPRINT, fingerprint_of, image_variables, make_plan
from busbar.site.model import Site

_PROGRAMS = PurePosixPath("/opt/busbar")
_RUNTIMES = ("apptainer", "docker", "podman")


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
    runtime = _runtime(reference, site)
    if runtime == "apptainer":
        kept = _sif(reference, scratch)
        reference, root = str(kept), kept
    else:
        if site.scheduler != "local":
            raise BusbarError(
                f"{runtime} does not join ranks that {site.scheduler} has started",
                where=f"site {site.name}, containers",
                hint="convert the image to a SIF and run it by Apptainer",
            )
        reference = _loaded(runtime, reference)
        root = _unpacked(runtime, reference, scratch)
    files = open_image(root)
    fingerprint = _fingerprint(files, reference)
    return Image(
        reference=reference,
        runtime=runtime,
        fingerprint=fingerprint,
        programs=_programs(files),
        settings=image_variables(files),
        preflight=_preflight(root, site, inject, runtime, reference),
    )


def _runtime(reference: str, site: Site) -> str:
    """Return the runtime of the site, else the first available one that takes the image."""
    wanted = site.containers.runtime if site.containers else None
    if wanted and wanted not in _RUNTIMES:
        raise BusbarError(
            f"checks do not run by {wanted}",
            where=f"site {site.name}, containers.runtime",
            hint=f"they run by {', '.join(_RUNTIMES)}",
        )
    path = Path(reference)
    of_apptainer = path.is_dir() or (path.is_file() and not tarfile.is_tarfile(path))
    if wanted in ("docker", "podman") and of_apptainer:
        raise BusbarError(
            f"the site's runtime is {wanted}, which takes no SIF and no sandbox",
            where=reference,
            hint="build it with FORMAT=oci",
        )
    if wanted:
        candidates: Sequence[str] = [wanted]
    elif of_apptainer or "://" in reference:
        candidates = ["apptainer"]
    else:
        candidates = _RUNTIMES if path.is_file() else _RUNTIMES[1:]
    for runtime in candidates:
        if shutil.which(runtime) and _answers(runtime):
            return runtime
    if not path.exists() and "://" not in reference:
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
    return runtime != "docker" or not _do([runtime, "info"]).returncode


def _sif(reference: str, scratch: Path) -> Path:
    """Return the SIF or sandbox; an archive or an image in a registry is converted to a SIF."""
    path = Path(reference)
    if path.is_dir() or (path.is_file() and not tarfile.is_tarfile(path)):
        return path.absolute()
    if not path.is_file() and "://" not in reference:
        raise _no_image(reference, stores=False)
    source = f"{_archive_kind(path)}:{path.absolute()}" if path.is_file() else reference
    target = scratch / "image.sif"
    target.parent.mkdir(parents=True, exist_ok=True)
    # It is used once: zstd at a low level takes a quarter of the time of gzip.
    squash = "--mksquashfs-args=-comp zstd -Xcompression-level 3"
    _must(["apptainer", "--quiet", "build", "--force", squash, str(target), source], reference)
    return target


def _archive_kind(path: Path) -> str:
    if kind := archive_kind(path):
        return kind
    raise BusbarError(
        "is a tar archive, but not a container image: it has neither manifest.json nor oci-layout",
        where=str(path),
        hint="make one with docker save, podman save or make image FORMAT=oci",
    )


def _loaded(runtime: str, reference: str) -> str:
    """Return the name in the store of the runtime; an archive is loaded into the store."""
    if Path(reference).is_file():
        _archive_kind(Path(reference))
        output = _must([runtime, "load", "--input", reference], reference)
        names = re.findall(r"(?m)^Loaded image(?:\(s\))?(?: ID)?: (?P<image>\S+)$", output)
        if not names:
            raise BusbarError(f"{runtime} load names no image: {output.strip()}", where=reference)
        return str(names[-1])
    name = reference.removeprefix("docker://")
    if _do([runtime, "image", "inspect", name]).returncode:
        raise _no_image(reference)
    return name


def _unpacked(runtime: str, reference: str, scratch: Path) -> Path:
    """Unpack an image of a store into a sandbox as Apptainer makes it, for preflight."""
    root = scratch / "image"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    container = _must([runtime, "create", reference, "true"], reference).split()[-1]
    try:
        with subprocess.Popen([runtime, "export", container], stdout=subprocess.PIPE) as export:
            unpack = ["tar", "-x", "--no-same-owner", "--exclude=dev/*", "-C", str(root)]
            subprocess.run(unpack, stdin=export.stdout, check=True)
    finally:
        _do([runtime, "rm", container])
    if export.returncode:
        raise BusbarError(f"{runtime} export failed", where=reference)
    config = json.loads(_must([runtime, "image", "inspect", reference], reference))[0]["Config"]
    environment = root / ".singularity.d" / "env" / "10-docker2singularity.sh"
    environment.parent.mkdir(parents=True, exist_ok=True)
    pairs = (line.partition("=") for line in config.get("Env") or ())
    environment.write_text("".join(f'export {name}="{value}"\n' for name, _, value in pairs))
    return root


def _fingerprint(files: Files, reference: str) -> Fingerprint:
    if fingerprint := fingerprint_of(files, reference):
        return fingerprint
    raise BusbarError(
        f"has no {FINGERPRINT}, which says what checks can run in it",
        where=reference,
        hint="build it with make image; busbar preflight judges any image",
    )


def _programs(files: Files) -> dict[str, str]:
    programs: dict[str, str] = {}
    for path in sorted(files.paths()):
        named = any(path.match(pattern) for pattern in (*PATTERNS, "gpu_aware"))
        if named and _PROGRAMS in path.parents:
            programs.setdefault(path.name, str(path))
    return programs


def _preflight(
    root: Path, site: Site, inject: Sequence[str], runtime: str, reference: str
) -> PreflightReport:
    """Run preflight on a compute node: on this host, or where the scheduler puts it."""
    if site.scheduler != "local" and shutil.which("srun"):
        return _on_a_node(root, site, inject)
    plan = make_plan(root, site, gather(Path("/"), site), inject, None, runtime, reference)
    return examine(plan)


def _on_a_node(root: Path, site: Site, inject: Sequence[str]) -> PreflightReport:
    command = ["srun", "--quiet", "--nodes=1", "--ntasks=1", *site.partitions[0].access]
    command += [sys.executable, "-m", "busbar", "preflight", str(root), "--json"]
    command += ["--site", str(site.directory)]
    command += [word for directory in inject for word in ("--inject", directory)]
    done = _do(command)
    try:
        return TypeAdapter(PreflightReport).validate_json(done.stdout)
    except ValueError as error:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BusbarError(
            f"preflight did not run on a node: {lines[-1] if lines else 'srun printed nothing'}",
            where=f"site {site.name}",
            hint=f"the nodes must see the Python environment {sys.prefix}",
        ) from error


def _must(command: Sequence[str], where: str) -> str:
    done = _do(command)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise BusbarError(
            f"{' '.join(command[:2])} failed: {lines[-1] if lines else 'without output'}",
            where=where,
            hint="run that command by hand to see more",
        )
    return done.stdout


def _do(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
