# SPDX-License-Identifier: MIT
"""Parse the state of GPUs in ``nvidia-smi -q -x``.

The names of elements are those of NVIDIA's nvsmi_device DTD, versions 10 to 13; a later version
renamed some, and both names are read.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

from busbar.parse import numbers

_LIMITS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "heat (hardware)",
    "hw_power_brake_slowdown": "power brake",
    "sw_thermal_slowdown": "heat (software)",
}
"""Reasons for a low clock that are limits of the machine. A power cap is normal under load."""
_UNCORRECTABLE = (
    *("dram_uncorrectable", "sram_uncorrectable"),
    *("sram_uncorrectable_parity", "sram_uncorrectable_secded"),
)
_MOST_TEXT = 200


@dataclass(frozen=True)
class SmiProcess:
    """A program that computes on a GPU."""

    pid: int
    name: str


@dataclass(frozen=True)
class SmiGpu:
    """The state of one GPU; None or empty for what the driver does not show."""

    bus_id: str
    model: str = ""
    pcie_generation: tuple[int, int] | None = None
    """Now and at most."""
    pcie_width: tuple[int, int] | None = None
    """Lanes, now and at most."""
    clocks: tuple[float, float] | None = None
    """MHz of the multiprocessors, now and at most."""
    limits: tuple[str, ...] = ()
    """The limits of the machine that reduce the clocks now, in words."""
    percent: float | None = None
    """Utilization."""
    free_mib: int | None = None
    """Memory that is not in use."""
    ecc: bool | None = None
    uncorrectable: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: str | None = None
    """What the driver requests: ``None``, ``Reset``, ``Reboot``, ``Drain P2P``..."""
    mig: bool = False
    fabric_state: str | None = None
    fabric_status: str | None = None
    processes: tuple[SmiProcess, ...] = ()
    lost: bool = False
    """The driver cannot talk to it any more."""


@dataclass(frozen=True)
class SmiReport:
    """The report of ``nvidia-smi -q -x``."""

    driver: str
    attached: int
    gpus: tuple[SmiGpu, ...]


def parse_report(text: str) -> SmiReport:
    """Parse the report; raise ``ValueError`` if it is damaged or cut."""
    if "<!ENTITY" in text:  # nvidia-smi declares none, and they can expand without end
        raise ValueError("not XML of nvidia-smi: it declares entities")
    try:
        root = ET.fromstring(text)  # noqa: S314 - entities are refused
    except ET.ParseError as error:
        raise ValueError(f"not XML of nvidia-smi: {error}") from error
    if root.tag != "nvidia_smi_log":
        raise ValueError(f"not XML of nvidia-smi: its root is {root.tag[:40]!r}")
    gpus = tuple(_gpu(element) for element in root.findall("gpu"))
    attached = _number(root, "attached_gpus")
    driver = _text(root, "driver_version") or _text(root, "kmd_version") or ""
    return SmiReport(driver, len(gpus) if attached is None else attached, gpus)


def _gpu(element: ET.Element) -> SmiGpu:
    reasons = {
        re.sub(r"^clocks_(?:throttle|event)_reasons?_", "", child.tag): (child.text or "").strip()
        for name in ("clocks_throttle_reasons", "clocks_event_reasons")
        for child in element.findall(f"{name}/*")
    }
    return SmiGpu(
        bus_id=element.get("id", "").lower(),
        model=_text(element, "product_name") or "",
        pcie_generation=_pair(element, "pci/pci_gpu_link_info/pcie_gen/", "link_gen"),
        pcie_width=_pair(element, "pci/pci_gpu_link_info/link_widths/", "link_width"),
        clocks=_clocks(element),
        limits=tuple(words for name, words in _LIMITS.items() if reasons.get(name) == "Active"),
        percent=_real(element, "utilization/gpu_util"),
        free_mib=_number(element, "fb_memory_usage/free"),
        ecc=_is(element, "ecc_mode/current_ecc", "Enabled"),
        uncorrectable=_uncorrectable(element),
        remap_pending=_is(element, "remapped_rows/remapped_row_pending", "Yes") or False,
        remap_failed=_is(element, "remapped_rows/remapped_row_failure", "Yes") or False,
        recovery=_text(element, "gpu_recovery_action"),
        mig=_is(element, "mig_mode/current_mig", "Enabled") or False,
        fabric_state=_text(element, "fabric/state"),
        fabric_status=_text(element, "fabric/status"),
        processes=tuple(_processes(element)),
        lost="GPU is lost" in "".join(element.itertext()),
    )


def _processes(element: ET.Element) -> list[SmiProcess]:
    found = []
    for process in element.findall("processes/process_info"):
        pid = _number(process, "pid")
        if pid and (_text(process, "type") or "C") != "G":
            found.append(SmiProcess(pid, (_text(process, "process_name") or "")[:_MOST_TEXT]))
    return found


def _clocks(element: ET.Element) -> tuple[float, float] | None:
    now, most = _real(element, "clocks/sm_clock"), _real(element, "max_clocks/sm_clock")
    return (now, most) if now is not None and most else None


def _uncorrectable(element: ET.Element) -> int | None:
    counts = [_number(element, f"ecc_errors/volatile/{name}") for name in _UNCORRECTABLE]
    counts += [_number(element, "ecc_errors/volatile/double_bit/total")]
    listed = [count for count in counts if count is not None]
    return sum(listed) if listed else None


def _pair(element: ET.Element, place: str, name: str) -> tuple[int, int] | None:
    now, most = (_number(element, f"{place}{kind}_{name}") for kind in ("current", "max"))
    return (now, most) if now and most else None


def _text(element: ET.Element, path: str) -> str | None:
    text = (element.findtext(path) or "").strip()
    return None if text in ("", "N/A", "[N/A]") or "deprecated" in text else text[:_MOST_TEXT]


def _is(element: ET.Element, path: str, value: str) -> bool | None:
    text = _text(element, path)
    return None if text is None else text == value


def _number(element: ET.Element, path: str) -> int | None:
    word = re.match(r"\d+", _text(element, path) or "")
    return numbers.count(word.group()) if word else None


def _real(element: ET.Element, path: str) -> float | None:
    return numbers.real((_text(element, path) or "").partition(" ")[0])
