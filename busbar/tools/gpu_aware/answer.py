# SPDX-License-Identifier: MIT
"""What ``gpu_aware`` was asked, by its options, and whether its events answer it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from busbar.engine import own_programs
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.own_programs import Wanted
from busbar.engine.tool import Tested
from busbar.errors import BusbarError
from busbar.parse.events import Check, Start
from busbar.units import format_bytes, parse_bytes

_ONE_SIDED = ("put", "get")
_UNNAMED = {"1.0": ("",)}
"""The versions that do not name the statistic."""


@dataclass(frozen=True)
class GpuAwareOptions:
    """The options that say what is measured and checked."""

    buffers: tuple[str, ...] = ()
    """``("D D", "H D")``."""
    sizes: tuple[int, ...] = ()
    latency_sizes: tuple[int, ...] = ()
    check: tuple[int, ...] = ()
    collectives: tuple[str, ...] = ()
    statistic: str = "mean"
    share_devices: bool = False
    inject: str = ""
    """A fault that a test injects."""


def options_of(command: Sequence[str]) -> GpuAwareOptions:
    """Parse a command line; unknown options are left to the program."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--buffers", type=lambda text: tuple(map(" ".join, _words(text))))
    for name in ("--sizes", "--latency-sizes", "--check"):
        parser.add_argument(name, type=lambda text: tuple(map(parse_bytes, _words(text))))
    parser.add_argument("--collectives", type=_words)
    parser.add_argument("--statistic")
    parser.add_argument("--inject")
    parser.add_argument("--share-devices", action="store_true", default=None)
    try:
        known, _ = parser.parse_known_args([*command])
    except (argparse.ArgumentError, BusbarError):
        return GpuAwareOptions()  # the program refuses them as well
    return GpuAwareOptions(**{k: v for k, v in vars(known).items() if v is not None})


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _pairs(ranks: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(ranks) for b in range(ranks) if a != b]


def wanted(launch: BenchLaunch) -> Counter[Wanted]:
    """Return the readings that the options ask for."""
    options = options_of(launch.command)
    return Counter(
        Wanted(kind, "", source, target, buffers, nbytes)
        for kind, sizes in (("latency_us", options.latency_sizes), ("bw", options.sizes))
        for nbytes in sizes
        for buffers in options.buffers
        for source, target in _pairs(launch.ranks)
    )


def answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield where the run is not the one that the options ask for."""
    options = options_of(launch.command)
    on_gpu = any("D" in buffers for buffers in options.buffers)
    yield from own_programs.answer(launch, shown, wanted(launch))
    for start, _ in shown.facts.events_of(Start):
        if on_gpu and start.backend == "host":
            yield "requested buffers in GPU memory, but the program used no GPU"
        if start.statistic not in (options.statistic, *_UNNAMED.get(start.version, ())):
            yield (
                f"requested the {options.statistic} of the windows, but the program took the"
                f" {start.statistic or 'unknown'}"
            )
        if start.share_devices and not options.share_devices:
            yield "the program let ranks share a GPU, which was not requested"
    if options.inject:
        yield f"the fault {options.inject!r} was injected (--inject), so the run proves nothing"
    for place in [place for place in shown.ranks if on_gpu and not place.device][:1]:
        yield f"rank {place.rank} did not report which GPU it uses"


def correctness(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Tested]:
    """Yield one test for each operation and kind of buffers, over all pairs and sizes."""
    options = options_of(launch.command)
    checks = [check for check, _ in shown.facts.events_of(Check)]
    for operation in ("send_recv", *options.collectives) if options.check else ():
        pairs = _pairs(launch.ranks) if operation == "send_recv" else [(None, None)]
        asked = {(*ends, size) for ends in pairs for size in options.check}
        for buffers in _buffers_of(operation, options.buffers):
            done = [c for c in checks if (c.operation, c.buffers) == (operation, buffers)]
            missing = len(asked - {(c.source, c.target, c.nbytes) for c in done})
            message = f"{missing} of {len(asked)} tests are missing from the output"
            if not missing:
                more = len(done) - len(asked) if launch.nonce else 0
                message = f"{more} tests were not requested" if more else ""
            yield Tested(operation, buffers, _wrong(done) or message)


def _buffers_of(operation: str, asked: Sequence[str]) -> list[str]:
    """The kinds of buffers in which an operation is compared, as the help of gpu_aware says."""
    if operation == "send_recv":
        return list(asked)
    alike = [each for each in asked if each[0] == each[-1]]
    return [each for each in alike if each == "H H" or operation not in _ONE_SIDED]


def _wrong(checks: Sequence[Check]) -> str:
    bad = [check for check in checks if check.wrong or check.late]
    if not bad:
        return ""
    first = bad[0]
    pair = "" if first.source is None else f" from {first.source} to {first.target}"
    count = sum(check.wrong + check.late for check in bad)
    how = "wrong" if any(check.wrong for check in bad) else "late"
    return f"{count} bytes arrived {how}, first at {format_bytes(first.nbytes)}{pair}"
