# SPDX-License-Identifier: MIT
"""How nccl-tests and rccl-tests are asked: sizes, options, and the log that shows the ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from busbar.engine.launch import powers
from busbar.expect.topology import domain_nodes
from busbar.parse.tables import beside
from busbar.site.model import Site
from busbar.units import GIB, MIB, option_bytes

_TABLES = beside(__file__)
LOG_FILES = "nccl.*.log"
LOGGED: Mapping[str, str] = _TABLES["logged"]


def ways(site: Site, *, nodes: int, partition: str) -> tuple[str, ...]:
    """How NCCL's log names the ways that data should take."""
    if nodes <= domain_nodes(site.node_type(partition)) or site.fabric is None:
        return ("P2P", "NVLS")
    networks = _TABLES["networks"].get(site.fabric.provider)
    if networks and any(nic.gpudirect for nic in site.node_type(partition).nics):
        networks = [f"{name}/GDRDMA" for name in networks]
    return ("P2P", "NVLS", *(networks or ["NET/"]))


class XcclSizes(NamedTuple):
    """The sizes that one run goes through, and what else it is asked for."""

    first: int
    last: int
    factor: int
    options: str = ""

    def command(self, program: str, more: Sequence[str]) -> tuple[str, ...]:
        """Return ``all_reduce_perf -b FIRST -e LAST -f FACTOR -g 1``."""
        return (
            *(program, "-b", option_bytes(self.first), "-e", option_bytes(self.last)),
            *("-f", str(self.factor), "-g", "1", *self.options.split(), *more),
        )

    @property
    def judged(self) -> tuple[int, ...]:
        """Those that must have a reading; smaller ones are rounded to what divides among ranks."""
        return tuple(size for size in powers(*self[:3]) if size >= MIB)


SIZES = {
    "quick": XcclSizes(MIB, GIB, 4),
    "nightly": XcclSizes(8, GIB, 2, "-c 1 -n 100"),
    "full": XcclSizes(512, 18 * GIB, 2),
}
"""Published: -b 8 -e 1G -f 2 -g 1 (AMD), the same with -c 1 -n 100 (AWS), and
-b 512 -e 18G -f 2 -g 1 (2 x 8 H20)."""
CPX_SIZES = XcclSizes(32, GIB, 2, "-G 2 -w 20 -n 50")
"""Published for CPX: 50 rounds as a graph that is launched twice, 20 to warm up, from 32 bytes."""
FEW_SIZES = XcclSizes(8, 16 * GIB, 2)
