# SPDX-License-Identifier: MIT
"""What the stages of a night would do: jobs, nodes, checks and a rough time; nothing is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from busbar.check.names import short_name
from busbar.check.places import ring
from busbar.cluster.nightly.night import NightStage, StageName, finished
from busbar.cluster.nightly.stages import NightJob
from busbar.data import busbar
from busbar.errors import BusbarError
from busbar.parse import numbers
from busbar.program import call
from busbar.slurm.hostlist import fold
from busbar.verdict import Verdict
from busbar.words import counted

_LIST_S = 120
_DOES: dict[str, tuple[str, int]] = {
    "gate": ("1 job: busbar gate on all of {nodes} at once", 10),
    "sweep": ("1 job: busbar sweep run on {nodes}, in rounds of {pairs} at once", 120),
}
"""With rough times in s."""
_CHECK_S = 10
"""Of a check on one node, roughly."""


def planned(name: StageName, job: NightJob, nodes: Sequence[str]) -> NightStage:
    """Return a stage that did not run; its message says what it would do on these nodes."""
    pairs = counted(len(nodes) // 2, "pair")
    tag = "nightly" if name == "sample" else "gate"
    text, seconds = _DOES[name] if name in _DOES else _checks(job, nodes, tag)
    text = text.format(nodes=fold(nodes), pairs=pairs)
    output = job.night.directory
    earlier = finished(output)[-1:] if output.is_dir() else []
    last = next((stage for _, state in earlier if (stage := state.stage(name))), None)
    took = f"{last.seconds:.0f} s in the last night" if last else f"roughly {seconds} s"
    message = f"{text}; {took}"
    return NightStage(name, Verdict.NOT_RUN, message, finished=False, nodes=tuple(nodes))


def _checks(job: NightJob, nodes: Sequence[str], tag: str) -> tuple[str, int]:
    """Return what the checks with a tag do, and rough seconds: nodes are tested side by side."""
    command = busbar("check", f"--site={job.site}", "--list", "--json", f"--tag={tag}", *job.stack)
    done = call(command, _LIST_S)
    if done.returncode:
        raise BusbarError(done.stderr.strip(), where="the checks", hint="see busbar check --list")
    rows = numbers.load_json(done.stdout)
    here = f"{job.grant.partition.name}+"
    runs = [row for row in rows if any(each.startswith(here) for each in row["runs_in"])]
    pairs, ways = ring(nodes), Counter(min(row["nodes"], 2) for row in runs)
    jobs = ways[1] * len(nodes) + ways[2] * len(pairs)
    kinds = Counter(short_name(row["name"]).split()[0] for row in runs)
    names = ", ".join(f"{name} x {n}" if n > 1 else name for name, n in kinds.items())
    where = f"{counted(ways[1], 'check')} on each of {fold(nodes)}"
    if pairs:
        where = f"{where} and {ways[2]} on each of {counted(len(pairs), 'pair')} of neighbours"
    return f"{counted(jobs, 'job')}: {where}: {names}", _CHECK_S * (ways[1] + 2 * ways[2])
