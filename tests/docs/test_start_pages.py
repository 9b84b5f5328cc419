# SPDX-License-Identifier: MIT
"""The command blocks of README and of the pages to start with.

What needs no cluster, no image, no network and no minutes runs, page by page, in the order of the
page. Of the other commands of ours, the parser reads the options; other lines are listed here.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from busbar import cli, commands
from tests.said import ran

pytestmark = pytest.mark.run

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/start/*"))]
MEASURES = (
    "busbar check",
    "busbar sweep run",
    "busbar nightly",
    "busbar preflight",
    "busbar demo",
    "busbar job",
)
"""Take hardware, images, or minutes; `busbar check` and the demo have tests of their own."""
OF_RUNS = ("busbar history compare", "busbar history changes")
"""Take earlier runs; the tutorial has some."""
ELSEWHERE = re.compile(
    r"make |spack |NCCL_DEBUG=|reframe .*(?: -r$)|[a-z]+: |check  |pt2pt |xccl "
    "|mkdir 4711|sacct |srun |sh -c 'journalctl"
)
"""Of others, or output."""
SLOW_LOG = ROOT / "tests/data/h20-roce/all_reduce_2x8_before.log"


def lines(page: str) -> list[str]:
    """The lines of the blocks of a page, without comments."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / page).read_text(), flags=re.M | re.S)
    shown = [re.sub(r"\s+# .*", "", line).strip() for b in blocks for line in b.splitlines()]
    return [line for line in shown if line]


def of_this_machine(line: str, directory: Path, site: str) -> str:
    for path in ("/srv/busbar", "/etc/slurm", "/shared"):
        line = line.replace(path, f"{directory}{path}")
    return re.sub(r"\bDIR\b", f"{directory}/sites", re.sub(r"\bNAME\b", site, line))


@pytest.mark.parametrize("page", PAGES)
def test_each_command_works(page: str, tmp_path: Path) -> None:
    for name in ("site", "tests", "reframe_checks"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "4711").mkdir()
    for name in ("slow.log", "4711/slurm-4711.out"):
        (tmp_path / name).symlink_to(SLOW_LOG)
    site = "alpha" if any("site detect" in line for line in lines(page)) else "h200x4"
    script = ["set -e"]
    for shown in lines(page):
        line = of_this_machine(shown, tmp_path, site)
        if line.startswith("busbar ") and "$(" not in line:
            cli.build_parser(commands.SUMMARIES).parse_args(shlex.split(line)[1:])
        if line.startswith((*MEASURES, *OF_RUNS)) or ELSEWHERE.match(line):
            continue
        # 1: something was measured that is not as it should be.
        script.append(f"echo {shlex.quote(line)} >&2; {line} || test $? = 1 -o $? = 3")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "EDITOR": "test -s", "HOME": str(tmp_path), "BUSBAR_SITE": ""}
    own["BUSBAR_HISTORY"] = str(tmp_path / "history")
    done = ran("bash", "-c", "\n".join(script), cwd=tmp_path, env=os.environ | own)
    assert done.returncode == 0, done.stderr
