# SPDX-License-Identifier: MIT
"""The reason of a drain, in a form by which the gate recognises its own ones again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from busbar.gate.findings import Ruled
from busbar.site.gate import GateCheck

MOST_BYTES = 255
"""Slurm's database keeps so many bytes of a reason (slurmdbd, table of events: tinytext)."""
_MOST_VALUE, _MOST_BAND = 110, 50
_PREFIX = "[node_problem] "
_MARK = " (busbar)"
_CHECKS: tuple[GateCheck, ...] = get_args(GateCheck)
_OWN = re.compile(
    rf"\[node_problem\] (?P<check>{'|'.join(_CHECKS)})(?: (?P<where>\S+))? .* vs .*: .*\(busbar\)"
)
_GRAVITY = ("note", "drain", "reset_gpu", "reboot", "service")


def reason_of(faults: Sequence[Ruled]) -> str:
    """Return the reason: the gravest fault, and how many others there are.

    Plain ASCII in one line. If it is too long, the remedy is cut.
    """
    first = max(faults, key=lambda fault: _GRAVITY.index(fault.action))
    finding = first.finding
    what = " ".join(filter(None, (finding.check, finding.where, finding.value or "failed")))
    more = f" (+{len(faults) - 1} more)" if len(faults) > 1 else ""
    band = (finding.band or "healthy")[:_MOST_BAND]
    text = _plain(f"{_PREFIX}{what[:_MOST_VALUE]} vs {band}: {first.remedy}")
    return text[: MOST_BYTES - len(more) - len(_MARK)].rstrip() + more + _MARK


def own_check(reason: str) -> GateCheck | None:
    """Return the check that a reason names if the gate wrote it; None for all other reasons."""
    match = _OWN.fullmatch(reason.strip())
    return next((name for name in _CHECKS if match and name == match["check"]), None)


def _plain(text: str) -> str:
    """Return text that no shell, table or parser of Slurm takes for something else."""
    return " ".join(re.sub(r"[^ !#%&()*+,./0-9:;<=>?@A-Z\[\]_a-z{}~-]", "?", text).split())
