# SPDX-License-Identifier: MIT
"""The pipelines for centers: valid, of commands that exist, and no promotion without a pass."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.files import executable
from tests.said import ran

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PIPELINES = {
    "ci/gitlab/busbar.yml": "vendor.gitlab-ci",
    "ci/github/busbar.yml": "vendor.github-workflows",
}
PROMOTE = ROOT / "ci/images/promote.sh"


def commands(node: Any) -> Iterator[str]:
    """Yield the lines of `script:` and `run:`."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key in ("script", "run"):
            yield from [value] if isinstance(value, str) else value
        elif isinstance(value, dict | list):
            yield from commands(value)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_valid_and_all_its_commands_exist(name: str) -> None:
    check = [BIN / "check-jsonschema", "--builtin-schema", PIPELINES[name], ROOT / name]
    done = ran(*check)
    assert done.returncode == 0, done.stdout
    text = (ROOT / "Makefile").read_text()
    found = list(commands(yaml.safe_load((ROOT / name).read_text())))
    assert len(found) > 8
    for line in found:
        program, *words = line.split()
        if program == "make":
            rule = re.search(rf"^{words[0]}:.*", text, re.MULTILINE)
            assert rule, line
            for variable in re.findall(r"\b([A-Z]+)=", line):
                assert variable in text, line
        elif program == ".venv/bin/busbar":
            page = (ROOT / "docs/reference/cli.md").read_text()
            shown = page.split(f"## `busbar {words[0]}`\n")[1].split("\n## ")[0]
            for option in re.findall(r"--[a-z-]+", line):
                assert option in shown, line
        elif program == ".venv/bin/python":
            module = words[1].replace(".", "/")
            assert (ROOT / f"{module}.py").is_file(), line
        else:
            assert os.access(ROOT / program, os.X_OK), line


@pytest.mark.parametrize(
    ("verdict", "same", "said"),
    [("pass", True, ""), ("degraded", True, "not pass"), ("pass", False, "of another image")],
)
def test_only_what_passed_is_promoted(tmp_path: Path, verdict: str, same: bool, said: str) -> None:
    image = tmp_path / "busbar.sif"
    image.write_bytes(b"SIF")
    digest = hashlib.sha256(b"SIF" if same else b"other").hexdigest()
    facts = {"gpu_aware": {"image_digest": digest}}
    (tmp_path / "results.json").write_text(json.dumps({"verdict": verdict, "provenance": facts}))
    executable(tmp_path / "bin/apptainer", 'echo "$@"')
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    command = [PROMOTE, image, tmp_path, "registry.centre.example/busbar"]
    done = ran(*command, cwd=ROOT, env=environment)
    assert (done.returncode == 0) == (not said)
    assert said in done.stderr
    assert ("oras://registry.centre.example/busbar/busbar:" in done.stdout) == (not said)
