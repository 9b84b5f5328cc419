# SPDX-License-Identifier: MIT
"""What is fuzzed: each target takes bytes, and raises for nothing but its documented errors."""

from __future__ import annotations

import contextlib
import io
import random
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from busbar import cli
from busbar.boundary import visible
from busbar.detect.machine import compose, recorded
from busbar.engine.collect import show, split
from busbar.errors import BusbarError
from busbar.gate import kernel_log
from busbar.parse import events, launch, nccl_log, numbers, nvidia_smi, ucx_log
from busbar.parse.machine import nvidia_xml
from busbar.redact import redact, redact_document
from busbar.tools.fabtests import parse as fabtests
from busbar.tools.nccl_tests import options as nccl_options, parse as nccl_tests
from busbar.tools.nccl_tests.document import read_document
from busbar.tools.osu import parse as osu
from busbar.tools.ucx_perftest import parse as ucx_perftest
from tests.fuzz.inputs import corpus
from tests.fuzz.stores import STORES, documents, sweeps

RUNS = ("tests/data",)


@dataclass(frozen=True)
class Target:
    """A function to call with altered inputs of a corpus."""

    call: Callable[[bytes], object]
    corpus: tuple[str, ...] = RUNS
    share: int = 1
    """Inputs of a run in proportion to other targets: those of fast targets are more."""
    seconds: float = 1.0
    """The most that an input of up to 100 kB may take of this process."""
    made: Callable[[], list[bytes]] | None = None
    """Makes the inputs to alter, if they are not recorded."""

    @cache  # noqa: B019 - the targets are constants
    def seeds(self) -> list[bytes]:
        """What is altered."""
        return self.made() if self.made else corpus(*self.corpus)


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").split("\n")


def _each(*parsers: Callable[[str], object]) -> Callable[[bytes], object]:
    def call(data: bytes) -> object:
        return [parse(line) for line in _lines(data)[:200] for parse in parsers]

    return call


def _each_bytes(*parsers: Callable[[bytes], object]) -> Callable[[bytes], object]:
    return lambda data: [parse(line) for line in data.split(b"\n")[:200] for parse in parsers]


def _state(data: bytes) -> object:
    """What the gate reads of GPUs and of the kernel's log."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        nvidia_xml.parse_report(text)
    return kernel_log.parse(text), kernel_log.parse_dmesg(text)


def _or_value_error(parse: Callable[[Iterable[str]], object]) -> Callable[[bytes], object]:
    def call(data: bytes) -> object:
        with contextlib.suppress(ValueError):
            return parse(_lines(data))
        return None

    return call


def _events(data: bytes) -> None:
    for line in data.split(b"\n")[:200]:
        with contextlib.suppress(events.MalformedEventError):
            events.parse(line)


def _json(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        read_document("x.json", text)
    with contextlib.suppress(ValueError):
        redact_document(numbers.load_json(text))


def _redact(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    once = redact(text)
    assert redact(once) == once, "redact() is not idempotent"


def _show(data: bytes) -> None:
    for lines in split(_lines(data)):
        show("job.out", lines)


def _command(words: list[str], name: str = "job.out") -> Callable[[bytes], object]:
    """Run a command on a file that contains the input; ``FILE`` and ``DIR`` stand for its path."""

    def call(data: bytes) -> None:
        out, err = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory(prefix="busbar-fuzz-") as directory:
            path = Path(directory) / name
            path.write_bytes(data)
            named = {"FILE": str(path), "DIR": directory}
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = cli.main([named.get(word, word) for word in words])
        assert status in (0, 1, 2, 3), status
        assert "internal error" not in err.getvalue(), err.getvalue()
        for printed in (out.getvalue(), err.getvalue()):
            assert visible(printed) == printed, "a control character is printed"

    return call


def _detect(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="busbar-fuzz-") as directory:
        path = Path(directory) / "output"
        path.write_bytes(data)
        with contextlib.suppress(BusbarError):
            compose(recorded([path]))


TARGETS = {
    "osu": Target(
        _each(
            osu.parse_banner,
            osu.parse_row,
            osu.parse_setting,
            *(each.match for each in osu.PATTERNS.values()),
            osu.PATTERNS["ranks"].search,
        ),
        share=10,
    ),
    "nccl-tests": Target(
        _each(
            nccl_options.parse_parameters,
            nccl_options.parse_reduced,
            *(each.match for each in nccl_tests.PATTERNS.values()),
            nccl_tests.PATTERNS["failure"].search,
            nccl_tests.parse_device,
            nccl_tests.parse_row,
            nccl_tests.parse_out_of_bounds,
        ),
        share=10,
    ),
    "nccl-log": Target(
        _each_bytes(
            nccl_log.parse_ring,
            nccl_log.parse_net_path,
            nccl_log.PROCESS.match,
            nccl_log.process_start,
        ),
        share=10,
    ),
    "ucx-log": Target(_each(ucx_log.parse_endpoint, ucx_log.parse_settings), share=10),
    "launch": Target(
        _each(launch.parse_command, launch.parse_export, launch.parse_exit_status), share=5
    ),
    "reports": Target(_each(nvidia_smi.parse_report), share=5),
    "fabtests": Target(_or_value_error(fabtests.rows), share=10),
    "ucx-perftest": Target(_or_value_error(ucx_perftest.final_row), share=10),
    "events": Target(_events, share=10),
    "json": Target(_json, share=10),
    "redact": Target(_redact, share=5),
    "show": Target(_show, share=3),
    "explain": Target(_command(["explain", "FILE"]), share=1),
    "explain-json": Target(_command(["explain", "--json", "FILE"]), share=1),
    "detect": Target(_detect, ("tests/data/detect",), share=2),
    "gate": Target(_state, ("tests/data/h100x2",), share=2),
    "site": Target(
        _command(["site", "lint", "DIR"], "site.yaml"),
        ("site/p5", "site/local", "site/mi300x"),
        seconds=5.0,  # PyYAML without its library in C, which gives no positions
    ),
    "report": Target(
        _command(["report", "--mail", "FILE"], "r.json"), made=documents, seconds=2.0
    ),
    "analyse": Target(_command(["sweep", "analyse", "--limit=9", "FILE"]), made=sweeps),
    **{name: Target(call, (), share, 2.0, made) for name, (call, made, share) in STORES.items()},
}


def chance_of(target: str, number: int) -> random.Random:
    """The source of the changes of one input, which its target and number repeat."""
    return random.Random(f"{target} {number}")  # noqa: S311 - nothing is secret about it
