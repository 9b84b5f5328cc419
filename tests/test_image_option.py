# SPDX-License-Identifier: MIT
"""What ``busbar check --image`` refuses before it runs anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busbar.cli import main
from tests.cases import sampled
from tests.files import executable

from .small_site import small_site

pytestmark = pytest.mark.run  # ReFrame is loaded while an image is looked at


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """The one line that ``busbar check`` prints; each runtime is here by name, and fails."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("apptainer", "docker", "podman"):
        executable(tools / name, '[ "$1" = info ]')
    monkeypatch.setenv("PATH", str(tools), prepend=":")

    def run(*options: object, runtime: str = "apptainer", scheduler: str = "local") -> str:
        site = small_site(tmp_path, scheduler=scheduler, runtime=runtime)
        words = ["check", "--site", site, "--output", tmp_path / "out", *options]
        assert main([str(word) for word in words]) == 2
        said = capfd.readouterr()
        assert not said.out
        return said.err

    return run


def test_what_is_no_image(refused, tmp_path: Path) -> None:
    assert "none.sif: no such file; pass" in refused("--image", tmp_path / "none.sif")
    text = tmp_path / "text.sif"
    text.write_text("text")
    assert "not a SIF with a squashfs" in refused("--image", text)
    fetched = refused("--image", "docker://some/image:1")
    assert "apptainer pull image.sif docker://NAME" in fetched
    missing = refused("--image", "localhost/none", runtime="podman")
    assert "no such file, and no image with this name in Docker or Podman" in missing


def test_what_a_runtime_cannot_do(refused, tmp_path: Path) -> None:
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    assert "cannot run a SIF or a sandbox" in refused("--image", sandbox, runtime="docker")
    under_slurm = refused("--image", "some", runtime="docker", scheduler="slurm")
    assert "docker cannot connect ranks started by slurm" in under_slurm
    assert "checks cannot run with sarus" in refused("--image", sandbox, runtime="sarus")


def test_an_image_that_says_nothing_of_itself(refused, tmp_path: Path) -> None:
    sandbox = tmp_path / "sandbox"
    (sandbox / "opt/busbar").mkdir(parents=True)
    assert "has no /opt/busbar/fingerprint.json" in refused("--image", sandbox)
    fingerprint = sandbox / "opt/busbar/fingerprint.json"
    fingerprint.write_text("{")
    assert "not valid JSON" in refused("--image", sandbox)


@sampled(
    3,
    ("wrong", "said"),
    [
        ([], "must be a mapping"),
        ({"lane": "ucx-1.14"}, "fingerprint.json, stack: missing key"),
        ({"stack": "hosts"}, "fingerprint.json, stack: must be 'host'"),
        ({"stack": "host", "lane": "ucx.9 z"}, "fingerprint.json, lane: must "),
        ({"stack": "host", "lane": None}, "fingerprint.json, lane: must be text"),
        ({"stack": "host", "delivery": ["a"]}, "fingerprint.json, delivery: must be"),
        ({"stack": "host", "features": "gpu"}, "fingerprint.json, features: must be"),
        ({"stack": "host", "features": ["a b"]}, "fingerprint.json, features[0]: must "),
    ],
)
def test_a_fingerprint_that_is_wrong(refused, tmp_path: Path, wrong: object, said: str) -> None:
    sandbox = tmp_path / "sandbox"
    (sandbox / "opt/busbar").mkdir(parents=True)
    (sandbox / "opt/busbar/fingerprint.json").write_text(json.dumps(wrong))
    message = refused("--image", sandbox)
    assert said in message
    assert message.count("\n") == 1


def test_inject_needs_an_image(refused) -> None:
    assert "pass --image" in refused("--inject", "/usr/lib")
