# SPDX-License-Identifier: MIT
"""Plan how to launch an image: what to bind, the loader's search path, the command line."""

from __future__ import annotations

import fnmatch
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from busbar import site as sites
from busbar.boundary import refuse_unsafe
from busbar.errors import BusbarError
from busbar.parse.numbers import load_json
from busbar.preflight import elf
from busbar.preflight.files import TABLES, Files, refused
from busbar.preflight.host import Host
from busbar.preflight.loader import ContainerFile, Mount, View
from busbar.preflight.model import Fingerprint, LaunchLine
from busbar.preflight.packed import open_image
from busbar.site.delivery import CRAY_STACKS, Stack
from busbar.site.model import Site
from busbar.site.plain import explained
from busbar.site.yamlfile import dotted

FINGERPRINT = PurePosixPath("/opt/busbar/fingerprint.json")
_ENV = PurePosixPath("/.singularity.d/env")
_ASSIGNMENT = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Z]\w*)=(?P<value>.*)$", re.ASCII | re.MULTILINE
)
LONGEST_VALUE = 2**17 - 1
"""Characters of a variable; Linux starts no program with a longer one."""
_DRIVER_LIBS = PurePosixPath("/.singularity.d/libs")
# LUMI's documentation binds /opt/cray, /usr/lib64/libcxi.so.1 and /var/spool/slurmd, where Slurm's
# cray_shasta plugin keeps the data of a job.
_CRAY_SPOOL = PurePosixPath("/var/spool/slurmd")
# Single libraries of the host that injected ones need. The C library stays the image's.
_NEEDED = PurePosixPath("/host/needed")
_C_LIBRARY = re.compile(r"(?:ld-linux.*|lib(?:c|m|dl|rt|pthread|resolv|util))\.so\.\d+")


@dataclass(frozen=True)
class Contents:
    """What an untrusted image contains."""

    reference: str
    """The image for the runtime: a file, or a name in its store."""
    files: Files
    fingerprint: Fingerprint | None
    """None for an image that Busbar did not build."""
    variables: dict[str, str]
    """The variables that the image sets."""

    @classmethod
    def of_file(cls, image: Path) -> Contents:
        """Read a SIF or a sandbox."""
        files = open_image(image)
        view = View.of(files)
        return cls(str(image), files, fingerprint_of(view, image), image_variables(view))


@dataclass(frozen=True)
class ImagePlan:
    """One way to run one image on one site."""

    contents: Contents
    site: Site
    stack: Stack
    environment: dict[str, str]
    """The variables of the image, overridden by the site's variables for the stack."""
    injected: tuple[Mount, ...]
    binds: tuple[Mount, ...]
    """Directories of the host other than libraries."""
    preload: str
    """A library that the program needs but does not link; empty for none."""
    gpu_option: str
    """``--nv``, ``--rocm`` or nothing."""
    view: View
    host: Host
    program: ContainerFile | None
    runs: str
    """The program's path as given; it may be a link."""
    runtime: str
    """``apptainer``, ``docker`` or ``podman``."""


def make_plan(  # noqa: PLR0917 - each is a part of the plan
    contents: Contents,
    site: Site,
    host: Host,
    inject: Sequence[str],
    program: str | None,
    runtime: str = "apptainer",
) -> ImagePlan:
    """Plan the launch of an image; ``inject`` are library directories of the host.

    Raises ``BusbarError`` if the image, a directory or the program cannot be used.
    """
    files, variables = contents.files, contents.variables
    stack = next((d.stack for d in site.deliveries if d.kind == "image"), None)
    stack = stack or site.deliveries[0].stack
    gpus = site.node_type().gpus
    option = {"nvidia": "--nv", "amd": "--rocm"}[gpus.vendor] if gpus else ""
    usual = TABLES["cray"] if stack in CRAY_STACKS else ()
    injected = _injected(host, inject or present(host.view, usual))
    driver = _driver(host, option) if option else ()
    own = [part for part in variables.get("LD_LIBRARY_PATH", "").split(":") if part[:1] == "/"]

    def view_with(extra: tuple[Mount, ...]) -> View:
        path = [str(mount.target) for mount in injected]
        path += [str(_NEEDED)] if extra else []
        path += [*own, *([str(_DRIVER_LIBS)] if driver else [])]
        return View(files, host.files, (*injected, *extra, *driver), path)

    needed = _needed(injected, host, view_with)
    view = view_with(needed)
    binds = [Mount(_CRAY_SPOOL, _CRAY_SPOOL, "host")] if stack in CRAY_STACKS else []
    path = program or ("/opt/busbar/bin/gpu_aware" if contents.fingerprint else "")
    file = _program(view, program) if program else view.find(PurePosixPath(path or "/"))
    environment = variables | sites.environment(site, stack=stack)
    return ImagePlan(
        contents=contents,
        site=site,
        stack=stack,
        environment=environment,
        injected=(*injected, *needed),
        binds=tuple(bind for bind in binds if host.view.kind(bind.source) == "directory"),
        preload=_preload(view, file, environment, gpus.vendor if gpus else ""),
        gpu_option=option,
        view=view,
        host=host,
        program=file,
        runs=path if file else "PROGRAM",
        runtime=runtime,
    )


def _injected(host: Host, directories: Sequence[str]) -> tuple[Mount, ...]:
    for directory in directories:
        refuse_unsafe(directory, "--inject")
        where = f"--inject {directory}"
        if not directory.startswith("/"):
            raise refused("relative", where)
        if host.view.kind(PurePosixPath(directory)) != "directory":
            raise refused("no-directory", where)
        if "libc.so.6" in host.view.names(PurePosixPath(directory)):
            raise refused("c-library", where)
    return tuple(
        Mount(PurePosixPath(f"/host/{n}"), PurePosixPath(directory), "injected")
        for n, directory in enumerate(directories)
    )


def _program(view: View, program: str) -> ContainerFile:
    file = view.find(PurePosixPath(program))
    if not file:
        raise refused("no-program", f"--program {program}")
    if elf.read(file) is None:
        raise refused("static-program", f"--program {program}")
    return file


def present(view: View, patterns: Sequence[str]) -> list[str]:
    """Return the directory of each pattern; of several versions ``default``, else the newest."""
    directories = []
    for pattern in patterns:
        level = [PurePosixPath("/")]
        for part in PurePosixPath(pattern).parts[1:]:
            if "*" in part:
                found = [(at, fnmatch.filter(view.names(at), part)) for at in level]
                level = [at / name for at, names in found for name in _by_age(names)]
            else:
                level = [at / part for at in level]
        directories += [str(at) for at in level if view.names(at)][-1:]
    return directories


def _by_age(names: Sequence[str]) -> list[str]:
    """Sort versions from old to new; ``default`` comes last."""
    return sorted(names, key=lambda name: (name == "default", elf.numbers(name), name))


def _needed(
    injected: tuple[Mount, ...], host: Host, view_with: Callable[[tuple[Mount, ...]], View]
) -> tuple[Mount, ...]:
    """Return the host's libraries that injected ones need and the image lacks."""
    extra: dict[str, Mount] = {}
    while True:
        view = view_with(tuple(extra.values()))
        places = [mount.target for mount in (*injected, *extra.values())]
        places += [place / "libfabric" for place in places]
        roots = [
            library
            for place in places
            for path in ([place / name for name in view.names(place)] or [place])
            if ".so" in path.name and (library := view.find(path))
        ]
        missing = {
            name
            for root in roots
            for name, library in view.resolve(root).items()
            if library is None and name not in extra and not _C_LIBRARY.fullmatch(name)
        }
        new = {
            name: Mount(_NEEDED / name, library.path, "injected")
            for name in sorted(missing)
            if (library := host.view.search(name))
        }
        if not new:
            return tuple(extra.values())
        extra |= new


def _preload(
    view: View, program: ContainerFile | None, environment: Mapping[str, str], vendor: str
) -> str:
    """Return the GTL of Cray MPICH if GPU support is on and the program does not link it."""
    if environment.get("MPICH_GPU_SUPPORT_ENABLED") != "1" or not vendor:
        return ""
    library = gtl(view, vendor)
    linked = view.resolve(program) if program else {}
    if library is None or any(name.startswith("libmpi_gtl_") for name in linked):
        return ""
    return str(library.path)


def gtl(view: View, vendor: str) -> ContainerFile | None:
    """Return the GPU transport library (GTL) of Cray MPICH that the loader finds."""
    name = {"nvidia": "cuda", "amd": "hsa"}[vendor]
    return next(iter(view.matching(rf"libmpi_gtl_{name}\.so(\.\d+)*")), None)


def _driver(host: Host, option: str) -> tuple[Mount, ...]:
    # A link of the host is dangling in the container, so the file behind it is mounted.
    return tuple(
        Mount(_DRIVER_LIBS / name, library.path, "driver")
        for directory in reversed(host.view.directories)
        for name in host.view.names(directory)
        if re.fullmatch(TABLES["driver"][option], name)
        and (library := host.view.find(directory / name))
    )


def fingerprint_of(view: View, image: object) -> Fingerprint | None:
    """Read the fingerprint of an image; None for an image that Busbar did not build.

    Raises ``BusbarError`` for a fingerprint that cannot be read.
    """
    if not view.kind(FINGERPRINT):
        return None
    where, again = f"{image}: {FINGERPRINT}", "build the image again"
    try:
        return Fingerprint.model_validate(load_json(view.text(FINGERPRINT)))
    except ValidationError as error:
        first = error.errors()[0]
        rule, _ = explained(Fingerprint, first)
        key = dotted(first["loc"])
        raise BusbarError(rule, where=f"{where}, {key}" if key else where, hint=again) from error
    except ValueError as error:
        raise BusbarError(f"not valid JSON ({error})", where=where, hint=again) from error


def image_variables(view: View) -> dict[str, str]:
    """Return the environment that the image's own files in /.singularity.d/env set, in order."""
    values: dict[str, str] = {}
    for name in view.names(_ENV):
        # 10 is from a converted OCI image, 90 and 91 from a definition, the rest from Apptainer.
        if not name.startswith(("10-", "90-", "91-")):
            continue
        for line in _ASSIGNMENT.finditer(view.text(_ENV / name)):
            variable, value = line["name"], line["value"].replace('"', "").replace("'", "")
            use = re.search(rf"\$\{{?{variable}(?::-(?P<default>[^}}]*))?\}}?", value)
            if use:
                before = values.get(variable) or use["default"] or ""
                value = value.replace(use.group(), before)
            if len(value) > LONGEST_VALUE:
                facts = {"name": variable[:80], "most": LONGEST_VALUE}
                raise refused("too-long-value", _ENV / name, **facts)
            values[variable] = value
    return values


def hosts_mpirun(plan: ImagePlan) -> str | None:
    """Return the mpirun of the injected MPI, beside its libraries or on PATH; None if missing."""
    for mount in plan.injected:
        beside = mount.source.parent / "bin" / "mpirun"
        if plan.host.view.find(beside):
            return str(beside)
    return shutil.which("mpirun")


def launch(plan: ImagePlan, mpi_type: str | None, *, one_per_node: bool) -> LaunchLine:
    """Return the launch line; ``mpi_type`` is the value of ``srun --mpi``.

    With ``one_per_node``, the program itself starts a process for each GPU, as torchrun does.
    """
    node = plan.site.node_type()
    ranks = 1 if one_per_node else node.gpus.count if node.gpus else 2
    outside: list[str] = []
    inside: list[str] = []
    if plan.site.scheduler != "local":
        nodes = min(2, plan.site.partitions[0].nodes)
        outside = ["srun", f"--nodes={nodes}", f"--ntasks-per-node={ranks}"]
        outside += [f"--mpi={mpi_type or 'none'}", "--kill-on-bad-exit=1"]
    elif plan.injected and plan.runtime == "apptainer":
        outside = [hosts_mpirun(plan) or "mpirun", "-n", str(ranks)]
    elif not one_per_node:
        inside = ["mpirun", "-n", str(ranks)]
    return LaunchLine(tuple(outside), tuple(_enter(plan)), tuple(inside), mpi_type or "")


def _enter(plan: ImagePlan) -> list[str]:
    """Return the command prefix that enters the image: the binds, the GPUs and the image."""
    path = ":".join(plan.view.library_path)
    if plan.runtime == "apptainer":
        words = ["apptainer", "exec", *([plan.gpu_option] if plan.gpu_option else [])]
        bind = "--bind"
    else:
        # A container's own /dev/shm has 64 MB only, so the host's is used. Docker's seccomp filter
        # allows a copy between processes only with CAP_SYS_PTRACE.
        words = [plan.runtime, "run", "--rm", "--ipc=host", "--network=host"]
        words.append("--cap-add=SYS_PTRACE")
        words += TABLES["gpus"][plan.runtime][plan.gpu_option] if plan.gpu_option else []
        bind = "--volume"
    for mount in plan.injected:
        words += [bind, f"{mount.source}:{mount.target}:ro"]
    for mount in plan.binds:
        words += [bind, f"{mount.source}:{mount.target}"]
    if plan.injected:
        words += ["--env", f"LD_LIBRARY_PATH={path}"]
    if plan.preload:
        words += ["--env", f"LD_PRELOAD={plan.preload}"]
    return [*words, plan.contents.reference]


def command(plan: ImagePlan, line: LaunchLine) -> str:
    """Return the shell command that launches the image."""
    return shlex.join([*line.outside, *line.enter, *line.inside, plan.runs])
