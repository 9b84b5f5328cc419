# SPDX-License-Identifier: MIT
"""The partition of Slurm that a partition of a site stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from busbar.site.model import Partition

_OPTION = re.compile(r"(?:^|\s)(?:--partition[=\s]|-p\s*)(?P<queue>\S+)")


def named_queue(options: Iterable[str]) -> str:
    """Return the partition that options of sbatch name; empty if they name none."""
    option = _OPTION.search(" ".join(options))
    return option["queue"] if option else ""


def queue_of(partition: Partition) -> str:
    """Return the partition that ``access`` names, else the name of the partition."""
    return named_queue(partition.access) or partition.name
