# SPDX-License-Identifier: MIT
"""Lines of the fabric: libfabric and its provider, UCX and rdma-core, the NCCL plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import elf
from busbar.preflight.loader import ContainerFile, Libraries, ucx_core
from busbar.preflight.model import PreflightAnswer, Status, broken, ready, slow
from busbar.preflight.plan import ImagePlan

_DEVICES = {"cxi": r"cxi\d+", "efa": r"infiniband/uverbs\d+", "verbs": r"infiniband/uverbs\d+"}


def network_lines(plan: ImagePlan, libraries: Libraries) -> Iterator[tuple[str, PreflightAnswer]]:
    """Yield the lines of the fabric; one line if the site has none."""
    fabric = plan.site.fabric
    if fabric is None:
        several = any(partition.nodes > 1 for partition in plan.site.partitions)
        unchecked = "site.yaml has no fabric, so libraries of the network were not checked"
        yield "fabric", ready(unchecked if several else "the site has no fabric between nodes")
        return
    provider = fabric.provider
    if provider in ("cxi", "efa"):
        yield "libfabric", _libfabric(plan, libraries, provider)
        yield "net-plugin", _plugin(plan, libraries, provider)
    else:
        yield "ucx", _verbs(plan, libraries)
    yield "fabric-devices", _fabric_devices(plan, provider)


def _libfabric(plan: ImagePlan, libraries: Libraries, provider: str) -> PreflightAnswer:
    library = libraries.get("libfabric.so.1") or plan.view.search("libfabric.so.1")
    if library is None:
        return slow(
            f"no libfabric is loaded: traffic uses TCP instead of {provider}",
            "inject the host's libfabric, or install one with the provider in the image",
        )
    source = _provider(plan, library, provider)
    if source is None:
        return slow(
            f"{library.path} ({library.origin}) has no provider {provider}: it silently falls"
            " back to tcp or sockets",
            "inject the host's libfabric with --inject DIRECTORY",
        )
    if faults := plan.view.faults(source):
        return slow(
            f"provider {provider} ({source.path}) does not load, {faults[0]}:"
            " libfabric silently falls back to tcp",
            "bind the directory of that library too",
        )
    verbs = plan.view.resolve(source).get("libibverbs.so.1")
    effect = f"{provider} sees no device, and tcp is used"
    if verbs and (lack := _verbs_driver(plan, verbs, effect)):
        return slow(*lack)
    return ready(f"provider {provider} in {source.path} ({source.origin})")


def _provider(plan: ImagePlan, library: ContainerFile, provider: str) -> ContainerFile | None:
    """Return the file with the provider: a plugin beside the library, or the library itself."""
    if plugin := plan.view.find(library.path.parent / "libfabric" / f"lib{provider}-fi.so"):
        return plugin
    return library if elf.mentions(library, f"FI_{provider.upper()}_".encode()) else None


def _plugin(plan: ImagePlan, libraries: Libraries, provider: str) -> PreflightAnswer:
    kind = "rccl" if plan.gpu_option == "--rocm" else "nccl"
    if not any(re.fullmatch(rf"lib{kind}\.so\.\d+", name) for name in libraries):
        return ready(f"the image has no {kind.upper()}")
    # NCCL loads libnccl-net.so, or the file that NCCL_NET_PLUGIN gives by its name or suffix.
    chosen = plan.environment.get("NCCL_NET_PLUGIN", "")
    names = [chosen, f"lib{kind}-net-{chosen}.so"] if chosen else [f"lib{kind}-net.so"]
    plugin = next((f for name in names if name and (f := plan.view.search(name))), None)
    forced = plan.environment.get("NCCL_NET")
    status = Status.BROKEN if forced else Status.SLOW
    if plugin:
        faults = plan.view.faults(plugin)
        if not faults:
            return ready(f"{plugin.path.name} ({plugin.origin})")
        return PreflightAnswer(
            status,
            f"{plugin.path} does not load, {faults[0]}: {_without(kind, forced, provider)}",
            "bind the directory of that library too",
        )
    ignored = ""
    if others := [n for n in libraries if n.startswith(("libnccl-net", "librccl-net"))]:
        ignored = f"; {kind.upper()} does not load {others[0]} by that name"
    return PreflightAnswer(
        status,
        f"no {names[-1]}: {_without(kind, forced, provider)}{ignored}",
        "inject the directory of aws-ofi-nccl with --inject (AWS: /opt/amazon/ofi-nccl/lib*), or"
        " install it in the image",
    )


def _without(kind: str, forced: str | None, provider: str) -> str:
    if forced:
        return f"NCCL_NET={forced} forbids a fallback to sockets"
    return f"{kind.upper()} uses sockets instead of {provider}"


def _verbs(plan: ImagePlan, libraries: Libraries) -> PreflightAnswer:
    transport = ucx_core(libraries)
    if transport is None:
        return slow(
            "the program does not load UCX, so MPI uses its own TCP transport",
            "use an MPI with UCX",
        )
    found = plan.view.ucx_modules(transport, r"libuct_ib(?:_mlx5)?\.so\.\d+")
    module = next((file for _, file in found if file), None)
    if module is None:
        return slow(
            f"the UCX at {transport.path} has no libuct_ib: it uses TCP between nodes",
            "build UCX with verbs",
        )
    if faults := plan.view.faults(module):
        return slow(
            f"{module.path} does not load, {faults[0]}: UCX uses TCP",
            "install rdma-core in the image",
        )
    needs = plan.view.resolve(module)
    # Wheels bundle libibverbs under another name, with its own drivers.
    library = needs.get("libibverbs.so.1")
    effect = "UCX sees no device, and uses TCP"
    if library and (lack := _verbs_driver(plan, library, effect)):
        return slow(*lack)
    return ready(f"{module.path} ({module.origin})")


def _verbs_driver(plan: ImagePlan, library: ContainerFile, effect: str) -> tuple[str, str] | None:
    """Check the rdma-core driver of the site's device; return reason and remedy of a fault."""
    drivers: dict[str, tuple[int, ContainerFile]] = {}
    for directory in plan.view.directories:
        for name in plan.view.names(directory / "libibverbs"):
            of = re.fullmatch(r"lib(?P<driver>\w+)-rdmav(?P<number>\d+)\.so", name)
            if of and (file := plan.view.find(directory / "libibverbs" / name)):
                drivers.setdefault(of["driver"], (int(of["number"]), file))
    required = plan.host.rdma_drivers or tuple(drivers)[:1] or ("mlx5",)
    facts = elf.read(library)
    # The interface between libibverbs and a driver is private and numbered.
    private = elf.highest(facts.defines, "IBVERBS_PRIVATE") if facts else ()
    for driver in required:
        if driver not in drivers:
            return (
                f"{library.path} ({library.origin}) has no lib{driver}-rdmav*.so beside it:"
                f" {effect}",
                "install ibverbs-providers in the image",
            )
        number, file = drivers[driver]
        if private and number != private[0]:
            return (
                f"lib{driver}-rdmav{number}.so does not match {library.path} ({library.origin}),"
                f" which needs rdmav{private[0]}: {effect}",
                "use libibverbs and drivers of the same rdma-core",
            )
        if faults := plan.view.faults(file):
            return (
                f"lib{driver}-rdmav{number}.so does not load, {faults[0]}: {effect}",
                "install ibverbs-providers in the image",
            )
    return None


def _fabric_devices(plan: ImagePlan, provider: str) -> PreflightAnswer:
    pattern = re.compile(_DEVICES.get(provider, provider))
    devices = [name for name in plan.host.devices if pattern.fullmatch(name)]
    expected = plan.site.node_type().nic_count
    if not devices:
        return broken(
            f"this host has no {provider} device under /dev", "run preflight on a compute node"
        )
    counts = f"{len(devices)} {provider} devices under /dev, {expected} in site.yaml"
    if len(devices) < expected:
        return slow(
            counts, "run preflight on a compute node; if this is one, look for a port that failed"
        )
    return ready(counts)
