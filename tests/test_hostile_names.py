# SPDX-License-Identifier: MIT
"""Names with characters that shells, search paths and bind mounts read as something else."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import string
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.boundary import refuse_unsafe, refuse_unsafe_reference
from busbar.cli import main
from busbar.commands.declare import output_of
from busbar.data import CHECKS
from busbar.delivery.choice import Choice
from busbar.delivery.environments import Parts, environment_of
from busbar.errors import BusbarError
from busbar.mpi import MpiInstall
from tests.cases import cases, sampled, some
from tests.said import ran

from .small_site import small_site

ALLOWED = "_@%+=./~-"
PUNCTUATION = [c for c in string.punctuation if c not in ALLOWED]
BLANKS = [" ", "\t", "\n", "\r", "\x0b", "\x0c", "\x1b", "\x7f", "\x85", "\u00a0", "\u2028"]
ODD = ["\u202e", "\u200b", "\udcff", "\ud800"]
REFUSED = [*PUNCTUATION, *BLANKS, *ODD]
ATTACKS = ["$(touch pwned)", "`touch pwned`", ";touch pwned;", "${HOME}", "'; touch pwned; '"]


@cases("character", REFUSED)
def test_a_character_is_refused_in_every_name(character: str, tmp_path: Path) -> None:
    name = f"/x/a{character}b"
    image = tmp_path / f"a{character}b".replace("/", "")
    for choice in ({"prefix": Path(name)}, {"inject": (name,)}):
        with pytest.raises(BusbarError, match="which job scripts cannot contain"):
            Choice(**choice)
    with pytest.raises(BusbarError, match=r"--output: .*which job scripts cannot contain"):
        refuse_unsafe(name, "--output")
    try:
        image.touch()
    except (OSError, ValueError, UnicodeEncodeError):
        return  # no file has that name
    with pytest.raises(BusbarError, match=r"--image: .*which job scripts cannot contain"):
        Choice(image=str(image))


@cases("name", [f"/x/a{c}b" for c in ALLOWED] + ["/x/größe", "/x/日本"])
def test_other_names_are_taken(name: str) -> None:
    assert Choice(prefix=Path(name), inject=(name,)).inject == (name,)


@cases(
    ("name", "taken"),
    [
        ("docker://ghcr.io/a/b:1.0", True),
        ("localhost:5000/a/b_c:tag@sha256:0123", True),
        ("-v/:/host", False),
        ("--privileged", False),
        ("a b", False),
        ("a;id", False),
        ("$(id)", False),
        ("", False),
    ],
)
def test_names_of_images(name: str, taken: bool) -> None:
    if taken:
        refuse_unsafe_reference(name, "--image")
        return
    with pytest.raises(BusbarError, match="--image"):
        refuse_unsafe_reference(name, "--image")


@pytest.fixture
def own_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return small_site(tmp_path)


@pytest.mark.run
@sampled(
    4,
    ("option", "attack"),
    product(["--prefix", "--output", "--image", "--site", "directory"], ATTACKS),
)
def test_attacks_are_refused_before_anything_runs(
    tmp_path: Path, own_site: Path, option: str, attack: str, capfd: pytest.CaptureFixture[str]
) -> None:
    evil = tmp_path / attack.replace("/", "") / "one"
    evil.parent.mkdir()
    shutil.copytree(own_site, evil)
    if option == "directory":
        os.chdir(evil)  # the fixture goes back
    words = {"--site": str(own_site), "--output": str(tmp_path / "out"), option: str(evil)}
    if option == "directory":
        del words["--output"], words["directory"]
    before = sorted(tmp_path.rglob("*"))
    assert main(["check", *(word for pair in words.items() for word in pair)]) == 2
    said = capfd.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1, said.err
    assert "which job scripts cannot contain" in said.err
    assert sorted(tmp_path.rglob("*")) == before


WRONG = {"lane": "bad", "prefix": "/a;b", "sbatch": "x", "reservation": "a\nb"}


@pytest.mark.run
@pytest.mark.parametrize("option", WRONG)
def test_what_starts_jobs_refuses_values_before_it_writes(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    site = small_site(tmp_path, scheduler="slurm")
    Path("c.yaml").write_text(f"site: {site}\nclauses: [{{require: gate}}]\n")
    before = sorted(tmp_path.rglob("*"))
    for line in ("nightly --dry-run", "nightly", "sweep run", "certify run --contract=c.yaml"):
        place = [] if "certify" in line else [f"--site={site}"]
        assert main([*line.split(), *place, f"--{option}={WRONG[option]}"]) == 2
        assert f": --{option}: " in capfd.readouterr().err, line
        assert sorted(tmp_path.rglob("*")) == before, line


@pytest.mark.parametrize("option", ["--image", "--checks"])
def test_a_name_that_no_file_can_have_is_no_bug(
    option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--site=local", f"{option}={'A' * 5000}"]) == 2
    said = capfd.readouterr().err
    assert "is too long for a file name; shorten it" in said
    assert len(said) < 250
    assert main(["history", "show", "\udcff"]) == 2
    assert r"'\udcff' is not UTF-8" in capfd.readouterr().err


@pytest.mark.run
@pytest.mark.parametrize("variable", some(["BUSBAR_PREFIX", "BUSBAR_IMAGE", "BUSBAR_INJECT"], 3))
def test_variables_of_plain_reframe_are_refused(
    tmp_path: Path, own_site: Path, variable: str
) -> None:
    done = ran(
        sys.executable,
        own_site / "reframe.py",
        cwd=tmp_path,
        env={**os.environ, variable: "/x/$(touch pwned)"},
    )
    assert done.returncode
    assert done.stderr.count("\n") == 1, done.stderr
    assert "which job scripts cannot contain" in done.stderr
    assert not (tmp_path / "pwned").exists()


VALUES = [f"a{c}b" for c in string.printable] + ["", "$HOME", "a b", "größe", "^cm", *ATTACKS]


@pytest.mark.run
def test_what_a_job_exports_is_not_expanded(tmp_path: Path) -> None:
    """The values of a site, and the directories that this Python is installed in."""
    parts = Parts(
        path=[f"{tmp_path}/{value}" for value in VALUES if ":" not in value],
        libraries=[f"/l/{value}" for value in VALUES],
        variables={f"V{n}": value for n, value in enumerate(VALUES)},
    )
    site = sites.load("local")
    delivery = site.deliveries[0]
    environment = environment_of(site, delivery, "lane", parts, MpiInstall("openmpi"))
    lines = [f"export {name}={value}" for name, value in environment.variables.items()]
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    script = tmp_path / "job.sh"
    script.write_text("\n".join([*lines, f"exec '{sys.executable}' -c '{show}'"]))
    command = ["bash", str(script)]
    environ = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": "/own"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=True)
    shown = json.loads(done.stdout)
    assert [shown[f"V{n}"] for n in range(len(VALUES))] == VALUES
    assert shown["PATH"] == ":".join([*parts.path, environ["PATH"]])
    assert shown["LD_LIBRARY_PATH"] == ":".join([*dict.fromkeys(parts.libraries), "/own"])
    assert not (tmp_path / "pwned").exists()


@pytest.mark.run
def test_words_of_a_wrapper_are_not_expanded(tmp_path: Path, own_site: Path) -> None:
    """A wrapper is a command: its words reach the job as they are."""
    done = ran(
        *(Path(sys.executable).with_name("reframe"), "--dry-run", "--nocolor"),
        *("-C", own_site / "reframe.py", "-c", CHECKS, "-n", "^link_matrix$"),
        *("--prefix", tmp_path),
        *("-S", "link_matrix.wrapper=env 'A=b c' X=$(touch${IFS}pwned) Y=`id` Z=;id"),
        *("-S", "link_matrix.more_options=--x=$(id)"),
    )
    (script,) = tmp_path.glob("stage/**/link_matrix*/rfm_job.sh")
    text = script.read_text()
    words = "env 'A=b c' 'X=$(touch${IFS}pwned)' 'Y=`id`' 'Z=;id'"
    assert words in text, done.stdout
    assert "'--x=$(id)'" in text


def test_an_output_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user could redirect `reframe.log` to one of our files with a link."""
    output = tmp_path / "output"
    output.mkdir()
    args = argparse.Namespace(output=output, site=None)
    with output_of(args) as accepted:
        assert accepted == output
    output.chmod(0o777)
    with pytest.raises(BusbarError, match="anyone can write to"), output_of(args):
        pass
    output.chmod(0o700)
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 99999)
    else:
        os.chown(output, 65534, -1)
    with pytest.raises(BusbarError, match="could redirect files"), output_of(args):
        pass
