# SPDX-License-Identifier: MIT
"""The checks of this project under Slurm: ``busbar check`` on the head of a cluster, real jobs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cases import some
from tests.said import ran

from .common import LAB, ROOT

pytestmark = pytest.mark.lab

CHECKS = ROOT / "reframe_checks"
SITE = """\
name: {name}
description: the lab's cluster
family: generic
scheduler: slurm
partitions:
  - {{name: lab, node_type: node, nodes: 2, launcher: {launcher}}}
node_types:
  node: {{cores: 2}}
deliveries:
  - {{kind: wheels, stack: host}}
"""


def only(module: str, name: str) -> tuple[str | Path, ...]:
    """Options for one check, of a module that is read alone because that is quicker."""
    return ("-c", CHECKS / f"{module}.py", "-n", name)


# Two nodes of the four; each run takes the next line of a file for its reading.
READING = """
import reframe as rfm
from reframe.core.builtins import run_before
from busbar.engine.results import Result, result_of
from busbar.engine.verdicts import judge_reading
from busbar.engine.reading import Reading
from busbar.expect.expectation import Expectation
from busbar.verdict import Verdict
from .base import BusbarCheck
from .judging import Judgement

@rfm.simple_test
class reading(BusbarCheck):
    executable = "true"
    prerun_cmds = ["head -n 1 {readings}; sed -i 1d {readings}"]
    node_count = 2

    @run_before("run")
    def ask_for_nodes(self):
        self.num_tasks, self.num_tasks_per_node = 2, 1
        self.job.num_tasks, self.job.num_tasks_per_node = 2, 1

    def judgement(self, output, errors):
        band = Expectation(limit=20, low=8, typical=10, high=12)
        return Judgement([result_of(
            judge_reading(Reading("bw", 1, float(output[0])), lambda _: band),
            Result(self.name, Verdict.PASS),
        )], {{}})
"""


BETWEEN_NODES = only("gpu_aware", "gpu_aware_nodes")


@dataclass(frozen=True)
class Cluster:
    """The lab, with a site for each launcher."""

    lab: Path
    directory: Path

    def site(self, launcher: str) -> Path:
        """A site whose partition has this launcher."""
        site = self.directory / f"lab-{launcher}"
        if not site.exists():
            site.mkdir()
            (site / "site.yaml").write_text(SITE.format(name=site.name, launcher=launcher))
            shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
        return site

    def start(
        self, output: Path, launcher: str, *options: str | Path, **environment: str
    ) -> subprocess.Popen[str]:
        """``busbar check`` on the head."""
        words = ["check", "--json", "--site", self.site(launcher), "--output", output, *options]
        command = [LAB / "run", self.lab, sys.executable, "-m", "busbar", *words]
        return subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | environment,
        )

    def check(
        self, output: Path, launcher: str, *options: str | Path, **environment: str
    ) -> tuple[int, dict[str, Any]]:
        """(exit status, JSON document)."""
        return ended(self.start(output, launcher, *options, **environment))

    def control(self, *words: str) -> str:
        """What a command of Slurm prints."""
        return self._run(LAB / "run", self.lab, *words)

    def on_node(self, node: str, *words: str) -> str:
        """What a command prints on a node."""
        return self._run(LAB / "run", "-n", node, self.lab, *words)

    @staticmethod
    def _run(*words: str | Path) -> str:
        done = ran(*words, check=True, timeout=300)
        return done.stdout

    def wait_for_idle(self, node: str) -> None:
        """Wait until Slurm starts jobs on a node again."""
        while self.control("sinfo", "-h", "-n", node, "-o", "%T").strip() != "idle":
            time.sleep(0.5)


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    """(exit status, JSON document) of a run that was started; the limit of the test ends it."""
    try:
        said, errors = process.communicate()
    finally:
        send(process, signal.SIGTERM)
    assert said, errors
    return process.returncode, json.loads(said)


def send(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a command on the head, if it still runs.

    It is a child: nsenter has started it in the namespaces of the head, and hands nothing on.
    """
    if process.poll() is None:
        child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child[0]) if child else process.pid, number)


@pytest.fixture(scope="module")
def cluster(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(lab, tmp_path_factory.mktemp("sites"))


def hosts(document: dict[str, Any], check: str) -> set[str]:
    """Where the results of a check say that they ran."""
    rows = [row for row in document["results"] if row["check"].split(" ")[0] == check]
    assert rows
    return {row["where"] for row in rows}


def messages(document: dict[str, Any]) -> str:
    return "; ".join(row["message"] for row in document["results"])


def test_open_mpi_under_srun(cluster: Cluster, tmp_path: Path) -> None:
    """PMIx was chosen because Open MPI speaks it, not because Slurm has it as its default.

    Which GPUs the submitting shell sees is not handed on; Slurm itself hands this one on.
    """
    shell = {"HIP_VISIBLE_DEVICES": "3,2"}
    home = {"HOME": str(tmp_path)}
    status, document = cluster.check(tmp_path, "srun", "-t", "gate", **shell, **home)
    assert (status, document["verdict"]) == (0, "pass"), messages(document)
    checks = {row["check"].split(" ")[0] for row in document["results"]}
    own = {"gpu_aware", "gpu_aware_nodes", "link_matrix", "link_matrix_nodes", "memory"}
    assert checks == own | {"fabric_ucx", "fabric_ucx_nodes", "fabric_libfabric_nodes"}
    assert hosts(document, "gpu_aware") == {"n1"}
    assert hosts(document, "gpu_aware_nodes") == {"n1,n2"}
    # By the network between the nodes, each with the rate that it reached.
    for name in ("fabric_ucx_nodes", "fabric_libfabric_nodes"):
        assert hosts(document, name) == {"n1,n2"}
        rows = [
            row
            for row in document["results"]
            if row["check"].startswith(name) and row["metric"] == "bandwidth"
        ]
        assert all(row["gb_per_s"] > 0 for row in rows), rows
    assert document["versions"]["mpi"].startswith("Open MPI v5.0")
    assert document["lane"] == "ucx-1.14"
    script = next(tmp_path.glob("reframe/output/**/gpu_aware_nodes/rfm_job.sh")).read_text()
    assert "srun --mpi=pmix" in script
    assert "--no-requeue" in script
    seen = [
        visible
        for output in tmp_path.glob("reframe/output/**/rfm_job.out")
        for visible in re.findall(r'"visible": "([^"]*)"', output.read_text())
    ]
    assert seen
    assert not any(seen)
    # ReFrame's log has each reading with its nodes, also without a band, and its store the run.
    log = (tmp_path / "reframe/perflogs/lab-srun/lab/link_matrix_nodes.log").read_text()
    names, values = (line.split("|") for line in log.splitlines())
    logged = dict(zip(names, values, strict=True))
    assert logged["job_nodelist"] == "n1,n2"
    assert float(logged["bandwidth_0_to_1_HH_1048576_value"]) > 0
    with sqlite3.connect(tmp_path / ".reframe/reports/results.db") as store:
        kept = {name for (name,) in store.execute("SELECT name FROM testcases")}
    assert {"link_matrix_nodes", "gpu_aware"} <= kept


def test_mpich_under_srun(cluster: Cluster, tmp_path: Path, mpich: dict[str, Path]) -> None:
    """A directory with MPICH alone: its compiler, its UCX, its PMI; nothing of Open MPI is set."""
    only = ("-t", "gate", "-n", "^gpu_aware")
    status, document = cluster.check(tmp_path, "srun", *only, "--prefix", mpich["4.3.2"])
    assert (status, document["verdict"]) == (0, "pass"), messages(document)
    checks = {row["check"].split(" ")[0] for row in document["results"]}
    assert checks == {"gpu_aware", "gpu_aware_nodes"}
    assert hosts(document, "gpu_aware_nodes") == {"n1,n2"}
    assert "MPICH" in document["versions"]["mpi"]
    assert "4.3.2" in document["versions"]["mpi"]
    assert document["versions"]["ucx"].startswith("1.18")
    assert document["lane"] == "mpich"
    script = next(tmp_path.glob("reframe/output/**/gpu_aware_nodes/rfm_job.sh")).read_text()
    assert "srun --mpi=pmi2" in script
    assert not [line for line in script.splitlines() if "OMPI_" in line or "PMIX_" in line]


@pytest.mark.long
def test_mpich_by_its_own_mpirun(tmp_path: Path, mpich: dict[str, Path]) -> None:
    """On this machine, which needs no cluster: Hydra starts the ranks, each keeps a core."""
    words = ["check", "--json", "--site", "local", "--output", tmp_path, "-t", "gate"]
    done = ran(sys.executable, "-m", "busbar", *words, "--prefix", mpich["4.3.2"], cwd=ROOT)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"]) == (0, "pass"), messages(document)
    checks = {row["check"].split(" ")[0] for row in document["results"]}
    assert checks >= {"gpu_aware", "link_matrix", "memory"}
    assert "MPICH" in document["versions"]["mpi"]


@pytest.mark.parametrize("family", some(["openmpi", "mpich"], 2))
def test_mpirun_with_a_host_file(
    cluster: Cluster, tmp_path: Path, family: str, mpich: dict[str, Path]
) -> None:
    """By ssh with a key, to hosts whose keys are known."""
    more = ["--prefix", mpich["4.3.2"]] if family == "mpich" else []
    status, document = cluster.check(tmp_path, "mpirun", *BETWEEN_NODES, *more)
    assert (status, document["verdict"]) == (0, "pass"), messages(document)
    assert hosts(document, "gpu_aware_nodes") == {"n1,n2"}
    assert ("MPICH" in document["versions"]["mpi"]) is (family == "mpich")


def test_a_host_whose_key_is_unknown_gets_no_rank(cluster: Cluster, tmp_path: Path) -> None:
    known = cluster.lab / "ssh" / "known_hosts"
    kept = known.read_text()
    known.write_text("")
    try:
        status, document = cluster.check(tmp_path, "mpirun", *BETWEEN_NODES)
    finally:
        known.write_text(kept)
    assert (status, document["verdict"]) == (1, "failed")
    output = "".join(p.read_text() for p in tmp_path.glob("reframe/stage/**/rfm_job.out"))
    assert "Host key verification failed" in output


@pytest.mark.long
def test_a_provider_that_is_not_here_is_no_pass(cluster: Cluster, tmp_path: Path) -> None:
    """The site says verbs; libfabric has none, and nothing else may take its place."""
    site = cluster.site("srun") / "site.yaml"
    stated = site.read_text()
    site.write_text(f"{stated}fabric: {{provider: verbs, rails: 1}}\n")
    try:
        status, document = cluster.check(
            tmp_path, "srun", *only("fabric_libfabric", "fabric_libfabric_nodes")
        )
    finally:
        site.write_text(stated)
    assert (status, document["verdict"]) == (1, "failed")
    assert "fi_pingpong: exit status 1" in messages(document)


@pytest.fixture
def hanging(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[str], tuple[str, Any]]]:
    """Starts a check one of whose ranks never ends; gives its job's number and its process."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, check: str = "link_matrix") -> tuple[str, subprocess.Popen[str]]:
        before = set(cluster.control("squeue", "-h", "-t", "R", "-o", "%i").split())
        inject = ("-S", f"{check}.more_options=--inject=hang")
        matrix = only("link_matrix", check)
        process = cluster.start(tmp_path / name, "srun", *matrix, *inject)
        started.append(process)
        while process.poll() is None:
            now = set(cluster.control("squeue", "-h", "-t", "R", "-o", "%i").split())
            if new := now - before:
                return new.pop(), process
            time.sleep(0.2)
        pytest.fail(f"no job was started: {process.communicate()}")

    yield start
    for process in started:
        send(process, signal.SIGTERM)
    cluster.control("scancel", "-u", "root")


def test_what_slurm_ends_has_failed_and_says_why(
    cluster: Cluster, hanging: Callable[[str], tuple[str, Any]]
) -> None:
    """At its time limit, and with its node: that job is not started again in silence."""
    limited, first = hanging("limit")
    node = cluster.control("squeue", "-h", "-j", limited, "-o", "%N").strip()
    lost, second = hanging("node")
    other = cluster.control("squeue", "-h", "-j", lost, "-o", "%N").strip()
    assert node != other
    # Slurm counts a limit in minutes; a test has no minute to spare.
    cluster.control("scontrol", "update", f"JobId={limited}", "EndTime=now+1")
    cluster.control("scontrol", "update", f"NodeName={other}", "State=DOWN", "Reason=test")
    try:
        # srun's word on the node is the better one, but a rank may be gone before it comes.
        expected = ((first, {"timeout"}), (second, {"node-fault", "rank-died"}))
        for process, causes in expected:
            status, document = ended(process)
            found = {each["id"] for each in document["causes"]}
            # A limit says nothing of the machine if other tests took the CPUs.
            verdict = "unknown" if "cpu-busy" in found else "failed"
            assert (status, document["verdict"]) == (1, verdict), document["results"]
            assert causes & found, messages(document)
    finally:
        cluster.control("scontrol", "update", f"NodeName={other}", "State=IDLE")


def test_a_rank_that_dies_ends_that_of_another_node(
    cluster: Cluster, hanging: Callable[..., tuple[str, Any]]
) -> None:
    """In seconds: it waits, and the job itself would last two minutes."""
    job, process = hanging("death", "link_matrix_nodes")
    nodes = cluster.control("squeue", "-h", "-j", job, "-o", "%N").strip()
    *_, node = cluster.control("scontrol", "show", "hostnames", nodes).split()
    hang = "until pgrep -x gpu_aware; do sleep 0.1; done; sleep 5"
    cluster.on_node(node, "sh", "-c", f"{hang}; pkill -KILL -x gpu_aware")
    began = time.monotonic()
    status, document = ended(process)
    assert time.monotonic() - began < 45, messages(document)
    assert (status, document["verdict"]) == (1, "failed"), messages(document)
    assert "rank-died" in {each["id"] for each in document["causes"]}, messages(document)


def test_a_reading_is_taken_again_on_the_same_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """Though the job has ended before ReFrame, without accounting, could ask where it ran."""
    shutil.copytree(CHECKS, tmp_path / "checks")
    check, readings = tmp_path / "checks" / "reading.py", tmp_path / "readings"
    check.write_text(READING.format(readings=readings))
    readings.write_text("5\n10\n")
    _, document = cluster.check(tmp_path / "out", "srun", "-c", check)
    assert document["verdict"] == "pass", messages(document)
    assert not readings.read_text()
    prefix = tmp_path / "out" / "reframe"
    jobs = [next((prefix / which).rglob("results.json")) for which in ("stage", "again")]
    first, again = (json.loads(path.read_text())["nodes"] for path in jobs)
    assert first == again == "n[1-2]"
    script = next((prefix / "again").rglob("rfm_job.sh")).read_text()
    assert "--nodelist=n[1-2]" in script


@pytest.mark.parametrize(
    ("state", "number"), some([("RUNNING", signal.SIGTERM), ("PENDING", signal.SIGINT)], 2)
)
def test_a_signal_leaves_no_job_in_the_queue(
    cluster: Cluster, tmp_path: Path, state: str, number: signal.Signals
) -> None:
    """Slurm itself has cancelled the job, whether it ran or waited for nodes."""
    if state == "PENDING":
        cluster.control("sbatch", "--exclusive", "-N4", "-o", "/dev/null", "--wrap", "sleep 600")
    inject = ("-S", "link_matrix.more_options=--inject=hang")
    process = cluster.start(tmp_path, "srun", *only("link_matrix", "link_matrix"), *inject)

    def states() -> list[str]:
        lines = cluster.control("squeue", "-h", "-o", "%T %Z").splitlines()
        return [line.split()[0] for line in lines if str(tmp_path) in line]

    try:
        while states() != [state]:
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        send(process, number)
        begin = time.monotonic()
        while left := states():
            assert time.monotonic() - begin < 60, left
            time.sleep(0.1)
        status, document = ended(process)
    finally:
        send(process, signal.SIGTERM)
        cluster.control("scancel", "-u", "root")
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["interrupted"] == document["interrupted"] == number.name
    assert kept["verdict"] != "pass"
    assert status == 128 + number
