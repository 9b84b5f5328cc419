# SPDX-License-Identifier: MIT
"""A prefix of test doubles, and runs of the real checks on it through ReFrame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_OSU = "libexec/osu-micro-benchmarks/mpi"
_DOUBLES = {
    f"{_OSU}/pt2pt": ("osu_bw", "osu_bibw", "osu_latency", "osu_mbw_mr"),
    f"{_OSU}/collective": (
        *("osu_allreduce", "osu_allgather", "osu_alltoall", "osu_bcast", "osu_reduce_scatter"),
    ),
    "bin": (
        *("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf"),
        *("broadcast_perf", "sendrecv_perf", "mpirun", "uname", "scontrol", "ompi_info"),
    ),
}
# The scheduler and the node are doubles too: a job runs here, whatever the site has.
_CONFIG = """\
from pathlib import Path
from busbar.site.reframe import configuration

site_configuration = configuration(Path({directory!r}))
for partition in site_configuration["systems"][0]["partitions"]:
    partition |= {{"scheduler": "local", "launcher": "mpirun", "access": []}}
"""

Replay = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``--prefix`` takes it; every program in it is `stand_in.py`."""
    directory = tmp_path_factory.mktemp("prefix")
    for place, names in _DOUBLES.items():
        (directory / place).mkdir(parents=True)
        for name in names:
            (directory / place / name).symlink_to(HERE / "stand_in.py")
    return directory


@pytest.fixture(scope="session")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a CUDA toolkit is recognised by; nothing is compiled against it here."""
    directory = tmp_path_factory.mktemp("cuda")
    for name in ("include/cuda_runtime_api.h", "lib64/libcudart.so"):
        (directory / name).parent.mkdir()
        (directory / name).touch()
    return directory


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`index.yaml`, and under ``path`` where the doubles find it."""
    found: dict[str, Any] = yaml.safe_load((HERE / "index.yaml").read_text())
    found["root"] = str(ROOT / "tests" / "data")
    path = tmp_path_factory.mktemp("index") / "index.json"
    path.write_text(json.dumps(found))
    return {**found, "path": str(path)}


@pytest.fixture
def replay(prefix: Path, toolkit: Path, index: dict[str, Any], tmp_path: Path) -> Replay:
    """``busbar check`` on the doubles of one case: (exit status, JSON document)."""

    def run(case: str, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
        site = index["cases"][case]["site"]
        sites = tmp_path / "sites" / site
        sites.mkdir(parents=True)
        (sites / "site.yaml").symlink_to(ROOT / "site" / site / "site.yaml")
        (sites / "reframe.py").write_text(_CONFIG.format(directory=str(sites)))
        done = subprocess.run(
            [
                *(Path(sys.executable).with_name("busbar"), "check", "--json"),
                *("--site", str(sites), "--prefix", str(prefix), "--delivery", "prefix"),
                *("--output", tmp_path / "out", *options),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "CUDA_HOME": str(toolkit),
                "BUSBAR_SITE_PATH": f"{sites.parent}:{ROOT / 'site'}",
                "REPLAY_INDEX": index["path"],
                "REPLAY_CASE": case,
                **environment,
            },
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run
