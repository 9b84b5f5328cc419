# SPDX-License-Identifier: MIT
"""What readings and versions tell without a band: physics, NCCL's own estimate, what was asked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from busbar.engine.busy import accounts_for
from busbar.engine.identify import gpu_models, nccl_versions
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence, Note
from busbar.explain.catalog import declare
from busbar.explain.rules import Context, Explains, Finding, degraded, failure, finding
from busbar.explain.rules_mpi import inside_one_gpu
from busbar.parse import numbers
from busbar.site.model import Site
from busbar.verdict import Verdict

declare("nccl-version-mismatch", "cuda-version-mismatch", "ucx-api-mismatch")

_TOO_SLOW = 0.6
"""Share of NCCL's own estimate of the links below which a large collective is slow on any
machine."""
_LARGE = 1 << 26
_OTHER_VENDOR = {"nvidia": r"\bAMD\b|\bMI\d{2,3}", "amd": "NVIDIA"}
_NVLINK_PER_GPU = 900.0
"""GB/s one way of NVLink5, the fastest links between GPUs that are on the market."""


def other_gpus(facts: JobOutput, site: Site) -> Note | None:
    """Return a note if no node of the site has a GPU that the output names."""
    known = [node.gpus for node in site.node_types.values() if node.gpus]
    numbers = {_model_number(gpus.model) for gpus in known} - {""}
    for model in sorted(gpu_models(facts)) if known else ():
        said = f"the output is from {model}, which site {site.name} does not have: its bands are"
        if all(re.search(_OTHER_VENDOR[gpus.vendor], model) for gpus in known):
            return Note("other-vendor", f"{said} not applied")
        if numbers and _model_number(model) not in {"", *numbers}:
            return Note("other-gpus", f"{said} those of {known[0].model}")
    return None


def _model_number(model: str) -> str:
    """Return the first word with a digit, ``H100`` of ``NVIDIA H100 80GB HBM3``, or nothing."""
    words = re.split(r"\W+", model)
    return next((word for word in words if any(map(str.isdigit, word))), "")


def unjudged(context: Context) -> Iterator[Finding]:
    """Judge a reading without a band: by NCCL's own estimate of the links, and by physics."""
    facts = context.facts
    rates = [
        r
        for r in facts.readings
        if r.kind in ("bw", "busbw") and r.evidence and math.isfinite(r.value)
    ]
    if not rates:
        return
    top = max(rates, key=lambda r: r.value)
    both = 2 if facts.tool == "osu_bibw" else 1
    of_pair = context.on_gpu and facts.tool in ("osu_bw", "osu_bibw", "gpu_aware")
    if of_pair and top.value > both * _NVLINK_PER_GPU:
        yield inside_one_gpu(top, "any link between GPUs carries")
        return
    estimates = (numbers.real(v) or 0.0 for v in facts.values("nccl.nvlink", "gb_per_s"))
    estimate = max(estimates, default=0.0)
    last = context.largest_rates
    large = last and last[0].nbytes >= _LARGE and last[0].kind == "busbw"
    if not (estimate and context.nodes == 1 and large):
        return
    best = max(last, key=lambda r: r.value)
    share = best.value / (_TOO_SLOW * estimate)
    if share >= 1 or not best.evidence:
        return
    if accounts_for(context.loads, share):
        for load in context.loads:
            yield finding(
                *(load.summary, load.evidence),
                certain=False,
                explains=Explains.LOAD,
                effect=Verdict.UNKNOWN,
                id_=load.cause,
            )
        return
    summary = f"{best.value:.4g} GB/s where NCCL counts {estimate:g} GB/s of NVLink for each GPU"
    yield degraded(summary, best, facts.first("nccl.nvlink"), id_="below-band-unexplained")


def asked_versions(context: Context, asked: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each version in the output that is not the requested one."""
    facts = context.facts
    shown: dict[str, list[tuple[str, Evidence]]] = {
        "nccl": list(nccl_versions(facts).items()),
        "cuda": [
            (_cuda_version(numbers.count(s["version"])), s.evidence)
            for s in facts.seen("ofi.cuda-runtime")
        ],
        "ucx": [(s["version"], s.evidence) for s in facts.seen("ucx.version")]
        + [(s["loaded"], s.evidence) for s in facts.seen("ucx.api-mismatch")],
    }
    causes = {"nccl": "nccl-version-mismatch", "ucx": "ucx-api-mismatch"}
    return [
        failure(
            f"requested {name} {version}, but {found} ran",
            evidence,
            id_=causes.get(name, "cuda-version-mismatch"),
        )
        for name, version in asked.items()
        for found, evidence in shown.get(name, [])
        if not f"{found}.".startswith(f"{version}.")
    ]


def _cuda_version(number: int) -> str:
    """Return ``12.4`` for 12040."""
    return f"{number // 1000}.{number % 1000 // 10}"
