# SPDX-License-Identifier: MIT
"""The questions of preflight, one function each; a fact that cannot be seen is never a pass."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

from busbar.preflight import elf
from busbar.preflight.gpu import gpu_lines
from busbar.preflight.host import glibc, machine
from busbar.preflight.loader import Found, View, version_faults
from busbar.preflight.model import Line, Origin, PreflightReport, Status, ready
from busbar.preflight.mpi import ImageMpi, abi, pmi
from busbar.preflight.net import network_lines
from busbar.preflight.node import node_line
from busbar.preflight.plan import ImagePlan, command, launch

_COMMUNICATION = (
    "libmpi", "libmpi_gtl", "libopen-pal", "libpmi", "libfabric", "libcxi", "libefa",
    "libuc", "libibverbs", "librdmacm", "libmlx5", "libnccl", "librccl", "libcuda", "libamdhip64",
    "libhsa", "libnvidia-ml",
)  # fmt: skip


_GLIBC = re.compile(r"needs GLIBC_")


def judge(plan: ImagePlan) -> PreflightReport:
    """Every line, the origin of every communication library, and the launch line."""
    libraries = loaded(plan.view, plan.program)
    mpi = ImageMpi.of(plan, libraries)
    pmi_line, mpi_type = pmi(plan, mpi)
    how = launch(plan, mpi_type)
    lines = [
        _image(plan),
        _glibc(plan, libraries),
        abi(plan, mpi, libraries),
        pmi_line,
        *_missing(libraries),
        node_line(plan, libraries),
        *network_lines(plan, mpi, libraries),
        *gpu_lines(plan, libraries),
    ]
    return PreflightReport(
        image=plan.reference,
        site=plan.site.name,
        lines=lines,
        libraries=origins(libraries),
        modules=modules(plan.view, libraries),
        launch=how,
        command=command(plan, how),
    )


def origins(libraries: Mapping[str, Found | None]) -> list[Origin]:
    """Where each library of communication comes from."""
    return [
        _origin(name, found)
        for name, found in libraries.items()
        if name.startswith(_COMMUNICATION)
    ]


def modules(view: View, libraries: Mapping[str, Found | None]) -> list[Origin]:
    """Where each transport comes from that UCX loads by itself."""
    core = next((f for name, f in libraries.items() if name.startswith("libuct.so") and f), None)
    if core is None:
        return []
    directory = core.path.parent / "ucx"
    names = [n for n in view.names(directory) if re.fullmatch(r"libuct_\w+\.so\.\d+", n)]
    return [_origin(name, view.find(directory / name)) for name in names]


def _origin(name: str, found: Found | None) -> Origin:
    if found is None:
        return Origin(name, "", "missing")
    with found.local.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Origin(name, str(found.path), found.origin, digest)


def loaded(view: View, program: Found | None) -> dict[str, Found | None]:
    """What the program loads; of an image without a known program, what its MPI loads."""
    roots = [program] if program else view.matching(r"libmpi\.so\.\d+")[:1]
    found: dict[str, Found | None] = {}
    for root in roots:
        facts = elf.read(root.local)
        if facts and facts.soname:
            found[facts.soname] = root
        found |= view.resolve(root)
    for pattern in (r"lib(nccl|rccl)\.so\.\d+", r"lib(nccl|rccl)-net(-\w+)?\.so"):
        for extra in view.matching(pattern):
            found.setdefault(extra.path.name, extra)
    return found


def _image(plan: ImagePlan) -> Line:
    if plan.fingerprint is None:
        return ready("fingerprint", "none; everything is judged by the files of the image")
    said = plan.fingerprint.stack
    fits = {"cray": ("cray", "rocm", "cuda"), plan.stack: (plan.stack,)}[plan.stack]
    if said not in fits:
        return Line(
            "fingerprint",
            Status.BROKEN,
            f"the image holds stack {said}, the site's images are of stack {plan.stack}",
            f"build it with STACK={plan.stack}",
        )
    what = ", ".join(plan.fingerprint.features)
    return ready("fingerprint", f"stack {said} by {plan.fingerprint.delivery}: {what}")


def _glibc(plan: ImagePlan, libraries: dict[str, Found | None]) -> Line:
    inside, outside = glibc(plan.view), glibc(plan.host.view)
    if not inside:
        return Line("glibc", Status.BROKEN, "the image has no C library that can be read", "")
    if not outside:
        return Line(
            "glibc",
            Status.BROKEN,
            f"image {_dotted(inside)}; this host has no C library that can be read",
            "run preflight on a compute node, or give its whole root file system",
        )
    machines = [machine(view) for view in (plan.view, plan.host.view)]
    if machines[0] != machines[1]:
        return Line(
            "glibc",
            Status.BROKEN,
            f"the C library of the image is for {machines[0]}, that of the host for {machines[1]}",
            "build the image for the machine of the site",
        )
    wanted: tuple[int, ...] = ()
    by = ""
    for name, found in libraries.items():
        facts = elf.read(found.local) if found and found.origin != "image" else None
        if facts and (needs := elf.highest(facts.wants, "GLIBC")) > wanted:
            wanted, by = needs, name
    versions = f"image {_dotted(inside)}, host {_dotted(outside)}"
    if wanted > inside:
        return Line(
            "glibc",
            Status.BROKEN,
            f"{by} of the host needs glibc {_dotted(wanted)}, the image has {_dotted(inside)}",
            "build the image on a base as new as the host, or inject libraries built for older",
        )
    need = f"; what comes from the host needs {_dotted(wanted)}" if wanted else ""
    return ready("glibc", versions + need)


def _missing(libraries: Mapping[str, Found | None]) -> Iterator[Line]:
    missing = [name for name, found in libraries.items() if found is None]
    if missing:
        yield Line(
            "libraries",
            Status.BROKEN,
            f"the loader finds no {', '.join(missing)}",
            "install them in the image, or bind the host's directory with --inject",
        )
    # The C library has its own line.
    elif lacking := [f for f in version_faults(libraries) if not _GLIBC.search(f)]:
        yield Line(
            "libraries",
            Status.BROKEN,
            "; ".join(lacking[:3]),
            "let the library that is too old come from where the one that needs it comes from",
        )
    else:
        yield ready("libraries", f"the loader finds all {len(libraries)}")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
