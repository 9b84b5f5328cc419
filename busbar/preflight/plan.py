# SPDX-License-Identifier: MIT
"""How the image would be launched: what is bound, what the loader is told, the command line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from busbar import site as sites
from busbar.errors import BusbarError
from busbar.preflight import elf
from busbar.preflight.files import Files, open_image
from busbar.preflight.host import Host
from busbar.preflight.loader import Found, Mount, View
from busbar.preflight.model import Fingerprint, LaunchLine
from busbar.site.model import Site, Stack
from busbar.site.yamlfile import dotted, rule_of

FINGERPRINT = PurePosixPath("/opt/busbar/fingerprint.json")
_ENV = PurePosixPath("/.singularity.d/env")
_DRIVER_LIBS = PurePosixPath("/.singularity.d/libs")
# What Apptainer binds from the host's loader cache, by nvliblist.conf and rocmliblist.conf of
# Apptainer 1.4.5, as far as communication needs it. With --rocm that is not HIP or HSA, which the
# image brings.
_DRIVER = {
    "--nv": re.compile(r"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler)\.so(?:\.\d+)*"),
    "--rocm": re.compile(r"lib(?:drm|drm_amdgpu|numa|pci|amdcomgr64|amdocl64)\.so(?:\.\d+)*"),
}
# Where HPE puts the MPI that programs of the MPICH ABI can take, its launcher libraries and its
# libfabric, as public module files and job scripts of Cray sites name them. LUMI's documentation
# binds /opt/cray, /usr/lib64/libcxi.so.1 and /var/spool/slurmd, where Slurm's cray_shasta plugin
# keeps the data of a job. The GTL is preloaded by those who do not link it.
_CRAY = (
    "/opt/cray/pe/mpich/{default,*}/ofi/gnu/*/lib-abi-mpich",
    "/opt/cray/pe/mpich/{default,*}/gtl/lib",
    "/opt/cray/pe/lib64",
    "/opt/cray/pe/pmi/default/lib",
    "/opt/cray/pe/pals/default/lib",
    "/opt/cray/xpmem/default/lib64",
    "/opt/cray/libfabric/*/lib64",
)
_CRAY_SPOOL = PurePosixPath("/var/spool/slurmd")
# Single libraries of the host that injected ones need; what makes a C library stays the image's.
_NEEDED = PurePosixPath("/host/needed")
_C_LIBRARY = re.compile(r"(?:ld-linux.*|lib(?:c|m|dl|rt|pthread|resolv|util))\.so\.\d+")

# How a runtime other than Apptainer gives a container the GPUs that --nv and --rocm give.
_AMD = ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=video"]
_GPUS = {
    ("docker", "--nv"): ["--gpus=all"],
    ("podman", "--nv"): ["--device=nvidia.com/gpu=all"],
    ("docker", "--rocm"): _AMD,
    ("podman", "--rocm"): _AMD,
}


@dataclass(frozen=True)
class ImagePlan:
    """One way to run one image on one site."""

    image: Path
    site: Site
    stack: Stack
    fingerprint: Fingerprint | None
    """None for an image that Busbar did not build."""
    environment: dict[str, str]
    """What the image sets, and the site for the stack, which wins at launch."""
    variables: dict[str, str]
    """What the image itself sets."""
    injected: tuple[Mount, ...]
    binds: tuple[Mount, ...]
    """Of the host, beside the libraries."""
    preload: str
    """A library that the program does not name and must have; empty for none."""
    gpu_option: str
    """``--nv``, ``--rocm`` or nothing."""
    view: View
    host: Host
    program: Found | None
    runs: str
    """The program's path as it was given; its file may lie elsewhere, behind links."""
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
) -> ImagePlan:
    """The plan for the files of ``image``; ``inject`` are library directories of the host."""
    files = open_image(image)
    fingerprint = fingerprint_of(files, image)
    stack = next((d.stack for d in site.deliveries if d.kind == "image"), None)
    stack = stack or site.deliveries[0].stack
    gpus = site.node_type().gpus
    option = {"nvidia": "--nv", "amd": "--rocm"}[gpus.vendor] if gpus else ""
    directories = list(inject) or (_present(host, _CRAY) if stack == "cray" else [])
    for directory in directories:
        if host.files.kind(PurePosixPath(directory)) != "directory":
            raise BusbarError("is no directory of the host", where=f"--inject {directory}")
        if "libc.so.6" in host.view.names(PurePosixPath(directory)):
            raise BusbarError(
                "holds a C library, and an image runs with its own alone",
                where=f"--inject {directory}",
                hint="name a directory of MPI or fabric libraries; what they need comes with them",
            )
    injected = tuple(
        Mount(PurePosixPath(f"/host/{n}"), PurePosixPath(directory), "injected")
        for n, directory in enumerate(directories)
    )
    driver = _driver(host, option) if option else ()
    variables = image_variables(files)
    own = [part for part in variables.get("LD_LIBRARY_PATH", "").split(":") if part[:1] == "/"]

    def seen(extra: tuple[Mount, ...]) -> View:
        path = [str(mount.target) for mount in injected]
        path += [str(_NEEDED)] if extra else []
        path += [*own, *([str(_DRIVER_LIBS)] if driver else [])]
        return View(files, host.files, (*injected, *extra, *driver), path)

    needed = _needed(injected, host, seen)
    view = seen(needed)
    binds = [Mount(_CRAY_SPOOL, _CRAY_SPOOL, "host")] if stack == "cray" else []
    where = program or ("/opt/busbar/bin/gpu_aware" if fingerprint else None)
    found = view.find(PurePosixPath(where)) if where else None
    if program and not found:
        raise BusbarError("is not in the image", where=f"--program {program}")
    if program and found and elf.read(found.local) is None:
        raise BusbarError(
            "is no program that the loader takes",
            where=f"--program {program}",
            hint="name the binary that a script starts; a static one needs no preflight",
        )
    environment = variables | sites.environment(site, stack=stack)
    return ImagePlan(
        image=image,
        site=site,
        stack=stack,
        fingerprint=fingerprint,
        environment=environment,
        variables=variables,
        injected=(*injected, *needed),
        binds=tuple(bind for bind in binds if host.files.kind(bind.source) == "directory"),
        preload=_preload(view, found, environment, gpus.vendor if gpus else ""),
        gpu_option=option,
        view=view,
        host=host,
        program=found,
        runs=where if where and found else "PROGRAM",
        runtime=runtime,
        reference=reference or str(image),
    )


def _present(host: Host, patterns: Sequence[str]) -> list[str]:
    """The directory of each pattern; of several versions ``default``, else the newest."""
    found = []
    for pattern in patterns:
        level = [PurePosixPath("/")]
        for part in PurePosixPath(pattern).parts[1:]:
            if "*" in part:
                level = [at / name for at in level for name in _by_age(host.view.names(at))]
                level = [at for at in level if "default" in part or at.name != "default"]
            else:
                level = [at / part for at in level]
        found += [str(at) for at in level if host.view.names(at)][-1:]
    return found


def _by_age(names: Sequence[str]) -> list[str]:
    """Versions, the newest last; what is called ``default`` after them."""

    def age(name: str) -> tuple[bool, list[int], str]:
        return name == "default", [int(part) for part in re.findall(r"\d+", name)], name

    return sorted(names, key=age)


def _needed(
    injected: tuple[Mount, ...], host: Host, seen: Callable[[tuple[Mount, ...]], View]
) -> tuple[Mount, ...]:
    """The host's libraries that what is injected needs and the image does not have."""
    extra: dict[str, Mount] = {}
    while True:
        view = seen(tuple(extra.values()))
        places = [mount.target for mount in (*injected, *extra.values())]
        places += [place / "libfabric" for place in places]
        roots = [
            found
            for place in places
            for path in ([place / name for name in view.names(place)] or [place])
            if ".so" in path.name and (found := view.find(path))
        ]
        missing = {
            name
            for root in roots
            for name, library in view.resolve(root).items()
            if library is None and name not in extra and not _C_LIBRARY.fullmatch(name)
        }
        new = {
            name: Mount(_NEEDED / name, found.path, "injected")
            for name in sorted(missing)
            if (found := host.view.search(name))
        }
        if not new:
            return tuple(extra.values())
        extra |= new


def _preload(
    view: View, program: Found | None, environment: Mapping[str, str], vendor: str
) -> str:
    """Cray MPICH's GTL, where GPU support is asked for and the program does not link it."""
    if environment.get("MPICH_GPU_SUPPORT_ENABLED") != "1" or not vendor:
        return ""
    found = gtl(view, vendor)
    linked = view.resolve(program) if program else {}
    if found is None or any(name.startswith("libmpi_gtl_") for name in linked):
        return ""
    return str(found.path)


def gtl(view: View, vendor: str) -> Found | None:
    """The GPU library of Cray MPICH, as the loader finds it."""
    name = {"nvidia": "cuda", "amd": "hsa"}[vendor]
    return next(iter(view.matching(rf"libmpi_gtl_{name}\.so(\.\d+)*")), None)


def _driver(host: Host, option: str) -> tuple[Mount, ...]:
    """A bind mount follows the links of the host, which lead nowhere in the container."""
    return tuple(
        Mount(_DRIVER_LIBS / name, found.path, "driver")
        for directory in reversed(host.view.directories())
        for name in host.view.names(directory)
        if _DRIVER[option].fullmatch(name) and (found := host.view.find(directory / name))
    )


def fingerprint_of(files: Files, image: object) -> Fingerprint | None:
    """Read the fingerprint of an image; None for an image that Busbar did not build."""
    if files.kind(FINGERPRINT) != "file":
        return None
    where, again = f"{image}: {FINGERPRINT}", "build the image again"
    try:
        said = json.loads(files.local(FINGERPRINT).read_text(encoding="utf-8"))
        return Fingerprint.model_validate(said)
    except ValidationError as error:
        first = error.errors()[0]
        rule, _ = rule_of(first)
        key = dotted(first["loc"])
        raise BusbarError(rule, where=f"{where}, {key}" if key else where, hint=again) from error
    except ValueError as error:
        raise BusbarError(f"is no JSON ({error})", where=where, hint=again) from error


def image_variables(files: Files) -> dict[str, str]:
    """The environment as the image's own files build it up, one after the other."""
    values: dict[str, str] = {}
    for name in files.names(_ENV):
        # 10 is of a converted OCI image, 90 and 91 of a definition; the rest are Apptainer's own.
        if not name.startswith(("10-", "90-", "91-")) or files.kind(_ENV / name) != "file":
            continue
        text = files.local(_ENV / name).read_text(errors="replace")
        assignments = re.finditer(r"(?m)^\s*(?:export\s+)?(?P<name>[A-Z]\w*)=(?P<value>.*)$", text)
        for assignment in assignments:
            variable = assignment["name"]
            line = assignment["value"].replace('"', "").replace("'", "")
            old = re.search(rf"\$\{{?{variable}(?::-(?P<default>[^}}]*))?\}}?", line)
            before = values.get(variable, "")
            values[variable] = (
                line.replace(old[0], before or old["default"] or "") if old else line
            )
    return values


def hosts_mpirun(plan: ImagePlan) -> str | None:
    """The launcher that belongs to the MPI that is injected: beside its libraries, or on PATH."""
    for mount in plan.injected:
        beside = mount.source.parent / "bin" / "mpirun"
        if plan.host.view.find(beside):
            return str(beside)
    return shutil.which("mpirun")


def launch(plan: ImagePlan, mpi_type: str | None) -> LaunchLine:
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
    return LaunchLine(tuple(outside), tuple(_enter(plan)), tuple(inside), mpi_type or "")


def _enter(plan: ImagePlan) -> list[str]:
    """What runs a command inside: the binds, the GPUs and the image."""
    path = ":".join(plan.view.library_path)
    if plan.runtime == "apptainer":
        words = ["apptainer", "exec", *([plan.gpu_option] if plan.gpu_option else [])]
        bind = "--bind"
    else:
        # The host's /dev/shm, because one of their own has 64 MB; and the right to copy between
        # processes, which Docker's filter of system calls ties to tracing them.
        words = [plan.runtime, "run", "--rm", "--ipc=host", "--network=host"]
        words.append("--cap-add=SYS_PTRACE")
        words += _GPUS[plan.runtime, plan.gpu_option] if plan.gpu_option else []
        bind = "--volume"
    for mount in plan.injected:
        words += [bind, f"{mount.source}:{mount.target}:ro"]
    for mount in plan.binds:
        words += [bind, f"{mount.source}:{mount.target}"]
    if plan.injected:
        words += ["--env", f"LD_LIBRARY_PATH={path}"]
    if plan.preload:
        words += ["--env", f"LD_PRELOAD={plan.preload}"]
    return [*words, plan.reference]


def command(plan: ImagePlan, how: LaunchLine) -> str:
    """The line that launches the image."""
    return shlex.join([*how.outside, *how.enter, *how.inside, plan.runs])
