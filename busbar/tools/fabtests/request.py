# SPDX-License-Identifier: MIT
"""How fi_pingpong and fi_rma_bw are asked: their options and sizes."""

from __future__ import annotations

from collections.abc import Sequence

from busbar.units import MIB

CHECKED_SIZE, SIZE = 4096, MIB


def pingpong(program: str, provider: str) -> tuple[str, ...]:
    """Return the test that checks data."""
    return (program, "-e", "rdm", "-p", provider, "-c", "-S", str(CHECKED_SIZE), "-I", "10")


def rate(program: str, provider: str, more: Sequence[str]) -> tuple[str, ...]:
    """Return the test that measures, and names the provider that it takes (``-v``)."""
    return (program, "-e", "rdm", "-p", provider, "-v", "-S", str(SIZE), "-I", "100", *more)


def write(program: str, provider: str, more: Sequence[str]) -> tuple[str, ...]:
    """Return the one-sided test of fabtests."""
    options = ("-S", str(SIZE), "-I", "100")
    return (program, "-e", "rdm", "-o", "write", "-p", provider, *options, *more)
