# SPDX-License-Identifier: MIT
"""Several communicators at once, as nccl-tests forms them for NCCL_TESTS_SPLIT_MASK."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from busbar.expect.collective import ranks_per_node
from busbar.expect.expectation import NoExpectation
from busbar.expect.question import Question
from busbar.expect.topology import domain_nodes
from busbar.site.model import Site

_MOST_RANKS = 1 << 17


def split(site: Site, question: Question, mask: int) -> Question:
    """Return the run of one of the communicators of the ranks with the same ``rank & mask``.

    Each process has one rank, and nodes have consecutive ranks. Raises ``NoExpectation`` as
    ``one_of``.
    """
    node, where = site.node_type(question.partition), f"site {site.name}, mask {mask:#x}"
    per_node = ranks_per_node(node.gpus, question, where) if node.gpus else 1
    if question.nodes * per_node > _MOST_RANKS:
        raise NoExpectation(f"more than {_MOST_RANKS} ranks", where=where)
    placed = Counter((rank & mask, rank // per_node) for rank in range(question.nodes * per_node))
    return one_of(site, question, placed, where)


def one_of(site: Site, question: Question, placed: Mapping[Any, int], where: str) -> Question:
    """Return the run of one communicator; ``placed`` has ranks by communicator and node.

    Raises ``NoExpectation`` if they are not alike, or if they share more than NICs.
    """
    node = site.node_type(question.partition)
    if node.gpus is None:
        raise NoExpectation("the nodes have no GPUs", where=where)
    nodes, *more = {*Counter(one for one, _ in placed).values()}
    ranks, *others = {*placed.values()}
    several, *uneven = {*Counter(host for _, host in placed).values()}
    if more or others or uneven:
        raise NoExpectation("the communicators are not alike", where=where)
    links = node.gpus.links
    apart = links and (links.switched or links.all_pairs) and question.bench != "sendrecv"
    if domain_nodes(node) > 1 or (several > 1 and ranks > 1 and not apart):
        reason = "no data for communicators that share links of the GPUs, or NICs unevenly"
        raise NoExpectation(reason, where=where)
    return replace(question, nodes=nodes, ranks=nodes * ranks, communicators=several)
