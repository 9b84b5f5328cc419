# SPDX-License-Identifier: MIT
"""Text of a site or family that a shell or ReFrame would execute is refused or stays text."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from busbar import site as sites
from busbar.boundary import refuse_foreign_code
from busbar.data import CHECKS, SITES
from busbar.delivery.choice import Choice
from busbar.delivery.reframe import configuration, load
from busbar.errors import BusbarError
from busbar.site.family import Family, LinkClasses
from busbar.site.load import find
from busbar.site.model import Site
from busbar.site.record import Record
from tests.said import ran

COMMANDS = ["$(touch F)", "a`touch F`", "x\ntouch F", "x\r", "\x1b[2J", "a\x00b", "${X:-$(id)}"]
QUOTES = (
    """'; : >F; ' "; : >F; " ; : >F # && : >F | : >F > F ${IFS}: >F $'\\n: >F' <(: >F) &>F """
    """\u2028: >F\u0085: >F ((: >F)) {{ 7*7 }} %n ../F ~ * -o F \\"""
)


def records(kind: type[BaseModel] = Record) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from records(each)


def test_no_string_of_any_record_holds_a_command() -> None:
    """Every field that can hold text, in each place that its type has for text."""
    accepted, tried = [], 0
    for record in {*records()}:
        for name, field in record.model_fields.items():
            for text in COMMANDS:
                shapes: list[Any] = [text, [text], {text: 1}, {"A": text}, {"A": {"b": [text]}}]
                for shape in shapes:
                    tried += 1
                    try:
                        record.model_validate({field.alias or name: shape})
                        accepted.append((record.__name__, name, shape))
                    except ValidationError as error:
                        wrong = {str(each["loc"][0]) for each in error.errors() if each["loc"]}
                        if not wrong & {name, field.alias}:
                            accepted.append((record.__name__, name, shape))
    assert not accepted
    assert tried > 5000
    assert {Site, Family, LinkClasses} <= {*records()}


def strings(node: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all strings of a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(node, dict):
        items = list(node.items())
    elif isinstance(node, list):
        items = list(enumerate(node))
    elif isinstance(node, str):
        yield place
    for key, value in items:
        yield from strings(value, (*place, key))


@pytest.mark.run
def test_what_a_site_may_hold_stays_text(tmp_path: Path) -> None:
    """Scripts of all checks of a site with quotes, separators and redirections in its strings."""
    directory = tmp_path / "h200x4"
    shutil.copytree(find("h200x4").parent, directory)
    document = yaml.safe_load((directory / "site.yaml").read_text())
    document["partitions"][0] |= {"access": ["--partition=gpu"], "launcher": "srun"}
    document |= {"scheduler": "local", "tuning": {"NCCL_X": "a"}}
    document["fabric"] = {"provider": "verbs", "rails": 1, "uplinks": "a", "switches": "a"}
    node_type = document["node_types"]["h200x4"]
    node_type["gpus"]["bus_ids"] = [f"0000:0{n}:00.0" for n in range(4)]
    node_type |= {"nics": [{"name": "mlx5_0", "class": "ndr400"}], "instance_type": "a"}
    planted = []
    for *place, last in strings(document):
        node = document
        for step in place:
            node = node[step]
        kept, node[last] = node[last], QUOTES
        (directory / "site.yaml").write_text(yaml.safe_dump(document))
        try:
            sites.load(directory)
            planted.append((*place, last))
        except BusbarError:
            node[last] = kept
    (directory / "site.yaml").write_text(yaml.safe_dump(document))
    assert {("tuning", "NCCL_X"), ("partitions", 0, "access", 0)} < {*planted}
    assert len(planted) > 15
    reframe = [str(Path(sys.executable).with_name("reframe")), "--nocolor", "--dry-run"]
    reframe += ["-C", str(directory / "reframe.py"), "-c", str(CHECKS)]
    done = ran(*reframe, "--prefix", tmp_path, env={**os.environ, "BUSBAR_DECLARED": "1"})
    scripts = list(tmp_path.rglob("rfm_job.sh"))
    assert len(scripts) > 50, done.stdout
    for script in scripts:
        assert "NCCL_X" in script.read_text()
        subprocess.run(
            ["/bin/bash", script],
            cwd=tmp_path,
            env={"PATH": "/nowhere"},
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert not [path for path in tmp_path.rglob("F") if path.is_file()]


def test_reframe_gets_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a variable of the caller brings in is refused, too."""
    monkeypatch.setenv("ROCM_PATH", "/opt/$(touch F)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BusbarError, match="which a job script would execute"):
        configuration(find("mi300x").parent, Choice(declared=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("owner", "group", "mode"), [(65534, 65534, 0o644), (0, 0, 0o646), (0, 65534, 0o664)]
)
def test_the_configuration_of_another_user_is_not_run(
    owner: int, group: int, mode: int, tmp_path: Path
) -> None:
    directory = tmp_path / "local"
    shutil.copytree(SITES / "local", directory)
    refuse_foreign_code(directory / "reframe.py")
    os.chown(directory / "reframe.py", owner, group)
    (directory / "reframe.py").chmod(mode)
    with pytest.raises(BusbarError, match=r"reframe\.py is executed"):
        load(directory / "site.yaml", Choice(declared=True))
