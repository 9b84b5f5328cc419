# SPDX-License-Identifier: MIT
"""Secrets do not survive into anything stored or printed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from busbar.document import to_json
from busbar.explain import Source, explain
from busbar.redact import KEPT_PREFIXES, kept_environment, redact, redact_document

# Assembled here so that no scanner takes them for real ones.
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
RANDOM = "Zk9" + "xQ2mV7tLr4WbY8nHc1JdP6sAe3GfU0"
SECRETS = (AWS_KEY, GITHUB, JWT, RANDOM)
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"
PEM_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQE" + "FAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
# Forms of secrets, each with the part that must not survive.
FORMS = [
    ("pAsSwOrD=hunter2pass", "hunter2pass"),
    ("https://h/x?access_token=hunter2pass&b=1", "hunter2pass"),
    ("https://h/x?b=1&sig=hunter2pass", "hunter2pass"),
    ("https://h/x?X-Amz-Signature=hunter2pass&X-Amz-Date=1", "hunter2pass"),
    ("https://h/x?X-Amz-Credential=hunter2pass%2F2020&a=1", "hunter2pass"),
    ("https://h/x?key=hunter2pass", "hunter2pass"),
    ("X-API-Key: hunter2pass", "hunter2pass"),
    ("api-key: hunter2pass", "hunter2pass"),
    ("curl -H 'X-Api-Key: hunter2pass' https://h", "hunter2pass"),
    ("Authorization: token hunter2pass", "hunter2pass"),
    ('-H "Authorization: token hunter2pass" https://h', "hunter2pass"),
    ("Proxy-Authorization: Basic aHVudGVyMjpwYXNz", "aHVudGVyMjpwYXNz"),
    ("Cookie: a=b; session=hunter2pass", "hunter2pass"),
    ("Set-Cookie: sid=hunter2pass; Path=/", "hunter2pass"),
    ("SharedAccessSignature=hunter2pass", "hunter2pass"),
    ("Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=hunter2pass", "hunter2pass"),
    (
        "DefaultEndpointsProtocol=https;AccountName=n;AccountKey=hunter2pass==;EndpointSuffix=c",
        "hunter2pass",
    ),
    (PEM_BODY, PEM_BODY),
    (f"{AWS_SECRET}", AWS_SECRET),
    (f"aws_secret_access_key = {AWS_SECRET}", AWS_SECRET),
    (f"key is {AWS_SECRET}.", AWS_SECRET),
    ("-----BEGIN RSA PRIVATE KEY-----\nhunter2pass\n-----END RSA PRIVATE KEY-----", "hunter2pass"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2pass\n", "hunter2pass"),
    ("setenv HF_TOKEN hunter2pass", "hunter2pass"),
    ("ENV WANDB_API_KEY hunter2pass", "hunter2pass"),
    ("accessKey=hunter2pass", "hunter2pass"),
    ("privkey=hunter2pass", "hunter2pass"),
    ('{"accessKey": "hunter2pass"}', "hunter2pass"),
    ('{\\"password\\": \\"hunter2pass\\"}', "hunter2pass"),
    ('{"a": "{\\"token\\":\\"hunter2pass\\"}"}', "hunter2pass"),
    ('{"password": "a\\"hunter2pass"}', "hunter2pass"),
    ("<password>hunter2pass</password>", "hunter2pass"),
    ("machine h login u password hunter2pass", "hunter2pass"),
    ("  password hunter2pass", "hunter2pass"),
    ("sshpass -p hunter2pass ssh h", "hunter2pass"),
    ("sshpass -phunter2pass ssh h", "hunter2pass"),
    ("curl -uuser:hunter2pass https://h", "hunter2pass"),
    ("curl -u user:hunter2pass h", "hunter2pass"),
    ("curl --user=user:hunter2pass h", "hunter2pass"),
    ("wget --proxy-user u:hunter2pass", "hunter2pass"),
    ("oras login -u me -p hunter2pass reg.io", "hunter2pass"),
    ("docker login --password hunter2pass", "hunter2pass"),
    ("podman login reg -p=hunter2pass", "hunter2pass"),
    ("tool --key hunter2pass", "hunter2pass"),
    ("tool --key=hunter2pass", "hunter2pass"),
    ("tool --api-key hunter2pass", "hunter2pass"),
    ("tool -token hunter2pass", "hunter2pass"),
    ("tool --auth-token 'hunter2 pass'", "hunter2"),
    ("MUNGE:AwQDAACk1Q0Pass:", "AwQDAACk1Q0Pass"),
    ("hvs.hunter2passhunter2pass", "hunter2pass"),
    ("sk_live_hunter2pass", "hunter2pass"),
    ("xapp-1-A111-222-hunter2pass", "hunter2pass"),
    ("https://hooks.slack.com/services/T000/B000/hunter2pass", "hunter2pass"),
    ("https://hunter2pass@github.com/x", "hunter2pass"),
    ("git clone https://hunter2pass:@github.com/x", "hunter2pass"),
    ("https://user:p@hunter2pass@host/p", "hunter2pass"),
    ("https://user:p/hunter2pass@host/p", "hunter2pass"),
    ("postgres://user:hunter2pass@host/db", "hunter2pass"),
    ("redis://:hunter2pass@host:6379/0", "hunter2pass"),
    ("password: correct hunter2pass staple", "hunter2pass"),
    ("PASSWORD=correct hunter2pass staple", "hunter2pass"),
    ("db_password = correct hunter2pass", "hunter2pass"),
    ('PASSWORD="hun"ter2pass', "ter2pass"),
    ("export TOKEN='hunter2pass'", "hunter2pass"),
    ("TOKEN=hun\\ hunter2pass", "hunter2pass"),
    ("1password=hunter2pass", "hunter2pass"),
    ("---password=hunter2pass", "hunter2pass"),
    (".password=hunter2pass", "hunter2pass"),
    ("password%3Dhunter2pass", "hunter2pass"),
    ("password => hunter2pass", "hunter2pass"),
    ("password := hunter2pass", "hunter2pass"),
    ("-x A=1,TOKEN=hunter2pass,B=2", "hunter2pass"),
    ("A_KEY=hunter2pass", "hunter2pass"),
    ('"auth": "hunter2pass"', "hunter2pass"),
    ("SLURM_CRED=hunter2pass", "hunter2pass"),
    ("client_secret:hunter2pass", "hunter2pass"),
    ("Bearer hunter2pass", "hunter2pass"),
    ("bearer hunter2pass", "hunter2pass"),
    ("token hunter2 used: sk-ant-api03-hunter2passhunter2pass", "hunter2passhunter2pass"),
    ("--password\thunter2pass", "hunter2pass"),
    ("WANDB_API_KEY: hunter2pass", "hunter2pass"),
    ("NCCL INFO MY_TOKEN set by environment to hunter2pass.", "hunter2pass"),
    ("-DpasswordX=hunter2pass", "hunter2pass"),
    ("mysql -uroot -phunter2pass", "hunter2pass"),
    (
        "OMPI_MCA_orte_precondition_transports=1234567890abcdef-1234567890abcdef",
        "1234567890abcdef",
    ),
    ('{"password":12345678}', "12345678"),
    ("passwd=hunter2pass", "hunter2pass"),
    ("PGPASSWORD=hunter2pass psql", "hunter2pass"),
    ("MYSQL_PWD=hunter2pass", "hunter2pass"),
    ("SSHPASS=hunter2pass", "hunter2pass"),
    ("https://h/#access_token=hunter2pass", "hunter2pass"),
    ("jdbc:mysql://h/db?user=u&password=hunter2pass", "hunter2pass"),
]
USEFUL = [
    "vm:10722:10722 [3] NCCL INFO Channel 00/0 : 3[3] -> 0[0] via P2P/CUMEM",
    "[vm:12745:0:12745] Caught signal 11 (Segmentation fault: invalid permissions for mapped"
    " object)",
    " 6  /opt/openmpi/lib/libmpi.so.40(mca_pml_ob1_send_request_schedule_once+0x253)"
    " [0x7f760da819f3]",
    "NCCL_IB_HCA=mlx5_0:1,mlx5_2:1,mlx5_3:1,mlx5_4:1",
    "comm 0x555bb031b330 rank 3 nranks 4 commId 0x237d272249d0f9c4 - Init START",
    "  1073741824     268435456     float     sum      -1  4536.46  236.69  355.04       0",
    "UCX_* env variables: UCX_TLS=tcp,self,cuda_copy UCX_LOG_LEVEL=info",
    "author: bob",
    "remote key: 0 bytes",
    "auth_key_size: 8",
    "mr_key_size = 4",
    "GPU 0: NVIDIA H200 (UUID: GPU-8f3c1a2b-1c2d-3e4f-5a6b-7c8d9e0f1a2b)",
    "invalid key: mlx5_0",
    "FI_CXI_AUTH_KEY=1",
    "_ZN4ucxx12_GLOBAL__N_111reduceKernelIfLi4EEEvPT_S3_m+0x1f",
    "Authors: A, B",
    "PWD=/home/bob",
    "OLDPWD=/tmp",
    "max_tokens=4096",
    "tokenizer: gpt2",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "mr_key=0x1f3a",
    "rkey: 0x1234",
    "NCCL INFO Channel 00/0 : 3[3] -> 0[0] via P2P/CUMEM",
    "/opt/nvidia/hpc_sdk/Linux_x86_64/24.3/comm_libs/12.3/hpcx/latest/ompi/lib",
    "verdict: pass",
    "https://host:8080/path@v1",
    "ssh://git@github.com/x",
    "tcp://10.0.0.1:41234",
    "prterun-h-1@0.0;tcp4://10.0.0.1:41234:24",
    "git@github.com:x/y.git",
    "error: key size 2048",
    "libfabric: key 0x12 not found",
    "UCX_IB_PKEY=0x8001",
    "auth/munge",
    "AuthType=auth/munge",
    "PMIX_SECURITY_MODE=munge,native",
    "authentication failed for node1",
    "Basic Linear Algebra Subprograms",
    "-p gpu -n 4",
    "srun -u ./x a:b",
    "NVIDIA-H100-80GB-HBM3",
    "AMD_Instinct_MI300X_OAM_192GB_HBM3e",
    "login01: salloc -p gpu",
    "cache key: foo",
    "license: MIT",
    "signature",
    "cudaErrorPeerAccessAlreadyEnabled",
    "private: 0",
    "MIG-8f3c1a2b-1c2d-3e4f-5a6b-7c8d9e0f1a2b",
    "GPU0/mlx5_0/GPU1/mlx5_1/GPU2/mlx5_2",
    "0x237d272249d0f9c4",
    "node[001-128,130,132-140]",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
    "/proc/driver/nvidia/gpus/0000:0f:00.0/information",
    "pass: 12 of 12",
    "KeyError: 'x'",
    "keys: a, b",
]
# What a quadratic search would stumble over: runs of each delimiter and each beginning.
UNITS = [
    *(
        "-",
        "-a",
        "a-",
        "a",
        "a=",
        "a:",
        "=",
        ":",
        '"',
        "'",
        "\\",
        '\\"',
        "<",
        "<a>",
        "?",
        "&",
        "?a=",
    ),
    *(
        "&key=",
        "@",
        "://",
        "a://b:",
        "/",
        "a/",
        ".",
        "_",
        " ",
        "  a",
        "\n",
        "\n ",
        "password ",
        "login ",
    ),
    *(
        "login -p ",
        " -u a",
        "-u a:",
        "eyJ",
        "eyJaaaaaaaaaa.",
        "-----BEGIN ",
        "-----END ",
        "Bearer ",
    ),
    *(
        "MIIa",
        "sk-",
        "a1B",
        "aB1/",
        "%3D",
        "ENV A ",
        "a;",
        'token="',
        "token='\\",
        "<token>",
        "Token: a ",
    ),
    *("\u2028", "é", "a set by environment to ", "-----BEGIN PRIVATE KEY-----", "key: "),
]


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


@pytest.mark.parametrize(("text", "secret"), FORMS)
def test_forms_of_secrets(text: str, secret: str) -> None:
    assert secret not in redact(text)
    assert secret not in redact(f"n1: x\n{text}\n")
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("text", USEFUL)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("unit", UNITS)
def test_time_is_linear(unit: str) -> None:
    """100 kB take a second of this process; a quadratic search takes minutes."""
    text = (unit * 100_000)[:100_000]
    begin = time.process_time()
    redact(text)
    redact(f"token {text}!")
    assert time.process_time() - begin < 20


def test_recorded_logs_stay_as_they_are() -> None:
    lines = 0
    for path in sorted((Path(__file__).parent / "data").rglob("*.log")):
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
