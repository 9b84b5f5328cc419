# SPDX-License-Identifier: MIT
"""Faults of GPUs that the kernel logs by number."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.job_output import Occurrence
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Finding, failure
from busbar.explain.xid import UNKNOWN, catalog
from busbar.parse import numbers
from busbar.parse.messages import pattern

_CODE = r"(?P<code>\d{1,4})"
_GRAVITY = ("hardware", "driver", "unknown", "application", "notice", "consequence")
"""Kinds of codes, the one that explains most first."""


@cause(
    "gpu-fault",
    fatal=True,
    patterns=[
        # The kernel's own line; drivers before 400 print no "PCI:".
        pattern("gpu.xid", "Xid (", rf"\bXid \((?:PCI:)?[^)]*\):? {_CODE}\b"),
        # The Kubernetes device plugin, DCGM and node-problem-detector.
        pattern("gpu.xid", "Xid=", rf"\bXid={_CODE}\b"),
        pattern(
            "gpu.xid",
            "XID",
            # A line with several codes, each with its meaning, is from a document.
            r"(?:XID error:?|(?:^|[\[\]:;,(>|-] ?"
            r"|\b(?:with|got|detected|fatal|critical|error|event|new) )XID)"
            rf" {_CODE}\b(?!.*\bXID \d)(?=.*GPU)",
        ),
        # Monitors, and NCCL's RAS diagnostics from 2.31 on; those tagged [OK] need no action.
        pattern("gpu.xid", " detected", rf"^(?!.*\[OK\]).*\b(?i:xid) {_CODE} detected"),
    ],
)
def xid(context: Context) -> Iterator[Finding]:
    """The kernel logged an Xid; those of hardware and driver prove a fault of the GPU."""
    known = catalog()

    def gravity(seen: Occurrence) -> int:
        return _GRAVITY.index(known.get(numbers.count(seen["code"]), UNKNOWN).kind)

    codes = sorted(context.facts.seen("gpu.xid"), key=gravity)
    if not codes:
        return
    first = known.get(numbers.count(codes[0]["code"]), UNKNOWN)
    if first.kind in ("notice", "consequence") and context.facts.readings:
        return
    summary = f"Xid {codes[0]['code']}: {first.meaning}; {first.action}"
    proven = first.kind == "hardware"
    yield failure(
        "gpu-fault",
        [seen.evidence for seen in codes[:3]],
        summary,
        "certain" if proven else "likely",
    )
