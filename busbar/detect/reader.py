# SPDX-License-Identifier: MIT
"""Read the outputs of tools: of this machine, or saved on another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from busbar.boundary import read_text
from busbar.detect.gather import Outputs
from busbar.errors import BusbarError, file_error
from busbar.parse.machine import (
    amd_smi,
    amd_text,
    fi_info,
    hwloc,
    ibstat,
    nvidia_smi,
    rocm_smi,
    schedulers,
)
from busbar.site.yamlfile import dotted
from busbar.slurm.nodes import parse_hardware

Parsed = TypeVar("Parsed")
_PARSERS: dict[str, Callable[[str], object]] = {
    "nvidia-smi -q": nvidia_smi.parse_inventory,
    "nvidia-smi topo": nvidia_smi.parse_topology,
    # Before nvlink, whose output has the same lines for GPUs.
    "nvidia-smi -L": nvidia_smi.parse_list,
    "nvidia-smi nvlink": nvidia_smi.parse_nvlink,
    "nvidia-smi mig.mode": nvidia_smi.parse_mig_mode,
    "nvidia-smi compute_cap": nvidia_smi.parse_compute_capability,
    "rocm-smi": rocm_smi.parse_topology,
    "amd-smi static": amd_smi.parse_static,
    "amd-smi static (text)": amd_text.parse_static,
    "amd-smi topology": amd_smi.parse_topology,
    "amd-smi topology (text)": amd_text.parse_topology,
    "lstopo": hwloc.parse_machine,
    "ibstat": ibstat.parse_ibstat,
    "fi_info": fi_info.parse_fi_info,
    "scontrol": parse_hardware,
    "sinfo": schedulers.parse_sinfo,
    "flux resource list": schedulers.parse_flux,
    "pbsnodes": schedulers.parse_pbsnodes,
}
VENDOR_TOOLS = ("nvidia-smi", "amd-smi", "rocm-smi")
_MOST_BYTES = 64 * 2**20


@dataclass
class Reader:
    """Parses outputs; one that cannot be parsed becomes a remark instead of an error."""

    outputs: Outputs
    remarks: list[str] = field(default_factory=list)
    failed_gpu_tools: list[str] = field(default_factory=list)
    """The remarks on tools of a GPU vendor."""

    def remark(self, tool: str, text: str) -> None:
        """Add a remark on a tool."""
        self.remarks.append(text)
        if tool.startswith(VENDOR_TOOLS):
            self.failed_gpu_tools.append(text)

    def read(self, name: str, parser: Callable[[str], Parsed]) -> Parsed | None:
        """Return the parsed output of a tool; None if there is none, or it is damaged."""
        text = self.outputs.text.get(name)
        if text is None:
            return None
        try:
            return _parsed(parser, text)
        except ValueError as error:
            self.remark(name, f"{name}: {error}")
            return None

    def is_valid(self, model: type[BaseModel], facts: dict[str, Any], what: str) -> bool:
        """Return whether the facts are valid in a site; add a remark if not."""
        try:
            model.model_validate(facts)
        except ValidationError as error:
            first = error.errors()[0]
            key = dotted(first["loc"])
            self.remarks.append(
                f"{key} of {what} cannot be {str(first['input'])[:40]!r}; omitting {what}"
            )
            return False
        return True


def recorded(files: Sequence[Path]) -> Outputs:
    """Read outputs saved on another machine; each is recognised by its content.

    Raises ``BusbarError`` for a file that cannot be read or recognised, and for two different
    outputs of one tool.
    """
    text: dict[str, str] = {}
    origin: dict[str, Path] = {}
    for file in files:
        with file_error("cannot be read", file, "check path and permissions"):
            content = read_text(file, _MOST_BYTES, errors="replace")
        name = _recognised(file, content)
        if text.get(name, content) != content:
            raise BusbarError(
                f"is another output of {name} than {origin[name]}",
                where=str(file),
                hint="give the outputs of one machine, one of each tool",
            )
        text[name], origin[name] = content, file
    for name in ("amd-smi static", "amd-smi topology"):
        if name in text:  # the JSON holds all that the text does
            text.pop(f"{name} (text)", None)
    return Outputs(text, recorded=True)


def _recognised(file: Path, content: str) -> str:
    """Return the tool that printed ``content``; raise ``BusbarError`` with the reason if none."""
    reasons: dict[str, str] = {}
    for name, parser in _PARSERS.items():
        try:
            _parsed(parser, content)
        except ValueError as error:
            reasons[name] = str(error)
        else:
            return name
    if not content.strip():
        raise BusbarError("is empty", where=str(file), hint="save the output of the tool again")
    likely = next((name for name, sign in _SIGNS.items() if sign.search(content)), None)
    if likely:
        raise BusbarError(
            f"looks like the output of {likely}, but: {reasons[likely]}",
            where=str(file),
            hint="save the output of the tool again, as a whole",
        )
    raise BusbarError(
        "not a recognised tool output",
        where=str(file),
        hint=f"give outputs of {', '.join(n for n in _PARSERS if '(' not in n)}",
    )


# What only this tool prints, to explain damaged output.
_SIGNS = {
    name: re.compile(sign, re.MULTILINE | re.DOTALL)
    for name, sign in {
        "nvidia-smi -q": r"^=+NVSMI LOG=+",
        "amd-smi static": r'\A\s*[\[{].*"asic"',
        "amd-smi topology": r'\A\s*[\[{].*"link_type"',
        "rocm-smi": r'^=+ [\w ]+ between two GPUs =+|\A[^{]*{.*"\(Topology\)',
        "amd-smi topology (text)": r"^LINK TYPE TABLE:",
        "amd-smi static (text)": r"^[ \t]+MARKET_NAME:",
        "lstopo": r"^<topology|^<!DOCTYPE topology",
        "ibstat": r"^CA '",
        "fi_info": r"^[ \t]*provider: ",
        "scontrol": r"^NodeName=",
        "sinfo": r"^PARTITION\s",
        "flux resource list": r"^[ \t]*STATE\s[^\n]*NNODES",
        "pbsnodes": r"^[ \t]+(?:ntype|pcpus|np) = ",
        "nvidia-smi topo": r"^[^\w\n]*GPU0\s",
        "nvidia-smi nvlink": r"^GPU \d+: ",
    }.items()
}


def _parsed(parser: Callable[[str], Parsed], text: str) -> Parsed:
    """Parse an output; raise ``ValueError`` for any kind of damage."""
    try:
        return parser(text)
    except (AttributeError, LookupError, TypeError, OverflowError, RecursionError) as error:
        # Damaged JSON and XML can still be well-formed, with values of another type.
        raise ValueError(f"the output is damaged: {error}") from error
