# SPDX-License-Identifier: MIT
"""A server and its client, on one node and on two, with a server that fails at first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from busbar.data import CHECKS
from tests.files import executable

pytestmark = pytest.mark.run

PAIR = CHECKS / "src" / "pair.sh"
# The server serves one file of its port; the client reads it. PORT_TAKEN makes the first one fail.
PROGRAM = """\
case $2 in
-s*)
    if [ -n "${PORT_TAKEN:-}" ] && [ ! -e taken ]; then touch taken; echo "in use" >&2; exit 1; fi
    echo "served by ${2#-s}" >"port${2#-s}"
    n=0; while [ -e "port${2#-s}" ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done ;;
-c*) cat "port${2#-c}" && rm "port${2#-c}" && echo "asked $3" ;;
esac
"""


def start(directory: Path, **environment: str) -> subprocess.Popen[str]:
    program = executable(directory / "program", PROGRAM)
    launchers = ("OMPI_", "PMI", "SLURM_")
    outside = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
    return subprocess.Popen(
        [PAIR, "name", "-s", "-c", program, "option"],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=outside | environment,
    )


@pytest.mark.parametrize("taken", ["", "yes"])
def test_both_on_one_node(tmp_path, taken):
    process = start(tmp_path, PORT_TAKEN=taken)
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert out.splitlines()[0].startswith("served by ")
    assert out.splitlines()[1] == "asked 127.0.0.1"


def test_each_on_a_node_of_its_own(tmp_path):
    server, client = (
        start(tmp_path, SLURM_PROCID=rank, SLURM_NTASKS="2", PORT_TAKEN="yes") for rank in "01"
    )
    out, errors = client.communicate(timeout=240)
    assert client.returncode == 0, errors
    assert out.splitlines()[1] == f"asked {os.uname().nodename}"
    assert server.communicate(timeout=240)[0] == ""
    assert server.returncode == 0


def test_no_server_is_no_reading(tmp_path):
    process = subprocess.Popen(
        [PAIR, "name", "-s", "-c", "false"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "no output from false" in out
