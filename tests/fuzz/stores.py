# SPDX-License-Identifier: MIT
"""Stores and documents that are fuzzed: what another program may have written or altered."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from busbar.cluster.nightly.gate import GateDocument
from busbar.cluster.nightly.night import NightlyDocument
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.cluster.sweep.rows import MeasuredPair, read_plan, read_results
from busbar.commands.gate import compile_site
from busbar.document import read_document, to_json
from busbar.engine.check_document import CheckDocument
from busbar.errors import BusbarError
from busbar.gate import site as gate_site
from busbar.history.events import find_events
from busbar.history.importing import ImportPlace, import_file
from busbar.history.read import history, read_series
from busbar.history.store import FILE
from busbar.parse.cpulist import parse_cpu_list
from busbar.site.load import load
from busbar.slurm import hostlist, jobs, nodes, topology
from tests.every_field import filled
from tests.results import complete

KINDS: tuple[Any, ...] = (CheckDocument, Analysis, SweepRun, NightlyDocument, GateDocument)
ROWS = "".join(
    f'{{"time": "2026-01-{n:02d}T02:00:00Z", "site": "a", "metric": "bw 16 MiB", "unit": "GB/s",'
    f' "value": {100 + n}, "low": 90, "provenance": {{"driver": "1"}}}}\n'
    for n in range(1, 12)
)
SLURM = """n[1-4,7],gpu[001-128]x[0-3],login1
JobId=7 JobState=FAILED ExitCode=0:9 Reason=None RunTime=00:00:07 NodeList=n[1-2] Features=(null)
90|PENDING|2026-11-22T21:16:07|name|/a/stage/x|Resources|n[1-4]
NodeName=n1 Arch=x86_64 CPUTot=8 State=IDLE+DRAIN Gres=gpu:h200:4(S:0-1) Reason=bad [root@2026]
SwitchName=leaf1 Nodes=n[1-4] Switches=leaf[2-3]
0-3,8,10-11
"""
"""As Slurm and sysfs write them."""


def _in_file(read: Callable[[Path], object], name: str = "file") -> Callable[[bytes], object]:
    """Read the input from a file; ``BusbarError`` is the documented error."""

    def call(data: bytes) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="busbar-fuzz-") as directory,
            suppress(BusbarError),
        ):
            (Path(directory) / name).write_bytes(data)
            read(Path(directory) / name)

    return call


def _document(path: Path) -> None:
    for kind in KINDS:
        with suppress(BusbarError):
            to_json(read_document(path, "", kind))


def _sweep(path: Path) -> None:
    for read in (read_plan, read_results, topology.read_topology):
        with suppress(BusbarError):
            read(path)


def _slurm(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    nodes.parse_nodes(text), topology.leaf_switches_in(text)
    with suppress(ValueError):
        nodes.parse_hardware(text)
    jobs.parse_waiting(text, Path("/a"))
    for line in text.split("\n")[:50]:
        jobs.parse_end(line)
        with suppress(BusbarError):
            hostlist.expand(line, "")
        with suppress(ValueError):
            parse_cpu_list(line)


def _import(path: Path) -> None:
    with history(path.parent / "h", to_write=True) as store:
        import_file(store, path, ImportPlace("a", "p", "n", 1.8e9))


def _history(path: Path) -> None:
    """Read an altered store, then write into it."""
    with suppress(BusbarError), history(path.parent) as store:
        store.sources()
        find_events(read_series(store), store.provenance(), None)
    (path.parent / "new").write_text(ROWS)
    with history(path.parent, to_write=True) as store:
        import_file(store, path.parent / "new", ImportPlace())


def documents() -> list[bytes]:
    return [json.dumps(complete(kind, "x"), indent=1).encode() for kind in KINDS]


def sweeps() -> list[bytes]:
    rows = [filled(MeasuredPair, "x") | {"round": n, "a": f"n{n}", "b": "m"} for n in range(1, 9)]
    tree = (
        b"SwitchName=s1 Nodes=n[1-4]\nSwitchName=s2 Nodes=n[5-8]\nSwitchName=t Switches=s[1-2]\n"
    )
    return ["".join(json.dumps(row) + "\n" for row in rows).encode(), tree]


def _stores() -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="busbar-fuzz-") as directory:
        (Path(directory) / "rows").write_text(ROWS)
        with history(Path(directory), to_write=True) as store:
            import_file(store, Path(directory) / "rows", ImportPlace())
        return [(Path(directory) / FILE).read_bytes()]


def _compiled() -> list[bytes]:
    return [json.dumps(compile_site(load("h200x4")).document, indent=1).encode()]


STORES: dict[str, tuple[Callable[[bytes], object], Callable[[], list[bytes]], int]] = {
    "documents": (_in_file(_document), documents, 5),
    "sweep": (_in_file(_sweep), sweeps, 5),
    "slurm": (_slurm, lambda: [SLURM.encode()], 10),
    "import": (_in_file(_import), lambda: [ROWS.encode(), *documents()], 2),
    "history": (_in_file(_history, FILE), _stores, 2),
    "gate-site": (_in_file(gate_site.read), _compiled, 5),
}
"""Reader, what it is given altered, and share."""
