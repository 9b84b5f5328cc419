# SPDX-License-Identifier: MIT
"""Parse ``nvidia-smi topo -m``, ``nvlink -s``, ``-q``, ``-L`` and queries of ``nvidia-smi``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from busbar.parse import numbers

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_AFTER_DEVICES = re.compile(r"(?:CPU|NUMA|GPU NUMA)\s+(?:Affinity|ID)")
"""What follows the columns of the devices; these may have any name, as drivers choose them."""
_CODE = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
_CPUS = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")


@dataclass(frozen=True)
class Topology:
    """The matrix of ``topo -m``: the connection of each pair of devices."""

    gpus: int
    codes: dict[tuple[str, str], str]
    """By (row, column), as printed: ``NV18``, ``PIX``, ``SYS``..."""
    nics: dict[str, str]
    """Device name by name in the matrix."""
    cpu_affinity: tuple[str | None, ...]
    """CPU list of each GPU."""
    numa_affinity: tuple[str | None, ...]

    def links(self, first: int, second: int) -> int:
        """Return the number of NVLinks between two GPUs."""
        code = self.codes[f"GPU{first}", f"GPU{second}"]
        return numbers.count(code[2:]) if code.startswith("NV") else 0


@dataclass(frozen=True)
class Gpu:
    """One GPU of ``-q``; None means N/A."""

    bus_id: str
    model: str
    architecture: str | None
    memory_mib: int | None
    pcie: tuple[int, int] | None
    """Generation and lanes of the fastest link that GPU and slot support."""
    mig: bool
    c2c: bool
    """The GPU and its CPU are one package, connected by NVLink-C2C."""
    domain: bool
    """Its NVLinks reach GPUs of other nodes: it is in a cluster with an identity."""


@dataclass(frozen=True)
class Inventory:
    """The report of ``nvidia-smi -q``."""

    attached: int
    gpus: tuple[Gpu, ...]
    """The GPUs in the report, at most ``attached``."""


@dataclass(frozen=True)
class ListedGpu:
    """One GPU of ``-L``."""

    model: str
    instances: int
    """Its MIG instances."""


def parse_topology(text: str) -> Topology:
    """Parse ``nvidia-smi topo -m``, with columns separated by tabs or blanks."""
    lines = [_ANSI.sub("", line).rstrip() for line in text.splitlines()]
    header = next((n for n, line in enumerate(lines) if line.split()[:1] == ["GPU0"]), None)
    if header is None:
        raise ValueError("no matrix: no line starts with GPU0")
    columns = _AFTER_DEVICES.split(lines[header])[0].split()
    if any(_CODE.fullmatch(word) for word in columns):
        raise ValueError("the line with the names of the columns is missing")
    codes: dict[tuple[str, str], str] = {}
    cpus: list[str | None] = []
    numa: list[str | None] = []
    for line in lines[header + 1 :]:
        words = line.split()
        if not words or words[0] not in columns:
            break
        row, cells = words[0], words[1 : len(columns) + 1]
        if len(cells) < len(columns) or not all(_CODE.fullmatch(cell) for cell in cells):
            raise ValueError(f"row {row} does not have {len(columns)} cells: {line.strip()!r}")
        codes |= {(row, column): cell for column, cell in zip(columns, cells, strict=True)}
        if row.startswith("GPU"):
            rest = [w if _CPUS.fullmatch(w) else None for w in words[len(columns) + 1 :]]
            cpus.append(rest[0] if rest else None)
            numa.append(rest[1] if len(rest) > 1 else None)
    gpus = sum(column.startswith("GPU") for column in columns)
    if len(cpus) != gpus:
        raise ValueError(f"{len(cpus)} rows for {gpus} GPUs; the output is truncated")
    names = {f"GPU{index}" for index in range(gpus)}
    if not names <= set(columns) or not names <= {row for row, _ in codes}:
        raise ValueError(f"the GPUs of rows and columns are not GPU0 to GPU{gpus - 1}")
    uneven = next(
        (pair for pair in codes if codes.get(pair[::-1], codes[pair]) != codes[pair]), None
    )
    if uneven:
        raise ValueError(f"{uneven[0]} to {uneven[1]} differs from {uneven[1]} to {uneven[0]}")
    legend = dict(
        re.findall(
            r"^[ \t]*(?P<nic>NIC\d+): (?P<name>\S+)[ \t\r]*$", "\n".join(lines), re.MULTILINE
        )
    )
    nics = {name: legend.get(name, name) for name in columns if not name.startswith("GPU")}
    return Topology(gpus, codes, nics, tuple(cpus), tuple(numa))


def parse_nvlink(text: str) -> tuple[int, ...]:
    """Return the number of active links of each GPU from ``nvidia-smi nvlink -s``."""
    active: list[int] = []
    listed: list[int] = []
    for line in text.splitlines():
        if re.match(r"GPU \d+: ", line):
            active.append(0)
            listed.append(0)
        elif link := re.match(r"\s+Link \d+: (?P<state>\S+)", line):
            if not active:
                raise ValueError(f"link before any GPU: {line.strip()!r}")
            active[-1] += re.fullmatch(r"[\d.]+", link["state"]) is not None
            listed[-1] += 1
    if not active:
        raise ValueError("no GPU listed")
    if len(set(listed)) > 1:
        raise ValueError("the GPUs have different numbers of links; the output is truncated")
    return tuple(active)


def parse_list(text: str) -> tuple[ListedGpu, ...]:
    """Parse ``nvidia-smi -L``, which lists GPUs and their MIG instances."""
    found: list[ListedGpu] = []
    for line in filter(str.strip, text.splitlines()):
        if gpu := re.fullmatch(r"GPU \d+: (?P<model>.+?) \(UUID: \S+\)\s*", line):
            found.append(ListedGpu(gpu["model"], 0))
        elif found and re.fullmatch(r"\s+MIG \S+\s+Device\s+\d+: \(UUID: \S+\)\s*", line):
            found[-1] = replace(found[-1], instances=found[-1].instances + 1)
        else:
            raise ValueError(f"neither a GPU nor a MIG instance: {line.strip()[:60]!r}")
    if not found:
        raise ValueError("no GPU listed")
    return tuple(found)


def parse_mig_mode(text: str) -> tuple[bool, ...]:
    """Return whether MIG is on for each GPU, from ``--query-gpu=mig.mode.current --format=csv``.

    Other columns may be beside it.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line]
    if not rows or "mig.mode.current" not in rows[0]:
        raise ValueError("no column mig.mode.current")
    column = rows[0].index("mig.mode.current")
    modes = [row[column] if column < len(row) else "" for row in rows[1:]]
    if not modes or not set(modes) <= {"Enabled", "Disabled", "[N/A]", "N/A"}:
        raise ValueError("a row of mig.mode.current is neither Enabled, Disabled nor [N/A]")
    return tuple(mode == "Enabled" for mode in modes)


def parse_compute_capability(text: str) -> tuple[str, ...]:
    """Return the architecture of each GPU from ``--query-gpu=compute_cap --format=csv``."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    archs = [line for line in lines if line != "compute_cap"]
    if not archs or not all(re.fullmatch(r"\d{1,2}\.\d", line) for line in archs):
        raise ValueError("not a list of compute capabilities")
    return tuple(f"sm_{arch.replace('.', '')}" for arch in archs)


def parse_inventory(text: str) -> Inventory:
    """Parse ``nvidia-smi -q``, of all GPUs or of one (``-i``)."""
    attached = re.search(r"^Attached GPUs\s+: (?P<count>\d+)", text, re.MULTILINE)
    if not attached:
        raise ValueError("the number of attached GPUs is missing")
    heads = r"^GPU (?P<bus_id>[0-9A-Fa-f]+:[0-9A-Fa-f:.]+)\s*$"
    parts = re.split(heads, text, flags=re.MULTILINE)[1:]
    gpus = [_gpu(bus_id, body) for bus_id, body in zip(parts[::2], parts[1::2], strict=True)]
    if not gpus:
        raise ValueError("no GPU in the report")
    count = numbers.count(attached["count"])
    # A report of one GPU (-i) is complete.
    if 1 < len(gpus) < count or len({gpu.memory_mib is None for gpu in gpus}) > 1:
        raise ValueError(f"the report of GPU {len(gpus)} of {count} is cut; it is truncated")
    return Inventory(count, tuple(gpus))


def _gpu(bus_id: str, body: str) -> Gpu:
    def value(head: str, form: str = r".+$") -> str | None:
        match = re.search(rf"{head}\s+: (?P<value>{form})", body, re.MULTILINE)
        text = match["value"].strip() if match else "N/A"
        return None if text == "N/A" else text

    model = value(r"^[ \t]+Product Name")
    if model is None:
        raise ValueError(f"GPU {bus_id} has no product name")
    memory = value(r"FB Memory Usage\s+Total", r"\d+(?= MiB)")
    generation = value(r"PCIe Generation\s+Max", r"\d+")
    lanes = value(r"Link Width\s+Max", r"\d+(?=x)")
    return Gpu(
        bus_id=bus_id.lower(),
        model=model,
        architecture=value(r"^\s+Product Architecture"),
        memory_mib=numbers.count(memory) if memory else None,
        pcie=(numbers.count(generation), numbers.count(lanes)) if generation and lanes else None,
        mig=value(r"MIG Mode\s+Current") == "Enabled",
        domain=re.search(r"[1-9a-f]", (value(r"ClusterUUID") or "").lower()) is not None,
        c2c=value(r"GPU C2C Mode", r"\w+") == "Enabled",
    )
