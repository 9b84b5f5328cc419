# SPDX-License-Identifier: MIT
"""Read the state of the node, everything at the same time and each part with its deadline."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from busbar.gate import kernel_log, sysfs
from busbar.gate.bounded import Output, Task, finish, output_of, program
from busbar.gate.site import MountRule
from busbar.parse.machine import nvidia_smi
from busbar.parse.machine.nvidia_xml import SmiReport, parse_report

T = TypeVar("T")
SMI = ("nvidia-smi", "-q", "-x")
_NVLINK = ("nvidia-smi", "nvlink", "-s")
_MOUNT_S = 2.0
"""How long a file system may take to answer."""


@dataclass(frozen=True)
class MountState:
    """One file system that the site lists."""

    wanted: MountRule
    type: str = ""
    """As mounted; empty if it is not."""
    read_only: bool = False
    free_percent: float | None = None
    problem: str = ""
    """Why it is not known."""


@dataclass(frozen=True)
class Facts:
    """The state of a node. Each part that could not be read has the reason instead."""

    system: sysfs.Sysfs | None
    system_problem: str
    smi: SmiReport | None
    smi_problem: str
    nvlinks: tuple[int, ...] | None
    """Active links of each GPU."""
    nvlinks_problem: str
    log: kernel_log.KernelLog | None
    log_problem: str
    uptime_s: float
    mounts: tuple[MountState, ...]


def gather(
    seconds: float, mounts: tuple[MountRule, ...] = (), root: Path = Path("/"), *, nvidia: bool
) -> Facts:
    """Read everything; no part takes longer than ``seconds``. ``nvidia``: run nvidia-smi."""
    system = Task[sysfs.Sysfs](lambda emit: emit(sysfs.read(root)), seconds)
    log = Task[kernel_log.KernelLog](lambda emit: emit(kernel_log.read(root)), seconds)
    stats = [
        Task[MountState](_mount_reader(mount, root), min(seconds, _MOUNT_S)) for mount in mounts
    ]
    smi = program(SMI, seconds) if nvidia else None
    links = program(_NVLINK, seconds) if nvidia else None
    finish([task for task in (system, log, smi, links, *stats) if task])
    report, smi_problem = parsed(smi, parse_report)
    nvlinks, nvlinks_problem = parsed(links, nvidia_smi.parse_nvlink)
    return Facts(
        system=next(iter(system.outcome.values), None),
        system_problem=system.outcome.problem,
        smi=report,
        smi_problem=smi_problem,
        nvlinks=nvlinks,
        nvlinks_problem=nvlinks_problem,
        log=next(iter(log.outcome.values), None),
        log_problem=log.outcome.problem,
        uptime_s=_uptime_s(),
        mounts=tuple(
            next(iter(task.outcome.values), MountState(mount, problem=task.outcome.problem))
            for mount, task in zip(mounts, stats, strict=True)
        ),
    )


def _uptime_s() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def parsed(task: Task[Output] | None, parser: Callable[[str], T]) -> tuple[T | None, str]:
    """Return what ``nvidia-smi`` printed, or why it is not known."""
    if task is None:
        return None, ""
    text, problem = output_of(task)
    if problem:
        return None, f"nvidia-smi {problem}"
    try:
        return parser(text), ""
    except ValueError as error:
        return None, f"nvidia-smi: {error}"


def _mount_reader(mount: MountRule, root: Path) -> Callable[[Callable[[MountState], None]], None]:
    def work(emit: Callable[[MountState], None]) -> None:
        # An automounter mounts it now. One that hangs does not answer.
        free = None
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            space = os.statvfs(f"{mount.path}/.")
            free = 100 * space.f_bavail / space.f_blocks if space.f_blocks else None
        state = mount_state(mount, (root / "proc/self/mountinfo").read_text(errors="replace"))
        emit(replace(state, free_percent=free))

    return work


def mount_state(mount: MountRule, mountinfo: str) -> MountState:
    """Return the state of a file system from `/proc/self/mountinfo`; the last mount counts."""
    state = MountState(mount)
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words, more = before.split(), after.split()
        if len(words) < 6 or len(more) < 3 or _unescaped(words[4]) != mount.path:
            continue
        if more[0] == "autofs":
            continue
        options = {*words[5].split(","), *more[2].split(",")}
        state = MountState(mount, type=more[0], read_only="ro" in options)
    return state


def _unescaped(text: str) -> str:
    return re.sub(r"\\(?P<code>[0-7]{3})", lambda match: chr(int(match["code"], 8)), text)
