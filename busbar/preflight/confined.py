# SPDX-License-Identifier: MIT
"""Run a program on an untrusted image within limits and without the rights of root."""

from __future__ import annotations

import os
import pwd
import signal
import stat
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from busbar.errors import BusbarError
from busbar.preflight.files import LARGEST, TABLES, refused

_SECONDS = 300
_MOST_LISTING = 512 * 2**20
_LAST = 4096
"""Bytes of the errors that are shown."""
# `ulimit -f` counts blocks of 512 bytes. It sets the limit in the child: a hook of subprocess
# that runs between fork and exec is not safe with threads.
_LIMITED = 'ulimit -c 0 && ulimit -f "$0" && exec "$@"'


def run_limited(  # noqa: PLR0917 - each is a limit or a part of the error
    command: Sequence[str],
    printed: IO[bytes],
    where: str,
    hint: str,
    seconds: float,
    most: int,
    **options: Any,
) -> None:
    """Run a command with a limit of time and for the size of each file; it prints to ``printed``.

    Raises ``BusbarError`` if it fails. Nothing of it is left running.
    """
    limited = ["sh", "-c", _LIMITED, str(most // 512), *command]
    name = " ".join(command[:2])
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                limited,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                start_new_session=True,
                **options,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise BusbarError(f"{name} cannot run: {error}", where=where, hint=hint) from error
        with process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                _kill(process)
                what = f"{name} took more than {seconds} s"
                raise BusbarError(what, where=where, hint=hint) from None
            except BaseException:  # an interruption, too, must not leave it running
                _kill(process)
                raise
        if process.returncode:
            lines = _last_lines(errors) or _last_lines(printed)
            lines = [line for line in lines if "due to previous errors" not in line]  # of tar
            what = f"{name} failed: {lines[-1] if lines else 'without output'}"
            if printed.seek(0, os.SEEK_END) >= most // 512 * 512:
                what = f"{name} printed more than {most >> 30} GiB"
            raise BusbarError(what, where=where, hint=hint)


def _last_lines(stream: IO[bytes]) -> list[str]:
    stream.seek(max(stream.seek(0, os.SEEK_END) - _LAST, 0))
    return stream.read().decode(errors="replace").strip().splitlines()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command with the programs that it has started."""
    with suppress(ProcessLookupError):  # has ended
        os.killpg(process.pid, signal.SIGKILL)


class Unprivileged:
    """A tool that reads one image.

    Root runs it as the user nobody: its faults cannot write files of the host, and it cannot
    create set-user-id or device files. It gets the image as an open file, so
    directories above the image may be private.
    """

    def __init__(self, image: Path, tool: str, where: str = "") -> None:
        self._where = where or str(image)
        self._tool = tool
        self._descriptor = os.open(image, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self.file = f"/proc/self/fd/{self._descriptor}"
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            if not os.fstat(self._descriptor).st_mode & stat.S_IROTH:
                raise refused("not-by-others", self._where, tool=tool, image=image)

    def lines(self, *options: str) -> Iterator[str]:
        """Yield the lines that the tool prints; they are not kept in memory."""
        with tempfile.TemporaryFile() as printed:
            self._run(Path("/"), options, printed, _MOST_LISTING)
            printed.seek(0)
            for line in printed:
                yield line.decode(errors="surrogateescape").removesuffix("\n")

    def run(self, directory: Path, *options: str, most: int = LARGEST) -> None:
        """Run the tool in a directory that it may write to, files of at most ``most`` bytes."""
        if self._as:
            os.chown(directory, self._as["user"], self._as["group"])
        with tempfile.TemporaryFile() as printed:
            self._run(directory, options, printed, most)

    def _run(
        self, directory: Path, options: tuple[str, ...], printed: IO[bytes], most: int
    ) -> None:
        hint = TABLES["damaged"].format(tool=self._tool)
        command = [self._tool, *options]
        started = {"cwd": directory, "pass_fds": (self._descriptor,)} | self._as
        run_limited(command, printed, self._where, hint, _SECONDS, most, **started)
