# SPDX-License-Identifier: MIT
"""What an expectation is asked for: one run of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from busbar.site.model import Site
from busbar.site.tuning import Buffers, environment as family_environment


@dataclass(frozen=True)
class Question:
    """One run of a benchmark; what does not apply to the benchmark is left out."""

    bench: str = ""
    nbytes: int | None = None
    """Message size; None: the largest that the data supports."""
    nodes: int = 1
    ranks: int | None = None
    """Ranks of all nodes; None: one for each GPU."""
    src: int | None = None
    """The sending GPU. With two nodes it sends to ``dst`` of the other node."""
    dst: int | None = None
    buffers: str = "D D"
    """Device or host buffers of sender and receiver, in OSU's notation."""
    engine: str | None = None
    """``sdma`` or ``kernel``; None: what the environment chooses."""
    algo: str | None = None
    """This and the next two None: whatever ran. The limit is then the largest of all algorithms,
    the band the first of the family that fits."""
    protocol: str | None = None
    harness: str | None = None
    lane: str | None = None
    environment: Mapping[str, str] | None = None
    """What the run had set; None: the environment of the site."""
    profile: str | None = None
    """Tuning profile of the site's environment."""
    partition: str | None = None
    pairs: int = 1
    """Simultaneous pairs (``osu_mbw_mr``)."""
    communicators: int = 1
    """Communicators on each node that run such a collective at once."""
    driver_us: float | None = None
    """Time of the shortest copy within a GPU in the same run, in us, if it was measured: a latency
    depends on the CPUs as well."""

    def settings(self, site: Site) -> Mapping[str, str]:
        """Return the environment of a run between two GPUs."""
        if self.environment is not None:
            return self.environment
        buffers: Buffers = "device" if "D" in self.buffers else "host"
        alone = site.only(self.partition)
        return family_environment(alone, lane=self.lane, profile=self.profile, buffers=buffers)

    @property
    def times(self) -> int:
        """Number of streams that the benchmark adds up: both directions, or all pairs."""
        return 2 if self.bench == "osu_bibw" else self.pairs
