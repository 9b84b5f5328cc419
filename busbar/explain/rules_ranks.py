# SPDX-License-Identifier: MIT
"""Which rank failed first, and which is behind: what other ranks waited for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any

from busbar.engine.job_output import JobOutput, Occurrence
from busbar.engine.reading import Evidence
from busbar.explain import timeline
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Finding, failure
from busbar.parse import numbers
from busbar.parse.tables import beside
from busbar.words import counted

_MOST_SILENT = 8
"""At most one in this many waiting ranks may be silent: an excerpt lacks most ranks."""
_OF_A_NODE = 7
"""With an unknown number of ranks, this many waiting ranks are not an excerpt."""
_PYTHON_ERROR = re.compile(r"[\w.]*(?:Error|Exception): ")
_TRACEBACK = 20
"""Lines of a short traceback."""
_WORDS = beside(timeline.__file__)["words"]
_WAITS, _OF_THE_GROUP = (re.compile(_WORDS[name]) for name in ("waits", "of-the-group"))
_CRASHES = ("4", "7", "8", "11")
"""Signals of a program's own faults; it is ended by others with the rest."""
_BROUGHT_ABOUT = ("timeout", "fabric-timeout", "peer-unreachable")
_FOLLOWS = (
    *("timeout", "trouble", "died.abort"),
    *(f"{id_}.{strength}" for id_ in _BROUGHT_ABOUT[1:] for strength in ("certain", "likely")),
)
"""Kinds of messages of ranks that lost or waited for another one."""


# ---- the exception of one rank
def raised(context: Context) -> Finding | None:
    """Return the exception of a rank for which others waited, or to which they lost the way.

    It is the first failure wherever it stands: ranks that wait raise nothing of their own.
    """
    facts = context.facts
    waits = facts.seen("timeout")
    follows = [each for kind in _FOLLOWS for each in facts.seen(kind)]
    ignored = went_on(facts)
    exceptions = (
        each
        for each in facts.seen("died.message")
        if is_own(each["text"]) and each.evidence not in ignored
    )
    crashes = (each for each in facts.seen("died.signal") if each["number"] in _CRASHES)
    own = next(chain(exceptions, crashes), None)
    if not own or not follows or not all(_WAITS.search(each["text"]) for each in waits):
        return None
    place, end = context.place(own.evidence), context.place(follows[0].evidence)
    if not waits and place.rank is None and not place.host:
        return None  # cannot be distinguished from a network failure
    at, until = (f" at {each.time[-8:]}" if each.time else "" for each in (place, end))
    how = f"raised {own['text']}" if "text" in own.fields else f"got signal {own['number']}"
    summary = f"{place.words or 'a rank'} {how.strip()}{at}"
    if waits:
        ended = {each["rank"] for each in facts.seen("torch.watchdog")}
        others = counted(len(ended), "rank") if ended else "others"
        summary += f"; {others} waited for it until the watchdog ended them{until}"
    details = _before(context, own.evidence.file, place.rank)
    lines = own.evidence, follows[0].evidence
    return failure(summary, *lines, certain=False, hides=_BROUGHT_ABOUT, **details)


def is_own(text: str) -> bool:
    """Return whether a message is an exception that no other rank brings about."""
    return bool(_PYTHON_ERROR.match(text)) and not _OF_THE_GROUP.search(text)


def _before(context: Context, file: str, rank: int | None) -> dict[str, Any]:
    """Return what a rank printed last before the first failure."""
    around = context.facts.around.get("died.message", [])
    earlier = (line for line in around if line.line < around[0].line and line.file == file)
    own = (line for line in earlier if rank is not None and context.place(line).rank == rank)
    return {"before": line.text.strip()} if (line := next(own, None)) else {}


def went_on(facts: JobOutput) -> list[Evidence]:
    """Return the lines of errors that Python reports as ignored."""
    lines = [seen.evidence for seen in facts.seen("died.message")]
    found = []
    for seen in facts.seen("error-ignored"):
        after = [e for e in lines if e.file == seen.evidence.file and e.line > seen.evidence.line]
        found += [e for e in after if e.line == seen.evidence.line + 1]
        errors = [e for e in after if _PYTHON_ERROR.match(e.text)]
        nearest = min(errors, key=lambda e: e.line, default=None)
        if nearest and nearest.line <= seen.evidence.line + _TRACEBACK:
            found.append(nearest)
    return found


# ---- ranks at different collectives: PyTorch's watchdog, NCCL's RAS, XLA
@cause("collective-mismatch", "rank-late", fatal=True, hides=_BROUGHT_ABOUT)
def watchdog(context: Context) -> Finding | None:
    """PyTorch's watchdog stopped ranks of one group at different collectives.

    Ranks of a group number their collectives alike: a few with a lower number are behind.
    """
    for first in _waiting(context.facts):
        at = Counter(map(_collective, first.values()))
        if len(at) < 2:
            continue
        # The rank that is behind, otherwise the rank that is alone, differs from the others.
        order = sorted(
            first.values(), key=lambda each: (numbers.count(each["number"]), at[_collective(each)])
        )
        lagging, leading = order[0], order[-1]
        rank = numbers.count(lagging["rank"])
        words = context.place(lagging.evidence, rank).words
        fewer = numbers.count(leading["number"]) - numbers.count(lagging["number"])
        if fewer and 2 * (most := at[_collective(leading)]) > len(order):
            summary = (
                f"{words} is {counted(fewer, 'collective')} behind, at {_collective(lagging)}, and"
                f" {counted(most, 'rank')} waited in {_collective(leading)}"
            )
            return failure(summary, lagging, leading, certain=False, id_="rank-late", rank=rank)
        summary = (
            f"{words} is at {_collective(lagging)}, rank {leading['rank']} at"
            f" {_collective(leading)}"
        )
        return failure(summary, lagging, leading, certain=not fewer, rank=rank)
    return None


def _waiting(facts: JobOutput) -> Iterator[dict[str, Occurrence]]:
    """Yield the first timeout of each rank, by group: its first collective is what hung."""
    groups: dict[str, dict[str, Occurrence]] = defaultdict(dict)
    for seen in facts.seen("torch.watchdog"):
        groups[seen["group"]].setdefault(seen["rank"], seen)
    yield from groups.values()


def waited(facts: JobOutput) -> str:
    """Return in what ranks waited, if PyTorch's watchdog and no time limit ended them."""
    waiting = max(_waiting(facts), key=len, default={})
    if not waiting or not all(_WAITS.search(each["text"]) for each in facts.seen("timeout")):
        return ""
    hung, most = _hung(waiting)
    return f"{counted(most, 'rank')} waited in {hung} until the watchdog ended them"


def _hung(waiting: dict[str, Occurrence]) -> tuple[str, int]:
    """Return the collective in which most ranks waited, and how many did."""
    return Counter(map(_collective, waiting.values())).most_common(1)[0]


@cause("rank-silent", "rank-late")
def silent(context: Context) -> Iterator[Finding]:
    """PyTorch's watchdog stopped nearly all ranks, and a few say nothing."""
    waiting = max(_waiting(context.facts), key=len, default={})
    first = raised(context)
    failed = context.place(first.evidence[0]).rank if first else None
    known = {*map(numbers.count, waiting)}
    recorded = map(numbers.count, context.facts.values("torch.recorder", "ranks"))
    ranks = range(max(context.ranks or 0, *recorded, 0))
    if not ranks and len(known) >= _OF_A_NODE:
        ranks = range(min(known), max(known))
    few = max(1, len(waiting) // _MOST_SILENT)
    enough = len(waiting) > 2 and len(ranks) <= len(known) + 1 + few  # a log can name any number
    silent = [rank for rank in ranks if rank not in {*known, failed}] if enough else []
    for rank in silent if len(silent) <= few else ():
        hung, most = _hung(waiting)
        last = next(each for each in reversed(waiting.values()) if _collective(each) == hung)
        own = _enqueued_less(context.facts, rank, numbers.count(last["number"]))
        words = context.place(own.evidence if own else None, rank).words
        does = f"enqueued nothing after {own['number']}, not" if own else "did not report"
        summary = f"{words} {does} {hung}, in which {most} ranks waited"
        id_ = "rank-late" if own else "rank-silent"
        yield failure(summary, own, last, certain=False, id_=id_, rank=rank)


def _enqueued_less(facts: JobOutput, rank: int, number: int) -> Occurrence | None:
    """Return what says that a rank did not enqueue a collective, but others of its group did."""
    last = [(numbers.count(each["number"]), each) for each in facts.seen("torch.enqueued")]
    groups = {each["group"] for most, each in last if most >= number}
    own = [row for row in last if row[1]["rank"] == str(rank) and row[1]["group"] in groups]
    return own[-1][1] if own and own[-1][0] < number else None


UNEVEN = re.compile("ALLTOALL|SEND|RECV|COALESCED|^GATHER|^SCATTER")
"""Operations whose ranks can have different sizes."""


def _collective(seen: Occurrence) -> str:
    same = seen["size"] and not UNEVEN.search(seen["operation"])
    size = f" of {seen['size']} elements" if same else ""
    return f"{seen['operation']} {seen['number']}".rstrip() + size


@cause("collective-mismatch")
def counts(context: Context) -> Finding | None:
    """NCCL's RAS counts different numbers of collectives on ranks of one communicator."""
    behind = context.facts.seen("ras.behind")
    if not behind:
        return None
    last = max(behind, key=lambda s: numbers.count(s["most"]) - numbers.count(s["count"]))
    rank = numbers.count(last["rank"])
    summary = f"rank {rank} started {last['count']} of {last['most']} {last['operation']}"
    return failure(summary, *behind[:3], certain=False, rank=rank)


@cause("collective-mismatch", fatal=True)
def stuck(context: Context) -> Finding | None:
    """Threads of XLA wait for others at a collective, and none says that it went on."""
    facts = context.facts
    waiting = facts.seen("xla.stuck")
    if (
        not waiting
        or facts.seen("xla.unstuck")
        or not any(context.ends(each.evidence) for each in waiting)
    ):
        return None
    return failure(waiting[0]["text"], *waiting[:3], certain=False)
