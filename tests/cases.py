# SPDX-License-Identifier: MIT
"""Many cases in one test, as starting a test takes longer than most cases do."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

Row = TypeVar("Row")
_EVERY = os.environ.get("BUSBAR_LAB") == "all" or {"GOLDEN", "BUSBAR_ALL_ATTACKS"} & {*os.environ}
_FAILURES = (Exception, pytest.fail.Exception)


def cases(names: str | Sequence[str], values: Iterable[Any]) -> Callable[..., Callable[..., None]]:
    """Run a test for each of ``values``, as ``pytest.mark.parametrize`` does, but in one test.

    All cases that fail are reported. Each has a directory ``tmp_path`` of its own, begins with an
    empty ``capsys``, and what it changes by ``monkeypatch`` is undone.
    """
    keys = [names] if isinstance(names, str) else list(names)
    rows = [dict(zip(keys, v if len(keys) > 1 else (v,), strict=True)) for v in values]
    assert rows

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for index, row in enumerate(rows):
                with ExitStack() as undone:
                    try:
                        function(**_fresh(fixtures, index, undone), **row)
                    except _FAILURES as error:
                        error.add_note(f"case {index}: {row!r}")
                        failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(rows)} cases", failed)

        signature = inspect.signature(function)
        others = [p for name, p in signature.parameters.items() if name not in keys]
        test.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        test.__name__, test.__doc__ = function.__name__, function.__doc__
        test.__module__ = function.__module__
        return test

    return decorated


def some(rows: Iterable[Row], step: int) -> list[Row]:
    """Return each ``step``-th row, and each row where all are asked for, as every night."""
    return list(rows)[:: 1 if _EVERY else step]


def sampled(step: int, names: str | Sequence[str], rows: Iterable[Any]) -> pytest.MarkDecorator:
    """Run a test for each ``step``-th row, or for each row, as :func:`some` does."""
    return pytest.mark.parametrize(names, some(rows, step))


def _fresh(fixtures: dict[str, Any], index: int, undone: ExitStack) -> dict[str, Any]:
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = own["tmp_path"] / f"case{index}"
        own["tmp_path"].mkdir()
    if "monkeypatch" in own:
        own["monkeypatch"] = undone.enter_context(own["monkeypatch"].context())
    if "capsys" in own:
        own["capsys"].readouterr()
    return own
