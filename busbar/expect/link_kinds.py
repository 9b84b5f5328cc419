# SPDX-License-Identifier: MIT
"""What the link classes that ship connect, and how many links of each a GPU has."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

LinkKind: TypeAlias = Literal["GPU", "host", "network"]
EXAMPLES: dict[LinkKind, str] = {
    "GPU": "nvlink or xgmi",
    "host": "pcie, nvlink-c2c or infinity-fabric-host",
    "network": "ib, roce, slingshot or efa",
}
_KINDS: dict[str, LinkKind] = {
    "nvlink-c2c": "host",
    "infinity-fabric-host": "host",
    "pcie": "host",
    "nvlink": "GPU",
    "xgmi": "GPU",
    "xcd": "GPU",
    "ib": "network",
    "roce": "network",
    "slingshot": "network",
    "efa": "network",
}
"""By the beginning of the name; the first that fits counts."""
# Sources are those of the classes in links.yaml.
MOST_LINKS = {
    "nvlink2": 6,
    "nvlink3": 12,
    "nvlink3-bridge": 4,
    "nvlink4": 18,
    "nvlink5": 18,
    "xgmi-mi250x": 8,
    "xgmi-mi300a": 6,
    "xgmi-mi300x": 7,
    "xgmi-mi350x": 7,
}
"""Links of one GPU, or of one accelerator that is divided into several."""


def kind_of(link_class: str) -> LinkKind | None:
    """Return what a class connects; None for a class that does not ship."""
    return next(
        (kind for start, kind in _KINDS.items() if re.match(rf"{start}(?![a-z])", link_class)),
        None,
    )
