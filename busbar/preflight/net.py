# SPDX-License-Identifier: MIT
"""The fabric between nodes: libfabric and its provider, UCX and rdma-core, the NCCL plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import elf
from busbar.preflight.loader import Found
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.mpi import ImageMpi
from busbar.preflight.plan import ImagePlan

_DEVICES = {"cxi": r"cxi\d+", "efa": r"infiniband/uverbs\d+", "verbs": r"infiniband/uverbs\d+"}


def network_lines(
    plan: ImagePlan, mpi: ImageMpi | None, libraries: dict[str, Found | None]
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


def _libfabric(plan: ImagePlan, libraries: dict[str, Found | None], provider: str) -> Line:
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
    if faults := plan.view.faults(source):
        return Line(
            "libfabric",
            Status.SLOW,
            f"provider {provider} ({source.path}) does not load, {faults[0]}:"
            " libfabric falls back to tcp without a word",
            "bind the directory of that library too",
        )
    verbs = plan.view.resolve(source).get("libibverbs.so.1")
    if verbs and (
        lack := _verbs_driver(plan, verbs, f"{provider} sees no device, and tcp is taken")
    ):
        return Line("libfabric", *lack)
    return ready("libfabric", f"provider {provider} in {source.path} ({source.origin})")


def _provider(plan: ImagePlan, library: Found, provider: str) -> Found | None:
    """The file that holds the provider: a plugin beside the library, or the library itself."""
    if plugin := plan.view.find(library.path.parent / "libfabric" / f"lib{provider}-fi.so"):
        return plugin
    return library if elf.mentions(library.local, f"FI_{provider.upper()}_".encode()) else None


def _plugin(plan: ImagePlan, libraries: dict[str, Found | None], provider: str) -> Line:
    kind = "rccl" if plan.gpu_option == "--rocm" else "nccl"
    if not any(re.fullmatch(rf"lib{kind}\.so\.\d+", name) for name in libraries):
        return ready("net-plugin", f"the image has no {kind.upper()}")
    # NCCL looks for libnccl-net.so, or for what NCCL_NET_PLUGIN names, whole or by its suffix.
    chosen = plan.environment.get("NCCL_NET_PLUGIN", "")
    looked_for = [chosen, f"lib{kind}-net-{chosen}.so"] if chosen else [f"lib{kind}-net.so"]
    found = next((f for name in looked_for if name and (f := plan.view.search(name))), None)
    forced = plan.environment.get("NCCL_NET")
    status = Status.BROKEN if forced else Status.SLOW
    if found:
        faults = plan.view.faults(found)
        if not faults:
            return ready("net-plugin", f"{found.path.name} ({found.origin})")
        return Line(
            "net-plugin",
            status,
            f"{found.path} does not load, {faults[0]}: {_without(kind, forced, provider)}",
            "bind the directory of that library too",
        )
    wrong = ""
    if others := [n for n in libraries if n.startswith(("libnccl-net", "librccl-net"))]:
        wrong = f"; {others[0]} is a name that {kind.upper()} does not look for"
    return Line(
        "net-plugin",
        status,
        f"no {looked_for[-1]}: {_without(kind, forced, provider)}{wrong}",
        "inject the directory of aws-ofi-nccl with --inject (AWS: /opt/amazon/ofi-nccl/lib*), or"
        " install it in the image",
    )


def _without(kind: str, forced: str | None, provider: str) -> str:
    if forced:
        return f"NCCL_NET={forced} forbids the fall back to sockets"
    return f"{kind.upper()} uses sockets instead of {provider}"


def _verbs(plan: ImagePlan, mpi: ImageMpi | None, libraries: dict[str, Found | None]) -> Line:
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
            if re.fullmatch(r"libuct_ib(?:_mlx5)?\.so\.\d+", name)
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
    if faults := plan.view.faults(module):
        return Line(
            "ucx",
            Status.SLOW,
            f"{module.path} does not load, {faults[0]}: UCX uses TCP",
            "install rdma-core in the image",
        )
    needs = plan.view.resolve(module)
    library = needs.get("libibverbs.so.1")  # under another name it is the wheel's, with its own
    effect = "UCX sees no device, and uses TCP"
    if library and (lack := _verbs_driver(plan, library, effect)):
        return Line("ucx", *lack)
    return ready("ucx", f"{module.path} ({module.origin})")


def _verbs_driver(plan: ImagePlan, library: Found, effect: str) -> tuple[Status, str, str] | None:
    """What is wrong with rdma-core's library for the site's device; None for nothing."""
    drivers: dict[str, tuple[int, Found]] = {}
    for directory in plan.view.directories():
        for name in plan.view.names(directory / "libibverbs"):
            of = re.fullmatch(r"lib(?P<driver>\w+)-rdmav(?P<abi>\d+)\.so", name)
            if of and (found := plan.view.find(directory / "libibverbs" / name)):
                drivers.setdefault(of["driver"], (int(of["abi"]), found))
    wanted = plan.host.rdma_drivers or tuple(drivers)[:1] or ("mlx5",)
    facts = elf.read(library.local)
    # The interface between libibverbs and a driver is private, and numbered.
    private = elf.highest(facts.defines, "IBVERBS_PRIVATE") if facts else ()
    for driver in wanted:
        if driver not in drivers:
            return (
                Status.SLOW,
                f"{library.path} ({library.origin}) has no lib{driver}-rdmav*.so beside it:"
                f" {effect}",
                "install ibverbs-providers in the image",
            )
        number, file = drivers[driver]
        if private and number != private[0]:
            return (
                Status.SLOW,
                f"lib{driver}-rdmav{number}.so is not for {library.path} ({library.origin}), which"
                f" takes rdmav{private[0]}: {effect}",
                "take libibverbs and its drivers from one rdma-core",
            )
        if faults := plan.view.faults(file):
            return (
                Status.SLOW,
                f"lib{driver}-rdmav{number}.so does not load, {faults[0]}: {effect}",
                "install ibverbs-providers in the image",
            )
    return None


def _fabric_devices(plan: ImagePlan, provider: str) -> Line:
    pattern = re.compile(_DEVICES.get(provider, provider))
    found = [name for name in plan.host.devices if pattern.fullmatch(name)]
    wanted = plan.site.node_type().nic_count
    if not found:
        return Line(
            "fabric-devices",
            Status.BROKEN,
            f"this host has no device of {provider} under /dev",
            "run preflight on a compute node",
        )
    counts = f"{len(found)} devices of {provider} under /dev, {wanted} by the site"
    if len(found) < wanted:
        return Line(
            "fabric-devices",
            Status.SLOW,
            counts,
            "run preflight on a compute node; on one, look for the port that is missing",
        )
    return ready("fabric-devices", counts)
