# SPDX-License-Identifier: MIT
"""Run a tool on an untrusted image without root's rights and within limits."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

from busbar.errors import BusbarError
from busbar.preflight.files import LARGEST

_SECONDS = 300
_MOST_LISTING = 512 * 2**20
_LAST = 4096
"""Bytes of the errors that are shown."""
# `ulimit -f` counts blocks of 512 bytes. It sets the limit in the child: a hook of subprocess
# that runs between fork and exec is not safe with threads.
_LIMITED = 'ulimit -c 0 && ulimit -f "$0" && exec "$@"'


class Unprivileged:
    """A tool that reads one image.

    Run by root, it is the user nobody: its faults must not be able to write the files of the
    host, and set-user-id and device files cannot be made. It gets the image as an open file, so
    directories above the image may be private.
    """

    def __init__(self, image: Path, tool: str) -> None:
        self._image = image
        self._tool = tool
        self._descriptor = os.open(image, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self.file = f"/proc/self/fd/{self._descriptor}"
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            if not os.fstat(self._descriptor).st_mode & stat.S_IROTH:
                raise BusbarError(
                    f"not readable by others: root runs {tool} as nobody, as the image is not"
                    " trusted",
                    where=str(image),
                    hint=f"run: chmod o+r {image}",
                )

    def output(self, *options: str) -> str:
        """Return what the tool prints."""
        with tempfile.TemporaryFile() as printed:
            self._start(Path("/"), options, printed, _MOST_LISTING)
            printed.seek(0)
            return printed.read().decode(errors="surrogateescape")

    def run(self, directory: Path, *options: str) -> None:
        """Run the tool in a directory that it may write to."""
        if self._as:
            os.chown(directory, self._as["user"], self._as["group"])
        with tempfile.TemporaryFile() as printed:
            self._start(directory, options, printed, LARGEST)

    def _start(
        self, directory: Path, options: tuple[str, ...], printed: IO[bytes], most: int
    ) -> None:
        command = ["sh", "-c", _LIMITED, str(most // 512), self._tool, *options]
        try:
            with tempfile.TemporaryFile() as errors:
                done = subprocess.run(
                    command,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=errors,
                    pass_fds=(self._descriptor,),
                    timeout=_SECONDS,
                    check=False,
                    **self._as,
                )
                errors.seek(max(errors.tell() - _LAST, 0))
                lines = errors.read().decode(errors="replace").strip().splitlines()
        except subprocess.TimeoutExpired as error:
            what = f"{self._tool} does not end within {_SECONDS} s"
            raise BusbarError(what, where=str(self._image)) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise BusbarError(
                f"{self._tool} cannot run as nobody: {error}",
                where=str(self._image),
                hint="give a sandbox directory, or run as an ordinary user",
            ) from error
        if done.returncode == 127:
            raise BusbarError(
                f"{self._tool} is needed to read a SIF",
                where=str(self._image),
                hint="install squashfs-tools, or give a sandbox directory",
            )
        if done.returncode:
            raise BusbarError(
                f"{self._tool} cannot read it ({lines[-1] if lines else done.returncode})",
                where=str(self._image),
                hint="check that the file is complete with apptainer sif list",
            )
