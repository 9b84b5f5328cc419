# SPDX-License-Identifier: MIT
"""What holds a job up on its GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from busbar.document import load
from busbar.engine.reading import Cause, Confidence
from busbar.explain.catalog import CAUSES
from busbar.job.evidence import LiveJob, cause, named
from busbar.job.sample import GpuState, LiveRank
from busbar.parse import numbers
from busbar.tools.nccl_monitor.read import behind
from busbar.words import grouped

_HARDWARE = {0x08: "hardware slowdown", 0x40: "heat", 0x80: "power brake"}
_ACTIVE, _IDLE = 80, 20
"""Percent of the time: of a GPU that runs a kernel, and of one that does not."""
_SLOW_CLOCK = 0.85
_FLOWS = 1e8
"""Bytes per second from which on data flows between GPUs."""
_FOREIGN_MIB = 64
_SHOWN_BY = {
    ("NCCL_P2P_DISABLE", "1"): "nccl-p2p-off",
    ("NCCL_P2P_LEVEL", "LOC"): "nccl-p2p-off",
    ("CUDA_LAUNCH_BLOCKING", "1"): "cuda-launch-blocking",
}


@dataclass(frozen=True)
class _Gpu:
    """A GPU of a rank, at the first and the last look."""

    index: int
    rank: LiveRank
    first: GpuState
    last: GpuState
    seconds: float

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
    """Return the GPUs of the ranks: by the processes that NVML lists, else by the local rank."""
    found = []
    for rank in job.ranks:
        looks = rank.node.gpus
        if len(looks) < 2 or len(looks[0][1]) != len(looks[-1][1]):
            continue
        pids, last = {each.pid for each in rank.every}, looks[-1][1]
        mine = [n for n, gpu in enumerate(last) if pids & {pid for pid, _ in gpu.processes}]
        if not mine and rank.main.gpu:
            visible = rank.main.settings.get("CUDA_VISIBLE_DEVICES", "").split(",")
            order = [int(word) for word in visible if numbers.is_whole(word)] or range(len(last))
            mine = list(order[rank.main.local_rank or 0 :][:1])
        seconds = max(looks[-1][0] - looks[0][0], 1e-3)
        found += [_Gpu(n, rank, looks[0][1][n], last[n], seconds) for n in mine if n < len(last)]
    return found


def moves(job: LiveJob) -> bool:
    """Return whether data flows between GPUs."""
    return any(gpu.nvlink >= _FLOWS or gpu.pcie >= 10 * _FLOWS for gpu in _gpus(job))


def throttled(job: LiveJob) -> Iterator[Cause]:
    """The hardware of a GPU slows it down, or its clock is below that of its peers."""
    gpus = _gpus(job)
    for gpu in gpus:
        bits = gpu.first.reasons & gpu.last.reasons
        why = [text for bit, text in _HARDWARE.items() if bits & bit]
        others = [g.last.mhz for g in gpus if g is not gpu and g.last.percent >= _ACTIVE]
        low = gpu.last.percent >= _ACTIVE and bool(others)
        low = low and 0 < gpu.last.mhz < _SLOW_CLOCK * median(others)
        if why or low:
            text = f"GPU {gpu.index} of {gpu.rank} runs at {gpu.last.mhz} MHz"
            text += f": {', '.join(why)}" if why else f", the others at {median(others):.0f} MHz"
            strength: Confidence = "certain" if why else "likely"
            yield cause("gpu-throttled", strength, text, [gpu.rank], f"GPU {gpu.index}")


def foreign(job: LiveJob) -> Iterator[Cause]:
    """Another program uses a GPU of the job."""
    gpus = _gpus(job)
    ours = {each.pid for node in job.nodes for each in node.processes}
    if not any(pid in ours for gpu in gpus for pid, _ in gpu.last.processes):
        return  # the ids are those of another namespace
    for gpu in gpus:
        for pid, mib in gpu.last.processes:
            if pid not in ours and mib >= _FOREIGN_MIB:
                text = f"PID {pid}, which is not of the job, uses GPU {gpu.index} of {gpu.rank}"
                place = f"GPU {gpu.index}"
                yield cause("gpu-busy", "likely", text, [gpu.rank], place, f"it has {mib} MiB")


def _shown_by(name: str, value: str) -> str:
    """Return the cause that a variable with this value shows; empty if it is harmless."""
    if numbers.is_whole(value):
        for id_, entry in CAUSES.items():
            if int(value) < entry.defaults.get(name, 0):
                return id_
    return _SHOWN_BY.get((name, value), "")


def settings(job: LiveJob) -> Iterator[Cause]:
    """A variable of the job makes NCCL slow, or data between GPUs does not take NVLink."""
    ranks = [r for r in job.ranks if any("nccl" in path for path in r.main.libraries or ())]
    rows = [(f"{name}={value}", r) for r in ranks for name, value in r.main.settings.items()]
    named_by_setting = set()
    for setting, mine in grouped(rows).items():
        name, _, value = setting.partition("=")
        if id_ := _shown_by(name, value):
            named_by_setting.add(id_)
            text = f"{name} is {value} in {named(mine)}"
            yield cause(id_, "likely", text, mine, "environ", setting)
    linked = [gpu for gpu in _gpus(job) if gpu.last.links and gpu.last.moved is not None]
    idle = [gpu for gpu in linked if gpu.nvlink < _FLOWS < gpu.pcie]
    if ranks and len(idle) == len(linked) > 1 and "nccl-p2p-off" not in named_by_setting:
        mine = [gpu.rank for gpu in idle]
        text = f"GPUs of {named(mine)} exchange {idle[0].pcie / 1e9:.3g} GB/s over PCIe, and their"
        yield cause("nccl-p2p-off", "likely", f"{text} NVLinks are idle", mine, "GPUs")


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
                    why = f"ranks call different collectives: {said}"
                    yield cause("collective-mismatch", "certain", why, known, "RAS", said)


def late(job: LiveJob) -> Iterator[Cause]:
    """The GPU of one rank is idle, while those of its peers run a kernel that waits for it."""
    gpus = _gpus(job)
    idle = [g for g in gpus if max(g.first.percent, g.last.percent) <= _IDLE]
    waiting = [g for g in gpus if min(g.first.percent, g.last.percent) >= _ACTIVE]
    if idle and len(idle) <= len(waiting) == len(gpus) - len(idle) and not moves(job):
        ranks = [gpu.rank for gpu in idle]
        main = ranks[0].main
        does = f"waits in {main.wchan}" if main.mean_cpu < 0.5 else "runs on its CPU"
        text = (
            f"{named(ranks)} {does} with an idle GPU, and {named([g.rank for g in waiting])} wait"
        )
        fact = f"{idle[0].last.percent} % busy, GPU {waiting[0].index} {waiting[0].last.percent} %"
        yield cause("rank-late", "likely", text, ranks, f"GPU {idle[0].index}", fact)
