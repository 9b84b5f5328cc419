# SPDX-License-Identifier: MIT
"""Secrets do not survive into anything stored or printed."""

from __future__ import annotations

import json
import time
from pathlib import Path

from busbar.document import to_json
from busbar.explain import Source, explain
from busbar.redact import KEPT_PREFIXES, kept_environment, redact, redact_document
from tests.cases import some
from tests.files import read_table

# Assembled here so that no scanner takes them for real ones.
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
RANDOM = "Zk9" + "xQ2mV7tLr4WbY8nHc1JdP6sAe3GfU0"
SECRETS = (AWS_KEY, GITHUB, JWT, RANDOM)
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"
PEM_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQE" + "FAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
TABLE = read_table(Path(__file__).with_name("redact.yaml"))
FORMS = [
    ("hunter2pass", each) if isinstance(each, str) else each[::-1] for each in TABLE["secrets"]
]
FORMS += [(secret, text.format(secret)) for secret in SECRETS for text in TABLE["around"]]
FORMS += [
    (AWS_SECRET, f"aws_secret_access_key = {AWS_SECRET}"),
    (AWS_SECRET, f"key is {AWS_SECRET}."),
]
FORMS += [(AWS_SECRET, AWS_SECRET), (PEM_BODY, PEM_BODY)]
"""The part of a text that must not survive, and the text."""


def test_forms_of_secrets() -> None:
    assert len(FORMS) > 115
    kept = [text for secret, text in FORMS if secret in redact(text)]
    kept += [text for secret, text in FORMS if secret in redact(f"n1: x\n{text}\n")]
    kept += [text for _, text in FORMS if redact(redact(text)) != redact(text)]
    assert not kept


def test_a_text_without_secrets_stays_as_it_is() -> None:
    assert [redact(text) for text in TABLE["useful"]] == TABLE["useful"]


def test_time_is_linear() -> None:
    """10 kB take 0.05 s of this process; a quadratic search takes five."""
    slow = []
    for unit in some(TABLE["units"], 3):
        text = (unit * 10_000)[:10_000]
        begin = time.process_time()
        redact(text)
        redact(f"token {text}!")
        slow += [unit] * (time.process_time() - begin > 2)
    assert not slow


def test_recorded_logs_stay_as_they_are() -> None:
    lines = 0
    for path in some(sorted((Path(__file__).parent / "data").rglob("*.log")), 2):
        for line in path.read_text("utf-8", "replace").split("\n")[:200]:
            lines += 1
            assert redact(line[:2000]) == line[:2000]
    assert lines > 1000


def test_secrets_in_json() -> None:
    document = {
        "pin": {"db_password": 1234, "key": "mlx5_0", "auth_key_size": 8},
        "auth": "hunter2",
    }
    assert redact_document(document) == {
        "pin": {"db_password": "[redacted]", "key": "mlx5_0", "auth_key_size": 8},
        "auth": "[redacted]",
    }


def test_only_the_stack_survives_of_an_environment() -> None:
    environment = {prefix + "X": "1" for prefix in KEPT_PREFIXES} | {
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "x",
        "WANDB_API_KEY": "x",
        "SLURM_JWT": JWT,
        "NCCL_API_KEY": "x",
        "OMPI_MCA_token": "abc",
        "SLURM_CRED": "abc",
        "SLURM_STEP_CREDENTIAL": "abc",
        "OMPI_MCA_orte_precondition_transports": "0123456789abcdef-0123456789abcdef",
        "FI_CXI_AUTH_KEY": "hunter2",
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
    assert not any(secret in json.dumps(to_json(found)) for secret in SECRETS)


def test_evidence_is_redacted() -> None:
    log = f"n1:1:1 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 65536. token={GITHUB}\n"
    died = f"srun: error: n1: task 0: Exited with exit code 1 password=hunter2 {AWS_KEY}\n"
    (found,) = explain([Source.from_text("x", log + died)])
    text = json.dumps(to_json(found))
    assert GITHUB not in text
    assert AWS_KEY not in text
    assert "hunter2" not in text
