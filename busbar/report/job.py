# SPDX-License-Identifier: MIT
"""Show what holds a running job up: on the terminal, and as metrics."""

from __future__ import annotations

import time

from busbar.job.judge import JobAnswer
from busbar.parse.tables import beside
from busbar.plain import Column
from busbar.report.prometheus import Families
from busbar.terminal import Terminal
from busbar.verdict import STYLES, Verdict
from busbar.words import counted

_MOST_RANKS = 16
_COLUMNS = (
    *(Column("rank", right=True), Column("node"), Column("PID", right=True)),
    *(Column("program", rank=3), Column("CPUs", right=True)),
    *(Column("waits for CPU", right=True, rank=1), Column("states", rank=2)),
    Column("waits in", rank=4),
)


def print_job(answer: JobAnswer, terminal: Terminal) -> None:
    """Print the answer, its evidence, and what the ranks did."""
    terminal.line((answer.verdict, STYLES[answer.verdict]), f": {answer.headline}")
    for number, cause in enumerate(answer.causes):
        said = f": {cause.summary}" if number else ""  # the headline has the first one's
        terminal.line(f"{cause.id} ({cause.confidence}){said}", style="bold")
        for line in cause.evidence:
            terminal.line(f"  {line.file}: {line.text}")
        terminal.line(f"  next: {cause.remedy} More: busbar explain --cause {cause.id}")
    accused = {pid for cause in answer.causes for pid in cause.details.get("pids", ())}
    rows = sorted(answer.ranks, key=lambda row: row.pid not in accused)[:_MOST_RANKS]
    cells = [
        [
            *(str(row.rank), row.node, str(row.pid), row.program, f"{row.cpus:.2f}"),
            *(f"{row.cpu_wait_share:.0%}", row.states, row.stack or row.waits_in),
        ]
        for row in sorted(rows, key=lambda row: row.rank)
    ]
    if not answer.seconds:
        return
    terminal.fitted(_COLUMNS, cells)
    if len(rows) < len(answer.ranks):
        terminal.line(f"{counted(len(answer.ranks) - len(rows), 'more rank')}: --json has them")
    for port in answer.ports:
        carried = f"{port.received:.3g} in, {port.sent:.3g} out of {port.limit:.3g} GB/s"
        terminal.line(f"{port.node} {port.port}: {carried}, {port.rate / port.limit:.0%}")
    for each in answer.unseen:
        terminal.line(f"not seen: {each}")
    looked = f"observed {counted(len(answer.nodes), 'node')} for {answer.seconds:.1f} s"
    cost = f"the collector took {answer.collector_cpu_s:.2f} s of CPU time"
    if answer.collector_cpus is not None:
        cost = f"{cost}, and {answer.collector_cpus:.2%} of a CPU since --watch began"
    terminal.line(f"{looked}; {cost}")


def job_metrics(answer: JobAnswer, cluster: str) -> str:
    """Return the verdict and the causes of a job for Prometheus."""
    families, job = Families(), {"cluster": cluster, "job": answer.job}
    ports = [({"node": row.node, "port": row.port}, row) for row in answer.ports]
    rows: dict[str, list[tuple[float, dict[str, str]]]] = {
        "timestamp_seconds": [(time.time(), {})],
        "verdict": [(each is answer.verdict, {"verdict": str(each)}) for each in Verdict],
        "cause": [(1, {"cause": cause.id}) for cause in answer.causes],
        "ranks": [(len(answer.ranks), {})],
        "cpus": [(sum(row.cpus for row in answer.ranks), {})],
        "port_bytes_per_second": [(row.rate * 1e9, port) for port, row in ports],
        "port_limit_bytes_per_second": [(row.limit * 1e9, port) for port, row in ports],
        "collector_cpu_seconds": [(answer.collector_cpu_s, {})],
        "cpu_wait_share": [(max((r.cpu_wait_share for r in answer.ranks), default=0.0), {})],
    }
    for name, text in beside(__file__).items():
        families.add(f"busbar_job_{name}", text)
        for value, labels in rows[name]:
            families.set(f"busbar_job_{name}", value, job | labels)
    return families.text()
