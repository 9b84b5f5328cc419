# SPDX-License-Identifier: MIT
"""The target of a run: any nodes, each of some nodes, or the current allocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from busbar.check.places import NodeSweep
from busbar.engine.results import Outcome, Result
from busbar.site import Site
from busbar.slurm.client import Allocation, scheduler_of
from busbar.slurm.nodes import Node
from busbar.slurm.options import Wish, granted, without_slurm
from busbar.verdict import Verdict


@dataclass(frozen=True)
class Target:
    """The target of a run."""

    nodes: tuple[Node, ...] = ()
    """All requested nodes."""
    sweep: NodeSweep | None = None
    allocation: Allocation | None = None
    options: tuple[str, ...] = ()
    """ReFrame options."""
    named: bool = False
    """Whether the user named the nodes; then a node that cannot be tested is reported."""

    @property
    def untested(self) -> list[Node]:
        """Return the nodes that cannot be tested."""
        return [node for node in self.nodes if not node.usable]


def target_of(site: Site, wish: Wish, *, every_node: bool = False) -> Target:
    """Return where to run; raise ``BusbarError`` if the request does not match the site."""
    if not scheduler_of(site.scheduler).has_nodes:
        if every_node or wish != Wish():
            given = [
                f"--{k.removesuffix('_s').replace('_', '-')}" for k, v in vars(wish).items() if v
            ]
            raise without_slurm(site, ", ".join(given) or "--nodelist")
        return Target()
    spread = every_node or bool(wish.nodelist)
    grant = granted(site, wish, needed=spread)
    options: list[str] = []
    if grant.held or wish.partition:
        options += ["--system", f"{site.name}:{grant.partition.name}"]
    if wish.max_pending_s is not None:
        options += ["-S", f"max_pending_time={wish.max_pending_s}s"]
    usable = {
        name: tuple(node.name for node in part if node.usable)
        for name, part in grant.nodes.items()
    }
    return Target(
        tuple({node.name: node for part in grant.nodes.values() for node in part}.values()),
        NodeSweep(usable) if grant.held or spread else None,
        grant.held,
        tuple(options),
        named=bool(wish.nodelist) and not grant.held,
    )


def coverage(target: Target, tested: Sequence[str]) -> str:
    """Return ``128 of 130 nodes tested, 2 drained: n7 drained (bad fan)...``; empty elsewhere."""
    if not target.nodes:
        return ""
    names = set(tested)
    done = sum(node.name in names for node in target.nodes)
    text = f"{done} of {len(target.nodes)} node{'s' if len(target.nodes) > 1 else ''} tested"
    left = [node.described for node in target.untested if node.name not in names]
    return text + (f", {len(left)} cannot be: {', '.join(left)}" if left else "")


def untested(target: Target, lane: str) -> list[Outcome]:
    """Return an outcome for named nodes that cannot be tested, or if no node can be.

    Otherwise the tested nodes can pass; the coverage lists the rest.
    """
    left = target.untested
    if not (target.sweep and left and (target.named or len(left) == len(target.nodes))):
        return []
    row, why = Result("nodes", Verdict.NOT_RUN), "Slurm cannot start a job on it"
    rows = (replace(row, where=n.name, message=f"{n.described}: {why}") for n in left)
    return [Outcome("nodes", lane, tuple(rows))]
