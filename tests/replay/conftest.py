# SPDX-License-Identifier: MIT
"""A prefix of test doubles, and runs of the real checks on it through ReFrame."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.files import executable, read_table
from tests.said import ran

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_OSU = "libexec/osu-micro-benchmarks"
_COLLECTIVES = ("allreduce", "allgather", "alltoall", "bcast", "reduce_scatter")
_DOUBLES = {
    f"{_OSU}/mpi/pt2pt": ("osu_bw", "osu_bibw", "osu_latency", "osu_mbw_mr"),
    f"{_OSU}/mpi/collective": tuple(f"osu_{name}" for name in _COLLECTIVES),
    "bin": (
        *("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf"),
        *("broadcast_perf", "sendrecv_perf", "ucx_perftest", "nccl_message_transfer"),
        *("mpirun", "mpic++", "CC", "scontrol", "ompi_info", "torch-python"),
    ),
    # On busbar's own PATH, in place of what this machine may have of Slurm.
    "scheduler": ("srun",),
}
# The scheduler and the node are doubles too: a job runs here, whatever the site has.
_UNAME = """\
# TEST DOUBLE of uname -n: the node of a rank.
node=${REPLAY_NODE:-0}
# shellcheck disable=SC2086 # the hosts are words
set -- $REPLAY_HOSTS
shift "$node"
echo "$1"
"""
# What else this machine does just now says nothing of a recorded run.
_AWK = """\
# Records no use of this machine; otherwise awk.
case "$*" in *busy.awk*) exit ;; esac
exec {awk} "$@"
"""
_CONFIG = """\
from pathlib import Path
from busbar.delivery.reframe import configuration

site_configuration = configuration(Path({directory!r}))
for partition in site_configuration["systems"][0]["partitions"]:
    partition |= {{"scheduler": "local", "launcher": {launcher!r}, "access": []}}
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
    executable(directory / "bin" / "uname", _UNAME)  # each of 64 ranks asks it, hence no Python
    executable(directory / "bin" / "awk", _AWK.format(awk=shutil.which("awk")))
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
    found: dict[str, Any] = read_table(HERE / "index.yaml")
    found["root"] = str(ROOT / "tests" / "data")
    path = tmp_path_factory.mktemp("index") / "index.json"
    path.write_text(json.dumps(found))
    return {**found, "path": str(path)}


_UNMEASURED = """\
link_classes:
  unmeasured: {raw_gb_per_s: 25, forwards: false, source: NVLink4 without any band}
"""


@pytest.fixture
def replay(prefix: Path, toolkit: Path, index: dict[str, Any], tmp_path: Path) -> Replay:
    """``busbar check`` on the doubles of one case: (exit status, JSON document)."""

    def run(case: str, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
        known = index["cases"][case]
        site = known["site"]
        sites = tmp_path / "sites" / site
        sites.mkdir(parents=True)
        shipped = ROOT / "site" / site
        origin = shipped if shipped.is_dir() else ROOT / "tests" / "data" / "sites" / site
        facts = (origin / "site.yaml").read_text()
        for feature in known.get("features", ()):
            facts = facts.replace("features: [osu, xccl", f"features: [{feature}, osu, xccl")
        if known.get("bands") == "none":
            facts = facts.replace("class: nvlink4", "class: unmeasured")
            families = sites.parent / "_families"
            families.mkdir()
            (families / "links.yaml").write_text(_UNMEASURED)
        (sites / "site.yaml").write_text(facts)
        launcher = known.get("launcher", "mpirun")
        (sites / "reframe.py").write_text(_CONFIG.format(directory=str(sites), launcher=launcher))
        for place in ("home", "cwd"):  # nothing of a replay may come to the user's own
            (tmp_path / place).mkdir()
        hosts = tmp_path / "hosts"
        nodes = known.get("hosts", ["vm"])
        hosts.write_text("\n".join(nodes) + "\n")
        done = ran(
            *(Path(sys.executable).with_name("busbar"), "check", "--json"),
            *("--site", str(sites), "--prefix", str(prefix), "--delivery", "prefix"),
            *("--output", tmp_path / "out", *options),
            cwd=tmp_path / "cwd",
            env={
                **os.environ,
                "HOME": str(tmp_path / "home"),
                "REPLAY_HOSTS": " ".join(nodes),
                "PATH": f"{prefix / 'scheduler'}:{os.environ['PATH']}",
                "CUDA_HOME": str(toolkit),
                "BUSBAR_HOSTFILE": str(hosts),
                "BUSBAR_TORCH_PYTHON": str(prefix / "bin" / "torch-python"),
                "BUSBAR_SITE_PATH": f"{sites.parent}:{ROOT / 'site'}",
                "REPLAY_INDEX": index["path"],
                "REPLAY_CASE": case,
                **environment,
            },
        )
        assert done.stdout, done.stderr
        files = [p for place in ("home", "cwd") for p in (tmp_path / place).rglob("*.*")]
        # The results of a site with a scheduler are kept where ReFrame keeps them.
        store = tmp_path / "home" / ".reframe"
        assert not [file for file in files if file != store and store not in file.parents]
        return done.returncode, json.loads(done.stdout)

    return run
