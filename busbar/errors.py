# SPDX-License-Identifier: MIT
"""The one error that users see: where it is, what is wrong, what to do."""

from __future__ import annotations


class BusbarError(Exception):
    """Bad input or a missing prerequisite; the command prints it and exits with status 2.

    ``what`` is one sentence; ``where`` names the file, and the key or line in it
    (``site/p5/site.yaml: fabric.nics``, ``run.log:17``); ``hint`` says what to do next.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.hint}" if self.hint else text
