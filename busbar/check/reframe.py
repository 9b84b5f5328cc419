# SPDX-License-Identifier: MIT
"""ReFrame's command in a process that loads it before its arguments are known.

What it imports takes as long as the look at the machine that decides on its arguments. They come
as one line of JSON on standard input; without one it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence


class Loading:
    """A ReFrame that has been started and waits."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
        """What it prints, by lines, with ``environment`` on top of this process's own."""
        asked = json.dumps({"arguments": list(arguments), "environment": dict(environment)})
        with self._process as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(asked + "\n")
            process.stdin.close()
            yield from process.stdout


def _main() -> None:
    from reframe.frontend import cli  # noqa: PLC0415 - only this process loads it

    import busbar.check.causes  # noqa: F401, PLC0415 - the checks will

    line = sys.stdin.readline()
    if not line:
        return
    asked = json.loads(line)
    os.environ.update(asked["environment"])
    sys.argv = ["reframe", *asked["arguments"]]
    cli.main()


if __name__ == "__main__":
    _main()
