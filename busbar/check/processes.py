# SPDX-License-Identifier: MIT
"""Run a command in a child process, and leave no processes behind.

The process that the user starts only waits: it forwards signals and ends left-over processes. The
command runs in a child, which is notified of its parent's death. Both adopt orphaned descendants,
so that a launcher cannot detach its ranks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from busbar.terminal import stderr
from busbar.words import grouped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a command to end."""
_DEATH = signal.SIGUSR2
"""Sent by the kernel when the parent has died."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_KILLED_S = 1.5
"""Time for a killed process to disappear."""
_REPORT_S = 60
"""Time for the command to write its report after a signal."""


class Interrupted(BaseException):
    """A signal asked the command to end."""


class Interruption:
    """Handler of the first signal that asks this process to end.

    Its children get SIGTERM and, after ``grace`` seconds, all descendants SIGKILL. ``Interrupted``
    is raised, except inside :meth:`held`.
    """

    def __init__(self, grace: float = 2.5) -> None:
        self.name = ""
        """Such as ``SIGTERM``; empty without a signal."""
        self.grace = grace
        """A command may set it if its children need longer to end."""
        self._number = 0
        self._held = False

    @property
    def status(self) -> int:
        """The exit status of a command ended by the signal."""
        return 128 + self._number

    def install(self) -> None:
        """Handle the signals."""
        for number in _handled():
            signal.signal(number, self._handle)
        signal.signal(_DEATH, self._handle)
        signal.signal(signal.SIGALRM, self._kill)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do not raise inside: the caller checks ``name``."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before

    def finish(self) -> list[int]:
        """End the descendants of this process; return those that do not end."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        return end_descendants()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.name:
            return
        # Only SIGKILL, or a fault, ends the parent before its child.
        self._number = signal.SIGKILL if number == _DEATH else number
        self.name = signal.Signals(self._number).name
        me = os.getpid()
        _signal((pid for pid, parent in _parents().items() if parent == me), signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, self.grace, self.grace / 10)
        if not self._held:
            raise Interrupted

    def _kill(self, *_: object) -> None:
        _signal(descendants(), signal.SIGKILL)
        if not self._held:
            raise Interrupted  # a library's callback may have swallowed the first one


def supervised(command: Callable[[Interruption], int]) -> int:
    """Run ``command`` in a child; return its exit status when all its processes have ended.

    The child receives a signal to this process, its group or its terminal once. If this process
    dies, the child is interrupted.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # A signal that arrives before its handler is installed must wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    me = os.getpid()
    child = os.fork()
    if not child:
        _run_child(command, me)
    adopt_orphans()

    def forward(number: int, _: FrameType | None) -> None:
        _signal([child], number)
        signal.alarm(_REPORT_S)

    before = {number: signal.signal(number, forward) for number in _handled()}
    before[signal.SIGALRM] = signal.signal(
        signal.SIGALRM, lambda *_: _signal([child], signal.SIGKILL)
    )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _, waited = os.waitpid(child, 0)
    signal.alarm(0)
    left = end_descendants()
    _prctl(_PR_SET_CHILD_SUBREAPER, 0)
    for number, handler in before.items():
        signal.signal(number, handler)
    if left:
        stderr().line(f"busbar: these processes do not end: {' '.join(map(str, left))}")
    status = os.waitstatus_to_exitcode(waited)
    if status < 0:
        name = signal.Signals(-status).name
        stderr().line(f"busbar: {name} ended the command before its verdict")
        return 128 - status
    return status


def _run_child(command: Callable[[Interruption], int], parent: int) -> NoReturn:
    """Run the command in this new process, and exit."""
    interruption = Interruption()
    status = 1
    try:
        os.setsid()  # signals to the parent's group or terminal reach only the parent
        adopt_orphans()
        interruption.install()
        sys.unraisablehook = _report_unraisable
        end_with_parent(_DEATH)
        if os.getppid() != parent:
            os.kill(os.getpid(), _DEATH)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        status = command(interruption)
    except Interrupted:
        status = interruption.status
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 1
    except BaseException:  # noqa: BLE001 - printed here: os._exit below ends without a traceback
        sys.excepthook(*sys.exc_info())
    finally:
        with interruption.held():
            interruption.finish()
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # closed, or the reader has gone
                    stream.flush()
            os._exit(status)


def _report_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Report an exception in a callback, except an interruption, which is raised again."""
    if not isinstance(unraisable.exc_value, Interrupted):
        sys.__unraisablehook__(unraisable)


def end_descendants(grace: float = 1.0) -> list[int]:
    """End all descendants of this process: SIGTERM, and SIGKILL ``grace`` seconds later.

    Return the descendants that are still running ``_KILLED_S`` seconds after that.
    """
    terminated: set[int] = set()
    start = time.monotonic()
    while pids := descendants():
        passed = time.monotonic() - start
        if passed > grace + _KILLED_S:
            break
        if passed > grace:
            _signal(pids, signal.SIGKILL)
        else:
            _signal(pids - terminated, signal.SIGTERM)
            terminated |= pids
        time.sleep(_POLL_S)
    return sorted(pids)


def descendants() -> set[int]:
    """Return the processes below this one that have not ended."""
    children = grouped((parent, pid) for pid, parent in _parents().items())
    found: set[int] = set()
    level = [os.getpid()]
    while level:
        level = [child for pid in level for child in children.get(pid, ())]
        found.update(level)
    return found


def adopt_orphans() -> None:
    """Make this process, not init, the parent of orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Ask the kernel to send this process a signal when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _handled() -> list[signal.Signals]:
    """Return the signals that are not ignored (nohup ignores SIGHUP)."""
    return [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]


def _parents() -> dict[int, int]:
    """Return the process and parent IDs of all running processes."""
    parents: dict[int, int] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):
                # The name in parentheses may contain anything, including parentheses.
                state, parent, *_ = (
                    (directory / "stat").read_text("latin-1").rpartition(")")[2].split()
                )
                if state not in "ZX":
                    parents[int(directory.name)] = int(parent)
    return parents


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):  # ended, or of another user since
            os.kill(pid, number)
