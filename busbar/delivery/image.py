# SPDX-License-Identifier: MIT
"""Inspect an image: find its runtime, read its fingerprint and programs, run preflight."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter

from busbar.boundary import refuse_unsafe
from busbar.data import busbar
from busbar.delivery.environment import Image
from busbar.delivery.programs import patterns
from busbar.errors import DAMAGED, BusbarError, file_error, value_error
from busbar.parse.numbers import load_json
from busbar.parse.tables import refused
from busbar.preflight.confined import run_limited
from busbar.preflight.host import gather
from busbar.preflight.lines import examine
from busbar.preflight.loader import View
from busbar.preflight.model import PreflightReport
from busbar.preflight.packed import MOST_BYTES, unpacked
from busbar.preflight.plan import FINGERPRINT, LONGEST_VALUE, Contents, fingerprint_of, make_plan
from busbar.program import call
from busbar.site.model import Site
from busbar.slurm.steps import on_a_node

_EXPORT_S = 1800
_PROGRAMS = PurePosixPath("/opt/busbar")
_MOST_FILES = 100_000
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STORES = ("docker", "podman")
_RUNTIMES = ("apptainer", *_STORES)


def inspect(reference: str, site: Site, inject: Sequence[str]) -> Image:
    """Inspect a SIF, a sandbox, or a name in the store of Docker or Podman."""
    path = Path(reference)
    runtime = _runtime(reference, site)
    if runtime == "apptainer":
        return _image(Contents.of_file(path.absolute()), _digest(path), site, inject, runtime)
    if site.scheduler != "local":
        words = {"runtime": runtime, "scheduler": site.scheduler}
        raise refused(__file__, "scheduler", f"site {site.name}, containers", **words)
    with _stored(runtime, reference) as (contents, digest):
        return _image(contents, digest, site, inject, runtime)


def _image(
    contents: Contents, digest: str, site: Site, inject: Sequence[str], runtime: str
) -> Image:
    if contents.fingerprint is None:
        raise refused(__file__, "no-fingerprint", contents.reference, file=FINGERPRINT)
    return Image(
        reference=contents.reference,
        runtime=runtime,
        fingerprint=contents.fingerprint,
        programs=_programs(View.of(contents.files), contents.reference),
        settings=contents.variables,
        preflight=_preflight(contents, site, inject, runtime),
        digest=digest,
    )


def _digest(image: Path) -> str:
    """Return the SHA-256 of a file; empty for a sandbox."""
    if image.is_dir():
        return ""
    with file_error("cannot be read", image), image.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _runtime(reference: str, site: Site) -> str:
    """Return the site's runtime, or the first available one that can run the image."""
    configured = site.containers.runtime if site.containers else None
    is_file = Path(reference).exists()
    if configured and configured not in _RUNTIMES:
        words = {"runtime": configured, "known": ", ".join(_RUNTIMES)}
        raise refused(__file__, "runtime", f"site {site.name}, containers.runtime", **words)
    if configured in _STORES and is_file:
        raise refused(__file__, "no-file-runtime", reference, runtime=configured)
    takers = _RUNTIMES[:1] if is_file else _STORES
    candidates = [each for each in takers if configured in (None, each)]
    for runtime in candidates:
        if shutil.which(runtime) and _answers(runtime):
            return runtime
    if not is_file:
        raise _no_image(reference, stores=bool(candidates))
    raise refused(__file__, "not-installed", reference, names=[*candidates])


def _no_image(reference: str, *, stores: bool = True) -> BusbarError:
    searched = ", and no image with this name in Docker or Podman" if stores else ""
    return refused(__file__, "no-image", reference, searched=searched)


def _answers(runtime: str) -> bool:
    """Return whether the runtime works; Docker needs its daemon."""
    return runtime != "docker" or not call([runtime, "info"]).returncode


@contextmanager
def _stored(runtime: str, name: str) -> Iterator[tuple[Contents, str]]:
    """Yield what an image of a store contains, and its digest."""
    found = call([runtime, "image", "inspect", name])
    if found.returncode:
        raise _no_image(name)
    digest, variables = inspected(found.stdout, name)
    made = call([runtime, "create", name, "true"])
    if made.returncode:
        raise refused(__file__, "cannot-create", name, runtime=runtime, why=made.stderr.strip())
    container = made.stdout.split()[-1]
    with ExitStack() as stack:
        with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
            os.fchmod(archive.fileno(), 0o644)  # root reads it as user nobody
            try:
                hint = "use a smaller image, or convert it with apptainer build"
                limits = (name, hint, _EXPORT_S, MOST_BYTES)
                run_limited([runtime, "export", container], archive, *limits)
            finally:
                call([runtime, "rm", container])
            files = stack.enter_context(unpacked(Path(archive.name), name))
        yield Contents(name, files, fingerprint_of(View.of(files), name), variables), digest


def inspected(text: str, reference: str) -> tuple[str, dict[str, str]]:
    """Return the digest and the variables in what ``docker image inspect`` prints of an image."""
    what, hint = "its configuration cannot be read", "build or pull it again"
    with value_error(what, reference, hint, DAMAGED):
        image = load_json(text)[0]
        digest = str(image.get("Id", "")).removeprefix("sha256:")
        lines = [str(line) for line in image["Config"].get("Env") or ()]
    pairs = [line.partition("=") for line in lines]
    variables = {name: value for name, _, value in pairs if _VARIABLE.fullmatch(name)}
    for name, value in variables.items():
        if len(value) > LONGEST_VALUE:
            words = {"name": name[:80], "most": LONGEST_VALUE}
            raise refused(__file__, "long-variable", f"{reference}, Env", **words)
    return digest, variables


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
                words = {"most": _MOST_FILES, "directory": _PROGRAMS}
                raise refused(__file__, "many-files", reference, **words)
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
        facts = {"why": lines[-1] if lines else "srun printed nothing", "python": sys.prefix}
        raise refused(__file__, "not-on-a-node", f"site {site.name}", **facts) from error
