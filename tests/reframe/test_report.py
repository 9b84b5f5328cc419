# SPDX-License-Identifier: MIT
"""What is kept of the JSON of nccl-tests, and how a job asks for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from busbar.tools.nccl_tests.report import PRIVATE, collect_json, json_option_script

RECORD = "h200x4/nccl_all_reduce_single_process.json"


def written(path, text):
    """As the tool leaves it."""
    (path.parent / PRIVATE).mkdir()
    (path.parent / PRIVATE / path.name).write_text(text)


def test_the_recorded_file_without_its_environment(data, tmp_path):
    document = json.loads((data / RECORD).read_text())
    document["env"] += ["HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "HOME=/home/someone"]
    path = tmp_path / "nccl-tests.1.json"
    written(path, json.dumps(document))
    facts = collect_json(path).facts
    assert facts is not None
    assert max(r.value for r in facts.readings if r.kind == "busbw") == pytest.approx(365.402332)
    kept = path.read_text()
    assert "NCCL_NVLS_ENABLE=0" in kept
    assert "hf_" not in kept
    assert "someone" not in kept


@pytest.mark.parametrize(
    ("text", "why", "kept"),
    [
        (None, "was not written", False),
        ("", "is empty or breaks off", False),
        ('{"env": ["TOKEN=x"', "is empty or breaks off", False),
        ('{"env": ["TOKEN=x"]}', "is JSON of another kind", False),
        ('{"config": {}, "results": [], "env": ["TOKEN=x"]}', "has no end", True),
    ],
)
def test_files_that_say_nothing(tmp_path, text, why, kept):
    path = tmp_path / "nccl-tests.1.json"
    if text is not None:
        written(path, text)
    found = collect_json(path)
    assert (found.facts, found.missing) == (None, why)
    assert path.exists() is kept
    assert not kept or "TOKEN" not in path.read_text()
    assert not (tmp_path / PRIVATE).exists()


def test_a_number_that_the_tool_adds_to_the_name(data, tmp_path):
    path = tmp_path / "nccl-tests.1.json"
    written(path.with_name(f"{path.name}.0"), (data / RECORD).read_text())
    assert collect_json(path).facts is not None
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def script(directory, usage, then):
    """A job that asks a program with this usage."""
    program = directory / "all_reduce_perf"
    program.write_text(f"#!/bin/sh\necho '{usage}' >&2\nexit 3\n")
    program.chmod(0o755)
    lines = ["set -e", *json_option_script([str(program)], "nccl-tests.1.json"), *then]
    return ["bash", "-c", "\n".join(lines)]


@pytest.mark.parametrize(
    ("usage", "option"),
    [
        ("[-b,--minbytes] [-J,--output_file <file>]", f"-J {PRIVATE}/nccl-tests.1.json"),
        ("[-b,--minbytes] [-x,--output_file <file>] [-h,--help]", ""),
    ],
)
def test_the_usage_decides(tmp_path, usage, option):
    command = script(tmp_path, usage, ['echo "${json[*]}"'])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == option
    private = tmp_path / PRIVATE
    assert private.exists() == bool(option)
    assert not option or private.stat().st_mode & 0o077 == 0


def test_a_job_that_is_ended_leaves_no_environment(tmp_path):
    then = [f"echo SECRET=x >{PRIVATE}/nccl-tests.1.json", "echo ready", "sleep 60 & wait"]
    command = script(tmp_path, "[-J,--output_file <file>]", then)
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        os.killpg(job.pid, signal.SIGTERM)
        assert job.wait(timeout=120) == 143
    assert not (tmp_path / PRIVATE).exists()
