# SPDX-License-Identifier: MIT
"""Work in child processes, each with a deadline.

A driver, a file system or a tool can hang so that even SIGKILL does not end it. Nothing here waits
for such a child: it is killed, left to the kernel, and what it has reported until then is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
_LENGTH_BYTES = 4
_CHUNK = 1 << 16
_MOST_BYTES = 16 << 20
"""A child that reports more is broken."""
_PR_SET_PDEATHSIG = 1
_EXIT_ERROR = 70


@dataclass
class TaskOutcome(Generic[T]):
    """What one child reported."""

    values: list[T] = field(default_factory=list)
    problem: str = ""
    """Why it did not end as it should; empty if it did."""
    seconds: float = 0.0


@dataclass(frozen=True)
class _Failure:
    """An exception of a child, in one line."""

    text: str


class Task(Generic[T]):
    """A function that runs in a child process from now on.

    The function gets ``emit``, which reports one value at a time. All processes that it starts are
    of its process group and end with it.
    """

    def __init__(self, work: Callable[[Callable[[T], None]], None], seconds: float) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + seconds
        self.seconds = seconds
        self.outcome: TaskOutcome[T] = TaskOutcome()
        self._buffer = bytearray()
        parent = os.getpid()
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.reader)
            _child(work, writer, parent)
        os.close(writer)
        os.set_blocking(self.reader, False)
        self.is_open = True

    def read(self) -> None:
        """Take what the child has written; at the end of its output, its exit status."""
        with contextlib.suppress(BlockingIOError):  # nothing more at the moment
            while piece := os.read(self.reader, _CHUNK):
                self._buffer += piece
                if len(self._buffer) > _MOST_BYTES:
                    self.stop("printed too much")
                    return
                self._take()
            self._close()
            self.outcome.problem = self.outcome.problem or self._status()

    def stop(self, why: str) -> None:
        """Kill the child and its children; do not wait for them."""
        with contextlib.suppress(OSError):  # has ended
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):  # has ended
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):  # closed
            os.waitpid(self.pid, os.WNOHANG)
        self.outcome.problem = why
        self._close()

    def _close(self) -> None:
        if self.is_open:
            os.close(self.reader)
            self.is_open = False
            self.outcome.seconds = time.monotonic() - self.started

    def _take(self) -> None:
        while len(self._buffer) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._buffer[:_LENGTH_BYTES], "big")
            if len(self._buffer) < end:
                return
            # Only our own child writes to this pipe.
            value: Any = pickle.loads(bytes(self._buffer[_LENGTH_BYTES:end]))  # noqa: S301
            del self._buffer[:end]
            if isinstance(value, _Failure):
                self.outcome.problem = value.text
            else:
                self.outcome.values.append(value)

    def _status(self) -> str:
        """Return why the child failed; empty if it succeeded. It has closed its output."""
        limit = time.monotonic() + 1
        while time.monotonic() < limit:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                if code < 0:
                    return f"ended by signal {-code}"
                return f"exited with status {code}" if code else ""
            time.sleep(0.002)
        self.stop("")
        return "does not end"


def finish(tasks: Sequence[Task[Any]]) -> None:
    """Collect what the tasks report until each has ended or its deadline is over."""
    with selectors.DefaultSelector() as selector:
        for task in tasks:
            if task.is_open:
                selector.register(task.reader, selectors.EVENT_READ, task)
        while selector.get_map():
            running = [key.data for key in selector.get_map().values()]
            now = time.monotonic()
            for task in running:
                if task.deadline <= now:
                    selector.unregister(task.reader)
                    task.read()
                    if task.is_open:
                        task.stop(f"did not answer in {task.seconds:.3g} s")
            wait = min((task.deadline for task in running), default=now) - now
            for key, _ in selector.select(max(wait, 0.0)):
                task = key.data
                reader = task.reader
                task.read()
                if not task.is_open:
                    selector.unregister(reader)


@dataclass(frozen=True)
class Output:
    """What a program printed."""

    text: str
    errors: str
    status: int


def program(command: Sequence[str], seconds: float) -> Task[Output]:
    """Start a program; its output is the only value of the task.

    A program that does not exist is a task with a problem.
    """

    def work(emit: Callable[[Output], None]) -> None:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                preexec_fn=_die_with_parent,
            )
        except FileNotFoundError:
            raise RuntimeError("is not on PATH") from None
        emit(Output(done.stdout, done.stderr, done.returncode))

    return Task(work, seconds)


def output_of(task: Task[Output]) -> tuple[str, str]:
    """Return what a program printed, and why it is missing: one of the two is empty."""
    if task.outcome.problem or not task.outcome.values:
        return "", task.outcome.problem or "printed nothing"
    done = task.outcome.values[0]
    if done.status:
        lines = (done.errors or done.text).strip().splitlines()
        return "", f"exited with status {done.status}{f': {lines[0]}' if lines else ''}"
    return done.text, "" if done.text else "printed nothing"


def _child(work: Callable[[Callable[[Any], None]], None], writer: int, parent: int) -> NoReturn:
    """Run ``work`` in the child and exit without the handlers of the parent."""
    status = _EXIT_ERROR
    try:
        os.setsid()
        _die_with_parent()
        if os.getppid() != parent:
            os._exit(status)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # Who waits for the end of our output, as Slurm does, must not wait for one that hangs.
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)

        pipe = os.fdopen(writer, "wb")

        def emit(value: object) -> None:
            data = pickle.dumps(value)
            pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
            pipe.flush()

        try:
            work(emit)
            status = 0
        except Exception as error:  # noqa: BLE001 - any error of a check is unknown
            emit(_Failure(_summary(error)))
            status = 0
    finally:
        os._exit(status)


def _die_with_parent() -> None:
    """End with the process that started this one: Slurm may kill the gate at any time."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _summary(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, RuntimeError) and text else f"{type(error).__name__}: {text}"
