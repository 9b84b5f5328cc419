# SPDX-License-Identifier: MIT
"""``python -m tests.fuzz COUNT [TARGET]``: run altered inputs and print what fails.

Each failure is a line: target, number of the input, what is wrong. Slowness is CPU time, the least
of three tries. ``python -m tests.fuzz --show TARGET NUMBER`` writes an input to standard output
again.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.fuzz.inputs import altered
from tests.fuzz.targets import TARGETS, chance_of

PER_JOB = 500


def failure(name: str, number: int) -> str | None:
    """Run one input; return what is wrong."""
    target = TARGETS[name]
    data = altered(target.seeds(), chance_of(name, number))
    most = target.seconds * (3 if sys.gettrace() else 1)  # coverage traces each line
    least = float("inf")
    for _ in range(3):
        begin = time.process_time()
        try:
            target.call(data)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the result
            trace = error.__traceback__
            while trace and trace.tb_next:
                trace = trace.tb_next
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
            return f"{type(error).__name__} {place} {str(error)[:160]}"
        least = min(least, time.process_time() - begin)
        if least <= most:
            return None
    return f"slow: {least:.1f} s of CPU for {len(data)} bytes"


def job(name: str, first: int, count: int) -> list[tuple[str, int, str]]:
    """Run inputs ``first`` to ``first + count`` of a target; return the failures."""
    numbers = range(first, first + count)
    return [(name, number, why) for number in numbers if (why := failure(name, number))]


def main(count: int, names: list[str]) -> int:
    """Run ``count`` inputs, shared among the targets; return the number of failures."""
    total = sum(TARGETS[name].share for name in names)
    jobs = [
        (name, first, min(PER_JOB, count * TARGETS[name].share // total + 1 - first))
        for name in names
        for first in range(0, count * TARGETS[name].share // total + 1, PER_JOB)
    ]
    begin, done, failed = time.monotonic(), 0, 0
    with ProcessPoolExecutor() as pool:
        for (name, _, size), failures in zip(
            jobs, pool.map(job, *zip(*jobs, strict=True)), strict=True
        ):
            done += size
            failed += len(failures)
            for _, number, why in failures:
                sys.stdout.write(ascii(f"{name} {number}: {why}") + "\n")
                sys.stdout.flush()
    sys.stdout.write(f"{done} inputs in {time.monotonic() - begin:.0f} s, {failed} failures\n")
    return failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"]:
        chosen = TARGETS[sys.argv[2]]
        data = altered(chosen.seeds(), chance_of(sys.argv[2], int(sys.argv[3])))
        sys.stdout.buffer.write(data)
    else:
        sys.exit(bool(main(int(sys.argv[1]), sys.argv[2:] or list(TARGETS))))
