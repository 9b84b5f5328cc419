# SPDX-License-Identifier: MIT
"""Odd, failed and damaged tools: a usable site, a sentence, and never a machine without GPUs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from busbar import site as sites
from busbar.cli import main
from busbar.detect.gather import Outputs
from busbar.detect.machine import compose, match, recorded
from busbar.errors import BusbarError
from tests.cases import cases
from tests.files import executable

from .saved import detect_text, h200_outputs, inventory, text

MIG_LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-00000000-0000-0000-0000-000000000001)
  MIG 3g.20gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-00000000000a)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-00000000-0000-0000-0000-00000000000b)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-00000000-0000-0000-0000-000000000002)
"""
MATRIX = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-31\nGPU1\tNV12\t X \t0-31\n"
MIG_OFF = re.sub(" *MIG .*\n", "", MIG_LIST)
TOPO = text("h200x4/nvidia-smi-topo.log")
MODES = "index, mig.mode.current\n0, Disabled\n1, Enabled\n"
GARBAGE = {"amd-smi static": "<html>", "rocm-smi": "", "ibstat": "no devices", "lstopo": "x"}
DEAD = "NVIDIA-SMI has failed because it couldn't communicate"


def with_matrix(matrix: str) -> Outputs:
    return Outputs(h200_outputs() | {"nvidia-smi topo": matrix})


# The outputs, a sentence, and whether GPUs are described all the same.
ODD: dict[str, tuple[Outputs, str, bool]] = {
    "no driver": (
        *(Outputs(failed={"nvidia-smi -q": DEAD}), "nvidia-smi -q failed: NVIDIA-SMI has failed"),
        False,
    ),
    "MIG on": (
        *(Outputs({"nvidia-smi -q": detect_text("nvidia-smi-q-mig-synthetic.txt")}), "MIG is on"),
        False,
    ),
    "MIG instances listed": (Outputs({"nvidia-smi -L": MIG_LIST}), "MIG is on (GPU 0);", False),
    "MIG instances listed beside links": (
        Outputs({"nvidia-smi topo": MATRIX, "nvidia-smi -L": MIG_LIST}),
        *("MIG is on (GPU 0);", False),
    ),
    "MIG queried beside links": (
        Outputs({"nvidia-smi topo": MATRIX, "nvidia-smi mig.mode": MODES}),
        *("MIG is on (GPU 1);", False),
    ),
    "names only": (Outputs({"nvidia-smi -L": MIG_OFF}), "GPUs are known by name only", False),
    "cut matrix": (
        with_matrix(TOPO.split("GPU2\tNV")[0]),
        *("nvidia-smi topo: 2 rows for 4 GPUs; the output is truncated", True),
    ),
    "virtual machine without links": (
        *(with_matrix(TOPO.replace("NV18", "PHB")), "no NVLink between the GPUs", True),
    ),
    "no matrix": (
        Outputs({"nvidia-smi -q": text("h200x4/nvidia-smi-q-gpu0.log")}),
        *("so links are omitted", True),
    ),
    "unknown architecture": (
        Outputs({"nvidia-smi -q": inventory("NVIDIA X1", "Rubin", 1, 1)}),
        *("unknown architecture 'Rubin'", False),
    ),
    "garbage": (Outputs(GARBAGE), "amd-smi static: invalid JSON", False),
}


@cases("case", ODD)
def test_odd_input_gives_a_usable_site_and_one_sentence(case: str) -> None:
    """Without a usable GPU, it is no machine without GPUs."""
    outputs, sentence, described = ODD[case]
    detected = compose(outputs)
    assert any(sentence in remark for remark in detected.remarks)
    assert sites.environment(detected.site)
    assert (detected.site.node.gpus is not None) is described
    if not described:
        assert any(sentence in said for said in detected.gpu_tool_failed)
        assert match(detected) is None


@cases("case", [case for case in ODD if "MIG" in case])
def test_mig_is_one_sentence_and_nothing_is_invented(case: str) -> None:
    detected = compose(ODD[case][0])
    assert len(detected.remarks) == 1
    assert "turn it off (nvidia-smi -mig 0)" in detected.remarks[0]
    assert detected.site.node.nics == ()
    assert "GPU" not in detected.site.description.replace("no GPUs", "")


@cases(
    ("text", "tool"),
    [
        (MIG_LIST, "nvidia-smi -L"),
        (MIG_OFF, "nvidia-smi -L"),
        ("mig.mode.current\nEnabled\n[N/A]\n", "nvidia-smi mig.mode"),
        ("name, mig.mode.current\nNVIDIA A100, Disabled\n", "nvidia-smi mig.mode"),
        (MIG_OFF.replace("GPU 1", "\t Link 0: 25 GB/s\nGPU 1") + "\t Link 0: 25 GB/s\n", "nvlink"),
        ("mig.mode.current\n", ""),
        ("mig.mode.current\nOn\n", ""),
        ("index, mig.mode.current\n0\n", ""),
        ("  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n", ""),
    ],
)
def test_saved_lists_of_gpus_are_recognised(text: str, tool: str, tmp_path: Path) -> None:
    file = tmp_path / "saved.txt"
    file.write_text(text)
    if not tool:
        with pytest.raises(BusbarError):
            recorded([file])
        return
    (found,) = recorded([file]).text
    assert found.endswith(tool)


def test_a_failed_tool_beside_one_that_told_of_the_gpus_counts_for_nothing() -> None:
    detected = compose(Outputs(h200_outputs(), failed={"rocm-smi": "no amdgpu"}))
    assert detected.remarks == ("rocm-smi failed: no amdgpu",)
    assert detected.gpu_tool_failed == ()
    assert match(detected) == "h200x4"


@pytest.mark.run
@cases("tool", ["nvidia-smi", "rocm-smi"])
def test_check_refuses_a_machine_whose_driver_is_dead(
    tool: str, tmp_path: Path, monkeypatch, capfd
) -> None:
    executable(tmp_path / tool, f"echo '{tool} cannot reach the driver' >&2\nexit 9")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--list"]) == 2
    said = capfd.readouterr().err
    assert f"{tool} cannot reach the driver" in said
    assert "pass --site" in said


def test_damaged_rows_and_versions_are_remarks() -> None:
    outputs = h200_outputs()
    outputs["nvidia-smi topo"] = outputs["nvidia-smi topo"].replace("\nGPU1\t", "\nGPU0\t")
    detected = compose(Outputs(outputs))
    assert any("rows and columns are not GPU0 to GPU3" in text for text in detected.remarks)
    assert detected.site.node.gpus.links is None
    rocm = detect_text("rocm-smi-showtopo-6.0-synthetic.json").replace("gfx942", "gfx")
    detected = compose(Outputs({"rocm-smi": rocm}))
    assert detected.gpu_tool_failed == ("rocm-smi: invalid graphics version 'gfx'",)


SAVED = {
    "nvidia-smi topo": text("h200x4/nvidia-smi-topo.log"),
    "nvidia-smi nvlink": text("h200x4/nvlink.log"),
    "nvidia-smi -q": inventory("NVIDIA H200", "Hopper", 143771, 4),
    "rocm-smi": detect_text("rocm-smi-showtopo-6.0-synthetic.json"),
    "amd-smi topology": detect_text("amd-smi-topology-26.0-synthetic.json"),
    "amd-smi static": detect_text("amd-smi-static-26.0-synthetic.json"),
    "lstopo": detect_text("lstopo-2.9-synthetic.xml"),
    "ibstat": detect_text("ibstat-synthetic.txt"),
    "fi_info": detect_text("fi_info-efa-1.21-synthetic.txt"),
    "scontrol": detect_text("scontrol-show-node-23.11-synthetic.txt"),
}
TOGETHER = (
    ("nvidia-smi topo", "nvidia-smi nvlink", "nvidia-smi -q", "lstopo", "ibstat", "scontrol"),
    ("rocm-smi", "fi_info"),
    ("amd-smi topology", "amd-smi static", "fi_info", "scontrol"),
)


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, str]:
    """Outputs of one machine, with lines lost, repeated, cut or changed in one of them."""
    names = draw(st.sampled_from(TOGETHER))
    victim = draw(st.sampled_from(names))
    lines = SAVED[victim].splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, len(lines) - 1))
        line = lines[index]
        column = draw(st.integers(0, len(line) - 1))
        kind = draw(st.sampled_from(["lose", "repeat", "cut", "change", "word", "end"]))
        if kind == "lose" and len(lines) > 1:
            del lines[index]
        elif kind == "repeat":
            lines.insert(draw(st.integers(0, len(lines))), line)
        elif kind == "cut":
            lines[index] = line[:column] + "\n"
        elif kind == "change":
            byte = draw(st.sampled_from('0179-,:"{}[]<>X GPUgfx\x00\n'))
            lines[index] = line[:column] + byte + line[column + 1 :]
        elif kind == "word" and (words := line.split()):
            word = draw(st.sampled_from(words))
            new = draw(st.sampled_from(["", "-1", "99999999", "null", "[]", "N/A", "gfx", "GPU0"]))
            lines[index] = line.replace(word, new, 1)
        elif kind == "end":
            lines = lines[: index + 1]
    return {name: SAVED[name] for name in names} | {victim: "".join(lines)}


@settings(max_examples=100)
@given(damaged())
def test_damaged_outputs_give_a_site_and_remarks(outputs: dict[str, str]) -> None:
    detected = compose(Outputs(outputs))
    assert detected.site.partitions
    # A tool of a GPU vendor spoke in each of them.
    assert detected.site.node.gpus or detected.gpu_tool_failed
