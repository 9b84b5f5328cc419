# SPDX-License-Identifier: MIT
"""What holds a job up on its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from busbar.document import load
from busbar.engine.busy import REASONS
from busbar.engine.reading import Cause
from busbar.explain.catalog import CAUSES
from busbar.explain.xid import catalog
from busbar.gate.kernel_log import JOB_FAULT
from busbar.gate.site import UNKNOWN_XID, Xid
from busbar.gate.sysfs import short_address
from busbar.job.evidence import LIMIT, TABLE, LiveJob, cause, named
from busbar.job.sample import GpuState, LiveRank
from busbar.parse import numbers
from busbar.tools.nccl_monitor.read import behind
from busbar.words import grouped

_DEVICE = len("0000:3b:00")
_BY_WORDS = Xid("unknown", "see its text", "")
_OF_OTHERS = ("notice", "consequence")


@dataclass(frozen=True)
class _Gpu:
    """A GPU of a rank."""

    index: int
    rank: LiveRank
    first: GpuState
    last: GpuState
    seconds: float
    percents: tuple[int, ...]
    """How busy it was at each look."""

    @property
    def nvlink(self) -> float:
        """Bytes per second over NVLink in one direction."""
        if self.first.moved is None or self.last.moved is None:
            return 0.0
        return (self.last.moved - self.first.moved) / self.seconds

    @property
    def pcie(self) -> float:
        """Bytes per second over PCI Express in one direction."""
        return max(self.first.pcie, self.last.pcie)


def _gpus(job: LiveJob) -> list[_Gpu]:
    """Return the GPUs of the ranks, from NVML's process list or from the local rank."""
    found = []
    for rank in job.ranks:
        looks = rank.node.gpus
        if len(looks) < 2 or len({len(row) for _, row in looks}) > 1:
            continue
        pids, last = {each.pid for each in rank.every}, looks[-1][1]
        mine = [n for n, gpu in enumerate(last) if pids & {pid for pid, _ in gpu.processes}]
        if not mine and rank.main.gpu:
            names = [n for n in rank.main.settings if n.endswith("_VISIBLE_DEVICES")]
            visible = rank.main.settings[names[0]].split(",") if names else ()
            order = [int(word) for word in visible if numbers.is_whole(word)] or range(len(last))
            mine = list(order[rank.main.local_rank or 0 :][:1])
        seconds = max(looks[-1][0] - looks[0][0], 1e-3)
        for n in (n for n in mine if n < len(last)):
            percents = tuple(row[n].percent for _, row in looks)
            found.append(_Gpu(n, rank, looks[0][1][n], last[n], seconds, percents))
    return found


def moves(job: LiveJob) -> bool:
    """Return whether data flows between GPUs."""
    flows = LIMIT.gpu_bytes_per_s
    return any(gpu.nvlink >= flows or gpu.pcie >= 10 * flows for gpu in _gpus(job))


def throttled(job: LiveJob) -> Iterator[Cause]:
    """The hardware of a GPU slows it down, or its clock is below its peers' clocks."""
    gpus = _gpus(job)
    busy = [gpu for gpu in gpus if gpu.last.percent >= LIMIT.active]
    for gpu in gpus:
        bits = gpu.first.reasons & gpu.last.reasons & LIMIT.hardware_slows
        others = [each.last.mhz for each in busy if each is not gpu]
        if why := ", ".join(text for bit, text in REASONS.items() if bits & bit):
            yield cause("throttled", [gpu.rank], gpu=gpu, why=why)
        elif gpu in busy and others and 0 < gpu.last.mhz < LIMIT.slow_clock * median(others):
            yield cause("slow_clock", [gpu.rank], gpu=gpu, usual=median(others))


def foreign(job: LiveJob) -> Iterator[Cause]:
    """Another program uses a GPU of the job."""
    gpus = _gpus(job)
    ours = {each.pid for node in job.nodes for each in node.processes}
    if not any(pid in ours for gpu in gpus for pid, _ in gpu.last.processes):
        return  # the ids belong to another namespace
    for gpu in gpus:
        for pid, mib in gpu.last.processes:
            if pid not in ours and mib >= LIMIT.foreign_mib:
                yield cause("foreign", [gpu.rank], gpu=gpu, pid=pid, mib=mib)


def _shown_by(name: str, value: str) -> str:
    """Return the cause that a variable with this value shows; empty if it is harmless."""
    if numbers.is_whole(value):
        for id_, entry in CAUSES.items():
            if int(value) < entry.defaults.get(name, 0):
                return id_
    return str(TABLE["settings"].get(f"{name}={value}", ""))


def kernel_errors(job: LiveJob) -> Iterator[Cause]:
    """The driver of a GPU of the job reported an error since the rank started."""
    for gpu in _gpus(job):
        for kind, bus, code, ago_s, words in gpu.rank.node.kernel:
            known = catalog().get(code, UNKNOWN_XID) if kind == "xid" else _BY_WORDS
            own = short_address(bus)[:_DEVICE] == short_address(gpu.last.bus)[:_DEVICE]
            lived = gpu.rank.main.age_s + gpu.rank.node.seconds
            if known.kind in _OF_OTHERS or ago_s > lived or not (own or kind == "sxid"):
                continue
            program = known.kind == "application" or (kind == "amdgpu" and JOB_FAULT.search(words))
            id_ = "nvswitch-fabric" if kind == "sxid" else f"gpu-{'program-' * bool(program)}fault"
            fields = {"gpu": gpu, "kind": kind, "code": code, "ago": ago_s, "words": words}
            yield cause("kernel", [gpu.rank], id_=id_, **fields, meaning=known.meaning)


def settings(job: LiveJob) -> Iterator[Cause]:
    """A variable of the job makes NCCL slow, or data between GPUs does not take NVLink."""
    ranks = [r for r in job.ranks if any("nccl" in path for path in r.main.libraries or ())]
    rows = [(pair, r) for r in ranks for pair in r.main.settings.items()]
    shown = set()
    for (name, value), mine in grouped(rows).items():
        if id_ := _shown_by(name, value):
            shown.add(id_)
            yield cause("settings", mine, id_=id_, name=name, value=value)
    linked = [gpu for gpu in _gpus(job) if gpu.last.links and gpu.last.moved is not None]
    idle = [gpu for gpu in linked if gpu.nvlink < LIMIT.gpu_bytes_per_s < gpu.pcie]
    if ranks and len(idle) == len(linked) > 1 and "nccl-p2p-off" not in shown:
        yield cause("nvlink_idle", [gpu.rank for gpu in idle], rate=idle[0].pcie / 1e9)


def collectives(job: LiveJob) -> Iterator[Cause]:
    """Ranks started different collectives, as NCCL's RAS counts them.

    Ranks that call the same ones are at different places of one sequence: the first of them is
    behind in none.
    """
    by_pid = {rank.main.pid: rank for rank in job.ranks}
    words = "rank {rank} has started {count} of {most} {operation}".format_map
    for text in [node.ras for node in job.nodes if node.ras]:
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # of another program
            for ranks in [each["ranks"] for each in load(text)["communicators"]]:
                rows = list(behind(ranks))
                if len({row["rank"] for row in rows}) < max(len(ranks), 2):
                    continue
                kinds = grouped((row["operation"], row["rank"]) for row in rows)
                odd = {n for mine in kinds.values() if 2 * len(mine) <= len(ranks) for n in mine}
                mine = [by_pid.get(rank["pid"]) for rank in ranks if str(rank["rank"]) in odd]
                said = ", ".join(map(words, {row["operation"]: row for row in rows}.values()))
                if known := [rank for rank in mine if rank]:
                    yield cause("collectives", known, said=said)


def late(job: LiveJob) -> Iterator[Cause]:
    """The GPU of one rank is idle, while the GPUs of its peers run a kernel that waits for it."""
    gpus = _gpus(job)
    idle = [g for g in gpus if max(g.percents) <= LIMIT.idle]
    waiting = [g for g in gpus if min(g.percents) >= LIMIT.active]
    if idle and len(idle) <= len(waiting) == len(gpus) - len(idle) and not moves(job):
        main, rest = idle[0].rank.main, named([gpu.rank for gpu in waiting])
        does = f"waits in {main.wchan}" if main.mean_cpu < LIMIT.computes else "runs on its CPU"
        fields = {"gpu": idle[0], "other": waiting[0], "waiting": rest, "does": does}
        yield cause("gpu_late", [gpu.rank for gpu in idle], **fields)
