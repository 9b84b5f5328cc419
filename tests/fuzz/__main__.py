# SPDX-License-Identifier: MIT
"""``python -m tests.fuzz COUNT [TARGET]``: run altered inputs and print what fails.

``python -m tests.fuzz --show TARGET NUMBER`` writes one input to standard output again.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.fuzz.inputs import altered
from tests.fuzz.targets import TARGETS, chance_of

PER_JOB = 500


def failure(name: str, number: int) -> str | None:
    """Run one input; return what is wrong."""
    target = TARGETS[name]
    data = altered(target.seeds(), chance_of(name, number))
    begin = time.process_time()
    try:
        target.call(data)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is the result
        trace = error.__traceback__
        while trace and trace.tb_next:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
        return f"{type(error).__name__} {place} {str(error)[:160]}"
    seconds = time.process_time() - begin
    most = target.seconds * (3 if sys.gettrace() else 1)  # coverage traces each line
    return f"slow: {seconds:.1f} s for {len(data)} bytes" if seconds > most else None


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
    begin, done = time.monotonic(), 0
    seen: Counter[str] = Counter()
    with ProcessPoolExecutor() as pool:
        for (name, _, size), failures in zip(
            jobs, pool.map(job, *zip(*jobs, strict=True)), strict=True
        ):
            done += size
            for _, number, why in failures:
                key = f"{name}: {' '.join(why.split()[:2])}"
                seen[key] += 1
                if seen[key] == 1:
                    sys.stdout.write(ascii(f"{name} {number}: {why}") + "\n")
    sys.stdout.write(
        f"{done} inputs in {time.monotonic() - begin:.0f} s, {seen.total()} failures\n"
    )
    return seen.total()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"]:
        chosen = TARGETS[sys.argv[2]]
        data = altered(chosen.seeds(), chance_of(sys.argv[2], int(sys.argv[3])))
        sys.stdout.buffer.write(data)
    else:
        sys.exit(bool(main(int(sys.argv[1]), sys.argv[2:] or list(TARGETS))))
