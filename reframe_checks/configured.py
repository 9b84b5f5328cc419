# SPDX-License-Identifier: MIT
"""What ReFrame's configuration says of where a check runs, typed."""

from __future__ import annotations

import reframe as rfm

from busbar.delivery.environment import Environment, PartitionFacts


class Configured(rfm.RegressionTestPlugin):
    """Reads the ``extras`` of the current environment and partition."""

    @property
    def environment(self) -> Environment:
        """The current environment."""
        return Environment.from_reframe(self.current_environ)

    @property
    def partition(self) -> PartitionFacts:
        """The current partition."""
        return PartitionFacts.from_reframe(self.current_partition)
