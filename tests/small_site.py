# SPDX-License-Identifier: MIT
"""A site of one partition and one node, beside no other."""

from __future__ import annotations

import importlib
from pathlib import Path

from busbar.detect.write import REFRAME_FILE

_FACTS = """\
name: one
description: a machine
family: generic
scheduler: {scheduler}
partitions: [{{name: host, node_type: node, launcher: mpirun}}]
node_types: {{node: {{cores: 2}}}}
deliveries: [{{kind: wheels, stack: host}}]
"""


def small_site(parent: Path, *, scheduler: str = "local", runtime: str = "") -> Path:
    """Write the site ``one`` below a directory, with a runtime for containers if one is given."""
    # What `busbar check` imports takes a second, and each call of it would do so in a new process.
    importlib.import_module("busbar.commands.check_run")
    site = parent / "one"
    site.mkdir(exist_ok=True)
    containers = f"containers: {{runtime: {runtime}}}\n" if runtime else ""
    (site / "site.yaml").write_text(_FACTS.format(scheduler=scheduler) + containers)
    (site / "reframe.py").write_text(REFRAME_FILE)
    return site
