# SPDX-License-Identifier: MIT
"""The error for a reading that no data supports a band for."""

from __future__ import annotations

from busbar.errors import BusbarError


class NoExpectation(BusbarError):  # noqa: N818 - an answer, not a fault
    """No data supports a band; ``limit`` in ``unit`` still holds where the topology gives one."""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        hint: str = "",
        limit: float | None = None,
        unit: str = "GB/s",
        path: tuple[str, ...] = (),
        sources: tuple[str, ...] = (),
        nbytes: int | None = None,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.limit = limit
        self.unit = unit
        self.path = path
        self.sources = sources
        self.nbytes = nbytes
