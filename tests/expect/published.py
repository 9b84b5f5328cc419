# SPDX-License-Identifier: MIT
"""What others measured, beside what the model expects of the same hardware.

`tests/data/published/readings.tsv` names the site of each reading: a shipped one, or one beside
the table for hardware that no shipped site has.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from busbar import site as sites
from busbar.expect import COLLECTIVES, NoExpectation, Question, expect
from busbar.expect.collective import by_algorithm
from busbar.expect.expectation import Expectation
from busbar.site.model import Site
from busbar.site.tuning import profiles

DIRECTORY = Path(__file__).parents[1] / "data/published"
Place = Literal["inside", "below", "above", "impossible", "no band", "no model"]
_SETTING = re.compile(r"\b(NCCL_\w+)=(\w+)")
POINT = ("osu_bw", "osu_bibw", "osu_latency", "osu_mbw_mr", "copy")


class Published(NamedTuple):
    """One line of the table."""

    system: str
    site: str
    """Empty for hardware that no site can describe."""
    partition: str | None
    gpu: str
    gpus_per_node: int
    """GPUs that take part; 0 for host memory only."""
    nodes: int
    fabric: str
    pair: tuple[int, int] | None
    bench: str
    buffers: str
    nbytes: int
    value: float
    unit: str
    algo: str | None
    harness: str
    kind: str
    source: str


@dataclass(frozen=True)
class Comparison:
    """A published reading beside what the model expects of its system."""

    reading: Published
    place: Place
    expected: Expectation | None = None
    """The band that it is in, or else the likeliest one."""
    limit: float | None = None
    bands: tuple[Expectation, ...] = ()
    """Those that the run may have had."""


@cache
def readings(table: str = "readings") -> tuple[Published, ...]:
    """Return the readings of a table; nothing is fitted to those of ``held-out``."""
    with (DIRECTORY / f"{table}.tsv").open() as file:
        return tuple(map(_reading, csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)))


def _reading(row: dict[str, str]) -> Published:
    given = {name: "" if value == "-" else value for name, value in row.items()}
    site, _, partition = given["site"].partition("/")
    pair = given["pair"] and tuple(map(int, given["pair"].split("-")))
    return Published(
        *(given["system"], site, partition or None, given["gpu"]),
        *(int(given["gpus_per_node"]), int(given["nodes"]), given["fabric"], pair or None),
        *(given["bench"], given["buffers"], int(given["bytes"]), float(given["value"])),
        *(given["unit"], given["algo"].lower() or None, given["harness"]),
        *(given["kind"], given["source"]),
    )


@cache
def site_of(name: str, gpu: str, nodes: int) -> Site:
    """Return the site of readings on this model of GPU and so many nodes."""
    own = DIRECTORY / name
    site = sites.load(own if own.is_dir() else name)
    types = {
        key: node.model_copy(
            update={"gpus": node.gpus and node.gpus.model_copy(update={"model": gpu})}
        )
        for key, node in site.node_types.items()
    }
    partitions = tuple(each.model_copy(update={"nodes": nodes}) for each in site.partitions)
    return site.model_copy(update={"node_types": types, "partitions": partitions})


def question_of(row: Published) -> tuple[Site, Question]:
    """Return the site of a reading, and what it measured there.

    Raises ``NoExpectation`` for a test without a model.
    """
    site = site_of(row.site, row.gpu, row.nodes)
    gpus = site.node_type(row.partition).gpus
    assert gpus
    collective = row.bench in COLLECTIVES
    if row.gpus_per_node == 0 or not (collective or row.bench in POINT):
        raise NoExpectation("no model of this test")
    if row.bench == "copy" and row.nodes > 1:
        raise NoExpectation("no model of copies between nodes")
    src, dst = row.pair or (None, None)
    alone = row.gpus_per_node if gpus.count == 1 else 1
    return site, Question(
        bench=row.bench,
        nbytes=row.nbytes,
        nodes=row.nodes * alone,
        ranks=row.gpus_per_node * row.nodes if collective else None,
        src=src,
        dst=dst,
        buffers=row.buffers or "D D",
        algo=row.algo,
        environment=dict(_SETTING.findall(row.source)) or None,
        harness="pytorch" if row.harness == "pytorch" else None,
        partition=row.partition,
    )


@cache
def compare(row: Published) -> Comparison:
    """Compare a reading with limit and bands of its system.

    Of what the source does not state, each possibility counts: algorithm, and tuning profile.
    """
    if not row.site:
        return Comparison(row, "no model")
    try:
        site, question = question_of(row)
        bands = _bands(site, question)
    except NoExpectation as missing:
        impossible = missing.limit is not None and beyond(row, missing.limit)
        return Comparison(row, "impossible" if impossible else "no band", limit=missing.limit)
    limit = max(band.limit for band in bands)
    if beyond(row, limit):
        return Comparison(row, "impossible", bands[0], limit, tuple(bands))
    for band in bands:
        if band.low <= row.value <= band.high:
            return Comparison(row, "inside", band, limit, tuple(bands))
    below = all(row.value < band.low for band in bands)
    return Comparison(row, "below" if below else "above", bands[0], limit, tuple(bands))


def beyond(row: Published, limit: float) -> bool:
    """Whether a reading is better than a limit."""
    return row.value < limit if row.unit == "us" else row.value > limit


def _bands(site: Site, question: Question) -> list[Expectation]:
    if question.bench not in COLLECTIVES:
        return [expect(site, question)]
    bands: list[Expectation] = []
    for profile in (None, *profiles(site)):
        try:
            bands += by_algorithm(site, replace(question, profile=profile))
        except NoExpectation:
            if profile is None and not profiles(site):
                raise
    return bands or [expect(site, question)]
