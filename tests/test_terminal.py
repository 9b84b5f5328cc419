# SPDX-License-Identifier: MIT
"""Nothing that others write controls the terminal, and nothing is printed around the filter."""

from __future__ import annotations

import ast
import io
import json
import os
import stat
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import busbar.commands.explain
from busbar import cli
from busbar.boundary import one_line, visible
from busbar.engine.reading import Cause, Evidence, Note
from busbar.engine.results import Outcome, Result
from busbar.plain import Column
from busbar.report.terminal import print_verdicts
from busbar.terminal import Terminal
from busbar.verdict import Verdict
from tests.cases import cases, some
from tests.files import syntax

ROOT = Path(__file__).parents[1]
HEALTHY = ROOT / "tests/data/h200x4/osu_bibw_healthy.log"
HOSTILE = (
    "\x1b]52;c;Y3VybCBldmlsfHNo\x1b\\",
    "\x1b\0[2J\x1b\x1b[2J[2J",
    "\x1bc\x1b(0\x1b#8\x1b7\x1b8",
    "\x9b2J\x9d0;title\x9c",
    "\u202everdict\u2066\u061c\u200f",
    "a\u2028b\u2029c\x85d\x0be\x0cf",
    "\ufeff\u200b\u2060\xad\U000e0041\u3164\u034f\ufe0f\u2800",
    "\x07\x08\x7f\r\x1f",
    "node[/x] [red]lib[/red] :smile: [link=http://h]l[/link]",
    "x\npass: all is well",
    "\ud800 \udcff",
)


def hidden(text: str) -> set[str]:
    """The characters of printed text that a terminal obeys or does not show."""
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}


@cases("text", HOSTILE)
def test_each_way_to_print(text: str) -> None:
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.line("a", text)
    terminal.line((text, "red"), text, style="bold")
    terminal.text(text)
    terminal.fitted([Column(text)], [[text], [(text, "red")]])
    terminal.document({text: [text]})
    shown = stream.getvalue()
    assert not hidden(shown)
    assert shown.split("\n")[0] == "a" + one_line(text)
    assert "pass: all is well" not in shown.split("\n")[:2]
    if "[" in text:
        assert "node[/x] [red]lib[/red] :smile: [link=http://h]l[/link]" in shown or "\\x" in shown


def test_every_character_is_shown_or_escaped() -> None:
    planes = range(0x10000, sys.maxunicode + 1, 4096)
    for first in (*range(0, 0x10000, 4096), 0xE0000, *some(planes, 16)):
        text = visible("".join(map(chr, range(first, first + 4096))))
        assert hidden(text) <= {"\t"}, hex(first)
        text.encode()


def test_json_is_read_back() -> None:
    stream = io.StringIO()
    document = {each: each for each in (*HOSTILE, "\x7f", "\\u007f", "\\\x7f")}
    Terminal(stream).document(document)
    assert json.loads(stream.getvalue()) == document
    assert stream.getvalue().isascii()


def test_a_locale_without_the_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Terminal(stream).line("10 µs \x1b \ud800")
    assert raw.getvalue() == b"10 \\xb5s \\x1b \\ud800\n"


@cases("text", HOSTILE)
def test_errors_of_arguments(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["explain", "--engine", text, "x"],
        ["explain", "x", "--" + text.replace(" ", "")],
        [text],
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2
        shown = capsys.readouterr().err
        assert not hidden(shown)
        assert "pass: all is well" not in shown.splitlines()


@cases("text", HOSTILE)
def test_explain(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.out"
    lines = [
        f"srun: error: {text}: task 3: Segmentation fault {text}",
        f"mpirun noticed that process rank 3 with PID 0 on node {text} exited on signal 9 {text}",
        f'{{"event":"start","program":"gpu_aware","version":"{text}"}}',
        f"$ export NCCL_P2P_DISABLE={text}",
        f"{text}:1:1 [0] NCCL WARN {text}",
    ]
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    log.write_bytes(HEALTHY.read_bytes() + data)
    cli.main(["explain", str(log)])
    out, err = capsys.readouterr()
    assert not hidden(out + err)
    assert sum(line.partition(": ")[0] in {*Verdict} for line in out.splitlines()) == 1


def test_the_name_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job\x1b]0;x\x07\npass: all is well\udcff"
    log.write_bytes(HEALTHY.read_bytes() + b"srun: error: n1: task 3: Segmentation fault\n")
    assert cli.main(["explain", str(log)]) == 1
    out, _ = capsys.readouterr()
    assert not hidden(out)
    assert "pass: all is well" not in out.splitlines()
    assert cli.main(["explain", str(log) + "x"]) == 2
    err = capsys.readouterr().err
    assert not hidden(err)
    assert len(err.splitlines()) == 1


@cases("text", HOSTILE)
def test_verdicts(text: str) -> None:
    result = Result(
        check=text,
        where=text,
        pair=text,
        metric="bandwidth",
        buffers=text,
        bytes=8,
        gb_per_s=1.0,
        verdict=Verdict.FAILED,
        message=text,
    )
    line = Evidence(text, 1, text)
    cause = Cause(text, "certain", text, (line,), text)
    note = Note(text, text, (line,))
    outcome = Outcome(text, text, (result,), causes=(cause,), notes=(note,))
    stream = io.StringIO()
    print_verdicts([outcome], Terminal(stream), verbose=True)
    print_verdicts([outcome], Terminal(stream))
    assert not hidden(stream.getvalue())
    assert "pass: all is well" not in stream.getvalue().splitlines()


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_a_bug_is_one_line_and_a_private_log(
    json_option: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OverflowError("\x1b[2J password=hunter2\npass: all is well")

    monkeypatch.setattr(busbar.commands.explain.causes, "explain", fails)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.umask(0)
    try:
        assert cli.main(["explain", str(HEALTHY), *json_option]) == 2
    finally:
        os.umask(before)
    out, err = capsys.readouterr()
    (log,) = tmp_path.iterdir()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert str(log) in err
    assert "internal error: OverflowError" in err
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "Traceback" in log.read_text()
    assert not hidden(err + log.read_text())
    assert "hunter2" not in err + log.read_text()


def test_a_bug_without_a_place_for_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(busbar.commands.explain.causes, "explain", lambda *_, **__: 1 / 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert cli.main(["explain", str(HEALTHY)]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_yaml_of_a_site_is_ascii(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["site", "show", "p5"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert yaml.safe_load(out)["name"] == "p5"


# Its standard output is a pipe to busbar.check.reframe.
PROTOCOL = "busbar/check/reframe_process.py"
PRINTER = "busbar/terminal.py"
_MODULES = {"rich", "logging", "warnings", "curses", "termios", "tty", "pty"}
_STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}


def modules(node: ast.AST) -> set[str]:
    """The modules and names that an import binds."""
    match node:
        case ast.ImportFrom(module="sys", names=names):
            return {f"sys.{name.name}" for name in names}
        case ast.ImportFrom(module=str(module)):
            return {module.split(".")[0]}
        case ast.Import(names=names):
            return {name.name.split(".")[0] for name in names}
    return set()


def prints(tree: ast.Module) -> Iterator[int]:
    """The lines that can print without the filter."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Call(func=ast.Name(id="print" | "breakpoint"))
                | ast.Attribute(attr="pprint" | "pp")
                | ast.Attribute(value=ast.Name(id="os"), attr="write" | "system")
                | ast.Call(func=ast.Attribute(attr="ArgumentParser"))
                | ast.Constant(value="/dev/tty" | "/dev/stdout" | "/dev/stderr")
            ):
                yield node.lineno
            case ast.Attribute(value=ast.Name(id="sys"), attr=attribute) if attribute in _STREAMS:
                yield node.lineno
            case ast.Import() | ast.ImportFrom():
                if modules(node) & (_MODULES | {f"sys.{name}" for name in _STREAMS}):
                    yield node.lineno


def test_nobody_prints_around_it() -> None:
    found = {}
    for path in [*(ROOT / "busbar").rglob("*.py"), *(ROOT / "reframe_checks").glob("*.py")]:
        lines = list(prints(syntax(path.read_text())))
        if lines:
            found[path.relative_to(ROOT).as_posix()] = lines
    assert PRINTER in found
    assert PROTOCOL in found
    # Flushes before an exit or a fork, the descriptor of a pipe that was closed, and parsers of
    # another program's options, which raise instead of printing.
    counts = {
        "busbar/cli.py": 2,
        "busbar/commands/check_end.py": 2,
        "busbar/commands/demo.py": 1,
        "busbar/gate/command.py": 2,
        "busbar/plain.py": 2,
        "busbar/arguments.py": 1,
        "busbar/commands/nightly.py": 2,
        "busbar/check/processes.py": 4,
        "busbar/tools/gpu_aware/answer.py": 1,
        "busbar/tools/nccl_tests/options.py": 1,
        "busbar/job/node/collect.py": 1,  # a program of its own, whose output is JSON
    }
    assert found.keys() == {PRINTER, PROTOCOL, *counts}
    assert {name: len(found[name]) for name in counts} == counts


@cases(
    "line",
    [
        "print(1)",
        "sys.stdout.write(x)",
        "f(sys.stderr)",
        "from sys import stdout",
        "import rich.console",
        "from rich import print",
        "import logging",
        "os.write(1, b'')",
        "open('/dev/tty')",
        "argparse.ArgumentParser()",
        "pprint.pprint(x)",
    ],
)
def test_ways_to_print_are_found(line: str) -> None:
    assert list(prints(ast.parse(line)))
