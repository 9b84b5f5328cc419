# SPDX-License-Identifier: MIT
"""Ranks at different collectives: PyTorch's watchdog and NCCL's RAS."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from busbar.engine.job_output import Occurrence
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Finding, failure, lines_of
from busbar.parse import numbers
from busbar.parse.messages import pattern


@cause(
    "collective-mismatch",
    fatal=True,
    patterns=[
        # "[Rank 3]" of PyTorch 2.0, "[PG ID 0 PG GUID 0(default_pg) Rank 3]" of 2.5.
        pattern(
            "torch.watchdog",
            "Watchdog caught collective",
            r"\[(?P<group>[^\[\]]*?) ?Rank (?P<rank>\d{1,18})\] .*?Watchdog caught collective.*?"
            r"SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w+)",
        )
    ],
)
def watchdog(context: Context) -> Iterator[Finding]:
    """PyTorch's watchdog stopped ranks of one group at different collectives."""
    groups: dict[str, list[Occurrence]] = defaultdict(list)
    for seen in context.facts.seen("torch.watchdog"):
        groups[seen["group"]].append(seen)
    for timeouts in groups.values():
        # A rank can time out more than once; its first collective is the one that hung.
        first = {each["rank"]: each for each in reversed(timeouts)}
        if len({(each["number"], each["operation"]) for each in first.values()}) < 2:
            continue
        lagging = min(first.values(), key=lambda each: numbers.count(each["number"]))
        leading = max(first.values(), key=lambda each: numbers.count(each["number"]))
        yield failure(
            "collective-mismatch",
            [lagging.evidence, leading.evidence],
            f"rank {lagging['rank']} is at {lagging['operation']} {lagging['number']},"
            f" rank {leading['rank']} at {leading['operation']} {leading['number']}",
            "certain" if lagging["number"] == leading["number"] else "likely",
        )
        return


@cause("collective-mismatch")
def counts(context: Context) -> Iterator[Finding]:
    """NCCL's RAS counts different numbers of collectives on ranks of one communicator."""
    behind = context.facts.seen("ras.behind")
    if behind:
        last = max(
            behind, key=lambda seen: numbers.count(seen["most"]) - numbers.count(seen["count"])
        )
        yield failure(
            "collective-mismatch",
            [seen.evidence for seen in behind[:3]],
            f"rank {last['rank']} started {last['count']} of {last['most']} {last['operation']}",
            "likely",
        )


@cause(
    "collective-mismatch",
    fatal=True,
    patterns=[
        pattern(
            "xla.stuck",
            "may be stuck",
            r"(?P<text>\b[Tt]hread has been waiting for .{0,300}may be stuck.*)",
        ),
        pattern("xla.unstuck", "is unstuck", r"(?P<text>Thread is unstuck.*)"),
    ],
)
def stuck(context: Context) -> Iterator[Finding]:
    """Threads of XLA wait for others at a collective, and none says that it went on."""
    facts = context.facts
    waiting = facts.seen("xla.stuck")
    if waiting and not facts.seen("xla.unstuck") and not facts.readings:
        yield failure("collective-mismatch", lines_of(*waiting[:3]), waiting[0]["text"], "likely")
