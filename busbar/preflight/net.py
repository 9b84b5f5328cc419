# SPDX-License-Identifier: MIT
"""Lines of the fabric: libfabric and its provider, UCX and rdma-core, the NCCL plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.preflight import elf
from busbar.preflight.files import TABLES
from busbar.preflight.loader import ContainerFile, Libraries, ucx_core
from busbar.preflight.model import PreflightAnswer, Status, answer
from busbar.preflight.plan import ImagePlan

is_nccl = re.compile(r"lib[nr]ccl\.so[.\d]*").fullmatch
"""Match the name of NCCL or RCCL."""


def network_lines(plan: ImagePlan, libraries: Libraries) -> Iterator[tuple[str, PreflightAnswer]]:
    """Yield the lines of the fabric; one line if the site has none."""
    fabric = plan.site.fabric
    if fabric is None:
        several = any(partition.nodes > 1 for partition in plan.site.partitions)
        yield "fabric", answer("unknown-fabric" if several else "no-fabric")
        return
    provider = fabric.provider
    if provider in ("cxi", "efa"):
        yield "libfabric", _libfabric(plan, libraries, provider)
        yield "net-plugin", _plugin(plan, libraries, provider)
    else:
        yield "ucx", _verbs(plan, libraries)
        if any(map(is_nccl, libraries)):
            yield "nccl-verbs", _nccl_verbs(plan, libraries)
    yield "fabric-devices", _fabric_devices(plan, provider)


def _libfabric(plan: ImagePlan, libraries: Libraries, provider: str) -> PreflightAnswer:
    library = libraries.get("libfabric.so.1") or plan.view.search("libfabric.so.1")
    if library is None:
        return answer("no-libfabric", provider=provider)
    source = _provider(plan, library, provider)
    if source is None:
        return answer("no-provider", library=library, provider=provider)
    if faults := plan.view.faults(source):
        return answer("broken-provider", provider=provider, source=source, fault=faults[0])
    verbs = plan.view.resolve(source).get("libibverbs.so.1")
    effect = f"{provider} sees no device, and tcp is used"
    if verbs and (lack := _verbs_driver(plan, verbs, effect)):
        return lack
    return answer("provider", provider=provider, source=source)


def _provider(plan: ImagePlan, library: ContainerFile, provider: str) -> ContainerFile | None:
    """Return the file with the provider: a plugin beside the library, or the library itself."""
    if plugin := plan.view.find(library.path.parent / "libfabric" / f"lib{provider}-fi.so"):
        return plugin
    return library if elf.mentions(library, f"FI_{provider.upper()}_".encode()) else None


def _plugin(plan: ImagePlan, libraries: Libraries, provider: str) -> PreflightAnswer:
    kind = "rccl" if plan.gpu_option == "--rocm" else "nccl"
    if not any(name.startswith(f"lib{kind}.so") for name in libraries):
        return answer("no-nccl", kind=kind.upper())
    # NCCL loads libnccl-net.so, or the file that NCCL_NET_PLUGIN gives by its name or suffix.
    chosen = plan.environment.get("NCCL_NET_PLUGIN", "")
    names = [chosen, f"lib{kind}-net-{chosen}.so"] if chosen else [f"lib{kind}-net.so"]
    plugin = next((f for name in names if name and (f := plan.view.search(name))), None)
    forced = plan.environment.get("NCCL_NET")
    faults = plan.view.faults(plugin) if plugin else []
    if plugin and not faults:
        return answer("net-plugin", plugin=plugin)
    effect = f"{kind.upper()} uses sockets instead of {provider}"
    if forced:
        effect = f"NCCL_NET={forced} forbids a fallback to sockets"
    if plugin:
        found = answer("broken-net-plugin", plugin=plugin, fault=faults[0], effect=effect)
    else:
        others = [n for n in libraries if n.startswith(("libnccl-net", "librccl-net"))]
        ignored = f"; {kind.upper()} does not load {others[0]} by that name" if others else ""
        found = answer("no-net-plugin", name=names[-1], effect=effect, ignored=ignored)
    return found._replace(status=Status.BROKEN) if forced else found


def _verbs(plan: ImagePlan, libraries: Libraries) -> PreflightAnswer:
    transport = ucx_core(libraries)
    if transport is None:
        return answer("no-ucx")
    found = plan.view.ucx_modules(transport, r"libuct_ib(?:_mlx5)?\.so\.\d+")
    module = next((file for _, file in found if file), None)
    if module is None:
        return answer("no-ucx-verbs", core=transport)
    if faults := plan.view.faults(module):
        return answer("broken-ucx-verbs", module=module, fault=faults[0])
    # Wheels bundle libibverbs under another name, with its own drivers.
    library = plan.view.resolve(module).get("libibverbs.so.1")
    if library and (lack := _verbs_driver(plan, library, "UCX sees no device, and uses TCP")):
        return lack
    return answer("ucx-verbs", module=module)


def _nccl_verbs(plan: ImagePlan, libraries: Libraries) -> PreflightAnswer:
    """Check libibverbs and its driver, which NCCL opens itself without linking them."""
    name = "libibverbs.so.1"
    own = (plan.view.linked(f, name) for user, f in libraries.items() if f and is_nccl(user))
    library = next(filter(None, own), None) or plan.view.search(name)
    if library is None:
        return answer("no-nccl-verbs")
    lack = _verbs_driver(plan, library, "NCCL sees no device, and uses sockets between nodes")
    return lack or answer("nccl-verbs", library=library)


def _verbs_driver(plan: ImagePlan, library: ContainerFile, effect: str) -> PreflightAnswer | None:
    """Check the rdma-core driver of the site's device; None if it is correct."""
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
            return answer("no-verbs-driver", library=library, driver=driver, effect=effect)
        number, file = drivers[driver]
        fault = {"driver": driver, "number": number, "effect": effect}
        if private and number != private[0]:
            return answer("other-verbs-driver", library=library, private=private[0], **fault)
        if faults := plan.view.faults(file):
            return answer("broken-verbs-driver", fault=faults[0], **fault)
    return None


def _fabric_devices(plan: ImagePlan, provider: str) -> PreflightAnswer:
    pattern = re.compile(TABLES["ports"].get(provider, provider))
    devices = [name for name in plan.host.devices if pattern.fullmatch(name)]
    expected = plan.site.node_type().nic_count
    if not devices:
        return answer("no-fabric-devices", provider=provider)
    name = "few-fabric-devices" if len(devices) < expected else "fabric-devices"
    return answer(name, count=len(devices), provider=provider, expected=expected)
