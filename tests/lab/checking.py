# SPDX-License-Identifier: MIT
"""``busbar check`` as the tests of the lab call it: a site of its own, and the JSON it prints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.said import ran

from .common import ROOT, Run

SITE = """\
name: {name}
description: two cores for each node of the lab, or this machine
family: generic
scheduler: {scheduler}
partitions:
  - {{name: lab, node_type: node, launcher: {launcher}, nodes: {nodes}}}
node_types:
  node: {{cores: 2}}
{fabric}deliveries:
  - {{kind: wheels, stack: host}}
  - {{kind: image, stack: host}}
containers: {{runtime: {runtime}}}
"""
CHECK = (sys.executable, "-m", "busbar", "check", "--json")


def slurm_site(directory: Path) -> Path:
    """The lab's cluster."""
    return _site(directory, scheduler="slurm", launcher="srun", nodes=4)


def local_site(directory: Path, runtime: str = "apptainer", fabric: str = "") -> Path:
    """This machine."""
    keys = {"scheduler": "local", "launcher": "mpirun", "nodes": 1}
    return _site(directory, runtime=runtime, fabric=fabric, **keys)


def _site(directory: Path, **keys: object) -> Path:
    keys = {"name": "lab-site", "runtime": "apptainer", "fabric": ""} | keys
    site = directory / "lab-site"
    site.mkdir()
    (site / "site.yaml").write_text(SITE.format(**keys))
    shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
    return site


def check(
    site: Path, image: object, *options: object, run: Run | None = None, **more: str
) -> dict[str, Any]:
    """The document of ``busbar check`` in an image; ``run`` runs it elsewhere than here."""
    words = [*CHECK, "--site", site, "--image", image, "--output", site.parent / "out", *options]
    done = (run or here)(*words, PYTHONPATH=str(ROOT), **more)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if document["verdict"] == "pass" else 1)
    return document


def here(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command on this machine."""
    command = [str(word) for word in words]
    environment = os.environ | more
    return ran(*command, timeout=900, env=environment)


def passed(document: dict[str, Any]) -> set[str]:
    """The checks whose results are all pass; what is wrong otherwise."""
    wrong = [row["message"] for row in document["results"] if row["verdict"] != "pass"]
    assert document["verdict"] == "pass", (wrong, document["causes"])
    return {row["check"] for row in document["results"]}


def host_mpi() -> list[object]:
    """Options that put the Open MPI and UCX of this Python environment into an image."""
    venv = Path(sys.prefix)
    packages = next(venv.glob("lib/python3*/site-packages"))
    directories = [venv / "lib", packages / "libucx" / "lib", packages / "libucx_cu12.libs"]
    return [word for directory in directories for word in ("--inject", directory)]
