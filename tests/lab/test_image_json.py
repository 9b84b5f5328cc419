# SPDX-License-Identifier: MIT
"""The JSON of nccl-tests in an image: the program inside is asked for it, and the job keeps it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.delivery.choice import Choice
from busbar.delivery.environment import Image
from busbar.delivery.image_environment import image_environments
from busbar.delivery.reframe import site_configuration, write
from busbar.preflight.model import Fingerprint, LaunchLine, PreflightLine, PreflightReport, Status

from .common import ROOT

pytestmark = pytest.mark.lab

_DOUBLE = """\
#!/bin/sh
# TEST DOUBLE of all_reduce_perf: its usage; a recorded JSON where it is told to leave one; a log.
[ "$1" = --help ] && exec echo "{usage}"
echo "# TEST DOUBLE: $*" | tee "$NCCL_DEBUG_FILE"
while [ $# -gt 0 ]; do
    [ "$1" = -J ] && cp /opt/busbar/record.json "$2"
    shift
done
"""
_WITH_JSON = "[-b,--minbytes <min size>] [-J,--output_file <file>]"
_RECORD = ROOT / "tests/data/h200x4/nccl_all_reduce_single_process.json"
# It has no tools of its own: those of the host are as good.
_ENTER = {
    "apptainer": ["apptainer", "exec", "--bind", "/usr:/usr:ro"],
    **{
        name: [name, "run", "--rm", "--network=host", "--volume", "/usr:/usr:ro"]
        for name in ("docker", "podman")
    },
}


def sandbox(directory: Path, usage: str) -> Path:
    """An image that holds the double and nothing else."""
    root = directory / "image"
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "opt/busbar/bin"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    program = root / "opt/busbar/bin/all_reduce_perf"
    program.write_text(_DOUBLE.format(usage=usage))
    program.chmod(0o755)
    (root / "opt/busbar/record.json").write_bytes(_RECORD.read_bytes())
    return root


def imported(runtime: str, root: Path) -> str:
    """The image as the runtime knows it."""
    if runtime == "apptainer":
        return str(root)
    with subprocess.Popen(["tar", "-c", "-C", str(root), "."], stdout=subprocess.PIPE) as tar:
        name = "localhost/busbar-test-json:latest"
        command = [runtime, "import", "-", name]
        subprocess.run(command, stdin=tar.stdout, check=True, capture_output=True)
    return name


def config(directory: Path, runtime: str, reference: str) -> Path:
    """The configuration of ``busbar check``; there is no MPI in the image."""
    launch = LaunchLine((), (*_ENTER[runtime], reference), (), "")
    line = PreflightLine("fingerprint", Status.READY, "a test double")
    image = Image(
        reference=reference,
        runtime=runtime,
        fingerprint=Fingerprint(
            stack="cuda", lane="ucx-1.14", delivery="wheels", features=["xccl"]
        ),
        programs={"all_reduce_perf": "/opt/busbar/bin/all_reduce_perf"},
        settings={},
        preflight=PreflightReport(reference, "h200x4", (line,), (), (), launch, ""),
    )
    site = sites.load("h200x4")
    environments = image_environments(site, Choice(image=reference), image, 4)
    return write(site_configuration(site, ROOT / "site/h200x4", {"gpu": environments}), directory)


@pytest.mark.parametrize(
    ("runtime", "usage"),
    [*((name, _WITH_JSON) for name in _ENTER), ("apptainer", "[-b,--minbytes <min size>]")],
)
def test_the_program_inside_is_asked(
    request: pytest.FixtureRequest, installed: None, tmp_path: Path, runtime: str, usage: str
) -> None:
    if runtime == "docker":
        request.getfixturevalue("dockerd")
    reference = imported(runtime, sandbox(tmp_path, usage))
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("reframe"), "--nocolor", "-r"),
            *("-C", config(tmp_path, runtime, reference), "-c", ROOT / "reframe_checks/xccl.py"),
            *("-n", "xccl%size_set=quick%collective=all_reduce", "--prefix", tmp_path / "out"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if runtime != "apptainer":
        subprocess.run([runtime, "rmi", reference], check=True, capture_output=True)
    # One process where four ranks were asked for: that it fails is right.
    (job,) = (tmp_path / "out").rglob("xccl_*/rfm_job.out")
    said = job.read_text()
    assert "# TEST DOUBLE: -b 1M" in said, done.stdout + said
    kept = job.with_name("nccl-tests.1.json")
    assert kept.exists() == (usage == _WITH_JSON), said
    assert not (job.parent / "json.private").exists()
    assert not kept.exists() or '"bus_bw"' in kept.read_text()
    assert (job.parent / "nccl.%h.%p.log").exists()
