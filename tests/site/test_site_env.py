# SPDX-License-Identifier: MIT
"""The environment of each family, in each form that it is printed in."""

from __future__ import annotations

import json
import subprocess

import pytest

from busbar import site as sites
from busbar.cli import main
from tests.cases import cases


def environment(name: str, **options: object) -> dict[str, str]:
    return sites.environment(sites.load(name), **options)


@cases(
    ("name", "options", "wanted"),
    [
        ("h200x4", {}, {"OMPI_MCA_pml": "ucx", "UCX_RNDV_THRESH": "1"}),
        (
            "mi250x",
            {},
            {
                "OMPI_MCA_pml_ucx_tls": "ib,sm,tcp,self,cuda,rocm",
                "HSA_ENABLE_SDMA": "0",
            },
        ),
        (
            "mi250x-cray",
            {},
            {"MPICH_GPU_SUPPORT_ENABLED": "1", "NCCL_SOCKET_IFNAME": "hsn0,hsn1,hsn2,hsn3"},
        ),
        ("h200x4", {"buffers": "host"}, {"UCX_RNDV_THRESH": "8192"}),
        ("mi300x", {"gpus": 4}, {"NCCL_MIN_NCHANNELS": "32"}),
        (
            "mi300x",
            {"profile": "mscclpp"},
            {
                "RCCL_MSCCL_FORCE_ENABLE": "1",
                "RCCL_MSCCLPP_ENABLE": "1",
                "RCCL_MSCCLPP_THRESHOLD": "1073741824",
                "MSCCLPP_READ_ALLRED": "1",
                "HIP_FORCE_DEV_KERNARG": "1",
            },
        ),
        (
            "mi300x",
            {"profile": "pytorch"},
            {
                "RCCL_MSCCLPP_THRESHOLD": "2147483648",
                "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1",
            },
        ),
        ("mi300x", {"profile": "pcie-peers"}, {"HSA_FORCE_FINE_GRAIN_PCIE": "1"}),
        ("mi300x", {"profile": "msccl-one-process"}, {"RCCL_MSCCL_ENABLE_SINGLE_PROCESS": "1"}),
        (
            "h20-roce",
            {},
            {
                "NCCL_IB_GID_INDEX": "3",
                "NCCL_IB_HCA": "mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1",
                "NCCL_SOCKET_IFNAME": "bond0",
                "NCCL_IBEXT_DISABLE": "1",
                "UCX_TLS": "rc,ud,sm,self,cuda",
            },
        ),
        ("h20-roce", {"profile": "nccl-bootstrap"}, {"UCX_TLS": "sm,ud"}),
        (
            "p4d",
            {},
            {
                "NCCL_PROTO": "simple",
                "OMPI_MCA_pml": "^cm",
                "OMPI_MCA_btl": "tcp,self",
                "OMPI_MCA_btl_tcp_if_exclude": "lo,docker0",
                "FI_PROVIDER": "efa",
                "FI_EFA_USE_DEVICE_RDMA": "1",
            },
        ),
    ],
)
def test_variables(name: str, options: dict[str, object], wanted: dict[str, str]) -> None:
    found = environment(name, **options)
    assert wanted.items() <= found.items()


@cases(
    ("name", "absent"),
    [
        ("mi300x", "NCCL_MIN_NCHANNELS"),
        ("mi300x", "RCCL_MSCCLPP_ENABLE"),
        ("p3dn", "FI_EFA_USE_DEVICE_RDMA"),
        ("mi250x-cray", "OMPI_MCA_pml"),
        ("mi250x", "MPICH_GPU_SUPPORT_ENABLED"),
        ("local", "UCX_RNDV_THRESH"),
    ],
)
def test_variables_that_do_not_belong(name: str, absent: str) -> None:
    assert absent not in environment(name)


@cases("name", sites.names())
def test_shell_form_is_read_by_a_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "env", name, "--shell"]) == 0
    script = capsys.readouterr().out
    printed = subprocess.run(
        ["sh", "-c", script + "env -0"], capture_output=True, text=True, check=True, env={}
    ).stdout
    found = dict(entry.split("=", 1) for entry in printed.split("\0") if entry)
    assert environment(name).items() <= found.items()
    assert script.count("\n# ") + script.startswith("# ") == len(environment(name))


def test_json_and_slurm_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "env", "h20-roce", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == environment("h20-roce")
    assert main(["site", "env", "h20-roce", "--slurm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "export NCCL_IB_HCA=mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1" in lines
    assert all(line.startswith("export ") for line in lines)


def test_table_has_reason_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "env", "mi300x"]) == 0
    printed = capsys.readouterr().out
    assert "HIP_FORCE_DEV_KERNARG" in printed
    assert "mscclpp" in printed


@cases(
    ("option", "value", "text"),
    [
        ("profile", "turbo", "known: msccl-one-process, mscclpp"),
        ("lane", "nope", "known: ucx-1.14, ucx-current"),
        ("stack", "cuda", "known: rocm"),
        ("gpus", "-3", "must be 1 to 64, got -3"),
        ("gpus", "65", "must be 1 to 64, got 65"),
    ],
)
def test_unknown_names(option: str, value: str, text: str, capsys) -> None:
    assert main(["site", "env", "mi300x", f"--{option}", value]) == 2
    said = capsys.readouterr().err
    assert f"--{option}" in said
    assert text in said
