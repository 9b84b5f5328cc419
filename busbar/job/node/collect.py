# SPDX-License-Identifier: MIT
"""What the processes of a job do on this node for some seconds, as one line of JSON.

`busbar job` sends this package as text to ``python3 -`` on each node. Python 3.11 and its standard
library suffice. It only reads: nothing is stopped, traced or signalled, except by ``--stacks``,
with which py-spy pauses each rank for a moment.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from busbar.gate.bounded import Task, finish
from busbar.job.node import network, process
from busbar.job.node.nvml import gpu_looks
from busbar.job.node.process import probe, text_in

_LOOK_S = 0.5
_MOST_LOOKS = 1500
"""Of all processes together: each costs about 0.1 ms of CPU time."""
_MOST_PROCESSES = 1024
_WAIT_S = 4.0
"""For drivers, NCCL and py-spy."""
_NUMA_MOST_KIB = 16 << 20
"""The kernel walks all pages of a process for its placement, which keeps it from mapping more."""
_BUSY = 0.1
_NUMA = Path("/sys/devices/system/node")


def ras(place: str) -> str:
    """Return what NCCL says of its communicators; empty if it does not answer."""
    host, _, port = (place or "localhost:28028").rpartition(":")
    answer = b""
    with suppress(OSError), socket.create_connection((host, int(port)), _WAIT_S / 3) as stream:
        stream.settimeout(_WAIT_S / 3)
        for line in (b"CLIENT PROTOCOL 2\n", b"TIMEOUT 1\n", b"SET FORMAT json\n"):
            stream.sendall(line)
            stream.recv(4096)
        stream.sendall(b"VERBOSE STATUS\n")
        while len(answer) < 1 << 20 and (piece := stream.recv(1 << 16)):
            answer += piece
    return answer.decode("utf-8", "replace")


def stack(pid: int) -> str:
    """Return the Python stacks of a process by py-spy."""
    program = shutil.which("py-spy") or os.path.join(os.path.dirname(sys.executable), "py-spy")
    done = subprocess.run([program, "dump", "--pid", str(pid)], capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace")[:8192]


class Look:
    """What is read at the beginning, during and at the end."""

    def __init__(self, known: dict[int, dict[str, Any]], seconds: float) -> None:
        self.known = known
        count = max(2, min(int(seconds / _LOOK_S), _MOST_LOOKS // max(len(known), 1)))
        begin = time.monotonic()
        self.times = [begin + seconds * n / count for n in range(count + 1)]
        self.looks: dict[int, list[tuple[float, Any]]] = {pid: [] for pid in known}
        self.sockets: dict[str, list[Any]] = {}
        self.spaces: dict[int, str] = {}
        for pid in known:
            with suppress(OSError):
                self.spaces[pid] = os.readlink(f"/proc/{pid}/ns/net")
        self.firsts = {space: pid for pid, space in self.spaces.items()}
        ends = [self.times[0], self.times[-1]]
        self.probes: dict[str, Task[Any]] = {
            "files": probe(known, process.descriptors),
            "maps": probe(known, process.maps_of),
            "GPUs": probe([0], lambda _: gpu_looks(ends), seconds + _WAIT_S),
        }

    def read(self) -> tuple[float, dict[int, Any], dict[int, Any], dict[str, Any]]:
        """Return what is compared between beginning and end, with the time."""
        ports: dict[str, Any] = {s: network.interfaces(p) for s, p in self.firsts.items()}
        ports["rdma"] = network.rdma()
        counters = {pid: process.counters(pid) for pid in self.known}
        return time.monotonic(), process.everything(), counters, ports

    def found(self, name: str) -> dict[Any, Any]:
        """Return what a probe found, after its end or deadline."""
        finish([self.probes[name]])
        return dict(self.probes[name].outcome.values)

    def watch(self) -> None:
        """Look at each process and at its sockets until the time is over."""
        fds = self.found("files")
        owners = {inode: pid for pid, row in fds.items() for inode in row[0]}
        for at in self.times:
            time.sleep(max(at - time.monotonic(), 0))
            for pid, rows in self.looks.items():
                if row := process.light(pid):
                    rows.append((time.monotonic(), row))
            for pid in self.firsts.values():
                network.queues(pid, owners, self.sockets)

    def run(self, stacks: bool) -> dict[str, Any]:
        """Return all that was seen."""
        start = self.read()
        self.watch()
        end = self.read()
        alive = [pid for pid in self.known if pid in end[1]]
        status = {pid: process.words_of(f"/proc/{pid}/status") for pid in alive}
        small = [p for p in alive if int(status[p].get("VmRSS", 0)) < _NUMA_MOST_KIB]
        files = [place for row in self.found("files").values() for place, _ in row[2]]
        ranks = [p for p in alive if self.known[p]["rank"] is not None] or alive
        maps = self.found("maps")
        nccl = [p for p, row in maps.items() if any("nccl" in each for each in row[0])]
        places = {self.known[pid]["ras"] for pid in nccl}
        self.probes |= {
            "NUMA": probe(small if (_NUMA / "node1").exists() else (), process.pages),
            "file systems": probe(files[:256], process.space),
            "stacks": probe(ranks if stacks else (), stack, _WAIT_S),
            "RAS": probe(places, ras, _WAIT_S),
        }
        found = {name: self.found(name) for name in self.probes}
        seconds = end[0] - start[0]
        return {
            "seconds": round(seconds, 3),
            "processes": [
                self.process(p, start, end, status.get(p, {}), found) for p in self.known
            ],
            "others": self.others(start[1], end[1], seconds),
            "sockets": list(self.sockets.values())[:1024],
            "ports": {
                space: {n: (rows[n] - start[3][space].get(n, rows[n])) / seconds for n in rows}
                for space, rows in end[3].items()
            },
            "gpus": found["GPUs"].get(0, []),
            "ras": max(found["RAS"].values(), key=len, default=""),
            "problems": [
                f"{n}: {p.outcome.problem}" for n, p in self.probes.items() if p.outcome.problem
            ],
        }

    def process(self, pid: int, start: Any, end: Any, status: Any, found: Any) -> dict[str, Any]:
        """Return what is known of one process."""
        stat = end[1].get(pid) or start[1].get(pid) or ("?", "?", 0, 0, 0, 0.0, 0)
        seconds, (_, gpu, files) = end[0] - start[0], found["files"].get(pid, ([], False, []))
        rows, before, after = self.looks[pid], start[2][pid], end[2][pid]
        ticks = [(b[1][1] - a[1][1], b[0] - a[0]) for a, b in pairwise(rows)]
        grown = [(rows[-1][1][n] - rows[0][1][n]) / seconds if rows else 0.0 for n in (2, 3)]
        waits = [0.0]
        for tid, (run, wait) in after["threads"].items():
            ran, waited = (
                a - b
                for a, b in zip((run, wait), before["threads"].get(tid, (run, wait)), strict=True)
            )
            waits += [waited / seconds / 1e9] * (ran + waited > 0.2e9 * seconds)
        cut = {
            place: (cpus, (now - before["quotas"].get(place, (0, 0, now))[2]) * period / seconds)
            for place, (cpus, period, now) in after["quotas"].items()
        }
        libraries, shared = found["maps"].get(pid, (None, []))
        return {
            **{k: v for k, v in self.known[pid].items() if k not in ("ras", "job")},
            "pid": pid,
            "name": stat[0],
            "parent": stat[2],
            "gone": pid not in end[1],
            "age_s": float((text_in("/proc/uptime") or "0").split()[0]) - stat[5] - seconds,
            "space": self.spaces.get(pid, ""),
            "states": "".join(r[1][0][:1] for r in rows),
            "wchan": rows[-1][1][4] if rows else "",
            "cpu": [round(n * process.TICK_S / max(s, 1e-3), 3) for n, s in ticks],
            "wait": min(max(waits), 1.0),
            "faults": grown[0],
            "switches": grown[1],
            "moved": [
                (a - b) / seconds for a, b in zip(after["moved"], before["moved"], strict=True)
            ],
            "cut": cut,
            "swap_kib": int(status.get("VmSwap", 0)),
            "allowed": status.get("Cpus_allowed_list", "")[:400],
            "libraries": libraries,
            "shared": shared,
            "gpu": gpu,
            "files": [(name, found["file systems"].get(place)) for place, name in files],
            "numa": found["NUMA"].get(pid, {}),
            "stack": found["stacks"].get(pid, ""),
        }

    def others(self, before: Any, after: Any, seconds: float) -> list[Any]:
        """Return processes of others that used a CPU: id, name, share of a CPU, last CPU."""
        rows = [
            (
                pid,
                stat[0],
                round((stat[3] - before[pid][3]) * process.TICK_S / seconds, 3),
                stat[6],
            )
            for pid, stat in after.items()
            if pid in before and pid not in self.known and pid != os.getpid()
        ]
        return sorted((row for row in rows if row[2] >= _BUSY), key=lambda row: -row[2])[:32]


def main() -> None:
    """Look, and print the document as a line of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", default="")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--stacks", action="store_true")
    parser.add_argument("--pids", default="")
    args = parser.parse_args()
    roots = [int(word) for word in args.pids.split(",") if word.isdigit()]
    who = process.members(args.job, roots, process.everything())
    finish([who])
    known = {pid: row for pid, row in who.outcome.values[: 1 << 16] if row}
    document = Look(dict(list(known.items())[:_MOST_PROCESSES]), args.seconds).run(args.stacks)
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    document |= {
        "schema": "busbar-job-sample/1",
        "node": socket.gethostname().partition(".")[0][:64],
        "root": not os.geteuid(),
        "numa": {p.name[4:]: text_in(f"{p}/cpulist").strip() for p in _NUMA.glob("node[0-9]*")},
        "cpu_s": round(sum(u.ru_utime + u.ru_stime for u in used), 4),
    }
    data = f"\n{json.dumps(document)}\n".encode()
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)  # whatever hangs


if __name__ == "__main__":
    main()
