# SPDX-License-Identifier: MIT
"""Measure how often drifts are found, and how often a quiet year is called a drift.

``python -m tests.bench.simulate_nights DIR && python -m tests.bench.drifts DIR`` prints the table
of docs/history.md. Ranges are 95 % intervals. False alarms are those of drifts, in sites of 500
nodes; those of steps are in the table of ``change_points.py``. A series that drifts has no others
beside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from busbar.history.drift import drifts_of
from busbar.history.model import HistoryKey, NightSeries
from busbar.history.statistic import SERIES, common_noise
from busbar.terminal import stdout
from tests.bench.change_points import nights, percent, wilson

DAY_S = 86400.0


def series_of(file: Path) -> list[NightSeries]:
    """Return the series of a file."""
    found = []
    for number, row in enumerate(np.load(file)):
        values, days = nights(row)
        key = HistoryKey("simulated", "", f"n{number}", "", "bandwidth", "GB/s")
        found.append(NightSeries(key, days * DAY_S, values, np.zeros_like(days), days))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--series", type=int, default=100, help="drifting series of each kind")
    args = parser.parse_args()
    out = stdout()
    out.line("| noise | false alarms a year | found in 90 nights | after 180 quiet nights |")
    out.line("|---|---|---|---|")
    for file in sorted(args.directory.glob("*.quiet.npy")):
        kind = file.name.partition(".")[0]
        quiet = series_of(file)
        sites = [quiet[first : first + SERIES] for first in range(0, len(quiet), SERIES)]
        noise = common_noise([each.values for each in sites[0]], [each.days for each in sites[0]])
        false = sum(
            len({change.key for change in drifts_of(site, (), SERIES, noise)}) for site in sites
        )
        low, high = (SERIES * share for share in wilson(false, len(quiet)))
        columns = [kind, f"{false * SERIES / len(quiet):.1f} ({low:.1f} to {high:.1f})"]
        for name in ("drift", "late"):
            drifting = series_of(args.directory / f"{kind}.{name}.npy")[: args.series]
            found = sum(bool(drifts_of([each], (), SERIES, noise)) for each in drifting)
            columns.append(percent(found, len(drifting)))
        out.line(f"| {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
