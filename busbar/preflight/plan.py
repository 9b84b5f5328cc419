# SPDX-License-Identifier: MIT
"""How the image would be launched: what is bound, what the loader is told, the command line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from busbar import site as sites
from busbar.errors import BusbarError
from busbar.preflight.files import Files, open_image
from busbar.preflight.host import Host
from busbar.preflight.loader import Found, Mount, View
from busbar.preflight.model import Launch
from busbar.site.model import Site, Stack

FINGERPRINT = PurePosixPath("/opt/busbar/fingerprint.json")
_ENV = PurePosixPath("/.singularity.d/env")
_DRIVER_LIBS = PurePosixPath("/.singularity.d/libs")
_OLD_VALUE = re.compile(r"\$\{?LD_LIBRARY_PATH(?::-([^}]*))?\}?")
# What `apptainer --nv` takes by its nvliblist.conf, as far as communication needs it.
_DRIVER = re.compile(r"lib(cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so(\.\d+)*")
# Where HPE puts the MPI that programs of the MPICH ABI can take, its launcher library and cxi.
_CRAY = (
    "/opt/cray/pe/mpich/default/ofi/gnu/*/lib-abi-mpich",
    "/opt/cray/pe/mpich/default/gtl/lib",
    "/opt/cray/pe/lib64",
    "/opt/cray/libfabric/*/lib64",
)

# How a runtime other than Apptainer gives a container the GPUs that --nv and --rocm give.
_AMD = ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=video"]
_GPUS = {
    ("docker", "--nv"): ["--gpus=all"],
    ("podman", "--nv"): ["--device=nvidia.com/gpu=all"],
    ("docker", "--rocm"): _AMD,
    ("podman", "--rocm"): _AMD,
}


@dataclass(frozen=True)
class Plan:
    """One way to run one image on one site."""

    image: Path
    site: Site
    stack: Stack
    fingerprint: dict[str, Any]
    """What the image says of itself; empty for an image of others."""
    environment: dict[str, str]
    """What the site sets for the stack."""
    injected: tuple[Mount, ...]
    gpu_option: str
    """``--nv``, ``--rocm`` or nothing."""
    view: View
    host: Host
    program: Found | None
    runtime: str
    """``apptainer``, ``docker`` or ``podman``."""
    reference: str
    """The image as the runtime knows it: the file, or a name in its store."""


def make(  # noqa: PLR0917 - all belong to the one plan
    image: Path,
    site: Site,
    host: Host,
    inject: Sequence[str],
    program: str | None,
    runtime: str = "apptainer",
    reference: str | None = None,
) -> Plan:
    """The plan for the files of ``image``; ``inject`` are library directories of the host."""
    files = open_image(image)
    fingerprint = _fingerprint(files, image)
    stack = next((d.stack for d in site.deliveries if d.kind == "image"), None)
    stack = stack or site.deliveries[0].stack
    gpus = site.node_type().gpus
    option = {"nvidia": "--nv", "amd": "--rocm"}[gpus.vendor] if gpus else ""
    directories = list(inject) or (_present(host, _CRAY) if stack == "cray" else [])
    for directory in directories:
        if host.files.kind(PurePosixPath(directory)) != "directory":
            raise BusbarError("is no directory of the host", where=f"--inject {directory}")
    injected = tuple(
        Mount(PurePosixPath(f"/host/{n}"), PurePosixPath(directory), "injected")
        for n, directory in enumerate(directories)
    )
    driver = _driver(host) if option == "--nv" else ()
    library_path = [
        *(str(mount.target) for mount in injected),
        *_library_path(files),
        *([str(_DRIVER_LIBS)] if driver else []),
    ]
    view = View(files, host.files, (*injected, *driver), library_path)
    where = program or ("/opt/busbar/bin/gpu_aware" if fingerprint else None)
    found = view.find(PurePosixPath(where)) if where else None
    if program and not found:
        raise BusbarError("is not in the image", where=f"--program {program}")
    environment = sites.environment(site, stack=stack)
    return Plan(
        image=image,
        site=site,
        stack=stack,
        fingerprint=fingerprint,
        environment=environment,
        injected=injected,
        gpu_option=option,
        view=view,
        host=host,
        program=found,
        runtime=runtime,
        reference=reference or str(image),
    )


def _present(host: Host, patterns: Sequence[str]) -> list[str]:
    """The directories that match, the newest where several do."""
    found = []
    for pattern in patterns:
        level = [PurePosixPath("/")]
        for part in PurePosixPath(pattern).parts[1:]:
            if part == "*":
                level = [at / name for at in level for name in host.view.names(at)]
            else:
                level = [at / part for at in level]
        found += [str(at) for at in level if host.view.names(at)][-1:]
    return found


def _driver(host: Host) -> tuple[Mount, ...]:
    return tuple(
        Mount(_DRIVER_LIBS / name, directory / name, "driver")
        for directory in reversed(host.view.directories())
        for name in host.view.names(directory)
        if _DRIVER.fullmatch(name)
    )


def _fingerprint(files: Files, image: Path) -> dict[str, Any]:
    if files.kind(FINGERPRINT) != "file":
        return {}
    try:
        fingerprint = json.loads(files.local(FINGERPRINT).read_text())
    except ValueError as error:
        raise BusbarError(
            f"is no JSON ({error})", where=f"{image}: {FINGERPRINT}", hint="build the image again"
        ) from error
    if not isinstance(fingerprint, dict) or not isinstance(fingerprint.get("stack"), str):
        raise BusbarError(
            "names no stack", where=f"{image}: {FINGERPRINT}", hint="build the image again"
        )
    return fingerprint


def _library_path(files: Files) -> list[str]:
    """LD_LIBRARY_PATH as the image's own environment files build it up, one after the other."""
    value = ""
    for name in files.names(_ENV):
        # 10 is of a converted OCI image, 90 and 91 of a definition; the rest are Apptainer's own.
        if not name.startswith(("10-", "90-", "91-")) or files.kind(_ENV / name) != "file":
            continue
        text = files.local(_ENV / name).read_text(errors="replace")
        for found in re.findall(r"(?m)^\s*(?:export\s+)?LD_LIBRARY_PATH=(.*)$", text):
            line = found.replace('"', "")
            old = _OLD_VALUE.search(line)
            value = line.replace(old[0], value or old[1] or "") if old else line
    return [part for part in value.replace("'", "").split(":") if part.startswith("/")]


def hosts_mpirun(plan: Plan) -> str | None:
    """The launcher that belongs to the MPI that is injected: beside its libraries, or on PATH."""
    for mount in plan.injected:
        beside = mount.source.parent / "bin" / "mpirun"
        if plan.host.view.find(beside):
            return str(beside)
    return shutil.which("mpirun")


def launch(plan: Plan, mpi_type: str | None) -> Launch:
    """How the image is launched, ``mpi_type`` being what srun's --mpi gets."""
    node = plan.site.node_type()
    ranks = node.gpus.count if node.gpus else 2
    outside: list[str] = []
    inside: list[str] = []
    if plan.site.scheduler != "local":
        nodes = min(2, plan.site.partitions[0].nodes)
        outside = ["srun", f"--nodes={nodes}", f"--ntasks-per-node={ranks}"]
        outside.append(f"--mpi={mpi_type or 'none'}")
    elif plan.injected and plan.runtime == "apptainer":
        outside = [hosts_mpirun(plan) or "mpirun", "-n", str(ranks)]
    else:
        inside = ["mpirun", "-n", str(ranks)]
    return Launch(outside, _enter(plan), inside, mpi_type or "")


def _enter(plan: Plan) -> list[str]:
    """What runs a command inside: the binds, the GPUs and the image."""
    path = ":".join(plan.view.library_path)
    if plan.runtime == "apptainer":
        words = ["apptainer", "exec", *([plan.gpu_option] if plan.gpu_option else [])]
        bind = "--bind"
    else:
        # Ranks of one container; with the host's /dev/shm, whose size is no 64 MB.
        words = [plan.runtime, "run", "--rm", "--ipc=host", "--network=host"]
        words += _GPUS[plan.runtime, plan.gpu_option] if plan.gpu_option else []
        bind = "--volume"
    for mount in plan.injected:
        words += [bind, f"{mount.source}:{mount.target}:ro"]
    if plan.injected:
        words += ["--env", f"LD_LIBRARY_PATH={path}"]
    return [*words, plan.reference]


def command(plan: Plan, how: Launch) -> str:
    """The line that launches the image."""
    program = str(plan.program.path) if plan.program else "PROGRAM"
    return shlex.join([*how.outside, *how.enter, *how.inside, program])
