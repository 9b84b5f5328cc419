# SPDX-License-Identifier: MIT
"""The vendor of the GPUs decides what Cray MPICH is linked with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from busbar import site as sites
from busbar.delivery import environments
from busbar.delivery.choice import Choice
from busbar.detect.gather import Software
from busbar.detect.machine import deliveries
from busbar.expect.lint import lint
from busbar.site.model import Site

from .edited import edit

NVIDIA = {
    "vendor": "nvidia",
    "model": "NVIDIA A100-SXM4-40GB",
    "arch": "sm_80",
    "count": 4,
    "links": {"all_pairs": {"class": "nvlink3", "count": 4}},
}


def on_nvidia(copy: Path) -> Path:
    """The site of MI250X on Slingshot with the nodes of Polaris."""

    def change(site: dict[str, Any]) -> None:
        del site["nodes_like"], site["references"]
        site["node_types"] = {
            "gpu": {
                "gpus": NVIDIA,
                "nics": [
                    {"name": "cxi0", "class": "slingshot-11"},
                    {"name": "cxi1", "class": "slingshot-11"},
                ],
            }
        }
        site["fabric"] = {"provider": "cxi", "rails": 2}
        del site["deliveries"][2]  # Open MPI for AMD

    return edit(copy, "mi250x-cray", change)


def test_cray_on_nvidia_is_a_stack_of_cuda(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Path("/opt/cuda/include"), Path("/opt/cuda/lib64")
    monkeypatch.setattr(environments.programs, "find_cuda", lambda: cuda)
    on_nvidia(copy)
    site = sites.load("mi250x-cray")
    assert {delivery.stack for delivery in site.deliveries} == {"cray-cuda"}
    assert lint("mi250x-cray") == []
    environment, *_ = environments.environments(site, Choice(declared=True), 4)
    assert {"cuda", "cray"} <= set(environment.features)
    assert "rocm" not in environment.features
    assert environment.variables["MPICH_GPU_SUPPORT_ENABLED"] == "1"
    environments._add_flags(flags := environments.Parts(), site, "cray-cuda")
    assert "-DGPU_CUDA" in flags.cxxflags
    assert flags.ldflags[-3:] == [
        *("-Wl,--no-as-needed", "$PE_MPICH_GTL_DIR_nvidia80", "$PE_MPICH_GTL_LIBS_nvidia80")
    ]


def test_cray_on_amd_is_a_stack_of_rocm() -> None:
    site = sites.load("mi250x-cray")
    assert {delivery.stack for delivery in site.deliveries} == {"cray", "rocm"}
    environments._add_flags(flags := environments.Parts(), site, "cray")
    assert "-DGPU_HIP" in flags.cxxflags
    assert "$PE_MPICH_GTL_LIBS_amd_gfx90a" in flags.ldflags


def test_a_stack_of_the_other_vendor_is_a_finding(copy: Path) -> None:
    file = copy / "mi250x-cray" / "site.yaml"
    facts = yaml.safe_load(file.read_text())
    facts["deliveries"][0]["stack"] = "cray-cuda"
    file.write_text(yaml.safe_dump(facts))
    (finding,) = lint("mi250x-cray")
    assert finding.rule == "stack cray-cuda, but the GPUs need rocm"


def test_detected_cray_mpich(root: Path) -> None:
    facts = yaml.safe_load((root / "site" / "h200x4" / "site.yaml").read_text())
    facts["deliveries"] = deliveries(Software(cray_mpich=True), "cuda")
    assert Site.model_validate(facts).deliveries[0].stack == "cray-cuda"
