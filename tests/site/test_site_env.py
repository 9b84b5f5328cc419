# SPDX-License-Identifier: MIT
"""The environment of each family, in each form that it is printed in."""

from __future__ import annotations

from busbar import site as sites
from tests.cases import cases
from tests.said import Command, ran


def environment(name: str, **options: object) -> dict[str, str]:
    return sites.environment(sites.load(name), **options)


MSCCLPP = {
    "RCCL_MSCCL_FORCE_ENABLE": "1",
    "RCCL_MSCCLPP_ENABLE": "1",
    "RCCL_MSCCLPP_THRESHOLD": "1073741824",
    "MSCCLPP_READ_ALLRED": "1",
    "HIP_FORCE_DEV_KERNARG": "1",
}
PYTORCH = {
    "RCCL_MSCCLPP_THRESHOLD": "2147483648",
    "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1",
}
CRAY = {"MPICH_GPU_SUPPORT_ENABLED": "1", "NCCL_SOCKET_IFNAME": "hsn0,hsn1,hsn2,hsn3"}
ROCE = {
    "NCCL_IB_GID_INDEX": "3",
    "NCCL_IB_HCA": "mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1",
    "NCCL_SOCKET_IFNAME": "bond0",
    "NCCL_IBEXT_DISABLE": "1",
    "UCX_TLS": "rc,ud,sm,self,cuda",
}
EFA = {
    "NCCL_PROTO": "simple",
    "OMPI_MCA_pml": "^cm",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_exclude": "lo,docker0",
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
}
MI250X = {"OMPI_MCA_pml_ucx_tls": "ib,sm,tcp,self,cuda,rocm", "HSA_ENABLE_SDMA": "0"}


@cases(
    ("name", "options", "wanted", "absent"),
    [
        ("h200x4", {}, {"OMPI_MCA_pml": "ucx", "UCX_RNDV_THRESH": "1"}, ""),
        ("mi250x", {}, MI250X, "MPICH_GPU_SUPPORT_ENABLED"),
        ("mi250x-cray", {}, CRAY, "OMPI_MCA_pml"),
        ("local", {"lane": "ucx-1.14"}, {"OMPI_MCA_osc": "rdma,sm"}, ""),
        ("local", {"lane": "ucx-current"}, {"OMPI_MCA_pml": "ucx"}, "OMPI_MCA_osc"),
        ("cpu-ib", {"lane": "ucx-1.14"}, {"OMPI_MCA_pml": "ucx"}, "OMPI_MCA_osc"),
        ("h200x4", {"buffers": "host"}, {"UCX_RNDV_THRESH": "8192"}, ""),
        ("mi300x", {"gpus": 4}, {"NCCL_MIN_NCHANNELS": "32"}, ""),
        ("mi300x", {"profile": "mscclpp"}, MSCCLPP, ""),
        ("mi300x", {"profile": "pytorch"}, PYTORCH, ""),
        ("mi300x", {"profile": "pcie-peers"}, {"HSA_FORCE_FINE_GRAIN_PCIE": "1"}, ""),
        (
            "mi300x",
            {"profile": "msccl-one-process"},
            {"RCCL_MSCCL_ENABLE_SINGLE_PROCESS": "1"},
            "",
        ),
        ("h20-roce", {}, ROCE, ""),
        ("h20-roce", {"profile": "nccl-bootstrap"}, {"UCX_TLS": "sm,ud"}, ""),
        ("p4d", {}, EFA, ""),
        ("mi300x", {}, {}, "NCCL_MIN_NCHANNELS"),
        ("mi300x", {}, {}, "RCCL_MSCCLPP_ENABLE"),
        ("p3dn", {}, {}, "FI_EFA_USE_DEVICE_RDMA"),
        ("local", {}, {}, "UCX_RNDV_THRESH"),
    ],
)
def test_variables(
    name: str, options: dict[str, object], wanted: dict[str, str], absent: str
) -> None:
    found = environment(name, **options)
    assert wanted.items() <= found.items()
    assert absent not in found


@cases("name", sites.names())
def test_shell_form_is_read_by_a_shell(name: str, busbar: Command) -> None:
    said = busbar("site env --shell", name)
    assert said.status == 0
    printed = ran("sh", "-c", said.out + "env -0", check=True, env={}).stdout
    found = dict(entry.split("=", 1) for entry in printed.split("\0") if entry)
    assert environment(name).items() <= found.items()
    assert said.out.count("\n# ") + said.out.startswith("# ") == len(environment(name))


def test_other_forms(busbar: Command) -> None:
    assert busbar("site env h20-roce --json").json == environment("h20-roce")
    lines = busbar("site env h20-roce --slurm").out.splitlines()
    assert "export NCCL_IB_HCA=mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1" in lines
    assert all(line.startswith("export ") for line in lines)
    table = busbar("site env mi300x").out
    assert "HIP_FORCE_DEV_KERNARG" in table
    assert "mscclpp" in table


@cases(
    ("option", "value", "text"),
    [
        ("--profile", "turbo", "known: msccl-one-process, mscclpp"),
        ("--lane", "nope", "known: ucx-1.14, ucx-current"),
        ("--stack", "cuda", "known: rocm"),
        ("--gpus", "-3", "must be an integer, 0 or more, got '-3'"),
        ("--gpus", "65", "must be 1 to 64, got 65"),
    ],
)
def test_unknown_names(option: str, value: str, text: str, busbar: Command) -> None:
    said = busbar("site env mi300x", option, value)
    assert said.status == 2
    assert option in said.err
    assert text in said.err
