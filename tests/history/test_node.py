# SPDX-License-Identifier: MIT
"""What the nodes of a job say of themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

from busbar.history.record import RECORDS, node_facts

SCRIPT = Path(__file__).parents[2] / "reframe_checks/src/provenance.sh"
FILES = {
    "proc/sys/kernel/osrelease": "6.1.0",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Wed",
    "proc/driver/nvidia/gpus/0000:01:00.0/information": "Video BIOS: \t 96.00\nIRQ: 7",
    "sys/module/mlx5_core/version": "24.10",
    "sys/class/infiniband/mlx5_0/fw_ver": "28.43",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (2X NDR)",
}


def test_a_node_says_what_it_is_made_of(tmp_path: Path) -> None:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    variables = {
        "sysfs": f"{tmp_path}/sys",
        "procfs": f"{tmp_path}/proc",
        "ROCM_PATH": "/nowhere",
        "CUDA_HOME": "/nowhere",
        "NCCL_ALGO": "Ring",
        "NCCL_TOKEN": "not-to-be-kept",
        "LD_AUDIT": "libaudit.so",
    }
    with (tmp_path / RECORDS.replace("*", "n1")).open("w") as record:
        subprocess.run(["/bin/sh", SCRIPT], env=variables, stdout=record, check=False)
    assert node_facts(tmp_path) == {
        "kernel": "6.1.0",
        "driver": "570.86.15",
        "firmware.gpu": "96.00",
        "nic.driver.mlx5_core": "24.10",
        "firmware.nic": "28.43",
        "link.mlx5_0:1": "200 Gb/sec (2X NDR)",
        "env.LD_AUDIT": "libaudit.so",
        "env.NCCL_ALGO": "Ring",
        "nodes": "n1",
    }
