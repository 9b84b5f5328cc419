# SPDX-License-Identifier: MIT
"""The pages in Debian's Chromium: no error, accessible, filters and sorting work, text stays text.

Chromium prints the page after its scripts have run. A copy of the page, without its policy, also
runs axe-core and the steps of a user, and leaves what it saw in the page.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import zipfile
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from busbar import site as sites
from busbar.cluster.sweep.analyse import Analysis
from busbar.report.news import news
from busbar.report.page import page_of, render
from busbar.report.sections import Frame
from busbar.report.sweep import map_of
from busbar.report.trend import by_check, trend
from busbar.verdict import Verdict
from tests.certify.records import FakeFleet
from tests.said import ran

from .documents import FACTS, MARKUP, cause, curve_rows, event, matrix_rows, row, series, snapshot

pytestmark = pytest.mark.lab
HERE = Path(__file__).parent
STEPS = """
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const rows = () => [...document.querySelectorAll("#checks-table tbody tr:not([hidden])")];
const names = () => rows().map((row) => row.cells[1].textContent.trim());
(async () => {
  const seen = { title: document.title, images: document.images.length };
  try {
    if (document.getElementById("filter")) {
    seen.start = names();
    const search = document.getElementById("filter");
    search.value = "LINK"; search.dispatchEvent(new Event("input"));
    seen.filtered = names(); seen.status = document.getElementById("shown").textContent;
    seen.sections = document.querySelectorAll("details.check:not([hidden])").length;
    search.value = ""; search.dispatchEvent(new Event("input"));
    const choice = document.getElementById("verdict");
    choice.value = "pass"; choice.dispatchEvent(new Event("change")); seen.passed = names();
    choice.value = ""; choice.dispatchEvent(new Event("change"));
    const button = document.querySelectorAll("#checks-table th button")[1];
    button.click(); seen.up = names(); button.click(); seen.down = names();
    seen.sorted = button.closest("th").getAttribute("aria-sort");
    location.hash = "#check-xccl"; await wait(50);
    seen.opened = document.getElementById("check-xccl").open;
    }
    for (const each of document.querySelectorAll("details")) each.open = true;
    seen.width = window.innerWidth;
    seen.dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const beyond = (each) => each.getBoundingClientRect().right > seen.width;
    seen.wider = [...document.querySelectorAll("body *")]
      .filter((each) => beyond(each) && !each.closest(".scroll, svg"))
      .map((each) => each.outerHTML.slice(0, 80));
    const result = await axe.run(document, { resultTypes: ["violations"] });
    const node = (each) => each.nodes[0].html.slice(0, 200);
    seen.axe = result.violations.map((each) => [each.impact, each.id, node(each)]);
  } catch (error) { seen.error = String(error); }
  parent.postMessage(JSON.stringify(seen), "*");
})();
"""
HOST = """<!doctype html><html><body style="margin: 0"><pre id="seen"></pre><script>
const seen = document.getElementById("seen");
addEventListener("message", (event) => { seen.textContent += event.data + "\\n"; });
</script>""" + "".join(
    f'<iframe src="inside.html" style="border: 0; width: {width}px; height: 4000px"></iframe>'
    for width in (400, 800, 1400)
)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, pinned by hash."""
    directory = tmp_path_factory.mktemp("axe")
    done = ran(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--require-hashes", "-r", HERE / "axe.txt", "-d", directory),
    )
    if done.returncode and "HASH" not in done.stderr.upper():
        pytest.skip("no package index is here")
    assert done.returncode == 0, done.stderr
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/axe.min.js"))
        return archive.read(name).decode()


def page(tmp_path: Path) -> str:
    """Every kind of section, with forged text."""
    rows = [
        *curve_rows(),
        *matrix_rows(slow=2),
        *matrix_rows(where="n2"),
        row(MARKUP, 1.0, verdict=Verdict.FAILED, where=MARKUP, pair=MARKUP, message=MARKUP),
        row("awaits", verdict=Verdict.NOT_RUN, where="n3", message=MARKUP),
    ]
    causes = [cause("link_matrix", "nvlink-narrow"), cause(MARKUP, MARKUP, summary=MARKUP)]
    skipped = [{"check": f"skipped {MARKUP}", "reason": MARKUP}]
    notes = [{"check": MARKUP, "id": MARKUP, "summary": MARKUP, "evidence": []}]
    run = snapshot(
        tmp_path,
        rows,
        causes=causes,
        skipped=skipped,
        notes=notes,
        versions={MARKUP: MARKUP, f"lock.{MARKUP}": MARKUP},
    )
    nights = [series(), series("xccl", node="n2", step=99)]
    nights += [series("other", node=f"m{n}") for n in range(13)]
    events = [event(nights[0])]
    trends = by_check(
        (each.key.check, drawn) for each in nights if (drawn := trend(each, events, FACTS))
    )
    sweep = Analysis(accused=(), suspects=(), unmeasured=("n4",))
    nodes = map_of(sweep, {"n1": [46.0], MARKUP: []}, {"n1": "leaf1", MARKUP: MARKUP})
    frame = Frame(run, sites.load("h200x4"), trends)
    return render(page_of(frame, list(news(events)), sweep=nodes))


def browse(text: str, tmp_path: Path, *, dark: bool = False) -> tuple[str, list[str]]:
    """What Chromium makes of a page, and what it printed to its console."""
    file = tmp_path / "page.html"
    file.write_text(text)
    done = ran(
        *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"),
        *("--enable-logging=stderr", "--virtual-time-budget=20000"),
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        *("--window-size=1600,900", f"--user-data-dir={tmp_path / 'profile'}"),
        file.as_uri(),
        check=True,
        timeout=240,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def accessible(text: str, axe: str, tmp_path: Path) -> dict[int, Any]:
    """What a page without its policy shows at three widths, once axe finds nothing."""
    head = text.index('<meta http-equiv="Content-Security-Policy"')
    free = text[:head] + text[text.index(">", head) + 1 :]
    free = free.replace("</body>", f"<script>{axe}</script><script>{STEPS}</script></body>")
    (tmp_path / "inside.html").write_text(free)
    sizes = {}
    for dark in (True, False):
        # No window of Chromium is as narrow as a telephone.
        shown, console = browse(HOST, tmp_path, dark=dark)
        assert console == []
        found = re.search(r'<pre id="seen">(?P<lines>.*?)</pre>', shown, re.DOTALL)
        assert found, shown[-500:]
        views = [json.loads(line) for line in unescape(found["lines"]).splitlines()]
        sizes = {view["width"]: view for view in views if "error" not in view}
        assert sizes.keys() == {400, 800, 1400}, views
        for view in views:
            assert (view["dark"], view["wider"], view["axe"]) == (dark, [], [])
    return sizes


def test_the_record_of_an_acceptance(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not shutil.which("chromium"):
        pytest.skip("no Chromium is here")
    fleet = FakeFleet(tmp_path)
    fleet.certify()
    text = (fleet.record / "index.html").read_text()
    accessible(text, request.getfixturevalue("axe"), tmp_path)


def test_the_page_in_a_browser(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not shutil.which("chromium"):
        pytest.skip("no Chromium is here")
    axe: str = request.getfixturevalue("axe")
    text = page(tmp_path)
    # With its policy: our script runs, and nothing is refused.
    shown, console = browse(text, tmp_path)
    assert "4 of 4 shown" in shown
    assert console == []

    seen = accessible(text, axe, tmp_path)[400]
    assert seen["title"] == "h200x4 failed - Busbar"
    assert seen["images"] == 0
    assert len(seen["start"]) == 4
    assert seen["filtered"] == ["link_matrix"]
    assert seen["status"] == "1 of 4 shown"
    assert seen["sections"] == 1
    assert seen["passed"] == ["xccl"]
    assert seen["up"] == seen["down"][::-1]
    assert seen["up"] != seen["start"]
    assert seen["sorted"] == "descending"
    assert seen["opened"]
