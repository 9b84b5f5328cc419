# SPDX-License-Identifier: MIT
"""A link becomes slow: real readings, whose times are a day apart. Prints what was found.

``python -m tests.bench.slow_link DIR`` (root) joins four network namespaces by links of 100
Mbit/s, which busy cores can fill. ``ucx_perftest`` measures four pairs of them 25 times; the last
five times, a link of n2 has 50 Mbit/s. Every reading is what ``ucx_perftest`` measured, and the
rates in the provenance are those that ``tc`` shows. Only the times are not those of the runs,
which are seconds apart: run k is recorded as night k, as a statistic of nights needs a month. It
fails unless ``busbar history changes`` finds this night within 5 nights, for the pairs with n2 and
no others, and explains it by the rate of that link, and the page shows it. It takes some four
minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from busbar.history import outputs
from busbar.terminal import stdout

NODES = ("n1", "n2", "n3", "n4")
PAIRS = (("n1", "n2"), ("n1", "n3"), ("n4", "n2"), ("n3", "n4"))
SLOW = "n2"
QUIET, AFTER = 20, 5
RATE, SLOW_RATE = "100mbit", "50mbit"
FIRST = datetime(2026, 9, 1, 2, tzinfo=UTC)
PREFIX = f"busbar{os.getpid()}-"
UCX = Path(sysconfig.get_path("platlib"), "libucx")
out = stdout()


def run(*words: object) -> str:
    """Run a command and return what it prints."""
    command = list(map(str, words))
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inside(node: str, *words: object) -> list[str]:
    """Return a command inside a namespace."""
    return ["ip", "netns", "exec", PREFIX + node, *map(str, words)]


@contextmanager
def links() -> Iterator[None]:
    """Join the nodes by a bridge in a namespace of its own."""
    spaces = ("switch", *NODES)
    try:
        for space in spaces:
            run("ip", "netns", "add", PREFIX + space)
        run(*inside("switch", "ip", "link", "add", "bridge", "type", "bridge"))
        run(*inside("switch", "ip", "link", "set", "bridge", "up"))
        for number, node in enumerate(NODES, 1):
            far = ("peer", "name", "eth0", "netns", PREFIX + node)
            run(*inside("switch", "ip", "link", "add", node, "type", "veth", *far))
            run(*inside("switch", "ip", "link", "set", node, "master", "bridge", "up"))
            run(*inside(node, "ip", "address", "add", f"10.78.0.{number}/24", "dev", "eth0"))
            run(*inside(node, "ip", "link", "set", "eth0", "up"))
            shape(node, RATE)
        yield
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", PREFIX + space], check=False)


def shape(node: str, rate: str) -> None:
    """Limit the link of a node in both directions."""
    limit = ("root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")
    run(*inside("switch", "tc", "qdisc", "replace", "dev", node, *limit))
    run(*inside(node, "tc", "qdisc", "replace", "dev", "eth0", *limit))


def rate_of(node: str) -> str:
    """Return the rate that tc shows."""
    shown = run(*inside(node, "tc", "qdisc", "show", "dev", "eth0"))
    found = re.search(r" rate (?P<rate>\S+)", shown)
    return found["rate"] if found else "none"


def measure(a: str, b: str, output: Path) -> None:
    """Measure from ``a`` to ``b``."""
    test = [UCX / "bin/ucx_perftest", "-t", "tag_bw", "-s", 1 << 20, "-n", 12, "-w", 1]
    variables = os.environ | {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0"}
    variables["LD_LIBRARY_PATH"] = str(UCX / "lib")
    with subprocess.Popen(
        inside(b, *test), env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        client = inside(a, *test[:1], f"10.78.0.{NODES.index(b) + 1}", *test[1:])
        for _ in range(50):  # until the server listens
            with output.open("w") as stream:
                # The size is nowhere else in its output.
                stream.write(f"$ ucx_perftest {' '.join(map(str, test[1:]))}\n")
                stream.flush()
                done = subprocess.run(client, env=variables, stdout=stream, check=False)
            if not done.returncode:
                break
            time.sleep(0.1)
        if server.wait(30) or done.returncode:
            sys.exit(f"{a} to {b}: ucx_perftest failed")


def night(number: int, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the readings of one night as lines for ``busbar history import``."""
    for a, b in PAIRS:
        output = directory / f"night{number:02}-{a}-{b}.txt"
        measure(a, b, output)
        rates = {node: rate_of(node) for node in (a, b)}
        for reading in outputs.parse(output, "slow-link", "", f"{a},{b}", 0):
            yield {
                "time": (FIRST + timedelta(days=number)).isoformat(),
                "site": reading.key.site,
                "node": reading.key.node,
                "check": reading.key.check,
                "metric": reading.key.metric,
                "unit": reading.key.unit,
                "value": reading.value,
                "provenance": {"kernel": os.uname().release, "link": rates},
            }


def busbar(history: Path, *words: object) -> str:
    """Run busbar, and return what it prints."""
    command = [sys.executable, "-m", "busbar", *map(str, words)]
    variables = os.environ | {"BUSBAR_HISTORY": str(history)}
    return subprocess.run(command, env=variables, check=False, stdout=-1, text=True).stdout


def main(directory: Path) -> None:
    """Measure, import, and examine what is found."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    lines = directory / "nights.jsonl"
    with links(), lines.open("w") as stream:
        for number in range(QUIET + AFTER):
            if number == QUIET:
                shape(SLOW, SLOW_RATE)
            stream.writelines(f"{json.dumps(row)}\n" for row in night(number, directory))
    history, pages = directory / "history", directory / "pages"
    out.text(busbar(history, "history", "import", lines))
    out.text(busbar(history, "history", "changes"))
    (event,) = json.loads(busbar(history, "history", "changes", "--json"))["events"]
    assert {row["node"] for row in event["changes"]} == {"n1,n2", "n4,n2"}, event
    assert event["since"] == (FIRST + timedelta(days=QUIET)).isoformat(), event
    assert event["shared"] == [f"node {SLOW}"], event
    assert event["differences"][0]["name"] == f"link.{SLOW}", event
    busbar(history, "report", "--site", "slow-link", "--output", pages)
    page = (pages / "index.html").read_text()
    assert "What changed" in page
    assert f"link.{SLOW}" in page
    out.line(f"{pages}/index.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
