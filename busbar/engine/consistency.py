# SPDX-License-Identifier: MIT
"""Whether an output agrees with itself: what `busbar check` and `busbar explain` both see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from busbar.engine.contradictions import of_nccl_row, signatures
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.units import format_bytes


class Contradiction(NamedTuple):
    """What is wrong, and the line that shows it; None if a line is missing."""

    text: str
    evidence: Evidence | None


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield the contradictions of one run; of rows and sizes only the first.

    ``operation`` is the collective, or None if it is not known.
    """
    for text, evidence in output.contradictions[:1]:
        yield Contradiction(text, evidence)
    if output.tool == "nccl-tests":
        yield from _of_nccl_tests(output, operation, ranks)
    elif output.tool.startswith("osu_"):
        sizes = Counter((r.kind, r.nbytes) for r in output.readings)
        for (_, nbytes), count in sizes.items():
            if count > 1:
                text = f"{format_bytes(nbytes)} is in the table {count} times"
                yield Contradiction(text, output.readings[-1].evidence)
                return


def _of_nccl_tests(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    names = dict(output.names)
    if len(names) > 1:
        text = f"the output is called {' and '.join(names)}"
        yield Contradiction(text, output.names[-1][1])
    elif operation and names and operation not in names:
        text = f"the output is called {output.names[0][0]}, its columns are those of {operation}"
        yield Contradiction(text, output.names[0][1])
    known = signatures(ranks) if ranks and ranks > 1 else {}
    for row, evidence in output.rows:
        for text in of_nccl_row(row, known.get(operation or "")):
            yield Contradiction(f"{format_bytes(row.nbytes)}: {text}", evidence)
            return
    if output.finished and output.rows and output.out_of_bounds is None:
        text = "the line that counts values out of bounds is missing"
        yield Contradiction(text, output.finished)
