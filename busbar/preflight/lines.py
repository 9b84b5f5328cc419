# SPDX-License-Identifier: MIT
"""Examine a planned launch and build the preflight report; an unknown fact is never a pass."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

from busbar.preflight import elf
from busbar.preflight.files import TABLES
from busbar.preflight.gpu import gpu_lines
from busbar.preflight.host import c_library
from busbar.preflight.loader import ContainerFile, Libraries, View, ucx_core, version_faults
from busbar.preflight.model import Origin, PreflightAnswer, PreflightLine, PreflightReport, answer
from busbar.preflight.mpi import ImageMpi, abi, pmi, ucx
from busbar.preflight.net import is_nccl, network_lines
from busbar.preflight.plan import ImagePlan, command, launch, present
from busbar.site.delivery import CRAY_STACKS, GPU_STACKS

_OF_MPI = {"mpi-abi", "mpi-ucx", "mpi-get", "pmi", "shared-memory", "ucx", "ucx-gpu", "gtl"}
"""Lines that do not matter to a program with NCCL and without MPI, such as PyTorch."""
OF_HOST = {"fabric-devices", "gpu-devices", "gpu-driver", "gpu-libraries"}
"""Lines about the host on which preflight runs."""
_SHARED = {"all", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}
_GLIBC = re.compile(r"needs GLIBC_")


def examine(plan: ImagePlan) -> PreflightReport:
    """Check one launch: the lines, the origin of each communication library, the command."""
    libraries = loaded(plan.view, plan.program)
    mpi = ImageMpi.of(plan, libraries)
    launcher, mpi_type = pmi(plan, mpi)
    without_mpi = not mpi and "libmpich.so.12" not in libraries and any(map(is_nccl, libraries))
    launch_line = launch(plan, mpi_type, one_per_node=without_mpi)
    answers = [
        ("fingerprint", _image(plan)),
        ("glibc", _glibc(plan, libraries)),
        ("mpi-abi", abi(plan, mpi, libraries)),
        *ucx(plan, mpi, libraries),
        ("pmi", launcher),
        ("libraries", _missing(libraries)),
        ("shared-memory", _shared_memory(plan, libraries)),
        *network_lines(plan, libraries),
        *gpu_lines(plan, libraries),
    ]
    if without_mpi:
        answers = [each for each in answers if each[0] not in _OF_MPI]
        answers.append(("mpi", answer("without-mpi")))
    return PreflightReport(
        image=plan.contents.reference,
        site=plan.site.name,
        lines=[PreflightLine(name, *each) for name, each in answers],
        libraries=origins(libraries),
        modules=modules(plan.view, libraries),
        launch=launch_line,
        command=command(plan, launch_line),
    )


def origins(libraries: Libraries) -> list[Origin]:
    """Return the origin of each communication library."""
    known = tuple(TABLES["communication"])
    return [_origin(name, file) for name, file in libraries.items() if name.startswith(known)]


def modules(view: View, libraries: Libraries) -> list[Origin]:
    """Return the origin of each transport module that UCX loads at run time."""
    core = ucx_core(libraries)
    found = view.ucx_modules(core, r"libuct_\w+\.so\.\d+") if core else []
    return [_origin(name, file) for name, file in found]


def _origin(name: str, library: ContainerFile | None) -> Origin:
    if library is None:
        return Origin(name, "", "missing")
    with library.open() as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Origin(name, str(library.path), library.origin, digest)


def loaded(view: View, program: ContainerFile | None) -> dict[str, ContainerFile | None]:
    """Return the libraries that the program loads; without a program, those that MPI loads."""
    roots = [program] if program else view.matching(r"libmpi\.so\.\d+")[:1]
    libraries: dict[str, ContainerFile | None] = {}
    for root in roots:
        facts = elf.read(root)
        if facts and facts.soname:
            libraries[facts.soname] = root
        libraries |= view.resolve(root)
    for pattern in (r"lib(nccl|rccl)\.so\.\d+", r"lib(nccl|rccl)-net(-\w+)?\.so"):
        for extra in view.matching(pattern):
            libraries.setdefault(extra.path.name, extra)
    if not any(map(is_nccl, libraries)):
        places = [PurePosixPath(each) for each in present(view, TABLES["python"])]
        found = (view.find(at / name) for at in places for name in view.names(at) if is_nccl(name))
        libraries |= {library.path.name: library for library in found if library}
    return libraries


def _image(plan: ImagePlan) -> PreflightAnswer:
    fingerprint = plan.contents.fingerprint
    if fingerprint is None:
        return answer("no-fingerprint")
    stack = fingerprint.stack
    if stack not in (plan.stack, GPU_STACKS.get(plan.stack, plan.stack)):
        return answer("other-stack", stack=stack, needed=plan.stack)
    features = ", ".join(fingerprint.features)
    return answer("fingerprint", stack=stack, delivery=fingerprint.delivery, features=features)


def _glibc(plan: ImagePlan, libraries: Libraries) -> PreflightAnswer:
    inside, outside = c_library(plan.view), c_library(plan.host.view)
    version = elf.highest(inside.defines, "GLIBC") if inside else ()
    host_version = elf.highest(outside.defines, "GLIBC") if outside else ()
    if not inside or not version:
        return answer("no-c-library")
    if not outside or not host_version:
        return answer("no-c-library-on-host", version=elf.dotted(version))
    if inside.machine != outside.machine:
        return answer("other-machine", inside=inside, outside=outside)
    required: tuple[int, ...] = ()
    user = ""
    for name, library in libraries.items():
        facts = elf.read(library) if library and library.origin != "image" else None
        versions = [version for _, version in facts.versions] if facts else ()
        if (needed := elf.highest(versions, "GLIBC")) > required:
            required, user = needed, name
    known = {"version": elf.dotted(version), "required": elf.dotted(required)}
    if required > version:
        return answer("old-c-library", user=user, **known)
    need = f"; libraries of the host need {known['required']}" if required else ""
    return answer("c-library", host=elf.dotted(host_version), need=need, **known)


def _missing(libraries: Libraries) -> PreflightAnswer:
    missing = [name for name, library in libraries.items() if library is None]
    if missing:
        return answer("missing-libraries", names=", ".join(missing))
    # The C library has its own line.
    if lacking := [f for f in version_faults(libraries) if not _GLIBC.search(f)]:
        return answer("missing-versions", faults="; ".join(lacking[:3]))
    return answer("libraries", count=len(libraries))


def _shared_memory(plan: ImagePlan, libraries: Libraries) -> PreflightAnswer:
    """Check UCX's shared-memory transports; ready if MPI does not use UCX."""
    core = ucx_core(libraries)
    if core is None or plan.stack in CRAY_STACKS:
        return answer("no-ucx-within-a-node")
    chosen = plan.contents.variables.get("UCX_TLS", "all")
    if not chosen.startswith("^") and not _SHARED & set(chosen.split(",")):
        return answer("no-shared-memory", tls=chosen)
    found = plan.view.ucx_modules(core, r"libuct_(?:cma|knem|xpmem)\.so\.\d+")
    one_copy = [name for name, file in found if file and not plan.view.faults(file)]
    if not one_copy:
        return answer("two-copies", core=core)
    return answer("shared-memory", names=", ".join(one_copy), core=core)
