# SPDX-License-Identifier: MIT
"""Our own program ``gpu_aware``: data and rates between all pairs of ranks, by MPI."""

from __future__ import annotations

from busbar.engine.bands import pair
from busbar.engine.own_programs import contradictions
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.tool import Programs, Tool, measured
from busbar.expect import NoExpectation
from busbar.expect.expectation import Expectation
from busbar.expect.measured import beside_plain_copies
from busbar.tools.gpu_aware.answer import answer, correctness


def _band(run: Run, reading: Reading) -> Expectation:
    """A pair of ranks: a copy that was measured in the same run, or the links of the GPUs."""
    if reading.buffers == "H H" and (run.nodes or 1) > 1 and not run.copies:
        raise NoExpectation("no band is known for host memory of two nodes")
    if run.copies is None:
        return pair(run, reading)
    return beside_plain_copies(
        run.copies,
        latency=reading.kind == "latency_us",
        source=reading.source,
        target=reading.target,
        nbytes=reading.nbytes,
    )


TOOL = Tool(
    benches=("gpu_aware",),
    programs=Programs(pattern="gpu_aware"),
    declared=lambda *_: ["gpu_aware"],
    reader=None,
    bands=lambda run, reading: [_band(run, reading)],
    answer=answer,
    checked=measured,
    contradictions=contradictions,
    pairs=("gpu_aware",),
    early_events=True,
    correctness=correctness,
    files=("features.yaml", "stated.yaml", "causes.yaml", "examples.yaml"),
)
