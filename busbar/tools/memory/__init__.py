# SPDX-License-Identifier: MIT
"""Our own program ``memory``: plain copies, the ceiling of what MPI can reach."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from busbar.engine.bands import pair, question_of, site_of
from busbar.engine.launch import Operation
from busbar.engine.own_programs import answer_operations, contradictions
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.tool import Programs, Tool, measured
from busbar.expect import NoExpectation
from busbar.expect.expectation import Expectation
from busbar.expect.floors import host_copy, memory_copy
from busbar.units import MIB

_BUFFERS = {"one_core": "H", "all_cores": "H", "local": "D", "peer": "D D"}
_BUFFERS |= {"to_gpu": "H D", "from_gpu": "D H"}
_STORES_GB_PER_S = 400.0
"""What one core can store at most: 64 bytes a cycle at 6 GHz are 384 GB/s (Intel 64 and IA-32
Architectures Optimization Reference Manual: one 512-bit store a cycle, to the L1 cache)."""
_MOST_CORES = 2048
"""More than any node has, for a site that states none."""


def _copy(run: Run, reading: Reading) -> Expectation:
    """A plain copy: between two GPUs, between a GPU and the host, or within one memory."""
    if reading.source is not None and reading.source != reading.target:
        return pair(run, reading)
    if reading.buffers in ("H D", "D H"):
        gpu = reading.source or 0
        question = replace(question_of(run, reading), bench="copy", src=gpu, dst=gpu)
        return host_copy(site_of(run), replace(question, buffers=reading.buffers))
    if reading.buffers == "D" and reading.memory_gb_per_s:
        gpus = site_of(run).node_type(run.partition).gpus
        return memory_copy(gpus.model if gpus else "", reading.memory_gb_per_s, reading.nbytes)
    # No copy comes near the limit, so it is named only where a reading is beyond.
    limit = _host_limit(run, reading.operation)
    raise NoExpectation(
        "a copy within host memory uses no link", limit=limit if reading.value > limit else None
    )


def _host_limit(run: Run, operation: str) -> float:
    """Return the GB/s that the cores of a node can store; infinity for a copy within a GPU."""
    if operation not in ("one_core", "all_cores"):
        return math.inf
    known = run.site.node_type(run.partition).cores if run.site else None
    return _STORES_GB_PER_S * (1 if operation == "one_core" else known or _MOST_CORES)


def operations(gpus: int) -> tuple[Operation, ...]:
    """Return what the program copies: in the host, to and from each GPU, in it, between two."""
    every = range(gpus)
    return (
        *(("one_core", 0, 0), ("all_cores", 0, 0)),
        *((way, gpu, gpu) for gpu in every for way in ("to_gpu", "from_gpu")),
        *(("local" if a == b else "peer", a, b) for a in every for b in every),
    )


def size_of(gpus: int) -> int:
    """Return the size that it copies: host memory needs less."""
    return 256 * MIB if gpus else 64 * MIB


TOOL = Tool(
    benches=("memory",),
    programs=Programs(),
    declared=lambda _, delivery: [] if delivery.kind == "image" else ["memory"],
    reader=None,
    bands=lambda run, reading: [_copy(run, reading)],
    answer=partial(answer_operations, "bw", _BUFFERS),
    checked=measured,
    contradictions=contradictions,
    pairs=("memory",),
    files=("features.yaml", "stated.yaml"),
)
