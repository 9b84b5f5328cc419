# SPDX-License-Identifier: MIT
"""What ``busbar history`` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from busbar.check.run import make_directory
from busbar.document import to_json
from busbar.documents.history import (
    BaselineDocument,
    CompareDocument,
    HistoryListDocument,
    HistoryShowDocument,
    ImportDocument,
    PruneDocument,
)
from busbar.errors import BusbarError
from busbar.history.baseline import Baseline
from busbar.history.compare import Compared
from busbar.history.documents import changes_document, compared_row, iso, key_row, series_row
from busbar.history.importing import Imported
from busbar.history.model import Change, Event, Series
from busbar.history.store import Source
from busbar.terminal import Column, Part, stdout

_MOST_CHANGES = 10
_MOST_DIFFERENCES = 5


def imported(files: Sequence[Imported], *, as_json: bool) -> None:
    """Print what came of each file."""
    if as_json:
        document: ImportDocument = {
            "schema": "busbar-history-import/1",
            "files": [
                {"file": each.file, "kind": each.kind, "readings": each.readings} for each in files
            ],
        }
        stdout().document(document)
        return
    for each in files:
        plural = "" if each.readings == 1 else "s"
        new = f"{each.readings:,} new reading{plural}" if each.readings else "nothing new"
        stdout().line(f"{each.file}: {each.kind}, {new}")


def sources(found: Sequence[Source], *, as_json: bool) -> None:
    """Print the sessions and files."""
    if as_json:
        document: HistoryListDocument = {
            "schema": "busbar-history-list/1",
            "sources": [
                {
                    "name": each.name,
                    "label": each.label,
                    "first": iso(each.first),
                    "last": iso(each.last),
                    "readings": each.readings,
                    "sites": list(each.sites),
                }
                for each in found
            ],
        }
        stdout().document(document)
        return
    if not found:
        stdout().line("the history is empty; see busbar history import --help")
        return
    columns = [Column("first"), Column("last", rank=2), Column("readings", right=True)]
    columns += [Column("sites"), Column("from", rank=1), Column("name")]
    rows: list[list[Part]] = [
        [
            *(iso(each.first)[:16], iso(each.last)[:16], f"{each.readings:,}"),
            *(",".join(each.sites), each.label, each.name),
        ]
        for each in found
    ]
    stdout().fitted(columns, rows)


def series(
    found: Sequence[Series], facts: Mapping[int, Mapping[str, str]], *, as_json: bool
) -> None:
    """Print series."""
    if as_json:
        document: HistoryShowDocument = {
            "schema": "busbar-history-show/1",
            "series": [series_row(each, facts) for each in found],
        }
        stdout().document(document)
        return
    if not found:
        stdout().line("no series")
        return
    columns = [Column("series"), Column("nights", right=True, rank=1), Column("last", rank=2)]
    columns += [Column(name, right=True) for name in ("reading", "median")]
    columns += [Column("band", rank=3), Column("unit")]
    rows: list[list[Part]] = []
    for each in found:
        values = each.values
        middle = sorted(values.tolist())[len(values) // 2]
        low, high = each.bounds.low, each.bounds.high
        band = f"{low:.4g} .. {high:.4g}" if low is not None and high is not None else ""
        numbers = [f"{values[-1]:.4g}", f"{middle:.4g}"]
        last = iso(each.times[-1])[:16]
        rows.append([each.key.name, str(len(values)), last, *numbers, band, each.key.unit])
    stdout().fitted(columns, rows)


def compared(found: Sequence[Compared], a: str, b: str, *, as_json: bool) -> None:
    """Print a comparison."""
    if as_json:
        document: CompareDocument = {
            "schema": "busbar-history-compare/1",
            "a": a,
            "b": b,
            "series": [compared_row(each) for each in found],
        }
        stdout().document(document)
        return
    if not found:
        stdout().line(f"no series has readings of both {a} and {b}")
        return
    columns = [Column("series"), Column(a, right=True), Column(b, right=True)]
    columns += [Column("b / a", right=True), Column("95 % interval"), Column("", rank=1)]
    rows: list[list[Part]] = []
    for each in found:
        interval = "too few readings"
        if each.ratio.low is not None and each.ratio.high is not None:
            interval = f"{each.ratio.low:.3f} .. {each.ratio.high:.3f}"
        unit = each.key.unit
        numbers = [f"{each.a:.4g} {unit}", f"{each.b:.4g} {unit}", f"{each.ratio.value:.3f}"]
        rows.append(
            [each.key.name, *numbers, interval, "differs" if each.ratio.excludes_one else ""]
        )
    stdout().fitted(columns, rows)


def events(found: Sequence[Event], looked_at: Sequence[Series], *, as_json: bool) -> None:
    """Print events."""
    if as_json:
        stdout().document(changes_document(found, looked_at))
        return
    out = stdout()
    if not found:
        nights = max((len(each.times) for each in looked_at), default=0)
        out.line(f"no change in {len(looked_at)} series of up to {nights} nights")
    for event in found:
        count = len(event.changes)
        shared = f": {', '.join(event.shared)}" if event.shared else ""
        worse = sum(change.worse for change in event.changes)
        counts = ((worse, "worse"), (count - worse, "better"))
        moved = ", ".join(f"{n} series {what}" for n, what in counts if n) + shared
        out.line(f"{iso(event.since)[:10]}  {moved}", style="yellow" if event.worse else "green")
        for change in event.changes[:_MOST_CHANGES]:
            out.line(f"  {_sentence(change)}")
        if count > _MOST_CHANGES:
            out.line(f"  and {count - _MOST_CHANGES} more (--json lists all)")
        changed = [each for each in event.differences if each.weight > 0]
        for each in changed[:_MOST_DIFFERENCES]:
            out.line(f"  differs: {each.text} ({each.reason})")
        same = [each.name for each in event.differences if not each.weight and each.before]
        if same:
            more = f" and {len(same) - 6} more" if len(same) > 6 else ""
            out.line(f"  unchanged: {', '.join(same[:6])}{more}")
        elif not changed and not event.drift:
            out.line("  provenance: none is stored for these nights")


def _sentence(change: Change) -> str:
    interval = ""
    if change.ratio.low is not None and change.ratio.high is not None:
        interval = f" [{change.ratio.low - 1:+.1%} .. {change.ratio.high - 1:+.1%}]"
    band = ", outside of its band" if change.below_band else ""
    if change.weekly is not None:
        band = f", {change.weekly:+.2%} a week since {iso(change.since)[:10]}{band}"
    return (
        f"{change.key.name}: {change.before:.4g} -> {change.after:.4g} {change.key.unit}"
        f" ({change.ratio.value - 1:+.1%}{interval}){band}, certain on {iso(change.found)[:10]}"
    )


def write_documents(found: Baseline, directory: Path) -> list[str]:
    """Write the nights of a baseline; return the files."""
    make_directory(directory)
    files = []
    for document in found.documents:
        path = directory / f"night-{document.time[:10]}.json"
        try:
            path.write_text(json.dumps(to_json(document), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise BusbarError(
                f"cannot be written: {error.strerror}",
                where=str(path),
                hint="choose another --output",
            ) from error
        files.append(str(path))
    return files


def baseline(found: Baseline, files: list[str], site: str, *, as_json: bool) -> None:
    """Print what was written."""
    if as_json:
        document: BaselineDocument = {
            "schema": "busbar-history-baseline/1",
            "site": site,
            "files": files,
            "left_out": found.left_out,
            "too_new": [key_row(key) for key in found.too_new],
        }
        stdout().document(document)
        return
    out = stdout()
    out.line(f"wrote {len(files)} nights; {found.left_out} had readings outside of their band")
    for key in found.too_new[:_MOST_CHANGES]:
        out.line(f"left out, as it changed: {key.name}")
    out.line(f"next, run: busbar site calibrate --site {site} {Path(files[0]).parent}/*.json")


def pruned(count: int, before: int, after: int, *, as_json: bool) -> None:
    """Print what was removed."""
    if as_json:
        document: PruneDocument = {
            "schema": "busbar-history-prune/1",
            "readings": count,
            "bytes_before": before,
            "bytes_after": after,
        }
        stdout().document(document)
        return
    stdout().line(f"removed {count:,} readings; {before:,} bytes before, {after:,} after")
