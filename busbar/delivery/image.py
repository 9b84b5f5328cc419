# SPDX-License-Identifier: MIT
"""An image as a delivery: how it is entered here, what it says of itself, what preflight says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from busbar.delivery.programs import PATTERNS
from busbar.errors import BusbarError
from busbar.preflight.files import Files, open_image
from busbar.preflight.host import gather
from busbar.preflight.lines import judge
from busbar.preflight.plan import FINGERPRINT, fingerprint_of, image_variables, make
from busbar.site.model import Site

_PROGRAMS = PurePosixPath("/opt/busbar")
_RUNTIMES = ("apptainer", "docker", "podman")


@dataclass(frozen=True)
class Image:
    """Everything that a check needs to know of one image on one site."""

    reference: str
    """As the runtime knows it."""
    runtime: str
    fingerprint: dict[str, Any]
    programs: dict[str, str]
    """Name to path inside."""
    settings: dict[str, str]
    """The variables that it sets."""
    preflight: dict[str, Any]
    """What ``busbar preflight --json`` says."""

    @property
    def features(self) -> list[str]:
        """What it says of itself, and Open MPI's collectives where they take its buffers."""
        stack, delivery = self.fingerprint["stack"], self.fingerprint["delivery"]
        said = [f for f in self.fingerprint["features"] if f not in (stack, delivery)]
        return [*said, "collectives"] if stack == "host" else said

    def entered(self, names: Iterable[str], bind: Iterable[str], directory: str) -> list[str]:
        """The words before a command that runs inside.

        ``names`` are variables of the job that the command shall see, ``directory`` is where it
        runs and leaves its files: Apptainer hands on all of that by itself, Docker nothing.
        ``bind`` are directories that keep their name inside.
        """
        *words, reference = self.preflight["launch"]["enter"]
        flag = "--bind" if self.runtime == "apptainer" else "--volume"
        words += [word for path in bind for word in (flag, f"{path}:{path}:ro")]
        if self.runtime != "apptainer":
            words += [f"--env={name}" for name in dict.fromkeys(names)]
            words += ["--volume", f"{directory}:{directory}", f"--workdir={directory}"]
        return [*words, reference]

    def prevailing(self, name: str) -> list[str]:
        """Names under which a variable must be exported to win over what the image sets."""
        return [name, *([f"APPTAINERENV_{name}"] if self.runtime == "apptainer" else [])]

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Image:
        """What :meth:`write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def look(reference: str, site: Site, inject: Sequence[str], scratch: Path) -> Image:
    """The image ``reference`` on ``site``: a SIF, a sandbox, an archive of OCI, a name in a store.

    An archive is converted or loaded first, into ``scratch`` or the runtime's store.
    """
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
    """That of the site; else the first that is here and can take the image."""
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
    raise BusbarError(
        f"no container runtime that takes it is here ({', '.join(candidates)})",
        where=reference,
        hint="put one on PATH; ci/lab/install.sh installs Apptainer into build/apptainer/bin",
    )


def _answers(runtime: str) -> bool:
    """Docker is there only where its daemon is."""
    return runtime != "docker" or not _do([runtime, "info"]).returncode


def _sif(reference: str, scratch: Path) -> Path:
    """The SIF or sandbox itself; a SIF made of an archive or of an image in a registry."""
    path = Path(reference)
    if path.is_dir() or (path.is_file() and not tarfile.is_tarfile(path)):
        return path.absolute()
    if not path.is_file() and "://" not in reference:
        raise BusbarError(
            "there is no such image",
            where=reference,
            hint="give a SIF, a sandbox, an OCI archive, or docker://NAME",
        )
    source = f"{_archive_kind(path)}:{path.absolute()}" if path.is_file() else reference
    target = scratch / "image.sif"
    target.parent.mkdir(parents=True, exist_ok=True)
    # It is used once: zstd at a low level takes a quarter of the time of gzip.
    squash = "--mksquashfs-args=-comp zstd -Xcompression-level 3"
    _must(["apptainer", "--quiet", "build", "--force", squash, str(target), source], reference)
    return target


def _archive_kind(path: Path) -> str:
    with tarfile.open(path) as archive:
        names = set(archive.getnames())
    for name, kind in (("oci-layout", "oci-archive"), ("manifest.json", "docker-archive")):
        if name in names:
            return kind
    raise BusbarError(
        "is a tar archive of no image: it has neither manifest.json nor oci-layout",
        where=str(path),
        hint="make one with docker save, podman save or make image FORMAT=oci",
    )


def _loaded(runtime: str, reference: str) -> str:
    """The name in the runtime's store; an archive is loaded into it."""
    if Path(reference).is_file():
        _archive_kind(Path(reference))
        said = _must([runtime, "load", "--input", reference], reference)
        found = re.findall(r"(?m)^Loaded image(?:\(s\))?(?: ID)?: (?P<image>\S+)$", said)
        if not found:
            raise BusbarError(f"{runtime} load names no image: {said.strip()}", where=reference)
        return str(found[-1])
    name = reference.removeprefix("docker://")
    if _do([runtime, "image", "inspect", name]).returncode:
        raise BusbarError(
            f"there is no such file, and {runtime} has no image of that name",
            where=reference,
            hint="give a SIF, a sandbox, an OCI archive, or an image that was pulled or loaded",
        )
    return name


def _unpacked(runtime: str, reference: str, scratch: Path) -> Path:
    """The files of an image in a store, as preflight reads them: a sandbox of Apptainer's form."""
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


def _fingerprint(files: Files, reference: str) -> dict[str, Any]:
    if found := fingerprint_of(files, reference):
        return found
    raise BusbarError(
        f"has no {FINGERPRINT}, which says what checks can run in it",
        where=reference,
        hint="build it with make image; busbar preflight judges any image",
    )


def _programs(files: Files) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(files.paths()):
        known = any(path.match(pattern) for pattern in (*PATTERNS, "gpu_aware"))
        if known and _PROGRAMS in path.parents:
            found.setdefault(path.name, str(path))
    return found


def _preflight(
    root: Path, site: Site, inject: Sequence[str], runtime: str, reference: str
) -> dict[str, Any]:
    """What preflight says on a compute node: here, or where the scheduler puts it."""
    if site.scheduler != "local" and shutil.which("srun"):
        return _on_a_node(root, site, inject)
    plan = make(root, site, gather(Path("/"), site), inject, None, runtime, reference)
    return judge(plan).document


def _on_a_node(root: Path, site: Site, inject: Sequence[str]) -> dict[str, Any]:
    command = ["srun", "--quiet", "--nodes=1", "--ntasks=1", *site.partitions[0].access]
    command += [sys.executable, "-m", "busbar", "preflight", str(root), "--json"]
    command += ["--site", str(site.directory)]
    command += [word for directory in inject for word in ("--inject", directory)]
    done = _do(command)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BusbarError(
            f"preflight did not run on a node: {said[-1] if said else 'srun printed nothing'}",
            where=f"site {site.name}",
            hint=f"the nodes must see the Python environment {sys.prefix}",
        ) from error
    return report


def _must(command: Sequence[str], where: str) -> str:
    done = _do(command)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BusbarError(
            f"{' '.join(command[:2])} failed: {said[-1] if said else 'without a word'}",
            where=where,
            hint="run that command by hand to see more",
        )
    return done.stdout


def _do(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def of_choice(site: Site, reference: str, inject: Sequence[str], facts: Path | None) -> Image:
    """What ``busbar check`` has found out already, or the same found out now.

    Plain ReFrame finds out for itself; it can take what needs no conversion.
    """
    if facts and facts.exists():
        return Image.read(facts)
    with tempfile.TemporaryDirectory(prefix="busbar-image-") as scratch:
        found = look(reference, site, inject, Path(scratch))
        if Path(found.reference).is_relative_to(scratch):
            raise BusbarError(
                "must be converted to a SIF first",
                where=reference,
                hint=f"busbar check --image does that, or: apptainer build image.sif {reference}",
            )
    return found
