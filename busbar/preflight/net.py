# SPDX-License-Identifier: MIT
"""The fabric between nodes: libfabric and its provider, UCX and rdma-core, the NCCL plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import elf
from busbar.preflight.loader import Found
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.mpi import Mpi
from busbar.preflight.plan import Plan

_DEVICES = {"cxi": r"cxi\d+", "efa": r"infiniband/uverbs\d+", "verbs": r"infiniband/uverbs\d+"}


def network_lines(
    plan: Plan, mpi: Mpi | None, libraries: dict[str, Found | None]
) -> Iterator[Line]:
    """The lines of the fabric; one line where the site has none."""
    fabric = plan.site.fabric
    if fabric is None:
        yield ready("fabric", "the site has no fabric between nodes")
        return
    provider = fabric.provider
    if provider in ("cxi", "efa"):
        yield _libfabric(plan, libraries, provider)
        yield _plugin(plan, libraries, provider)
    else:
        yield _verbs(plan, mpi, libraries)
    yield _fabric_devices(plan, provider)


def _libfabric(plan: Plan, libraries: dict[str, Found | None], provider: str) -> Line:
    library = libraries.get("libfabric.so.1") or plan.view.search("libfabric.so.1")
    if library is None:
        return Line(
            "libfabric",
            Status.SLOW,
            f"no libfabric is loaded, so nothing reaches {provider}: TCP carries the traffic",
            "inject the host's libfabric, or install one with the provider in the image",
        )
    facts = elf.read(library.local)
    defines = facts.defines if facts else frozenset()
    for name, user in libraries.items():
        wants = elf.read(user.local) if user and user.path != library.path else None
        lacking = sorted(
            w for w in (wants.wants if wants else ()) if w.startswith("FABRIC_")
            if w not in defines
        )  # fmt: skip
        if lacking:
            return Line(
                "libfabric",
                Status.BROKEN,
                f"{name} needs {lacking[-1]}, which {library.path} does not have",
                "take a newer libfabric",
            )
    source = _provider(plan, library, provider)
    if source is None:
        return Line(
            "libfabric",
            Status.SLOW,
            f"{library.path} ({library.origin}) has no provider {provider}: it falls back to"
            " tcp or sockets without a word",
            "inject the host's libfabric with --inject DIRECTORY",
        )
    needs = [name for name, found in plan.view.resolve(source).items() if found is None]
    if needs:
        return Line(
            "libfabric",
            Status.SLOW,
            f"provider {provider} ({source.path}) does not load, {', '.join(needs)} is missing:"
            " libfabric falls back to tcp without a word",
            "bind the directory of that library too",
        )
    return ready("libfabric", f"provider {provider} in {source.path} ({source.origin})")


def _provider(plan: Plan, library: Found, provider: str) -> Found | None:
    """The file that holds the provider: a plugin beside the library, or the library itself."""
    if plugin := plan.view.find(library.path.parent / "libfabric" / f"lib{provider}-fi.so"):
        return plugin
    return library if elf.mentions(library.local, f"FI_{provider.upper()}_".encode()) else None


def _plugin(plan: Plan, libraries: dict[str, Found | None], provider: str) -> Line:
    kind = "rccl" if plan.gpu_option == "--rocm" else "nccl"
    if not any(re.fullmatch(rf"lib{kind}\.so\.\d+", name) for name in libraries):
        return ready("net-plugin", f"the image has no {kind.upper()}")
    names = [name for name in libraries if re.fullmatch(rf"lib{kind}-net(-\w+)?\.so", name)]
    if names:
        return ready("net-plugin", f"{names[0]} ({libraries[names[0]].origin})")  # type: ignore[union-attr]
    forced = plan.environment.get("NCCL_NET")
    wrong = ""
    if any(name.startswith(("libnccl-net", "librccl-net")) for name in libraries):
        wrong = f"; a plugin is there by a name that {kind.upper()} does not look for"
    if forced:
        return Line(
            "net-plugin",
            Status.BROKEN,
            f"no lib{kind}-net.so, and NCCL_NET={forced} forbids the fall back to sockets{wrong}",
            "inject the directory of aws-ofi-nccl with --inject",
        )
    return Line(
        "net-plugin",
        Status.SLOW,
        f"no lib{kind}-net.so: {kind.upper()} uses sockets instead of {provider}{wrong}",
        "inject the directory of aws-ofi-nccl with --inject, or install it in the image",
    )


def _verbs(plan: Plan, mpi: Mpi | None, libraries: dict[str, Found | None]) -> Line:
    transport = next((f for n, f in libraries.items() if n.startswith("libuct.so") and f), None)
    if transport is None:
        return Line(
            "ucx",
            Status.SLOW,
            "the program loads no UCX, so MPI's own TCP carries the traffic",
            "use an MPI with UCX",
        )
    module = next(
        (
            found
            for name in plan.view.names(transport.path.parent / "ucx")
            if re.fullmatch(r"libuct_ib(_mlx5)?\.so\.\d+", name)
            and (found := plan.view.find(transport.path.parent / "ucx" / name))
        ),
        None,
    )
    if module is None:
        return Line(
            "ucx",
            Status.SLOW,
            f"the UCX at {transport.path} has no libuct_ib: it uses TCP between nodes",
            "build UCX with verbs",
        )
    missing = [name for name, found in plan.view.resolve(module).items() if found is None]
    if missing:
        return Line(
            "ucx",
            Status.SLOW,
            f"{module.path} does not load, {', '.join(missing)} is missing: UCX uses TCP",
            "install rdma-core in the image",
        )
    drivers = [
        name
        for directory in plan.view.directories()
        for name in plan.view.names(directory / "libibverbs")
        if re.fullmatch(r"lib\w+-rdmav\d+\.so", name)
    ]
    bundled = any("libibverbs-" in name for name in plan.view.resolve(module))
    if not drivers and not bundled:
        return Line(
            "ucx",
            Status.SLOW,
            "libibverbs has no provider library (libmlx5-rdmav*.so): it sees no device, and UCX"
            " uses TCP",
            "install ibverbs-providers in the image",
        )
    return ready(
        "ucx", f"{module.path} ({module.origin}) with {drivers[0] if drivers else 'its own'}"
    )


def _fabric_devices(plan: Plan, provider: str) -> Line:
    pattern = re.compile(_DEVICES.get(provider, provider))
    found = [name for name in plan.host.devices if pattern.fullmatch(name)]
    if found:
        return ready("fabric-devices", f"/dev/{found[0]} and {len(found) - 1} more")
    return Line(
        "fabric-devices",
        Status.BROKEN,
        f"this host has no device of {provider} under /dev",
        "run preflight on a compute node",
    )
