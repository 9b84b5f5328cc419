# SPDX-License-Identifier: MIT
"""Whether an output is of the GPUs and the libraries that the run has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.engine.identify import gpu_models, nccl_versions
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import LaunchOutput
from busbar.engine.run import Run
from busbar.parse.events import Start
from busbar.site.model import Gpus

_VENDORS = {"CUDA": "nvidia", "ROCM": "amd", "HIP": "amd", "SYCL": "intel"}
"""By the memory that the title of a table names, and the back end of our programs."""
_NVIDIA_CHIP = re.compile(r"(?i)\b(?P<word>[A-Z]{1,3}\d{1,3}[A-Z]?|\d{3,4}(?!\d| ?GB))\b")
"""H200, GB200, L40S, V100, and the number of an RTX 6000."""
_FORM = re.compile(r"(?i)(?P<word>PCIe|NVL(?!ink)|SXM|HBM)")
_SXM = {"HBM": "SXM"}
"""The driver names the memory of an SXM module since the H100."""
_MEMORY = re.compile(r"(?i)\b(?P<word>\d{2,3}) ?GB\b")
_AMD_MODEL = re.compile(r"(?i)\bMI\d{2,4}[A-Z]{0,2}\b")


def differences(run: Run, shown: LaunchOutput) -> Iterator[str]:
    """Yield where the output is of other GPUs than the node's, or of several libraries."""
    gpus = run.site.node_type(run.partition).gpus if run.site else None
    if gpus:
        yield from _of_gpus(gpus, shown.facts)
    lane = re.match(r"ucx-(?P<version>\d+\.\d+)$", run.lane or "")
    for start, _ in shown.facts.events_of(Start):
        if lane and start.ucx and not start.ucx.startswith(f"{lane['version']}."):
            yield f"requested lane {run.lane}, but UCX {start.ucx} was loaded"
    versions = nccl_versions(shown.facts)
    if len(versions) > 1:
        yield f"the output names NCCL {' and '.join(sorted(versions))}"


def _of_gpus(gpus: Gpus, output: JobOutput) -> Iterator[str]:
    for model in sorted(gpu_models(output)):
        if not _same_model(gpus, model):
            yield f"the output is of {model!r}, the site has {gpus.model}"
            return
    backends = {start.backend.upper() for start, _ in output.events_of(Start)}
    for name in sorted({output.device, *backends}):
        if _VENDORS.get(name, gpus.vendor) != gpus.vendor:
            yield f"the output is of {name} buffers, the site has {gpus.model}"
            return


def _same_model(gpus: Gpus, name: str) -> bool:
    """Whether a name is that of the GPUs.

    NVIDIA's driver gives every tool the same name, which a site may shorten: its chip must be the
    same, its form (no word is SXM), and the size of its memory where both have one. The names of
    AMD's tools differ in more than the model, which some of them lack.
    """
    if gpus.vendor == "nvidia":
        names = (name, gpus.model)
        chips = {_first(_NVIDIA_CHIP, each) for each in names}
        forms = {_first(_FORM, each) or "SXM" for each in names}
        memories = {_first(_MEMORY, each) for each in names} - {""}
        forms = {_SXM.get(form, form) for form in forms}
        return len(chips) == 1 and len(forms) == 1 and len(memories) < 2
    models = {each.upper() for each in _AMD_MODEL.findall(name)}
    expected = {each.upper() for each in _AMD_MODEL.findall(gpus.model)}
    if not models:
        return "NVIDIA" not in name.upper()
    return bool(models & expected) or not expected


def _first(pattern: re.Pattern[str], name: str) -> str:
    match = pattern.search(name)
    return match["word"].upper() if match else ""
