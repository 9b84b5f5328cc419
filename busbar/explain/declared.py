# SPDX-License-Identifier: MIT
"""Rules that need no code: ``causes.yaml`` has the messages or settings that show a cause."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.explain.catalog import CAUSES, Entry, cause, declare
from busbar.explain.named import NAMERS
from busbar.explain.rules import Context, Explains, Finding, degraded, failure, finding, lines_of
from busbar.parse import numbers

# `busbar job` names these: no output of a run shows them.
declare("rank-stopped", "network-path-slow", "tcp-within-node")
declare("swapping", "memory-far", "storage-stalled")

_STRENGTHS = ("certain", "likely", "hint")


def _when_seen(id_: str, entry: Entry) -> None:
    """Name a cause if one of its messages is seen; the first one fills the summary."""
    text = "{text}" in entry.summary
    patterns = [
        wording.pattern(id_, text=text, in_context=bool(entry.names)) for wording in entry.seen
    ]

    @cause(id_, fatal=True, hides=entry.hides, patterns=patterns)
    def rule(context: Context) -> Iterator[Finding]:
        facts = context.facts
        strength, messages = next(
            ((s, seen[:3]) for s in _STRENGTHS if (seen := facts.seen(f"{id_}.{s}"))), ("", [])
        )
        if not messages:
            return
        fatal = not facts.readings or (
            strength != "hint" and any(context.ends(each.evidence) for each in messages)
        )
        if entry.without_readings and not fatal:
            return
        lines = lines_of(*messages, facts.setting(entry.setting), facts.first(entry.shown))
        # Open MPI wraps its help after the first word of a sentence.
        summary = re.sub(r"\.  [A-Z]\w*$", "", entry.summary.format_map(messages[0].fields))
        summary = " ".join(summary.split())
        if entry.names:
            around = facts.around.get(f"{id_}.{strength}", [])
            subject = NAMERS[entry.names](facts, around)
            summary = f"{summary}; {subject.text}" if subject.text else summary
            lines = tuple(dict.fromkeys((*lines, *subject.evidence)))
        place = facts.places.get(f"{id_}.{strength}")
        if place and place not in lines and place.text.strip() not in summary:
            lines = (*lines, place)
            summary = f"{summary}; {' '.join(place.text.split())}"
        if strength != "hint" and (entry.despite_readings or fatal):
            yield failure(summary, *lines, certain=strength == "certain")
        elif not facts.tool and (facts.reports or facts.first("progress")):
            return  # it describes a machine, or a program that went on
        elif facts.tool or facts.readings:
            # The run itself shows whether it did harm.
            for explains in (Explains.SLOW, Explains.FAILURE):
                yield finding(summary, *lines, certain=False, explains=explains)
        else:
            yield degraded(summary, *lines, certain=False)


def _below_default(id_: str, entry: Entry) -> None:
    """Name a cause if one of its variables is below its default."""

    @cause(id_)
    def rule(context: Context) -> Finding | None:
        setting = context.facts.setting(*entry.defaults)
        if not setting or not numbers.is_whole(setting.value):
            return None
        default = entry.defaults[setting.name]
        if numbers.count(setting.value) >= default:
            return None
        summary = f"{setting.name} is {setting.value}, the default is {default}"
        return finding(summary, setting, context.facts.first(entry.shown))


for _id, _entry in CAUSES.items():
    if _entry.seen:
        _when_seen(_id, _entry)
    if _entry.defaults:
        _below_default(_id, _entry)
