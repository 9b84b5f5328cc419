# SPDX-License-Identifier: MIT
"""The cluster on one machine: real srun, sbatch, GPUs to hand out, PMIx, slow links, no traces."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.said import ran

from .common import LAB, Run

pytestmark = pytest.mark.lab

# TCP and nothing else: what is tested is the network between the nodes. By UCX, because with ob1,
# which Open MPI takes by itself, a message that comes before MPI_Init has ended kills the rank:
# 4 of 80 runs of 8 ranks on two busy cores (https://github.com/open-mpi/ompi/pull/13559).
MPI = {
    "PMIX_MCA_psec": "native",
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_opal_common_ucx_tls": "any",
    "OMPI_MCA_opal_common_ucx_devices": "any",
    "UCX_TLS": "tcp,self",
}


def test_nodes_are_hosts_of_their_own_with_gpus(on_lab: Run) -> None:
    shell = "echo $(hostname) $CUDA_VISIBLE_DEVICES $(ip -o -4 addr show eth0 | awk '{print $4}')"
    done = on_lab("srun", "-N4", "--gpus-per-node=2", "sh", "-c", shell)
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"n{n} 0,1 10.77.0.{n}/24" for n in range(1, 5)], done.stderr


def test_batch_jobs_run(on_lab: Run, tmp_path: Path) -> None:
    output = tmp_path / "out"
    script = "srun -N3 -n3 hostname | sort"
    done = on_lab("sbatch", "--wait", "-N3", "-o", output, "--wrap", script)
    assert done.returncode == 0, done.stderr
    assert output.read_text().split() == ["n1", "n2", "n3"]


def test_pmix_makes_one_job_of_all_ranks(on_lab: Run, program: Path) -> None:
    words = ("srun", "-N4", "--mpi=pmix", program, "--ranks=4", "--buffers=HH", "--check=4099")
    done = on_lab(*words, **MPI)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"wrong": 0') > 12


def test_a_shaped_link_is_slow_in_both_directions(on_lab: Run, lab: Path, program: Path) -> None:
    def gb_per_s() -> list[float]:
        done = on_lab(
            *("srun", "-N2", "-w", "n3,n4", "--mpi=pmix", program),
            *("--ranks=2", "--buffers=HH", "--sizes=256K"),
            **MPI,
        )
        readings = [line for line in done.stdout.splitlines() if '"metric": "bandwidth"' in line]
        assert len(readings) == 2, done.stdout + done.stderr
        return [float(r.split('"gb_per_s": ')[1].split(",")[0]) for r in readings]

    subprocess.run([LAB / "shape", lab, "n3", "200mbit"], check=True)
    slow = gb_per_s()
    subprocess.run([LAB / "shape", lab, "n3", "none"], check=True)
    # 200 Mbit/s are 0.025 GB/s; the bucket of 128 kB lets the first bytes pass at once.
    assert all(0.005 < value < 0.035 for value in slow), slow
    assert min(gb_per_s()) > 2 * max(slow)


@pytest.fixture
def second(installed: None, tmp_path: Path) -> Iterator[Path]:
    """Where another cluster goes, which is taken down even when its test fails."""
    directory = tmp_path / "second"
    yield directory
    if directory.exists():
        subprocess.run([LAB / "down", directory], check=True)


def test_it_starts_soon_and_leaves_nothing_behind(second: Path, tmp_path: Path) -> None:
    def traces() -> list[str]:
        # Other tests of the lab mount file systems and start containers meanwhile.
        mounts = Path("/proc/mounts").read_text().splitlines()
        words = ["ip", "-br", "link"]
        links = ran(*words, check=True).stdout
        of_labs = re.compile(r"(switch|bridge|leaf|uplink|n)\d*(\.\d+)?[@ ]")
        return [line for line in mounts if str(second) in line] + [
            line for line in links.splitlines() if of_labs.match(line)
        ]

    def processes() -> Counter[str]:
        listing = ran("ps", "-wweo", "args", check=True)
        return Counter(line for line in listing.stdout.splitlines() if str(tmp_path) in line)

    start = time.monotonic()
    # A second cluster beside the one of the other tests: each has everything of its own.
    subprocess.run([LAB / "up", "-n", "2", "-g", "0", second], check=True, capture_output=True)
    assert time.monotonic() - start < 120
    assert processes()
    done = ran(LAB / "run", second, "srun", "-N2", "hostname", check=True)
    assert sorted(done.stdout.split()) == ["n1", "n2"]
    subprocess.run([LAB / "down", second], check=True)
    assert not second.exists()
    assert not traces()
    assert not processes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up", "-n", "0"], "NODES must be 1 to 99"),
        (["up", "-x"], "usage: up"),
        (["down", "/"], "no lab in /"),
    ],
)
def test_wrong_use_is_told(words: list[str], message: str) -> None:
    if os.geteuid():
        pytest.skip("the lab needs root")
    command = [LAB / words[0], *words[1:]]
    done = ran(*command)
    assert done.returncode == 1
    assert message in done.stderr
