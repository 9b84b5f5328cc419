# SPDX-License-Identifier: MIT
"""Golden job scripts: what the published runs had on their command lines is in ours.

``GOLDEN=write`` in the environment writes them again; the change is then reviewed by eye.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from busbar.check.run import CHECKS

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "jobs"
JOBS = {
    "mi250x-pt2pt": ("mi250x", "pt2pt%size_set=quick%bench=osu_bw"),
    "mi300x-mscclpp": ("mi300x", "xccl_mscclpp"),
    "mi300x-few": ("mi300x", "xccl_few%size_set=full%collective=all_reduce%ranks=4"),
    "h20-all_reduce": ("h20-roce", "xccl_nodes%size_set=full%collective=all_reduce"),
    "p4d-message_transfer": ("p4d", "fabric_ofi"),
    "p4d-all_reduce": ("p4d", "xccl_nodes%size_set=nightly%collective=all_reduce"),
}


@pytest.mark.parametrize("name", JOBS)
def test_job(name, tmp_path):
    site, check = JOBS[name]
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("reframe"), "--nocolor", "--dry-run"),
            *("-C", ROOT / "site" / site / "reframe.py", "-c", CHECKS, "-n", check),
            *("-p", "spack", "--prefix", tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "BUSBAR_DECLARED": "1"},
    )
    scripts = list(tmp_path.glob("stage/**/rfm_job.sh"))
    assert len(scripts) == 1, done.stdout
    text = scripts[0].read_text().replace(str(ROOT), "BUSBAR")
    # These depend on who runs the tests, and on parameters by ReFrame's hash.
    lines = [
        line
        for line in text.splitlines()
        if "ALLOW_RUN_AS_ROOT" not in line and "--job-name" not in line
    ]
    text = "\n".join(lines) + "\n"
    golden = GOLDEN / f"{name}.sh"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()
