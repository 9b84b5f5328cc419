# SPDX-License-Identifier: MIT
"""What the processes of a job do on this node for some seconds, as one line of JSON.

`busbar job` sends this package as text to ``python3 -`` on each node. Python 3.11 and its standard
library suffice. It only reads: nothing is stopped, traced or signalled, except by ``--stacks``,
with which py-spy pauses each rank for a moment, and ``--flight-recorder``, which asks for a dump.
"""

from __future__ import annotations

import json
import math
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

from busbar.gate import kernel_log
from busbar.gate.bounded import Task, finish
from busbar.job.node import amdgpu, network, nvml, process
from busbar.job.node.process import probe, text_in

_LOOK_S = 0.5
_MOST_LOOKS = 4000
_MOST_THREADS = 4000
"""Of all processes together: each costs 10 to 20 us of CPU time."""
_SOCKETS_S = 0.15
"""CPU time for the sockets of the node: the kernel lists the sockets of all jobs."""
_PART = 900
"""Characters of a line."""
_MOST_PROCESSES = 1024
_MOST_ERRORS = 100
_WAIT_S = 4.0
"""For drivers, NCCL and py-spy."""
_NUMA_MOST_KIB = 16 << 20
"""The kernel walks all pages of a process for its placement, which keeps it from mapping more."""
_BUSY = 0.1
"""CPUs that a process of others uses, at least."""
_WORKS = 0.2
"""CPUs that a thread uses or waits for, at least."""
_STACKS_S = 8.0
_SWITCHES = "voluntary_ctxt_switches"
_NO_STACK = "Python stacks: the ranks are not Python, or py-spy may not read them"
_NO_SPY = "Python stacks: py-spy is not installed on the node: pip install py-spy"
_NUMA = Path("/sys/devices/system/node")


def stacks(program: str, pids: list[int]) -> dict[int, str]:
    """Return how often each Python stack of each process was seen, by py-spy."""
    options = "record --duration 2 --rate 5 --idle --format raw --output /dev/stdout --pid"
    words = [program, *options.split()]
    running = {p: subprocess.Popen([*words, str(p)], stdout=subprocess.PIPE) for p in pids}
    texts = {pid: each.communicate()[0] for pid, each in running.items()}
    return {pid: text.decode("utf-8", "replace")[:16384] for pid, text in texts.items()}


def kernel_errors() -> list[tuple[str, str, int, float, str]]:
    """Return kind, PCI address, code, age in s and text of log entries of GPU drivers.

    Only entries that the kernel itself wrote count: a program can write to other logs.
    """
    log, now = kernel_log.read(Path("/")), time.monotonic()
    errors = log.errors[-_MOST_ERRORS:] if log.certain else ()
    return [(e.kind, e.bus_id, e.code, round(now - e.seconds, 1), e.text) for e in errors]


class Look:
    """Readings at the beginning, during and at the end."""

    def __init__(self, known: dict[int, Any], asked: dict[str, Any], first: tuple[float, Any]):
        """``first``: when all processes were listed, and these."""
        self.known: dict[int, dict[str, Any]] = known
        self.asked, seconds = asked, asked["seconds"]
        self.listed, self.table = first
        count = max(2, min(int(seconds / _LOOK_S), _MOST_LOOKS // max(len(known), 1)))
        begin = time.monotonic()
        self.times = [begin + seconds * n / count for n in range(count + 1)]
        self.looks: dict[int, list[Any]] = {pid: [] for pid in known}
        self.waits: dict[int, set[str]] = {pid: set() for pid in known}
        self.sockets: dict[str, list[Any]] = {}
        self.spaces = {pid: process.namespace(pid) for pid in known}
        self.firsts = {space: pid for pid, space in self.spaces.items() if space}
        ends = [self.times[0], self.times[-1]]
        rows = [(p, row) for p, row in known.items() if row["pipe"] and asked["recorder"]]
        ranks = [(p, f"{row['pipe']}{row['rank']}.pipe", row["dump"]) for p, row in rows]
        self.recorders = [0] * bool(ranks), lambda _: process.dumps(ranks, _WAIT_S), 2 * _WAIT_S
        self.probes: dict[str, Task[Any]] = {
            "files": probe(known, process.descriptors),
            "maps": probe(known, process.maps_of),
            "GPUs": probe([0], lambda _: nvml.gpu_looks(ends), seconds + _WAIT_S),
            "GPUs of AMD": probe([0], lambda _: amdgpu.gpu_looks(self.times), seconds + _WAIT_S),
            "kernel log": Task(lambda emit: emit((0, kernel_errors())), seconds),
        }
        if ranks:
            self.probes["flight recorder"] = probe(*self.recorders)

    def read(self) -> tuple[float, dict[int, Any], dict[str, Any]]:
        """Return the values to compare between beginning and end: time, counters, ports."""
        ports: dict[str, Any] = {s: network.interfaces(p) for s, p in self.firsts.items()}
        counted, self.limits = network.ports()
        threads = _MOST_THREADS // max(len(self.known), 1)
        counters = {pid: process.counters(pid, threads) for pid in self.known}
        return time.monotonic(), counters, ports | counted

    def found(self, name: str, *new: Any) -> dict[Any, Any]:
        """Return what a probe found after its end or deadline; start it if it is new.

        A child costs 4 ms of CPU time: there is none without items.
        """
        if new and new[0]:
            self.probes[name] = probe(*new)
        if name not in self.probes:
            return {}
        finish([self.probes[name]])
        return dict(self.probes[name].outcome.values)

    def watch(self) -> None:
        """Look at each process and at its sockets until the time is over."""
        finish([self.probes[name] for name in ("files", "maps")])
        owners = {inode: pid for pid, row in self.found("files").items() for inode in row[0]}
        tables = [(pid, family) for pid in self.firsts.values() for family in ("tcp", "tcp6")]
        every = 1
        for number, at in enumerate(self.times):
            time.sleep(max(at - time.monotonic(), 0))
            for pid, rows in self.looks.items():
                if row := process.stat_of(pid):
                    rows.append((time.monotonic(), row[1], row[3], row[4]))
            if number % every == 0:
                begin = time.process_time()
                for pid, names in self.waits.items():
                    names.add(text_in(f"/proc/{pid}/wchan", 64))
                tables = [t for t in tables if network.queues(*t, owners, self.sockets)]
                cost = (time.process_time() - begin) * len(self.times)
                every = max(1, min(math.ceil(cost / _SOCKETS_S), len(self.times) // 3))

    def run(self) -> dict[str, Any]:
        """Return all that was seen."""
        start = self.read()
        self.watch()
        end, table = self.read(), process.everything()
        seconds, alive = end[0] - start[0], [pid for pid in self.known if pid in table]
        rows = {pid: self.process(pid, start, end, table.get(pid)) for pid in self.known}
        files = [place for row in self.found("files").values() for place, _ in row[2]][:256]
        small = [p for p in alive if int(rows[p].pop("rss_kib")) < _NUMA_MOST_KIB]
        small *= (_NUMA / "node1").exists()  # else there is one NUMA node
        for found in (self.found("maps"), self.found("NUMA", small, process.pages)):
            for pid, more in found.items():
                rows[pid] |= more
        spaces = self.found("file systems", files, process.space)
        unix = [0] * any("unix" in row["wchan"] for row in rows.values())
        pairs = self.found("UNIX sockets", unix, lambda _: network.unix_pairs()).get(0, {})
        joints = process.joints(self.found("files"), pairs)
        for pid, (_, gpu, mine, _) in self.found("files").items():
            rows[pid]["files"] = [(name, spaces.get(place)) for place, name in mine]
            rows[pid] |= {"gpu": gpu, "joints": joints[pid]}
        for name, again in (("flight recorder", ()), ("flight recorder again", self.recorders)):
            for pid, dump in self.found(name, *again).get(0, {}).items():
                rows[pid].setdefault("recorded", []).append(dump)
        unread: list[str] = []
        if self.asked["stacks"]:
            ranks = [p for p in alive if self.known[p]["rank"] is not None] or alive
            places = (os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable))
            spy = shutil.which("py-spy", path=os.pathsep.join(places)) or ""
            tried = [0] * bool(spy)
            texts = self.found("stacks", tried, lambda _: stacks(spy, ranks), _STACKS_S).get(0, {})
            unread = [] if any(texts.values()) else [_NO_STACK if spy else _NO_SPY]
            for pid, text in texts.items():
                rows[pid]["stack"] = text
        asked = {self.known[p]["ras"] for p in rows if "nccl" in str(rows[p].get("libraries"))}
        ras = self.found("RAS", asked, network.ras, _WAIT_S)
        return {
            "seconds": round(seconds, 3),
            "processes": list(rows.values()),
            "others": self.others(table),
            "sockets": list(self.sockets.values()),
            "ports": {
                space: {
                    n: (now - start[2][space].get(n, 0 if space == "errors" else now)) / seconds
                    for n, now in row.items()
                }
                for space, row in end[2].items()
            },
            "limits": self.limits,
            "gpus": self.found("GPUs").get(0) or self.found("GPUs of AMD").get(0, []),
            "kernel": self.found("kernel log").get(0, []),
            "ras": max(ras.values(), key=len, default=""),
            "problems": unread
            + [f"{n}: {p.outcome.problem}" for n, p in self.probes.items() if p.outcome.problem],
        }

    def process(self, pid: int, start: Any, end: Any, last: Any) -> dict[str, Any]:
        """Return what the looks and counters tell of one process; ``last``: its row at the end."""
        stat = last or self.table.get(pid, ("?", "?", 0, 0, 0, 0.0, 0))
        seconds, before, after = end[0] - start[0], start[1][pid], end[1][pid]
        looks = self.looks[pid]
        steps = [(b[2] - a[2], max(b[0] - a[0], 1e-3)) for a, b in pairwise(looks)]
        waits = [0.0]
        for tid, (run, wait) in after["threads"].items():
            ran, waited = before["threads"].get(tid, (run, wait))
            if run - ran + wait - waited > _WORKS * seconds * 1e9:
                waits.append(min((wait - waited) / seconds / 1e9, 1.0))
        cut = {
            place: (cpus, (now - before["quotas"].get(place, (0, 0, now))[2]) * period / seconds)
            for place, (cpus, period, now) in after["quotas"].items()
        }
        status = after["status"]
        switches = [int(each["status"].get(_SWITCHES, 0)) for each in (before, after)]
        return self.known[pid] | {
            "pid": pid,
            "name": stat[0],
            "parent": stat[2],
            "gone": not last or stat[1] == "Z",
            "age_s": time.clock_gettime(time.CLOCK_BOOTTIME) - stat[5] - seconds,
            "space": self.spaces[pid],
            "states": "".join(row[1][:1] for row in looks),
            "wchan": text_in(f"/proc/{pid}/wchan", 64),
            "waits": sorted(self.waits[pid]),
            "wait": max(waits),
            "cut": cut,
            "cpu": [round(ticks * process.TICK_S / s, 3) for ticks, s in steps],
            "faults": (looks[-1][3] - looks[0][3]) / seconds if looks else 0.0,
            "switches": max(switches[1] - switches[0], 0) / seconds,
            "moved": [(after["moved"][n] - before["moved"][n]) / seconds for n in range(4)],
            "swap_kib": int(status.get("VmSwap", 0)),
            "rss_kib": int(status.get("VmRSS", 0)),
            "allowed": status.get("Cpus_allowed_list", "")[:400],
        }

    def others(self, table: dict[int, Any]) -> list[Any]:
        """Return processes of others that used a CPU: id, name, share of a CPU, last CPU."""
        rows, seconds = [], time.monotonic() - self.listed
        for pid in table.keys() & self.table.keys() - self.known.keys() - {os.getpid()}:
            share = (table[pid][3] - self.table[pid][3]) * process.TICK_S / seconds
            if share >= _BUSY:
                rows.append((pid, table[pid][0], round(share, 3), table[pid][6]))
        return sorted(rows, key=lambda row: -row[2])[:32]


def in_parts(text: str, of: str) -> str:
    """Return a document in short lines: srun mixes lines of several nodes beyond 1 or 2 KiB."""
    return "\n".join(
        ["", *(f"part {of} {text[at : at + _PART]}" for at in range(0, len(text), _PART)), ""]
    )


def documents(text: str) -> list[str]:
    """Return only the documents in the output of collectors."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        of, blank, part = rest.partition(" ")
        if word == "part" and blank:
            found.setdefault(of, []).append(part)
    return list(map("".join, found.values()))


def main() -> None:
    """Look as the JSON of the argument asks, and print the document in parts."""
    asked = json.loads(sys.argv[1])
    first = time.monotonic(), process.everything()
    who = process.members(asked["job"], asked["pids"], first[1])
    finish([who])
    known = {pid: row for pid, row in who.outcome.values[: 1 << 16] if row}
    document = Look(dict(list(known.items())[:_MOST_PROCESSES]), asked, first).run()
    with suppress(ChildProcessError):  # killed ones count as well
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    document |= {
        "schema": "busbar-job-sample/1",
        "node": socket.gethostname().partition(".")[0][:64],
        "root": not os.geteuid(),
        "numa": {p.name[4:]: text_in(f"{p}/cpulist").strip() for p in _NUMA.glob("node[0-9]*")},
        "cpu_s": round(sum(u.ru_utime + u.ru_stime for u in used), 4),
    }
    data = in_parts(json.dumps(document), os.urandom(8).hex()).encode()
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)  # whatever hangs


if __name__ == "__main__":
    main()
