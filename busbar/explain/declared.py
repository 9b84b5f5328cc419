# SPDX-License-Identifier: MIT
"""Rules that need no code: ``causes.yaml`` has the messages or settings that show a cause."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.explain.catalog import CAUSES, Entry, cause
from busbar.explain.rules import Context, Finding, failure, lines_of
from busbar.parse import numbers
from busbar.parse.messages import pattern


def _when_seen(id_: str, entry: Entry) -> None:
    """Name a fatal cause if one of its messages is seen; the first one fills the summary."""

    @cause(id_, fatal=True, hides=entry.hides, patterns=[pattern(id_, **p) for p in entry.seen])
    def rule(context: Context) -> Iterator[Finding]:
        facts = context.facts
        messages = facts.seen(id_)[:3]
        if not messages or (entry.without_readings and facts.readings):
            return
        setting = facts.setting(entry.setting)
        evidence = lines_of(*messages, setting)
        yield failure(id_, evidence, entry.summary.format_map(messages[0].fields))


def _below_default(id_: str, entry: Entry) -> None:
    """Name a cause if one of its variables is below its default."""

    @cause(id_)
    def rule(context: Context) -> Iterator[Finding]:
        setting = context.facts.setting(*entry.defaults)
        if not setting or not numbers.is_whole(setting.value):
            return
        default = entry.defaults[setting.name]
        if numbers.count(setting.value) < default:
            effect = context.facts.first(entry.shown)
            yield Finding(
                id_,
                "certain",
                lines_of(setting, effect),
                f"{setting.name} is {setting.value}, the default is {default}",
            )


for _id, _entry in CAUSES.items():
    if _entry.seen:
        _when_seen(_id, _entry)
    if _entry.defaults:
        _below_default(_id, _entry)
