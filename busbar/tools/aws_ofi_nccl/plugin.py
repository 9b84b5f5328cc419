# SPDX-License-Identifier: MIT
"""What NCCL's network plugin says of itself."""

from __future__ import annotations

from pathlib import PurePosixPath

from busbar.engine.job_output import JobOutput


def used(facts: JobOutput) -> dict[str, str]:
    """The versions and the topology file that it names."""
    found = {
        "aws-ofi-nccl": next(facts.values("ofi.init", "version"), ""),
        "libfabric": next(facts.values("ofi.libfabric", "version"), ""),
        "topology_file": PurePosixPath(next(facts.values("ofi.topology", "file"), "")).name,
    }
    return {name: value for name, value in found.items() if value}
