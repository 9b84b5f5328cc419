# SPDX-License-Identifier: MIT
"""Every code of the closed lists by which a stack reports failures, in each spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from busbar.explain import Source

from .public_logs import is_right

CODES = yaml.safe_load(Path(__file__).with_name("codes.yaml").read_text())


def faults() -> Iterator[tuple[str, str, str]]:
    """Yield list, causes and line of each fault."""
    for name, rows in CODES.items():
        for expect, lines in rows["faults"].items():
            for line in lines:
                yield name, expect, line


def harmless() -> Iterator[tuple[str, str]]:
    """Yield list and line of each look-alike."""
    for name, rows in CODES.items():
        for line in rows["harmless"]:
            yield name, line


@pytest.mark.parametrize(("name", "expect", "line"), faults())
def test_a_code_leads_to_its_cause(name: str, expect: str, line: str) -> None:
    right, causes = is_right(expect, Source.from_text(name, line + "\n"))
    assert right, causes


@pytest.mark.parametrize(("name", "line"), harmless())
def test_a_look_alike_accuses_nobody(name: str, line: str) -> None:
    _, causes = is_right("healthy", Source.from_text(name, line + "\n"))
    assert causes in ([], ["bad input"])
