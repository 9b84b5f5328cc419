# SPDX-License-Identifier: MIT
"""The ten lines of docs/containers.md, run on the lab's cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from busbar.engine.collect import show
from busbar.parse.events import Start

from .checking import slurm_site
from .common import ROOT, Run

pytestmark = pytest.mark.lab

# The nodes of the lab have two cores and no GPU, and the image is built and here already.
HERE = {
    "busbar-cuda-wheels": "busbar-host-wheels",
    "srun -N1 --gpus-per-node=8 ": "srun -N1 ",
    "--site h20-roce": "--site lab-site",
    " --ntasks-per-node=8 --gpus-per-node=8": " --ntasks-per-node=2",
    "exec --nv ": "exec ",
    "--ranks=16 --buffers=DD": "--ranks=4 --buffers=HH",
    "sbatch job.sh": "sbatch --wait job.sh",
}
ELSEWHERE = ("make image ", "scp ")


def test_an_image_on_a_slurm_cluster(on_lab: Run, sif: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "containers.md").read_text()
    block = page.split("## An image on a Slurm cluster")[1].split("```sh\n")[1].split("```")[0]
    lines = block.splitlines()
    assert len(lines) == 10
    lines = [line for line in lines if not line.startswith(ELSEWHERE)]
    text = "\n".join(lines)
    for written, here in HERE.items():
        assert written in text, written
        text = text.replace(written, here)
    slurm_site(tmp_path)
    (tmp_path / "busbar-host-wheels.sif").symlink_to(sif)
    script = tmp_path / "lines.sh"
    script.write_text(f"set -e\ncd {tmp_path}\n{text}\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = on_lab("bash", script, PATH=path, BUSBAR_SITE_PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ready: " in done.stdout
    assert "\npass: " in f"\n{done.stdout}"
    (output,) = tmp_path.glob("slurm-*.out")
    run = show("output", output.read_text().splitlines())
    assert [start.ranks for start, _ in run.facts.events_of(Start)] == [4]
    assert len({rank.host for rank in run.ranks}) == 2
    assert len(run.readings) == 12
    assert run.facts.finished
