# SPDX-License-Identifier: MIT
"""Rules that need no code: a message that is a cause by itself, a setting below its default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Finding, failure
from busbar.parse.messages import Pattern


def when_seen(
    id_: str,
    *patterns: Pattern,
    summary: str = "{text}",
    hides: Iterable[str] = (),
    setting: str = "",
    without_readings: bool = False,
) -> None:
    """Name a fatal cause if a message of ``patterns`` is seen.

    ``summary`` is filled with the fields of the first message. The line of ``setting`` is further
    evidence. A cause ``without_readings`` is named only if the run measured nothing.
    """
    kinds = tuple(dict.fromkeys(row.kind for row in patterns))

    @cause(id_, fatal=True, hides=hides, patterns=patterns)
    def rule(context: Context) -> Iterator[Finding]:
        facts = context.facts
        messages = [message for kind in kinds for message in facts.seen(kind)][:3]
        if not messages or (without_readings and facts.readings):
            return
        value = facts.setting(setting) if setting else None
        evidence = [message.evidence for message in messages]
        evidence += [value.evidence] if value else []
        yield failure(id_, evidence, summary.format_map(messages[0].fields))


def below_default(id_: str, defaults: Mapping[str, int], *, shown: str) -> None:
    """Name a cause if one of these variables is below its default.

    The first message of the kind ``shown`` is further evidence.
    """

    @cause(id_)
    def rule(context: Context) -> Iterator[Finding]:
        setting = context.facts.setting(*defaults)
        if not setting or not setting.value.isdigit():
            return
        default = defaults[setting.name]
        if int(setting.value) < default:
            effect = context.facts.first(shown)
            yield Finding(
                id_,
                "certain",
                (setting.evidence, *([effect.evidence] if effect else [])),
                f"{setting.name} is {setting.value}, the default is {default}",
            )
