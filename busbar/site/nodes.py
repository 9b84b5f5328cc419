# SPDX-License-Identifier: MIT
"""The key ``nodes`` of a site: what happens to a node that something speaks against."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from busbar.site.gate import absolute
from busbar.site.record import Record

NodeSource = Literal["gate", "sweep", "check", "history"]
NodeAction = Literal["retest", "drain", "reset", "reboot", "ticket", "resume"]
NodeCommand = NodeAction | Literal["changed"]


_Path = AfterValidator(lambda words: (absolute(words[0]), *words[1:]))
NodeProgram = Annotated[tuple[str, ...], Field(min_length=1), _Path]


class NodePolicy(Record):
    """What to do about a node, and what Busbar may do by itself: nothing without a command."""

    actions: dict[NodeSource, NodeAction] = Field(default_factory=dict)
    """What repairs a fault that a source has found; those of the gate have an action by check."""
    commands: dict[NodeCommand, NodeProgram] = Field(default_factory=dict)
    """Programs that Busbar runs when an action is next, and, as ``changed``, whenever the record
    of a node is another one. Each is an absolute path and its arguments, which no shell reads,
    with ``{node}`` for the node and ``{reason}`` for a reason for Slurm. It gets the record as
    JSON on its standard input."""
