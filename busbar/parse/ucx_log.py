# SPDX-License-Identifier: MIT
"""UCX's own log, 1.14 to 1.22: version, settings, and the transports of each endpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass

from busbar.parse.messages import table

LINE = re.compile(
    rb"\[\d+\.\d+\] \[(?P<host>[^\]:\s]+):(?P<pid>\d{1,18})[^\]]*\]\s+\S+\s+UCX\s+\w+\s+"
)


@dataclass(frozen=True)
class Endpoint:
    """The transports that UCX took to one kind of peer."""

    scope: str
    """``self``, ``intra-node``, ``inter-node``, or empty where the version does not say."""
    lanes: tuple[str, ...]
    """Transports in UCX's order, ``sysv``, ``cma``, ``cuda_ipc``."""

    @property
    def loopback(self) -> bool:
        """To the process itself."""
        return self.scope == "self" or "self" in self.lanes


_ENDPOINT = re.compile(
    r"(?:ep_cfg\[\d+\]|(?P<scope>self|intra-node|inter-node) cfg#\d+):?\s+(?:\S+:)?"
    r"(?P<kinds>(?:\w+\([^)]*\)\s*)+)"
)
_LANE = re.compile(r"(?<![\w-])(?P<transport>[\w-]+)/[^\s)]+")

TABLE = table("ucx")
TRIGGERS = (r"\sUCX\s",)
"""Texts in the lines that name a process, for `busbar.parse.triggers`."""
ENDPOINT_TRIGGERS = (r"tag\(|cfg\[|cfg#",)
"""Texts in the lines that name an endpoint."""


def parse_endpoint(text: str) -> Endpoint | None:
    """Parse the transports for tagged messages, active messages or RMA to one kind of peer.

    ``ep_cfg[2]: tag(sysv/memory cma/memory cuda_ipc/cuda)`` in 1.14,
    ``ucp_context_0 intra-node cfg#2 tag(...)`` from 1.16 on.
    """
    match = _ENDPOINT.search(text)
    if not match:
        return None
    lanes = tuple(dict.fromkeys(_LANE.findall(match["kinds"])))
    return Endpoint(match["scope"] or "", lanes) if lanes else None


def parse_settings(text: str) -> dict[str, str]:
    """Parse ``UCX_TLS=sm,self UCX_LOG_LEVEL=info``, the variables that UCX found."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)
