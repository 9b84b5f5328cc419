# SPDX-License-Identifier: MIT
"""Dockerfiles and definition files: up to date with templates and families, and lint-clean."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.cli import main
from ci.images import render
from tests.said import ran

ROOT = Path(__file__).resolve().parents[2]
STACKS = ("host", "cuda", "rocm")
BIN = Path(sys.executable).parent


def test_the_tree_holds_what_the_templates_give(tmp_path: Path) -> None:
    """The files in the tree are the golden text: a change of a template shows in them."""
    render.main(["--output", str(tmp_path)])
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*"))
    assert len(written) == 2 * len(STACKS)
    for path in written:
        assert (ROOT / "containers" / path).read_text() == (tmp_path / path).read_text()


def test_hadolint_finds_nothing() -> None:
    files = [ROOT / "containers" / stack / "Dockerfile" for stack in STACKS]
    command = [BIN / "hadolint", *files]
    done = ran(*command)
    assert done.returncode == 0, done.stdout


def test_the_base_is_one_digest() -> None:
    base = (ROOT / "containers" / "base.env").read_text().split("\nBASE=")[1].strip()
    assert re.fullmatch(r"[a-z/.-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", base)
    for name in [f"{stack}/{name}" for stack in STACKS for name in render.FILES]:
        text = (ROOT / "containers" / name).read_text()
        assert set(re.findall(r"BASE=(\S+:\S+)", text)) == {base}


def test_shellcheck_finds_nothing_in_the_sections_of_a_definition(tmp_path: Path) -> None:
    """No linter knows these files; Apptainer takes an unknown section for text of the last."""
    for stack in STACKS:
        text = (ROOT / "containers" / stack / "apptainer.def").read_text()
        sections = re.split(r"(?m)^(?=%|Bootstrap:)", text)
        names = {part.split(maxsplit=1)[0] for part in sections if part.startswith("%")}
        assert names == {
            *("%arguments", "%files", "%post", "%environment", "%labels", "%test", "%runscript")
        }
        assert "<<" not in text  # a here-document in an indented section never ends
        for part in sections:
            head, _, body = part.partition("\n")
            if head.startswith(("%post", "%test", "%runscript", "%environment")):
                script = tmp_path / f"{stack}-{head.split()[0].strip('%')}.sh"
                script.write_text(f"#!/bin/sh\n{body}")
    command = [BIN / "shellcheck", *sorted(tmp_path.iterdir())]
    done = ran(*command)
    assert done.returncode == 0, done.stdout


def test_another_site_brings_its_tuning(tmp_path: Path) -> None:
    render.main(["--output", str(tmp_path), "--stack", "cuda", "--site", "p5"])
    command = [BIN / "hadolint", tmp_path / "cuda" / "Dockerfile"]
    subprocess.run(command, check=True)
    text = (tmp_path / "cuda" / "Dockerfile").read_text()
    tuning = sites.environment(sites.load("p5"), stack="cuda", lane="ucx-1.14")
    assert tuning
    for name, value in tuning.items():
        assert f'{name}="{value}"' in text
    assert "install.sh cuda p5 " in text


WRONG = [
    ({"FORMAT": "iso"}, "FORMAT must be sif or oci, got 'iso'"),
    ({"STACK": "tpu"}, "STACK must be one of: cuda host rocm"),
    ({"DELIVERY": "pip"}, "DELIVERY must be wheels or spack, got 'pip'"),
    ({"STACK": "rocm", "DELIVERY": "wheels"}, "the ROCm stack has no wheels"),
    ({"LANE": "ucx-9"}, "no lane ucx-9"),
    ({"BUILDER": "kaniko"}, "BUILDER must be docker, podman or buildah, got 'kaniko'"),
    ({"DELIVERY": "spack", "ENVIRONMENT": "site"}, "no site/spack.lock"),
    ({"DELIVERY": "spack", "SUPPLY": "/nowhere"}, "SUPPLY=/nowhere is not a directory"),
]


def test_wrong_wishes_are_told(tmp_path: Path) -> None:
    common = {"WORK": str(tmp_path), "PYTHON": sys.executable, "ENVIRONMENT": "site/_stacks/host"}
    for wishes, message in WRONG:
        environment = os.environ | common | {"LANE": "ucx-1.14"} | wishes
        done = subprocess.run(
            ROOT / "ci/images/build.sh",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert message in done.stderr


ENVIRONMENTS = {"host": "host", "cuda": "cuda-sm_90-local", "rocm": "rocm-gfx90a-5.4"}


def test_each_stack_has_an_environment_of_spack(capsys: pytest.CaptureFixture[str]) -> None:
    for stack, environment in ENVIRONMENTS.items():
        assert main(["site", "spack", render.SITES[stack], "--image"]) == 0
        assert capsys.readouterr().out == f"site/_stacks/{environment}\n"


@pytest.mark.run
def test_the_context_of_spack_holds_the_lock_and_its_tools(tmp_path: Path) -> None:
    context, environment = tmp_path / "context", ENVIRONMENTS["cuda"]
    command = [str(ROOT / "ci/images/context.sh"), "cuda", "spack", "ucx-1.14", str(context)]
    subprocess.run(command, env=os.environ | {"PYTHON": sys.executable}, check=True)
    assert (context / "environment.txt").read_text() == f"site/_stacks/{environment}\n"
    lock = f"site/_stacks/{environment}/spack.lock"
    for name in (lock, "ci/spack/setup.sh", "packages", "containers/spack.sh"):
        assert (context / name).exists(), name
    assert "install.sh cuda h200x4 " in (context / "Dockerfile").read_text()
    assert not (context / "wheels").exists()
