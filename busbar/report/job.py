# SPDX-License-Identifier: MIT
"""Show what holds a running job up: on the terminal, and as metrics."""

from __future__ import annotations

import time

from busbar.job.judge import JobAnswer, RankRow
from busbar.report.headline import Headline
from busbar.report.prometheus import Families
from busbar.terminal import Column, Terminal
from busbar.verdict import STYLES, Verdict

_MOST_RANKS = 16
_COLUMNS = (
    Column("rank", right=True),
    Column("node"),
    Column("PID", right=True),
    Column("program", rank=3),
    Column("CPUs", right=True),
    Column("waits for CPU", right=True, rank=1),
    Column("state", rank=2),
    Column("waits in", rank=4),
)


def print_job(answer: JobAnswer, terminal: Terminal) -> None:
    """Print the answer, its evidence, and what the ranks did."""
    text = Headline(answer.headline).text
    terminal.line((f"{answer.verdict}", STYLES[answer.verdict]), f": {text}")
    for cause in answer.causes:
        terminal.line(f"{cause.id} ({cause.confidence}): {cause.summary}", style="bold")
        for line in cause.evidence:
            terminal.line(f"  {line.file}: {line.text}")
        terminal.line(f"  next: {cause.remedy} More: busbar explain --cause {cause.id}")
    shown = _shown(answer)
    terminal.fitted(_COLUMNS, [_cells(row) for row in shown])
    if len(shown) < len(answer.ranks):
        terminal.line(f"{len(answer.ranks) - len(shown)} more ranks: --json has them")
    for each in answer.unseen:
        terminal.line(f"not seen: {each}")
    looked = f"looked for {answer.seconds:g} s at {len(answer.nodes)} nodes"
    terminal.line(f"{looked}; the collector took {answer.collector_cpu_s:.2f} s of CPU time")


def _shown(answer: JobAnswer) -> list[RankRow]:
    """Return the ranks of the causes, and the first ones."""
    accused = {pid for cause in answer.causes for pid in cause.details.get("pids", ())}
    rows = sorted(answer.ranks, key=lambda row: row.pid not in accused)[:_MOST_RANKS]
    return sorted(rows, key=lambda row: (row.rank, row.node))


def _cells(row: RankRow) -> list[str]:
    return [
        *(str(row.rank), row.node, str(row.pid), row.program, f"{row.cpus:.2f}"),
        *(f"{row.cpu_wait_share:.0%}", row.states, row.waits_in),
    ]


def job_metrics(answer: JobAnswer, cluster: str) -> str:
    """Return the verdict and the causes of a job for Prometheus."""
    job = {"cluster": cluster, "job": answer.job}
    families = Families()
    families.add("busbar_job_timestamp_seconds", "When the job was observed.")
    families.add("busbar_job_verdict", "1 for the verdict of the job, 0 for the others.")
    families.add("busbar_job_cause", "1 for each cause that holds the job up.")
    families.add("busbar_job_ranks", "Ranks that were seen.")
    families.add("busbar_job_cpus", "CPUs that the ranks used.")
    families.add("busbar_job_cpu_wait_share", "The largest share of time without a CPU.")
    families.set("busbar_job_timestamp_seconds", time.time(), job)
    for each in Verdict:
        families.set("busbar_job_verdict", each is answer.verdict, {**job, "verdict": str(each)})
    for cause in answer.causes:
        families.set("busbar_job_cause", 1, {**job, "cause": cause.id})
    families.set("busbar_job_ranks", len(answer.ranks), job)
    families.set("busbar_job_cpus", sum(row.cpus for row in answer.ranks), job)
    worst = max((row.cpu_wait_share for row in answer.ranks), default=0.0)
    families.set("busbar_job_cpu_wait_share", worst, job)
    return families.text()
