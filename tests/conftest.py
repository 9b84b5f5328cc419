# SPDX-License-Identifier: MIT
"""What the tests share: the checkout, and the program compiled once."""

from __future__ import annotations

import argparse
import fnmatch
import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, settings

from busbar.data import PYTHON

if TYPE_CHECKING:
    from tests.said import Command

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SOURCE = ROOT / "reframe_checks" / "src" / "gpu_aware.cpp"

# The same cases for everyone: what chance finds is not the fault of the change that meets it.
settings.register_profile(
    "few",
    max_examples=25,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("many", settings.get_profile("few"), max_examples=300, derandomize=False)
settings.load_profile("many" if os.environ.get("BUSBAR_LAB") == "all" else "few")

SKIPS = yaml.safe_load((ROOT / "tests" / "skips.yaml").read_text())

# What no test may start that is not marked `run` or `lab`.
_REAL = {"mpirun", "reframe", "busbar.check.reframe", "c++", "g++", "gcc", "mpic++", "hipcc"} | {
    "from reframe.frontend.cli import main; main()"  # a Python that busbar.check.listing starts
}
_pure = False
_start = subprocess.Popen.__init__


def _guarded(process: Any, args: Any, *more: Any, **options: Any) -> None:
    """Refuse a program that makes a test more than pure."""
    command = [str(word) for word in ([args] if isinstance(args, str | Path) else args)]
    # What a test has written itself only stands in for the program.
    names = {Path(word).name for word in command if not word.startswith(tempfile.gettempdir())}
    if _pure and (names & _REAL or {"busbar", "check"} <= names):
        raise AssertionError(f"a test without the marker run or lab starts {command}")
    _start(process, args, *more, **options)


subprocess.Popen.__init__ = _guarded  # type: ignore[method-assign]
# For each option of each command, argparse looks for a translation in four files.
argparse._ = str  # type: ignore[attr-defined]


def pytest_configure(config: pytest.Config) -> None:
    """Let all tests of a session, in all its processes, share what they compile."""
    if not hasattr(config, "workerinput"):
        directory = tempfile.TemporaryDirectory(prefix="busbar-tests-")
        config.add_cleanup(directory.cleanup)
        os.environ |= {"XDG_CACHE_HOME": directory.name, "BUSBAR_TEST_FILES": directory.name}


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives as long as the tests do."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Tell the guard whether the test is pure."""
    global _pure  # noqa: PLW0603 - what starts a program knows nothing of tests
    _pure = not any(item.iter_markers("run")) and not any(item.iter_markers("lab"))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fails a skip that ``tests/skips.yaml`` does not list."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _, _, reason = report.longrepr
        file = item.path.relative_to(ROOT).as_posix()
        if not any(
            fnmatch.fnmatch(file, known["tests"]) and re.search(known["reason"], reason)
            for known in SKIPS
        ):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: not listed in tests/skips.yaml: {reason}"
    return report


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """Recorded outputs of real runs."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``gpu_aware`` for host memory, compiled with every warning on."""
    directory = tmp_path_factory.mktemp("build")
    flags = ["-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    once = [*PYTHON, "busbar.check.build", BIN / "mpic++"]
    command = [*once, *flags, SOURCE, "-ldl", "-o", "gpu_aware"]
    subprocess.run(command, cwd=directory, check=True)
    return directory / "gpu_aware"


@pytest.fixture(autouse=True)
def no_variables_of_reframe(monkeypatch):
    """Loading a site sets one, and ``busbar check`` says that it ignores it."""
    for name in [name for name in os.environ if name.startswith("RFM_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def busbar(capsys: pytest.CaptureFixture[str]) -> Command:
    """Call commands as a user does."""
    from tests.said import Command

    return Command(capsys)
