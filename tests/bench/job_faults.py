# SPDX-License-Identifier: MIT
"""Puts faults into jobs of MPI, at random ranks, and counts how often ``busbar job`` names them.

``job_faults.py [--set SET] [--places 5] [--healthy 50] [--seed 1] [--only NAME]``, as root: a
network of four nodes is made of namespaces. The sets ``fresh`` and ``variants`` have other faults
and jobs than those on which the rules were developed. Prints a row for each job, then the counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from busbar.job.judge import JobAnswer, judge
from busbar.job.nodes import observe
from busbar.job.sample import NodeSample, read_sample

ROOT = Path(__file__).resolve().parents[2]
RANKS = ROOT / "tests/job/ranks.py"
BIN = Path(sys.executable).parent
WARM_S = 6.0
SPIN = "while True: pass"
NET = "10.78.0"
SHARES = "32768"
"""Of CPU time: 32 times those of other programs."""


@dataclass(frozen=True)
class Kind:
    """A job, what is done to it, and the cause that should be named."""

    name: str
    cause: str = ""
    count: int = 4
    nodes: int = 1
    fault: str = "none"
    nbytes: int = 65536
    pause_ms: float = 5
    stacks: bool = False
    warm_s: float = WARM_S
    body: str = "ring"
    """What the ranks exchange (tests/job/ranks.py); ``ucx`` is a ring by UCX."""


FAULTS = (
    Kind("stopped", "rank-stopped", nodes=4),
    Kind("half_core", "cpu-busy", count=2, fault="busy", pause_ms=20),
    Kind("quota", "cpu-quota", count=2, fault="busy", pause_ms=20),
    Kind("slow_link", "network-path-slow", nodes=4, nbytes=2 << 20),
    Kind("tcp", "tcp-within-node", nbytes=1 << 20),
    Kind("computes", "rank-late", fault="computes", stacks=True),
    Kind("disk_full", "cannot-write", fault="checkpoint"),
    Kind("deadlock", "collective-mismatch", fault="mismatch", stacks=True),
    Kind("swap", "swapping"),
    Kind("far_memory", "memory-far"),
)
HEALTHY = (
    Kind("small_messages"),
    Kind("large_messages", nbytes=2 << 20, nodes=4),
    Kind("computing", count=2, fault="busy", pause_ms=50),
    Kind("writing", fault="writes", pause_ms=50),
    Kind("starting", warm_s=0.2),
    Kind("ending", fault="ends"),
    Kind("slow_steps", pause_ms=700),
    Kind("memory", fault="memory"),
    Kind("nodes", nodes=4),
    Kind("with_stacks", stacks=True),
)
FRESH_FAULTS = (
    Kind("ucx_tcp", "tcp-within-node", nbytes=1 << 20, body="ucx"),
    Kind("loop", "rank-late", count=3, fault="loop", body="allreduce"),
    Kind("pipe", "rank-late", fault="pipe", stacks=True, body="allreduce"),
    Kind("slow_disk", "storage-stalled", count=3, fault="reads", body="allreduce"),
    Kind("sigstop", "rank-stopped", count=5, nbytes=8192, body="sockets"),
    Kind("full_group", "cpu-quota", count=3, fault="busy", pause_ms=10, body="allreduce"),
    Kind("same_cpu", "cpu-affinity", fault="busy", pause_ms=25, count=2, body="ucx"),
    Kind("ext4_full", "cannot-write", count=3, fault="checkpoint", nbytes=8192, body="sockets"),
    Kind("swap", "swapping", count=3, body="allreduce"),
    Kind("far_memory", "memory-far", nbytes=8192, body="sockets"),
)
FRESH_HEALTHY = (
    Kind("ucx", nbytes=1 << 18, body="ucx"),
    Kind("sockets", nbytes=32768, count=5, body="sockets"),
    Kind("sockets_busy", nbytes=8192, count=2, fault="busy", pause_ms=40, body="sockets"),
    Kind("allreduce", nbytes=1 << 20, count=3, body="allreduce"),
    Kind("scans", fault="scans", count=3, pause_ms=60, body="allreduce"),
    Kind("writes", fault="writes", count=2, pause_ms=80, body="ucx"),
    Kind("loader", fault="loader", count=3, body="allreduce"),
    Kind("starts", warm_s=0.5, count=5, body="allreduce"),
    Kind("ends", fault="ends", count=3, body="ucx"),
    Kind("nodes", nodes=3, count=3, nbytes=1 << 19, body="allreduce"),
)
VARIANTS = (
    Kind("frozen", "rank-stopped", body="allreduce"),
    Kind("lossy_link", "network-path-slow", nodes=4, nbytes=1 << 20),
)
HEALTHY_VARIANTS = (
    Kind("two_nodes", nodes=2, count=2, nbytes=2 << 20),
    Kind("uneven", fault="uneven", pause_ms=30, body="allreduce"),
)
SETS = {
    "first": (FAULTS, HEALTHY),
    "fresh": (FRESH_FAULTS, FRESH_HEALTHY),
    "variants": (VARIANTS, HEALTHY_VARIANTS),
}


class Network:
    """Four namespaces on a bridge, and a shell that enters them by address."""

    def __init__(self, directory: Path) -> None:
        self.name, self.count = f"bj{os.getpid()}", 4
        self.shell = directory / "shell"
        enter = f"exec ip netns exec {self.name}-${{1##*.}} unshare --uts sh -c"
        text = f'#!/bin/sh\nhost=$1; shift\nset -- "$host" "$*"\n{enter}'
        self.shell.write_text(f'{text} "hostname n${{1##*.}}; $2"\n')
        self.shell.chmod(0o755)

    def __enter__(self) -> Network:
        bridge = f"{self.name}-b"
        self.ip("link", "add", bridge, "type", "bridge")
        self.ip("addr", "add", f"{NET}.254/24", "dev", bridge)
        self.ip("link", "set", bridge, "up")
        for n in range(1, self.count + 1):
            space, port = f"{self.name}-{n}", f"{self.name}p{n}"
            self.ip("netns", "add", space)
            self.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            self.ip("link", "set", port, "master", bridge, "up")
            self.ip("-n", space, "addr", "add", f"{NET}.{n}/24", "dev", "eth0")
            self.ip("-n", space, "link", "set", "eth0", "up")
            self.ip("-n", space, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for n in range(1, self.count + 1):
            self.ip("netns", "del", f"{self.name}-{n}")
        self.ip("link", "del", f"{self.name}-b")

    @staticmethod
    def ip(*words: str) -> None:
        """Run ip."""
        subprocess.run(["ip", *words], check=True)

    def shape(self, node: int) -> None:
        """Let a node send and receive no more than 20 Mbit/s."""
        limit = ["root", "tbf", "rate", "20mbit", "burst", "64kb", "latency", "100ms"]
        inner = ["ip", "netns", "exec", f"{self.name}-{node}", "tc", "qdisc"]
        subprocess.run([*inner, "replace", "dev", "eth0", *limit], check=True)
        outer = ["tc", "qdisc", "replace", "dev", f"{self.name}p{node}"]
        subprocess.run([*outer, *limit], check=True)

    def lose(self, node: int, how: str = "-A") -> None:
        """Lose one in twenty packets that a node receives."""
        rule = "INPUT -i eth0 -m statistic --mode random --probability 0.05 -j DROP"
        inner = ["ip", "netns", "exec", f"{self.name}-{node}", "iptables", how, *rule.split()]
        subprocess.run(inner, check=True)

    def keep(self, node: int) -> None:
        """Undo it."""
        self.lose(node, "-D")

    def free(self, node: int) -> None:
        """Undo it."""
        inner = ["ip", "netns", "exec", f"{self.name}-{node}", "tc", "qdisc"]
        subprocess.run([*inner, "del", "dev", "eth0", "root"], check=False)
        subprocess.run(["tc", "qdisc", "del", "dev", f"{self.name}p{node}", "root"], check=False)


@contextmanager
def cgroup(name: str, controller: str = "cpu") -> Iterator[Path]:
    """Make a control group (version 1) while the block runs."""
    group = Path("/sys/fs/cgroup") / controller / f"busbar-{name}-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        time.sleep(0.2)
        with suppress(OSError):
            group.rmdir()


@contextmanager
def preferred() -> Iterator[None]:
    """Run before others: what they do on this machine is no part of the trial."""
    with cgroup("trial") as group:
        (group / "cpu.shares").write_text(SHARES)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))


def command(kind: Kind, odd: int, sign: Path, network: Network | None) -> list[str]:
    """Return the command of a job."""
    who = odd if kind.cause else -1
    rank = [sys.executable, str(RANKS), str(kind.pause_ms), str(kind.nbytes), kind.fault]
    rank += [str(who), str(sign)]
    start = [str(BIN / "mpirun"), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    start += ["-x", f"LD_LIBRARY_PATH={BIN.parent / 'lib'}"]
    start += ["-x", f"JOB_BODY={kind.body}", "-x", f"JOB_PORT={20000 + os.getpid() % 9000}"]
    ucx = [word for n in ("tls", "devices") for word in ("--mca", f"opal_common_ucx_{n}", "any")]
    start += ["--mca", "pml", *(["ucx", *ucx] if kind.body == "ucx" else ["ob1"])]
    if kind.nodes > 1 and network:
        hosts = ",".join(f"{NET}.{n}:1" for n in range(1, kind.nodes + 1))
        start += ["--host", hosts, "--prtemca", "plm", "ssh"]
        start += ["--prtemca", "plm_ssh_agent", str(network.shell), "--leave-session-attached"]
        start += ["--mca", "btl_tcp_if_include", f"{NET}.0/24"]
    if kind.cause != "tcp-within-node":
        return [*start, "-n", str(kind.count), *rank]
    parts = []
    for n in range(kind.count):
        tcp = "UCX_TLS=tcp,self" if kind.body == "ucx" else "OMPI_MCA_btl=self,tcp"
        own = ["env", tcp] if n == odd else []  # -x would be for all
        parts += [*([":"] if n else []), "-n", "1", *own, *rank]
    return [*start, *parts]


def ranks_of(sign: Path, count: int, seconds: float) -> dict[int, int]:
    """Return the process of each rank that runs with this sign."""
    stop, found = time.monotonic() + seconds, {}
    while len(found) < count and time.monotonic() < stop:
        time.sleep(0.05)
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (place / "cmdline").read_bytes().split(b"\0")
                if str(sign).encode() in words[:8] and str(RANKS).encode() in words[:3]:
                    pairs = (place / "environ").read_bytes().split(b"\0")
                    known = dict(p.split(b"=", 1) for p in pairs if b"=" in p)
                    if number := known.get(b"OMPI_COMM_WORLD_RANK"):
                        found[int(number)] = int(place.name)
    return found


def spinning(stack: ExitStack, count: int = 1) -> list[int]:
    """Start programs that use a CPU each."""
    found = []
    for _ in range(count):
        spin = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN]))
        stack.callback(spin.kill)
        found.append(spin.pid)
    return found


def limited(stack: ExitStack, pids: Sequence[int], file: str, value: str) -> None:
    """Put processes into a control group with a limit; all leave it at the end."""
    group = stack.enter_context(cgroup("limit", file.partition(".")[0]))
    if group.parent.name == "cpu":
        (group / "cpu.shares").write_text(SHARES)
    (group / file).write_text(value)
    for pid in pids:
        (group / "cgroup.procs").write_text(str(pid))
    stack.callback((group.parent / "cgroup.procs").write_text, str(pids[0]))


def frozen(stack: ExitStack, pid: int) -> None:
    """Freeze a process by a control group."""
    group = stack.enter_context(cgroup("frozen", "freezer"))
    (group / "cgroup.procs").write_text(str(pid))
    (group / "freezer.state").write_text("FROZEN")
    stack.callback((group.parent / "cgroup.procs").write_text, str(pid))
    stack.callback((group / "freezer.state").write_text, "THAWED")


QUOTAS = {"quota": (0, "20000"), "full_group": (4, "100000")}
"""Busy programs beside the rank in its group, and the CPU time of the group in 100 ms."""


@contextmanager
def faulty(kind: Kind, odd: int, pids: dict[int, int], sign: Path, net: Network) -> Iterator[None]:
    """Put the fault in while the block runs."""
    with ExitStack() as stack:
        pid = pids.get(odd, 0)
        if kind.name == "frozen":
            frozen(stack, pid)
        elif kind.cause == "rank-stopped":
            os.kill(pid, signal.SIGSTOP)
            stack.callback(os.kill, pid, signal.SIGCONT)
        elif kind.name == "half_core":
            for rank, each in pids.items():
                os.sched_setaffinity(each, {rank % 2})
            os.sched_setaffinity(spinning(stack)[0], {odd % 2})
        elif kind.name in QUOTAS:
            others, quota_us = QUOTAS[kind.name]
            limited(stack, [pid, *spinning(stack, others)], "cpu.cfs_quota_us", quota_us)
        elif kind.name == "same_cpu":
            for each in pids.values():
                os.sched_setaffinity(each, {odd % 2})
        elif kind.name == "slow_disk":
            disk = os.stat(sign.parent).st_dev
            limit = f"{os.major(disk)}:{os.minor(disk)} 200000"
            limited(stack, [pid], "blkio.throttle.read_bps_device", limit)
        elif kind.cause == "network-path-slow":
            worse, better = (
                (net.shape, net.free) if kind.name == "slow_link" else (net.lose, net.keep)
            )
            worse(odd + 1)
            stack.callback(better, odd + 1)
        sign.touch()
        yield


def altered(sample: NodeSample, kind: Kind, odd: int) -> NodeSample:
    """Return a sample as a node with swap or two NUMA nodes gives it: this machine has neither."""
    rows = []
    for each in sample.processes:
        mine = each.rank == odd
        if kind.name == "swap" and mine:
            rows.append(replace(each, faults=800.0, swap_kib=900_000))
        elif kind.name == "far_memory":
            pages = {"1": 900_000, "0": 40_000} if mine else {"0": 900_000, "1": 20_000}
            rows.append(replace(each, numa=pages))
        else:
            rows.append(each)
    numa = {"0": "0-1", "1": "2-3"} if kind.name == "far_memory" else sample.numa
    return replace(sample, processes=tuple(rows), numa=numa)


def run(kind: Kind, odd: int, directory: Path, network: Network) -> tuple[JobAnswer, float]:
    """Run one job, and return the answer and the seconds that it took."""
    disk = directory / "disk"
    disk.mkdir(parents=True)
    sign = directory / "begin"
    with ExitStack() as stack:
        if kind.fault == "checkpoint":
            image, words = directory / "image", ["-t", "tmpfs", "-o", "size=8m", "none"]
            if kind.name == "ext4_full":
                image.write_bytes(bytes(16 << 20))
                subprocess.run(["mkfs.ext4", "-q", image], check=True)
                words = ["-o", "loop", str(image)]
            subprocess.run(["mount", *words, disk], check=True)
            stack.callback(subprocess.run, ["umount", "-l", disk], check=False)
        elif kind.fault == "reads":
            (directory / "data").write_bytes(os.urandom(1 << 20))
        log = stack.enter_context((directory / "log").open("wb"))
        words = command(kind, odd, sign, network)
        job = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        stack.callback(end, job, sign)
        pids = ranks_of(sign, kind.count, 20 if kind.warm_s >= 1 else 3)
        if kind.warm_s >= 1 and len(pids) < kind.count:
            raise SystemExit(f"{kind.name}: {(directory / 'log').read_text()[-2000:]}")
        time.sleep(kind.warm_s)
        stack.enter_context(faulty(kind, odd, pids, sign, network))
        if kind.cause:
            time.sleep(1.0)
        begin = time.monotonic()
        lines, errors = observe([[]], 5.0, pids=list(pids.values()), stacks=kind.stacks)
        if not lines:
            raise SystemExit(f"{kind.name}: {errors}")
        answer = judge("", [altered(read_sample(line), kind, odd) for line in lines])
        seconds = time.monotonic() - begin
        (directory / "sample.json").write_text("\n".join(lines))
    return answer, seconds


def end(job: subprocess.Popen[bytes], sign: Path) -> None:
    """End a job: its launcher and its ranks."""
    for pid in ranks_of(sign, 99, 0.1).values():
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with suppress(OSError):
        os.killpg(job.pid, signal.SIGTERM)
    try:
        job.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def plan(args: argparse.Namespace) -> list[tuple[Kind, int]]:
    """Return the jobs in random order, each with a rank."""
    faults, well = SETS[args.set]
    only = args.only.split(",")
    draw = random.Random(args.seed)  # noqa: S311 - a plan that can be repeated
    rows = [(k, draw.randrange(k.count)) for k in faults for _ in range(args.places)]
    rows += [(well[n % len(well)], 0) for n in range(args.healthy)]
    draw.shuffle(rows)
    return [row for row in rows if not args.only or row[0].name in only]


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; exit status 1 if a healthy job was accused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, default="first")
    parser.add_argument("--places", type=int, default=5)
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args(words)
    found, accused, faults, times, costs = 0, 0, 0, [], []
    top = args.keep or Path(tempfile.mkdtemp(prefix="job-faults-"))
    top.mkdir(exist_ok=True, parents=True)
    with preferred(), Network(top) as network:
        jobs = plan(args)
        for number, (kind, odd) in enumerate(jobs):
            answer, seconds = run(kind, odd, top / f"{number}-{kind.name}", network)
            first = answer.causes[0] if answer.causes else None
            right = first is not None and first.id == kind.cause
            ranks = [0, 1] if kind.name == "same_cpu" else [odd]
            right = right and first is not None and first.details["ranks"] == ranks
            faults += bool(kind.cause)
            found += bool(kind.cause) and right
            bad = not kind.cause and bool(answer.causes)
            accused += bad
            times.append(seconds)
            costs.append(answer.collector_cpu_s)
            mark = ("right" if right else "WRONG") if kind.cause else ("ACCUSED" if bad else "ok")
            row = f"{number:3} {kind.name:15} rank {odd} {mark:7} {answer.verdict}:"
            sys.stdout.write(f"{row} {answer.headline[:150]}\n")
            sys.stdout.flush()
    shown = {"faults": faults, "right": found, "healthy": len(jobs) - faults, "accused": accused}
    shown |= {"longest_s": round(max(times), 1), "collector_cpu_s": [min(costs), max(costs)]}
    sys.stdout.write(json.dumps(shown) + "\n")
    if not args.keep:
        shutil.rmtree(top)
    return int(accused > 0)


if __name__ == "__main__":
    sys.exit(main())
