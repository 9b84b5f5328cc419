# SPDX-License-Identifier: MIT
"""Whether a mode of RCCL is in use, by its own log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from busbar.engine.assertions import Problem
from busbar.engine.job_output import JobOutput
from busbar.parse import numbers
from busbar.verdict import Verdict


def not_in_use(facts: JobOutput, mode: Mapping[str, str], ranks: int) -> Iterator[Problem]:
    """Yield what the log should state about the mode but does not.

    RCCL repeats every variable that is set, even if it ignores it, so its later behaviour counts
    too. If the log states other behaviour, the run is degraded; without a statement it has failed.
    """
    for name, value in mode.items():
        if name.startswith(("RCCL_", "NCCL_")) and value not in facts.environment.get(name, {}):
            yield Verdict.FAILED, f"the log does not show {name}={value}"
    if mode.get("RCCL_MSCCLPP_ENABLE") == "1":
        yield from _mscclpp(facts, mode.get("RCCL_MSCCLPP_THRESHOLD"))
    if minimum := mode.get("NCCL_MIN_NCHANNELS"):
        channels = sorted(
            {numbers.count(count) for count in facts.values("nccl.channels", "channels")}
        )
        if not channels:
            yield Verdict.FAILED, "the log does not report the number of channels"
        elif channels[0] < numbers.count(minimum):
            yield Verdict.DEGRADED, f"requested {minimum} channels, but there are {channels[0]}"
    joined = set(facts.values("nccl.init", "ranks"))
    if joined != {str(ranks)}:
        found = " or ".join(sorted(joined)) or "no"
        yield Verdict.FAILED, f"RCCL joined {found} ranks, not {ranks}"


def _mscclpp(facts: JobOutput, threshold: str | None) -> Iterator[Problem]:
    refused = facts.first("rccl.mscclpp-off")
    limits = set(facts.values("rccl.mscclpp-on", "threshold"))
    if refused:
        yield Verdict.DEGRADED, f"MSCCL++ is off: {refused['text']}"
    elif not limits:
        yield Verdict.FAILED, "the log does not say that MSCCL++ is enabled"
    elif threshold and limits != {threshold}:
        served = ", ".join(sorted(limits))
        yield Verdict.DEGRADED, f"MSCCL++ serves up to {served} bytes, not {threshold}"
