# SPDX-License-Identifier: MIT
"""Secrets do not survive into anything stored or printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busbar.explain import Source, explain
from busbar.redact import KEPT_PREFIXES, kept_environment, redact, redact_document

# Assembled here so that no scanner takes them for real ones.
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
RANDOM = "Zk9" + "xQ2mV7tLr4WbY8nHc1JdP6sAe3GfU0"
SECRETS = (AWS_KEY, GITHUB, JWT, RANDOM)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "text",
    ["{}", "token {} used", "NCCL_X={}", "x set by environment to {}", "curl --api-key {} y"],
)
def test_secrets_go(secret: str, text: str) -> None:
    assert secret not in redact(text.format(secret))


@pytest.mark.parametrize(
    "text",
    [
        "DB_PASSWORD=hunter2",
        "--password hunter2",
        "https://user:hunter2@host/path",
        "Authorization: Bearer hunter2hunter2",
        "MY_SECRET: hunter2",
    ],
)
def test_short_secrets_go_by_their_name(text: str) -> None:
    assert "hunter2" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "vm:10722:10722 [3] NCCL INFO Channel 00/0 : 3[3] -> 0[0] via P2P/CUMEM",
        "[vm:12745:0:12745] Caught signal 11 (Segmentation fault: invalid permissions for mapped"
        " object)",
        " 6  /opt/openmpi/lib/libmpi.so.40(mca_pml_ob1_send_request_schedule_once+0x253)"
        " [0x7f760da819f3]",
        "NCCL_IB_HCA=mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1",
        "comm 0x555bb031b330 rank 3 nranks 4 commId 0x237d272249d0f9c4 - Init START",
        "  1073741824     268435456     float     sum      -1  4536.46  236.69  355.04       0",
        "UCX_* env variables: UCX_TLS=tcp,self,cuda_copy UCX_LOG_LEVEL=info",
    ],
)
def test_evidence_stays_readable(text: str) -> None:
    assert redact(text) == text


def test_only_the_stack_survives_of_an_environment() -> None:
    environment = {prefix + "X": "1" for prefix in KEPT_PREFIXES} | {
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "x",
        "WANDB_API_KEY": "x",
        "SLURM_JWT": JWT,
        "NCCL_API_KEY": "x",
        "OMPI_MCA_token": "abc",
        "UCX_ODD": RANDOM,
    }
    assert set(kept_environment(environment)) == {prefix + "X" for prefix in KEPT_PREFIXES}


def test_the_environment_of_nccl_tests_json() -> None:
    path = Path(__file__).parent / "data/h200x4/nccl_all_reduce_single_process.json"
    document = json.loads(path.read_text())
    document["env"] += [
        f"WANDB_API_KEY={RANDOM}",
        "HOME=/root",
        f"SLURM_TOKEN={GITHUB}",
        "UCX_TLS=sm",
    ]
    stored = redact_document(document)
    assert stored["env"] == [
        "NCCL_VERSION=2.28.3-1",
        "NCCL_NVLS_ENABLE=0",
        "CUDA_VERSION=13.0.2",
        "UCX_TLS=sm",
    ]
    assert stored["results"] == document["results"]
    (found,) = explain([Source.from_text("run.json", json.dumps(document))])
    assert not any(secret in json.dumps(found.to_json()) for secret in SECRETS)


def test_evidence_is_redacted() -> None:
    log = f"n1:1:1 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 65536. token={GITHUB}\n"
    died = f"srun: error: n1: task 0: Exited with exit code 1 password=hunter2 {AWS_KEY}\n"
    (found,) = explain([Source.from_text("x", log + died)])
    text = json.dumps(found.to_json())
    assert GITHUB not in text
    assert AWS_KEY not in text
    assert "hunter2" not in text
