# SPDX-License-Identifier: MIT
"""The gate on each node, by one step of Slurm; a gate that does not answer accuses no node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from busbar.boundary import read_text
from busbar.cluster.nightly.night import NightFinding
from busbar.data import busbar
from busbar.document import parse_document
from busbar.gate.findings import GateDocument
from busbar.parse import numbers
from busbar.slurm.options import Grant, Wish, words_of
from busbar.slurm.steps import srun
from busbar.verdict import Verdict, combined

_MINUTES = 10
"""Time limit of the job."""
_MOST_PROBLEMS = 3


def finding_of(gated: GateDocument) -> NightFinding:
    """Return the verdict on a node, with the reason; what the site only observes is unjudged."""
    if gated.drain:
        return NightFinding(gated.node, Verdict.FAILED, gated.reason)
    observed = [row for row in gated.checks if row.is_fault and row.mode == "observe"]
    verdict = gated.verdict
    if observed:
        rest = [row.verdict for row in gated.checks if row not in observed]
        doubt = [Verdict.UNKNOWN for _ in gated.problems]
        verdict = combined([*rest, *doubt, Verdict.UNJUDGED])
    wrong = (
        " ".join(filter(None, (row.check, row.where, row.value, row.note)))
        for row in gated.checks
        if row.verdict.is_problem
    )
    texts = [*gated.problems, *wrong][:_MOST_PROBLEMS]
    return NightFinding(gated.node, verdict, "; ".join(texts))


def command(site: str, grant: Grant, wish: Wish, nodes: Sequence[str], output: Path) -> list[str]:
    """Return the command that runs the gate once on each node, in the job that holds us or in one
    of its own.
    """
    files = str(output).replace("%", "%%")
    words = [f"--output={files}/%t.json", f"--error={files}/%t.log", "--mpi=none"]
    if not grant.held:
        words += ["--job-name=busbar-gate", f"--time={_MINUTES}"]
        words += [*words_of(grant.partition, wish), *wish.immediate]
    partition = f"--partition={grant.partition.name}"
    command = busbar("gate", f"--site={site}", partition, "--json")
    return [*srun(nodes, in_job=bool(grant.held)), *words, *command]


def read(output: Path, nodes: Sequence[str]) -> Mapping[str, GateDocument]:
    """Return the document of each node that left a whole one."""
    found = {}
    for path in output.glob("*.json"):
        try:
            document = parse_document(GateDocument, numbers.load_json(read_text(path)))
        except (OSError, ValueError):
            continue  # the node has no verdict
        if document.node in nodes:
            found[document.node] = document
    return found
