# SPDX-License-Identifier: MIT
"""Golden job scripts: what the published runs had on their command lines is in ours.

``GOLDEN=write`` in the environment writes them again; the change is then reviewed by eye.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from tests.cases import some

from .dry import ROOT, jobs, reframe, without_root
from .flux import flux_bindings

pytestmark = pytest.mark.run

GOLDEN = ROOT / "tests" / "golden" / "jobs"


@dataclass(frozen=True)
class Job:
    """One job script: of which check on which site."""

    site: str
    check: str
    environment: str = "spack"
    launcher: str = ""
    """In place of the site's own."""
    features: tuple[str, ...] = ()
    """What the delivery has beside what the site declares."""
    nodes: str = ""
    """What is asked for by ``-S nodes=``, of a partition with 4."""

    @property
    def variables(self) -> list[str]:
        """The options that set variables."""
        return ["-S", f"nodes={self.nodes}"] if self.nodes else []


JOBS = {
    "mi250x-pt2pt": Job("mi250x", "pt2pt%size_set=quick%bench=osu_bw"),
    "mi250x-cray-pt2pt": Job(
        "mi250x-cray", "pt2pt%size_set=quick%bench=osu_bw", environment="modules"
    ),
    "mi300x-mscclpp": Job("mi300x", "xccl_mscclpp"),
    # The command line as AMD published it is that of mpirun.
    "mi300x-mscclpp-mpirun": Job("mi300x", "xccl_mscclpp", launcher="mpirun"),
    "mi300x-few": Job("mi300x", "xccl_few%size_set=full%collective=all_reduce%ranks=4"),
    "h20-all_reduce": Job("h20-roce", "xccl_nodes%size_set=full%collective=all_reduce"),
    "h20-all_reduce-3": Job(
        "h20-roce", "xccl_nodes%size_set=full%collective=all_reduce", nodes="3"
    ),
    "h20-broadcast-all": Job(
        "h20-roce", "xccl_nodes%size_set=full%collective=broadcast", nodes="all"
    ),
    # A pair stays a pair.
    "h20-pt2pt-all": Job("h20-roce", "pt2pt_nodes", nodes="all"),
    "p4d-message_transfer": Job("p4d", "fabric_ofi"),
    "p4d-all_reduce": Job("p4d", "xccl_nodes%size_set=nightly%collective=all_reduce"),
    "dgx-h100-all_reduce": Job(
        "dgx-h100", "xccl_nodes%size_set=full%collective=all_reduce", environment="modules"
    ),
    "gb200-all_reduce-all": Job(
        "gb200-nvl72",
        "xccl_nodes%size_set=full%collective=all_reduce",
        environment="modules",
        nodes="all",
    ),
    "gh200-pt2pt": Job("gh200x4-slingshot", "pt2pt_nodes", environment="modules"),
    "mi300a-all_reduce": Job(
        "mi300a-slingshot", "xccl_nodes%size_set=full%collective=all_reduce", environment="modules"
    ),
    "mi300a-pt2pt": Job(
        "mi300a-slingshot", "pt2pt%size_set=quick%bench=osu_bw", environment="modules"
    ),
}
# What the published runs had, word for word.
HOLDS = {
    "mi250x-pt2pt": ["HIP_VISIBLE_DEVICES=0,7", "-m 16777216:16777216", "D D"],
    "mi250x-cray-pt2pt": ["export MPICH_GPU_SUPPORT_ENABLED=1", "srun --mpi=cray_shasta"],
    "mi300x-mscclpp-mpirun": [
        *("export ROCR_VISIBLE_DEVICES=0,1,2,3,4,5,6,7", "mpirun -np 8 --bind-to numa"),
        *("export RCCL_MSCCLPP_THRESHOLD=1073741824", "-b 32 -e 1G -f 2 -g 1 -G 2 -w 20 -n 50"),
    ],
    "mi300x-mscclpp": ["srun --cpu-bind=ldoms", "export RCCL_MSCCLPP_ENABLE=1"],
    "mi300x-few": ["export NCCL_MIN_NCHANNELS=32", "export ROCR_VISIBLE_DEVICES=0,1,2,3"],
    "h20-all_reduce": ["-b 512 -e 18G -f 2 -g 1"],
    "h20-all_reduce-3": ["--ntasks=24", "mpirun -np 24", "--hostfile hosts -N 8"],
    "h20-broadcast-all": ["--ntasks=32", "mpirun -np 32"],
    "h20-pt2pt-all": ["--ntasks=2", "mpirun -np 2"],
    "p4d-message_transfer": ["mpirun -np 2 --hostfile hosts -N 1", "StrictHostKeyChecking=yes"],
    "p4d-all_reduce": [
        *("-b 8 -e 1G -f 2 -g 1 -c 1 -n 100", "--hostfile hosts -N 8"),
        *("StrictHostKeyChecking=yes", "export FI_EFA_USE_DEVICE_RDMA=1"),
    ],
    "dgx-h100-all_reduce": ["mpirun -np 16", "-x NCCL_IB_HCA", "NCCL_IB_HCA==mlx5_0,mlx5_3"],
    "gb200-all_reduce-all": ["#SBATCH --ntasks=72", "mpirun -np 72", "--hostfile hosts -N 4"],
    "gh200-pt2pt": ["srun --mpi=cray_shasta", "export MPICH_GPU_SUPPORT_ENABLED=1", "D D"],
    "mi300a-all_reduce": ["flux run --nodes=2 --ntasks=8", "FI_CXI_RX_MATCH_MODE=software"],
    "mi300a-pt2pt": ["flux run --nodes=1 --ntasks=2", "export MPICH_GPU_SUPPORT_ENABLED=1"],
}
_CONFIG = """\
from pathlib import Path
from busbar.delivery.reframe import configuration

site_configuration = configuration(Path({directory!r}))
for partition in site_configuration["systems"][0]["partitions"]:
    partition["launcher"] = {launcher!r} or partition["launcher"]
"""


def configuration(job, directory):
    """The site's own configuration with what the job has beside it."""
    facts = (ROOT / "site" / job.site / "site.yaml").read_text()
    for feature in job.features:
        facts = facts.replace("features: [osu", f"features: [{feature}, osu")
    if job.nodes:
        facts = facts.replace("nodes: 2", "nodes: 4")
    place = directory / "sites" / job.site
    place.mkdir(parents=True)
    (place / "site.yaml").write_text(facts)
    file = place / "reframe.py"
    file.write_text(_CONFIG.format(directory=str(place), launcher=job.launcher))
    return file


def dry_run(job, directory):
    config = configuration(job, directory)
    return reframe(
        *(directory, config, "-n", job.check, *job.variables, "-p", job.environment),
        BUSBAR_SITE_PATH=f"{config.parents[1]}:{ROOT / 'site'}",
        PYTHONPATH=str(flux_bindings(directory)),
    )


@pytest.mark.parametrize("nodes", some(["5", "1", "0", "-2", "2.5", "some"], 3))
def test_a_number_of_nodes_that_the_partition_lacks(nodes, tmp_path):
    check = "xccl_nodes%size_set=full%collective=all_reduce"
    done = dry_run(Job("h20-roce", check, nodes=nodes), tmp_path)
    assert done.returncode != 0
    assert f"nodes={nodes}: partition gpu has 4 nodes; give 2 to 4 or all" in done.stdout


@pytest.mark.parametrize("name", some(JOBS, 2))
def test_job(name, tmp_path):
    done = dry_run(JOBS[name], tmp_path)
    scripts = jobs(tmp_path)
    assert scripts, done.stdout
    text = without_root(scripts[0])
    # These depend on who runs the tests, and on parameters by ReFrame's hash.
    lines = [
        line
        for line in text.splitlines()
        if "ALLOW_RUN_AS_ROOT" not in line and "--job-name" not in line
    ]
    text = "\n".join(lines) + "\n"
    missing = [words for words in HOLDS[name] if words not in text]
    assert not missing
    golden = GOLDEN / f"{name}.sh"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()
