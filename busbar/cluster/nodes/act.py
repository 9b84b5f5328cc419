# SPDX-License-Identifier: MIT
"""Update the records, and run what the site wants to be run then: nothing by default."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from busbar.boundary import refuse_foreign_code
from busbar.cluster.nodes import record as records
from busbar.cluster.nodes.record import NodeLook, NodeRecord, NodesDocument
from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.history.model import iso
from busbar.program import call
from busbar.site.gate import NodeAction, NodeCommand, NodePolicy
from busbar.slurm.client import Slurm

_COMMAND_S = 60
_ONE_NODE = re.compile(r"(?!all$)\w[\w.-]*", re.ASCII | re.IGNORECASE)
"""``scontrol`` takes other names for lists, and ALL for every node."""


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
    before = records.load(directory)
    noted = tuple(
        records.took(each, action, time, "busbar node --took")
        if (action := done.get(each.node))
        else each
        for each in before.nodes
    )
    slurm = {each.name: each for each in Slurm().nodes("")}
    after = records.updated(NodesDocument(nodes=noted), looks, slurm, policy)
    known = {each.node: (each.state, each.next) for each in before.nodes}
    found = []
    for each in after.nodes:
        earlier = known.get(each.node, ("healthy", ""))
        if earlier != (each.state, each.next):
            _ran("changed", each, policy, tell)
        if each.next and each.next != earlier[1] and _ran(each.next, each, policy, tell):
            each = records.took(each, each.next, time, policy.commands[each.next][0])  # noqa: PLW2901
        found.append(each)
    document = NodesDocument(nodes=tuple(found))
    records.save(directory, document)
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
        if not _ONE_NODE.fullmatch(record.node):
            raise BusbarError("is not the name of one node", hint="correct its record")
        refuse_foreign_code(Path(words[0]))
        done = call(words, _COMMAND_S, given=json.dumps(to_json(record)) + "\n")
        error = done.stderr.strip()[-200:]
        problem = f"exit status {done.returncode}: {error}" if done.returncode else ""
    except (BusbarError, OSError) as refusal:
        problem = str(refusal)
    tell(f"{record.node}: {name}: {problem or f'ran {words[0]}'}")
    return not problem
