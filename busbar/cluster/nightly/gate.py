# SPDX-License-Identifier: MIT
"""The gate on each node, by one step of Slurm; a gate that does not answer accuses no node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from busbar.cluster.nightly.night import Finding
from busbar.cluster.nightly.process import busbar
from busbar.slurm.hostlist import fold
from busbar.slurm.options import Grant, Wish, words_of
from busbar.text_file import read_text
from busbar.verdict import Verdict

_MINUTES = 10
"""Time limit of the job."""
_SCHEMA = "busbar-gate/1"
_MOST_PROBLEMS = 3


@dataclass(frozen=True)
class _Row:
    check: str
    verdict: Verdict
    where: str = ""
    value: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        return " ".join(filter(None, (self.check, self.where, self.value, self.note)))


@dataclass(frozen=True)
class Gated:
    """The keys of the gate's document that a night needs."""

    schema: str
    node: str
    verdict: Verdict
    drain: bool
    reason: str
    problems: tuple[str, ...]
    checks: tuple[_Row, ...]

    @property
    def finding(self) -> Finding:
        """The verdict on the node, with the reason."""
        if self.drain:
            return Finding(self.node, Verdict.FAILED, self.reason)
        wrong = [row.text for row in self.checks if row.verdict.is_problem]
        texts = [*self.problems, *wrong][:_MOST_PROBLEMS]
        return Finding(self.node, self.verdict, "; ".join(texts))


def command(site: str, grant: Grant, wish: Wish, nodes: Sequence[str], output: Path) -> list[str]:
    """Return the command that runs the gate once on each node, in the job that holds us or in one
    of its own.

    One node that fails must not end the others.
    """
    count = len(nodes)
    words = [*("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1")]
    words += [f"--nodelist={fold(nodes)}", "--kill-on-bad-exit=0", "--wait=0", "--no-kill"]
    files = str(output).replace("%", "%%")
    words += [f"--output={files}/%t.json", f"--error={files}/%t.log", "--mpi=none"]
    if grant.held:
        words += ["--overlap", "--mem=0"]  # the step of salloc's shell may hold all of the node
    else:
        words += ["--job-name=busbar-gate", f"--time={_MINUTES}"]
        words += [*words_of(grant.partition, wish), *wish.immediate]
    partition = f"--partition={grant.partition.name}"
    return [*words, *busbar("gate", f"--site={site}", partition, "--json")]


def read(output: Path, nodes: Sequence[str]) -> Mapping[str, Gated]:
    """Return the document of each node that left a whole one."""
    found = {}
    for path in output.glob("*.json"):
        try:
            document = _documents().validate_json(read_text(path))
        except (OSError, ValueError):  # also pydantic's
            continue
        if document.schema == _SCHEMA and document.node in nodes:
            found[document.node] = document
    return found


@cache
def _documents() -> TypeAdapter[Gated]:
    return TypeAdapter(Gated)
