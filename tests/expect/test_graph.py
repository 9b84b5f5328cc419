# SPDX-License-Identifier: MIT
"""Widest paths and the smallest cut against all paths and all cuts of small graphs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations
from random import Random

import pytest

from busbar.expect.graph import Graph, Hop, gpu, smallest_cut, widest_path

RANDOM = Random(33)  # noqa: S311 - the same graphs each time


def some_graph() -> Graph:
    names = [gpu(index) for index in range(RANDOM.randint(2, 6))]
    graph = Graph({name: {} for name in names}, {*names[3:4]} if RANDOM.random() < 0.3 else set())
    for start, end in combinations(names, 2):
        if RANDOM.random() < 0.6:
            graph.join(Hop(start, end, "link", 1, RANDOM.choice([25, 50, 50, 100])))
    return graph


def all_paths(graph: Graph, start: str, end: str) -> Iterator[list[Hop]]:
    others = graph.hops.keys() - graph.ends - {start, end}
    for count in range(len(others) + 1):
        for between in permutations(others, count):
            pairs = [*pairwise((start, *between, end))]
            if all(b in graph.hops[a] for a, b in pairs):
                yield [graph.hops[a][b] for a, b in pairs]


def test_the_widest_path_of_all() -> None:
    for share in [1, 0.95, 0.4] * 100:
        graph = some_graph()
        start, end = RANDOM.sample(sorted(graph.hops), 2)
        path = widest_path(graph, start, end, share)
        paths = [*all_paths(graph, start, end)]
        carried = [min(h.gb_per_s for h in hops) * share ** (len(hops) - 1) for hops in paths]
        if end in graph.hops[start]:
            assert path.hops == (graph.hops[start][end],)
        elif path is None:
            assert not carried
        else:
            assert path.gb_per_s * share**path.forwarding_gpus == pytest.approx(max(carried))


def test_the_smallest_cut_of_all() -> None:
    for _ in range(300):
        graph = some_graph()
        first, *others = graph.hops
        sides = [{first, *s} for n in range(len(others)) for s in combinations(others, n)]
        cuts = [
            sum(h.gb_per_s for n in side for h in graph.hops[n].values() if h.end not in side)
            for side in sides
        ]
        assert smallest_cut(graph) == min(cuts)
