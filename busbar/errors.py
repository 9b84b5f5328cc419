# SPDX-License-Identifier: MIT
"""The error class for users: what is wrong, where, and what to do."""

from __future__ import annotations


class BusbarError(Exception):
    """Invalid input or a missing prerequisite; the command prints it and exits with status 2.

    ``what`` is one sentence. ``where`` is the file with the key or line
    (``site/p5/site.yaml: fabric.nics``, ``run.log:17``). ``hint`` is the next step.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.hint}" if self.hint else text
