# SPDX-License-Identifier: MIT
"""The record of a node: the evidence against it, what was done, and what the site runs next."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from busbar.boundary import is_node, refuse_foreign_code, replace_file, slurm_reason
from busbar.document import Contradictions, Sealed, json_text, read_document, to_json
from busbar.errors import BusbarError, file_error
from busbar.history.model import iso
from busbar.program import call
from busbar.site.gate import NodeAction, NodeCommand, NodePolicy, NodeSource
from busbar.slurm.client import Slurm
from busbar.slurm.hostlist import natural
from busbar.slurm.nodes import Node
from busbar.units import FIRST_S, past
from busbar.words import repeated

FILE = "nodes.json"
NodeHealth = Literal["healthy", "suspect", "faulty"]
_REPAIRS: tuple[NodeAction, ...] = ("reset", "reboot", "ticket")
"""What repairs a node; each one if those before it did not."""
_OURS = "(busbar)"
"""In each reason that Busbar gives Slurm."""
_MOST_REASON = 240
"""Slurm's accounting keeps 255 bytes."""
_MOST_TAKEN = 20


@dataclass(frozen=True)
class NodeEvidence:
    """What one look shows against a node."""

    source: NodeSource
    """What looked."""
    time: str
    """When: ISO 8601, UTC."""
    text: str
    """What it found."""
    certain: bool
    """Whether it proves a fault of this node, and no other reason is left."""
    action: NodeAction
    """What repairs it."""


@dataclass(frozen=True)
class TakenAction:
    """What was done to a node."""

    time: str
    """When: ISO 8601, UTC."""
    action: NodeAction
    """What was done."""
    by: str
    """``busbar node --took``, or the command of the site and how it ended."""


@dataclass(frozen=True)
class NodeRecord:
    """All that is known of a node."""

    node: str
    """Its name."""
    state: NodeHealth = "healthy"
    """``suspect`` if there is evidence against it, ``faulty`` if that is certain."""
    since: str = ""
    """The look that first found this state: ISO 8601, UTC."""
    slurm: str = ""
    """Name, state and reason in Slurm; empty if it does not know the node."""
    evidence: tuple[NodeEvidence, ...] = ()
    """The evidence against it, from the last look of each source."""
    looks: Mapping[NodeSource, str] = field(default_factory=dict)
    """When each source has looked last: ISO 8601, UTC."""
    taken: tuple[TakenAction, ...] = ()
    """What was done to it, the latest last."""
    next: NodeAction | Literal[""] = ""
    """What to do next; empty for nothing."""

    @property
    def reason(self) -> str:
        """The first evidence as a reason for Slurm."""
        text = "".join(f"[node_problem] {one.source}: {one.text}" for one in self.evidence[:1])
        return f"{slurm_reason(text)[:_MOST_REASON]} {_OURS}"

    @property
    def text(self) -> str:
        """``n2: faulty since 2026-11-22T02:00:00+00:00; next: drain; gate: mount ...``."""
        what = f"{self.node}: {self.state} since {self.since}; next: {self.next or 'nothing'}"
        return "; ".join([what, *(f"{one.source}: {one.text}" for one in self.evidence[:1])])


@dataclass(frozen=True, kw_only=True)
class NodesDocument(Sealed):
    """The records of the nodes of a site."""

    schema: Literal["busbar-nodes/1"] = "busbar-nodes/1"
    """The schema of this document."""
    nodes: tuple[NodeRecord, ...] = ()
    """Each node that was looked at."""

    def contradictions(self) -> Contradictions:
        """Yield each key that contradicts others, or has an impossible value."""
        for at in repeated(one.node for one in self.nodes):
            yield f"nodes.{at}.node", "is listed twice"
        for at, one in enumerate(self.nodes):
            key, state = f"nodes.{at}", health_of(one.evidence)
            if one.node and not is_node(one.node):  # earlier versions noted readings of no node
                yield f"{key}.node", f"{one.node[:40]!a} is not the name of one node"
            if one.state != state:
                yield f"{key}.state", f"is {one.state}, but by its evidence it is {state}"
            if {each.source for each in one.evidence} - one.looks.keys():
                yield f"{key}.looks", "lacks a source of the evidence"
            if one.next not in ("", "resume") if state == "healthy" else not one.next:
                yield f"{key}.next", f"is {one.next or 'empty'}, but the node is {state}"
            times = [one.since, *one.looks.values(), *(each.time for each in one.taken)]
            for time in (*times, *(each.time for each in one.evidence)):
                past(time or FIRST_S, key)


@dataclass(frozen=True)
class NodeLook:
    """What a source saw: the nodes that it looked at, and what it found."""

    source: NodeSource
    time: str
    nodes: frozenset[str]
    found: Mapping[str, Sequence[NodeEvidence]]


def load(directory: Path) -> NodesDocument:
    """Return the records of a directory of nights; none if it has none yet."""
    path = directory / FILE
    return read_nodes(path) if path.exists() else NodesDocument()


def read_nodes(path: Path) -> NodesDocument:
    """Return the records in a file; raise ``BusbarError`` for anything else."""
    hint = "pass nodes.json of busbar nightly; if it is damaged, remove it"
    return read_document(path, hint, NodesDocument)


def save(directory: Path, document: NodesDocument) -> None:
    """Write the records as a whole."""
    with file_error("cannot be written", directory / FILE, "make room"):
        replace_file(directory / FILE, json_text(document))


def updated(
    document: NodesDocument,
    looks: Sequence[NodeLook],
    slurm: Mapping[str, Node],
    policy: NodePolicy,
) -> NodesDocument:
    """Return the records after some looks, and the state that Slurm has of the nodes.

    A look of a source replaces what the last look of that source at the same node has found.
    """
    known = {record.node: record for record in document.nodes if is_node(record.node)}
    for look in sorted(looks, key=lambda look: look.time):
        for node in filter(is_node, look.nodes | look.found.keys()):
            record = known.get(node, NodeRecord(node))
            if record.looks.get(look.source, "") > look.time:
                continue
            kept = [one for one in record.evidence if one.source != look.source]
            evidence = (*look.found.get(node, ()), *kept)
            state = health_of(evidence)
            known[node] = replace(
                record,
                state=state,
                since=record.since if record.since and record.state == state else look.time,
                evidence=tuple(sorted(evidence, key=lambda one: not one.certain)),
                looks={**record.looks, look.source: look.time},
            )
    found = []
    for each in sorted(known.values(), key=lambda record: natural(record.node)):
        in_slurm = slurm.get(each.node)
        told = in_slurm.described if in_slurm else each.slurm
        found.append(replace(each, slurm=told, next=_next(each, in_slurm, policy)))
    if sum(one.next == "drain" for one in found) * 2 > max(len(found), 2):
        # Most nodes have a fault in common, or were compared with a wrong limit.
        found = [replace(one, next="retest") if one.next == "drain" else one for one in found]
    return NodesDocument(nodes=tuple(found))


def health_of(evidence: Sequence[NodeEvidence]) -> NodeHealth:
    """Return what the evidence against a node makes of it."""
    if any(one.certain for one in evidence):
        return "faulty"
    return "suspect" if evidence else "healthy"


def took(record: NodeRecord, action: NodeAction, time: str, by: str) -> NodeRecord:
    """Return the record after something was done to the node."""
    return replace(record, taken=(*record.taken, TakenAction(time, action, by))[-_MOST_TAKEN:])


def _next(record: NodeRecord, node: Node | None, policy: NodePolicy) -> NodeAction | Literal[""]:
    """Return what to do: drain, then repair, test again, and resume what Busbar has drained."""
    serves = node is None or node.usable
    if record.state == "healthy":
        return "resume" if node and not serves and _OURS in node.reason else ""
    certain = [one for one in record.evidence if one.certain]
    done = {one.action: one.time for one in record.taken if one.time >= record.since}
    repaired = max((done[one] for one in _REPAIRS if one in done), default="")
    if not certain or all(one.time < repaired for one in certain):
        return "retest"
    if node and serves:
        return "drain"
    wanted = [policy.actions.get(one.source, one.action) for one in certain]
    first = max((_REPAIRS.index(one) for one in wanted if one in _REPAIRS), default=None)
    if first is None:
        return "retest" if "drain" in wanted else wanted[0]
    return next((one for one in _REPAIRS[first:] if one not in done), "ticket")


_COMMAND_S = 60


def update(
    directory: Path,
    looks: Sequence[NodeLook],
    policy: NodePolicy,
    tell: Callable[[str], None],
    done: Mapping[str, NodeAction | None],
) -> NodesDocument:
    """Add looks, and what was done to nodes, to the records of a directory of nights.

    Runs the commands of the site for what has changed. Raises ``BusbarError`` for a file that
    cannot be read or written.
    """
    time = iso(datetime.now(UTC).timestamp())
    before = load(directory)
    noted = tuple(
        took(each, action, time, "busbar node --took") if (action := done.get(each.node)) else each
        for each in before.nodes
    )
    slurm = {each.name: each for each in Slurm().nodes("")}
    after = updated(NodesDocument(nodes=noted), looks, slurm, policy)
    known = {each.node: (each.state, each.next) for each in before.nodes}
    found = []
    for each in after.nodes:
        earlier = known.get(each.node, ("healthy", ""))
        if earlier != (each.state, each.next):
            _ran("changed", each, policy, tell)
        if each.next and each.next != earlier[1] and _ran(each.next, each, policy, tell):
            each = took(each, each.next, time, policy.commands[each.next][0])  # noqa: PLW2901
        found.append(each)
    document = NodesDocument(nodes=tuple(found))
    save(directory, document)
    return document


def _ran(
    name: NodeCommand, record: NodeRecord, policy: NodePolicy, tell: Callable[[str], None]
) -> bool:
    """Run the command of the site for an action, if it has one; return whether it succeeded."""
    words = [
        word.replace("{node}", record.node).replace("{reason}", record.reason)
        for word in policy.commands.get(name, ())
    ]
    if not words:
        return False
    try:
        refuse_foreign_code(Path(words[0]))
        done = call(words, _COMMAND_S, given=json.dumps(to_json(record)) + "\n")
        error = done.stderr.strip()[-200:]
        problem = f"exit status {done.returncode}: {error}" if done.returncode else ""
    except (BusbarError, OSError) as refusal:
        problem = str(refusal)
    tell(f"{record.node}: {name}: {problem or f'ran {words[0]}'}")
    return not problem
