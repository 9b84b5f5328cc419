# SPDX-License-Identifier: MIT
"""The report is inert: nothing that a run prints becomes markup, script or a request."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import pytest

from busbar import cli
from busbar.check.snapshot import read
from busbar.engine.results import Result
from busbar.report.page import page_of, render
from busbar.report.sections import Frame
from busbar.verdict import Verdict
from tests.cases import cases
from tests.test_terminal import HOSTILE, hidden

ATTACKS = (
    *HOSTILE,
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "]]><svg onload=alert(1)>",
    "--><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "$\\foo$",
    "$x_{",
    "$$",
    "_hidden",
    "漢字",
)
POLICY = re.compile(
    r"default-src 'none'; style-src 'sha256-[\w+/=]{44}'; script-src 'sha256-[\w+/=]{44}';"
    r" base-uri 'none'; form-action 'none'"
)


class Elements(HTMLParser):
    """The elements and attributes of a page, as a browser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.metas: list[dict[str, str | None]] = []
        self.words: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.scripts += tag == "script"
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "meta":
            self.metas.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page(text: str, tmp_path: Path) -> str:
    rows = tuple(
        Result(
            check=text,
            where=text,
            pair=pair,
            metric="bandwidth",
            buffers=text,
            bytes=1 << 20,
            gb_per_s=value,
            limit=10.0,
            low=1.0,
            high=5.0,
            verdict=Verdict.FAILED,
            message=text,
        )
        for pair, value in (("0->1", 1.0), ("1->0", 2.0), (text, 1.0), ("2->3", 1e308))
    )
    line = {"file": text, "line": 1, "text": text}
    cause = {
        "id": text,
        "summary": text,
        "confidence": "certain",
        "evidence": [line],
        "remedy": text,
    }
    document = {
        "schema": "busbar-check/1",
        "site": text,
        "verdict": "failed",
        "time": "2026-11-22T03:12:00+00:00",
        "delivery": text,
        "lane": text,
        "versions": {text: text},
        "causes": [{**cause, "check": text}],
        "notes": [{"check": text, "id": text, "summary": text, "evidence": [line]}],
        "skipped": [{"check": text, "reason": text}],
        "coverage": text,
        "interrupted": "SIGTERM",
        "results": [
            {**asdict(row), "verdict": str(row.verdict), "partition": text, "environment": text}
            for row in rows
        ],
    }
    (tmp_path / "results.json").write_text(json.dumps(document))
    return render(page_of(Frame(read(tmp_path / "results.json"), None)))


@cases("text", ATTACKS)
def test_the_page_is_inert(text: str, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    written = page(text, tmp_path)
    found = Elements(written)
    assert not found.tags & {"iframe", "object", "embed", "base", "form", "link", "img", "image"}
    assert found.scripts == 1
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    sources = [v for name, v in found.attributes if name in ("src", "href", "xlink:href")]
    assert sources
    assert all(value.startswith("#") for value in sources)
    (policy,) = (
        m["content"] for m in found.metas if "content-security" in str(m.get("http-equiv")).lower()
    )
    assert POLICY.fullmatch(str(policy))
    assert written.index("Content-Security-Policy") < written.index("<style")
    assert not hidden(written) - {"\t"}
    if text.isprintable() and text.isascii():
        assert text in " ".join(found.words)
    assert not recwarn.list


def test_nobody_else_can_write_what_a_command_writes(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert cli.main(["site", "detect", "--output", str(tmp_path / "site")]) == 0
        for path in (tmp_path / "site").iterdir():
            assert not stat.S_IMODE(path.stat().st_mode) & stat.S_IWOTH
    finally:
        os.umask(before)


def test_checks_have_their_short_names(tmp_path: Path) -> None:
    text = page("pt2pt %size_set=quick %bench=osu_bw %buffers=D D", tmp_path)
    assert "<h3>pt2pt osu_bw DD</h3>" in text
    assert "<td>pt2pt osu_bw DD</td>" in text
