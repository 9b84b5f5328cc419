# SPDX-License-Identifier: MIT
"""What NCCL's network plugin says of itself, held against what the site states of its fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from busbar.engine.job_output import JobOutput
from busbar.site.model import Fabric

_TOPOLOGY = "topology_file"


def used(facts: JobOutput) -> dict[str, str]:
    """The versions and the topology file that it names."""
    found = {
        "aws-ofi-nccl": next(facts.values("ofi.init", "version"), ""),
        "libfabric": next(facts.values("ofi.libfabric", "version"), ""),
        _TOPOLOGY: PurePosixPath(next(facts.values("ofi.topology", "file"), "")).name,
    }
    return {name: value for name, value in found.items() if value}


def contradictions(fabric: Fabric, named: Mapping[str, str]) -> Iterator[str]:
    """What the site states and the plugin's words do not bear out."""
    for name, wanted in fabric.versions.items():
        version = named.get(name, "none")
        if not re.match(rf"{re.escape(wanted)}(?!\d)", version):
            yield f"{name} is {version}, the site states {wanted}"
    topology = named.get(_TOPOLOGY, "none")
    if fabric.topology_file not in ("", topology):
        yield f"the topology file is {topology}, the site states {fabric.topology_file}"
