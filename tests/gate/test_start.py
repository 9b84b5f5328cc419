# SPDX-License-Identifier: MIT
"""What a prolog waits for: the gate starts with the standard library alone."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from busbar import cli
from busbar.errors import BusbarError
from busbar.gate.site import read
from busbar.seal import sealed
from tests.said import ran

from .node import Node

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from busbar.gate.command import main
status = main(["--passive", "--json", "--site", sys.argv[2], "--prometheus", sys.argv[3]])
foreign = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(json.dumps([status, sorted(foreign)]))
"""
HEAVY = {"reframe", "pandas", "matplotlib", "numpy", "jinja2", "prometheus_client"}
BY_NAME = """
import json, sys
from busbar import cli
import busbar.commands.gate
status = cli.main(["gate", "--passive", "--json"])
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_a_compiled_site_needs_the_standard_library_alone(node: Node, tmp_path: Path) -> None:
    site, metrics = tmp_path / "here.json", tmp_path / "busbar.prom"
    words = ["--site", str(node.root / "here"), "--output", str(tmp_path)]
    assert cli.main(["gate", "compile", *words]) == 0
    assert replace(read(site), xids={}) == node.load()
    assert read(site).xid(79).kind == "hardware"
    command = [sys.executable, "-I", "-S", "-c", CODE, ROOT, site, metrics]
    done = ran(*command, check=True)
    *printed, last = done.stdout.splitlines()
    status, foreign = json.loads(last)
    assert foreign == ["__main__", "busbar"]
    document = json.loads("\n".join(printed))
    assert (status, document["site"]) == (int(document["drain"]), "here")
    assert "busbar_gate_complete 1.0" in metrics.read_text()


@pytest.mark.run
def test_the_compiled_gate_is_small_and_needs_only_python(node: Node, tmp_path: Path) -> None:
    words = ["--site", str(node.root / "here"), "--output", str(tmp_path)]
    assert cli.main(["gate", "compile", *words]) == 0
    program = tmp_path / "here.pyz"
    assert program.stat().st_size < 1e6
    names = zipfile.ZipFile(program).namelist()
    assert {f"{name}c" for name in names if name.endswith(".py")} - {*names} == {"__main__.pyc"}

    def run(*more: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
        command = [python, "-I", "-S", program, "--passive", "--json", *more]
        return ran(*command, cwd="/")

    found = json.loads(run().stdout)
    assert found["site"] == "here"
    other = json.loads((tmp_path / "here.json").read_text()) | {"name": "other"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    (problem,) = json.loads(run("--site", str(tmp_path / "other.json")).stdout)["problems"]
    assert "was changed after it was written: its sha256 does not fit" in problem
    (tmp_path / "other.json").write_text(json.dumps(sealed(other)))
    assert json.loads(run("--site", str(tmp_path / "other.json")).stdout)["site"] == "other"
    # Sources are there for another Python, and the site must be.
    with zipfile.ZipFile(program) as archive, zipfile.ZipFile(tmp_path / "b.pyz", "w") as bare:
        for name in names:
            if not name.endswith(".pyc"):
                bare.writestr(name, archive.read(name))
    program = tmp_path / "b.pyz"
    (tmp_path / "here.json").rename(tmp_path / "b.json")
    assert json.loads(run().stdout)["checks"] == found["checks"]
    (tmp_path / "b.json").unlink()
    assert "b.json: cannot be read: No such file" in run().stdout


def test_what_is_no_compiled_site_is_refused(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "site.json"
    text = json.dumps(node.load().document)
    whole = json.loads(text)
    damaged = {
        "": "JSONDecodeError",
        "[]": "TypeError",
        "[" * 100_000: "nested too deep",
        text[: len(text) // 2]: "JSONDecodeError",
        json.dumps(whole | {"schema": "busbar-gate-site/9"}): "its schema is not busbar-gate-si",
        json.dumps(whole | {"more": 1}): "more: is unknown",
        json.dumps({key: each for key, each in whole.items() if key != "nodes"}): "'nodes'",
        json.dumps(whole | {"nodes": {"a": 7}}): "nodes.a: has the wrong type",
    }
    for content, words in damaged.items():
        path.write_text(content)
        with pytest.raises(BusbarError, match="is not a compiled site") as error:
            read(path)
        assert words in str(error.value)
    with pytest.raises(BusbarError, match="cannot be read: No such file"):
        read(tmp_path / "none")


def test_passive_loads_nothing_heavy_with_the_name_of_a_site() -> None:
    command = [sys.executable, "-c", BY_NAME]
    done = ran(*command, check=True)
    status, modules = json.loads(done.stdout.splitlines()[-1])
    assert (status, HEAVY & set(modules)) == (0, set())
