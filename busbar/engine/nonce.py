# SPDX-License-Identifier: MIT
"""Output is of the job that a check started: our programs repeat the nonce of the job."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.job_output import JobOutput
from busbar.parse.events import Start

NONCE = "BUSBAR_NONCE"
"""The variable that gives a job its nonce."""


def foreign_output(nonce: str, facts: JobOutput) -> Iterator[str]:
    """Yield why the output of one of our programs is not of the job with this nonce.

    A recorded run, which no check has started, has no nonce: nothing is compared.
    """
    if not nonce:
        return
    nonces = [start.nonce for start, _ in facts.events_of(Start)]
    if not nonces:
        yield "the output has no start event, so it may be of another run"
    for other in nonces:
        if not other:
            yield "the start event has no nonce: an older program, or the output of another run"
        elif other != nonce:
            yield f"the output is of another run: its nonce is {other}, not {nonce}"
