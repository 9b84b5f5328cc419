# SPDX-License-Identifier: MIT
"""``busbar gate`` in Slurm's hooks: prolog, epilog and HealthCheckProgram of `ci/slurm`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cases import some
from tests.files import executable
from tests.said import ran

from .common import LAB, ROOT

pytestmark = pytest.mark.lab

SITE = """\
name: gated
description: two nodes of the lab
family: generic
scheduler: slurm
partitions:
  - {name: lab, node_type: node, nodes: 2}
node_types:
  node:
    cores: 1
    nics: [{name: port0, class: eth-10g}]
deliveries:
  - {kind: wheels, stack: host}
gate:
  checks:
    cpu_count: {mode: enforce}
    mount: {mode: enforce}
    nic_state: {mode: enforce}
  mounts:
    - {path: /dev/shm, type: tmpfs}
"""
CONF = """\
BUSBAR={busbar}
GATE_OPTIONS="--site {site}"
GATE_SECONDS=20
GATE_SBATCH=
export PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF={slurm}
{more}
"""
INTERVAL_S = 3
SET = ("ip", "link", "set", "port0")
REASON = "[node_problem] nic_state port0 down vs active: check cable and switch (busbar)"


@dataclass
class Gated:
    """A cluster of two nodes whose slurm.conf has the lines of `ci/slurm`."""

    lab: Path
    hooks: Path
    site: Path

    def on(self, node: str, *words: object) -> str:
        """Run a command on a node or, for ``head``, on the head."""
        where = () if node == "head" else ("-n", node)
        command = [str(word) for word in (LAB / "run", *where, self.lab, *words)]
        done = ran(*command, timeout=300)
        return done.stdout + done.stderr

    def configure(self, **more: str) -> None:
        """Write gate.conf anew; the hooks read it at each call."""
        values = {"busbar": str(Path(sys.executable).with_name("busbar")), "more": ""} | more
        values = {"site": str(self.site), "slurm": str(self.lab / "slurm.conf")} | values
        (self.hooks / "gate.conf").write_text(CONF.format(**values))

    def state(self, node: str) -> tuple[str, str]:
        """State and reason of a node."""
        line = self.on("head", "sinfo", "-h", "-n", node, "-o", "%T|%E").splitlines()[0]
        state, _, reason = line.partition("|")
        return state, reason

    def wait(self, node: str, state: str, seconds: float = 300) -> str:
        """Wait for a state of a node, and return its reason."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            now, reason = self.state(node)
            if now.startswith(state):
                return reason
            time.sleep(0.3)
        pytest.fail(f"{node} is {self.state(node)}, not {state}: {self.log(node)}")

    def wait_for_reason(self, node: str, reason: str, seconds: float = 60) -> None:
        """Wait until a health check explains why a node is drained; Slurm only names the hook."""
        end = time.monotonic() + seconds
        while (now := self.state(node))[1] != reason:
            assert time.monotonic() < end, (now, self.log(node))
            time.sleep(0.3)

    def log(self, node: str) -> str:
        """The end of a node's log."""
        return (self.lab / "log" / f"slurmd.{node}.log").read_text()[-2000:]

    def job(self, node: str, *words: str) -> str:
        """Run a job on a node."""
        return self.on("head", "timeout", "40", "srun", "-w", node, "-N1", *words)


@pytest.fixture(scope="module")
def gated(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    directory = tmp_path_factory.mktemp("gate")
    hooks = directory / "busbar"
    shutil.copytree(ROOT / "ci" / "slurm", hooks)
    site = directory / "gated"
    site.mkdir()
    (site / "site.yaml").write_text(SITE)
    lab = directory / "cluster"
    subprocess.run([LAB / "up", "-n", "2", "-g", "0", lab], check=True, capture_output=True)
    cluster = Gated(lab, hooks, site)
    cluster.configure()
    for node in ("n1", "n2"):
        # sysfs shows the network of who mounted it.
        cluster.on(node, "mount", "-t", "sysfs", "sysfs", "/sys")
        cluster.on(node, *["ip", "link", "add", "port0", "type", "veth", "peer", "name", "far0"])
        cluster.on(node, *["ip", "link", "set", "far0", "up"])
        cluster.on(node, *["ip", "link", "set", "port0", "up"])
    lines = (ROOT / "ci/slurm/slurm.conf").read_text().replace("/etc/slurm/busbar", str(hooks))
    lines = lines.replace("Interval=300", f"Interval={INTERVAL_S}").replace(",CYCLE", "")
    with (lab / "slurm.conf").open("a") as file:
        file.write(lines)
    cluster.on("head", "scontrol", "reconfigure")
    yield cluster
    subprocess.run([LAB / "down", lab], check=True)


@pytest.fixture
def remembers(gated: Gated) -> Iterator[None]:
    """The gate keeps a memory, without which a health check leaves the reason of a prolog."""
    memory = gated.lab.parent / "memory"
    memory.mkdir(mode=0o755, exist_ok=True)
    gated.configure(site=f"{gated.site} --memory {memory}/$SLURMD_NODENAME.json")
    yield
    for node in ("n1", "n2"):
        gated.on(node, *SET, "up")
    gated.configure()


def test_a_health_check_drains_and_resumes_only_what_it_drained(gated: Gated) -> None:
    """Under load, with one node whose port goes down and one that an administrator drained."""
    load = subprocess.Popen(
        [LAB / "run", gated.lab, "srun", "-N2", "timeout", "60", "sh", "-c", "while :; do :; done"]
    )
    try:
        time.sleep(3 * INTERVAL_S)
        assert {gated.state(node)[0] for node in ("n1", "n2")} <= {"mixed", "allocated"}
        gated.on("n2", *SET, "down")
        assert gated.wait("n2", "drain") == REASON
        assert gated.state("n1")[0] in ("mixed", "allocated")
    finally:
        load.kill()
        load.wait()
        gated.on("head", "scancel", "-u", "root")
    gated.on("head", "scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=bad fan")
    gated.on("n2", *SET, "up")
    gated.wait("n2", "idle")
    time.sleep(INTERVAL_S)
    assert gated.state("n1") == ("drained", "bad fan")
    gated.on("head", "scontrol", "update", "NodeName=n1", "State=RESUME")
    gated.wait("n1", "idle")


BROKEN = {
    "missing": {"busbar": "/nonexistent/busbar"},
    "not a program": {"busbar": "/dev/null"},
    "crashes": {"busbar": "/bin/false"},
    "wrong option": {"more": 'GATE_OPTIONS="--sight /tmp"'},
    "no site": {"site": "/nonexistent"},
    "hangs": {"busbar": "{hooks}/hangs", "more": "GATE_SECONDS=1"},
    "no settings": {"more": "syntax ((("},
}


@pytest.mark.parametrize("kind", some(BROKEN, 3))
def test_a_broken_gate_drains_no_node(gated: Gated, kind: str) -> None:
    """Jobs run, and the node stays, with prolog, epilog and health check."""
    executable(gated.hooks / "hangs", "sleep 100")
    more = {key: value.format(hooks=gated.hooks) for key, value in BROKEN[kind].items()}
    gated.configure(**more)
    try:
        assert "ran" in gated.job("n1", "echo", "ran")
        gated.wait("n1", "idle")
        assert gated.state("n1")[1].lower() == "none"
    finally:
        gated.configure()


def test_prolog_and_epilog_drain_a_bad_node(gated: Gated) -> None:
    """By their exit status, without a command of Slurm; the health check keeps that reason."""
    gated.on("n1", *SET, "down")
    assert "ran" not in gated.job("n1", "echo", "ran")
    assert gated.wait("n1", "drain") in ("Prolog error", REASON)
    gated.on("n1", *SET, "up")
    gated.wait("n1", "drained")  # the epilog of the job may drain it once more
    gated.on("head", "scancel", "-u", "root")
    gated.on("head", "scontrol", "update", "NodeName=n1", "State=RESUME")
    gated.wait("n1", "idle")
    assert "ran" in gated.job("n1", "sh", "-c", f"{' '.join(SET)} down; echo ran")
    assert gated.wait("n1", "drain") in ("Epilog error", REASON)
    gated.on("n1", *SET, "up")


def test_the_health_check_explains_a_failed_prolog_and_ends_it(
    gated: Gated, remembers: None
) -> None:
    """Slurm says only that the prolog failed, and would keep the node out of service for ever."""
    gated.on("head", "scontrol", "update", "NodeName=n1", "State=RESUME")
    gated.wait("n1", "idle", 60)
    health = gated.hooks / "healthcheck"
    health.rename(gated.hooks / "later")
    # One that has begun would drain the node, with a reason of its own.
    gated.on("n1", "sh", "-c", "while pgrep -f '[h]ealthcheck'; do sleep 0.1; done")
    gated.on("n1", *SET, "down")
    assert "ran" not in gated.job("n1", "echo", "ran")
    assert gated.wait("n1", "drained") == "Prolog error"
    (gated.hooks / "later").rename(health)
    gated.wait_for_reason("n1", REASON)
    gated.on("n1", *SET, "up")
    gated.wait("n1", "idle")
    assert "ran" in gated.job("n1", "echo", "ran")


@pytest.mark.long
def test_the_line_of_scrontab_starts_one_job_for_each_idle_node(
    gated: Gated, remembers: None
) -> None:
    """Debian 12 has no scrontab, so the command of its line is run; see test_newest_slurm."""
    for node in ("n1", "n2"):
        gated.wait(node, "idle")
    gated.on("n2", *SET, "down")
    text = (gated.hooks / "scrontab").read_text()
    (command,) = (line.split()[-1] for line in text.splitlines() if line.endswith("gate_idle"))
    gated.on("head", command.replace("/etc/slurm/busbar", str(gated.hooks)))
    # Its prolog, or a health check before that.
    gated.wait_for_reason("n2", REASON)
    gated.on("n2", *SET, "up")
    gated.wait("n2", "idle")
    job = re.compile("Name=busbar-gate JobState=COMPLETED .*NodeList=n1 ")
    end = time.monotonic() + 90
    while not job.search(done := (gated.lab / "log/jobs").read_text()):
        assert time.monotonic() < end, done
        time.sleep(0.3)
