# SPDX-License-Identifier: MIT
"""What a command of Busbar answered, for tests that call commands as a user does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Said:
    """Exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What a command printed with --json."""
        return json.loads(self.out)

    @property
    def last(self) -> str:
        """The last line of standard error."""
        return self.err.splitlines()[-1]


Command = Callable[..., Said]
"""The fixture ``busbar``: ``busbar("site show", path, "--json")``."""
