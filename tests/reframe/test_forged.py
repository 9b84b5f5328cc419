# SPDX-License-Identifier: MIT
"""Outputs with lines that a healthy run of the check cannot have do not pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .altered import HEALTHY, brief
from .test_minimum import verdict

READING = (
    '{"event": "reading", "metric": "bandwidth", "from": %d, "to": %d, "buffers": "D D",'
    ' "bytes": %d, "gb_per_s": %g, "wrong": %d}\n'
)
RANK = (
    '{"event": "rank", "rank": %d, "ranks": 4, "node_rank": 1, "host": "vm", "pid": 1,'
    ' "cpus": "0", "device": "0000:00:0c.0", "device_name": "NVIDIA H200"}\n'
)
END = '{"event": "end"'
NCCL_TESTS = ("all_reduce", "all_gather", "alltoall", "broadcast")

FORGED = [
    ("gpu_aware", r'"end", "wrong": 0', '"end", "wrong": 5'),
    *(
        ("gpu_aware", re.escape(END), line + END)
        for line in (
            READING % (0, 1, 12345, 300, 7),
            READING % (0, 1, 1 << 27, 3, 0),
            READING % (9, 1, 1 << 22, 300, 0),
            READING % (1, 1, 1 << 22, 300, 0),
            RANK % 4,
            RANK % 1,
            END + ', "wrong": 0}\n',
        )
    ),
    ("gpu_aware", r'"device": "0000:[^"]*"', '"device": ""'),
    ("gpu_aware", r'"backend": "cuda"', '"backend": "host"'),
    ("gpu_aware", r'"program": "gpu_aware"', '"program": "memory"'),
    ("gpu_aware", r'"asked_ranks": 4', '"asked_ranks": 8'),
    ("gpu_aware", r'("us": [0-9.]+, )', r'\1"verified": 0, '),
    ("gpu_aware", r'("check", "operation")', r'"check", "messages": 0, "operation"'),
    ("gpu_aware", r'"asked_ranks": 4', '"asked_ranks": 4, "share_devices": 1'),
    ("gpu_aware", r'("nonce": "[0-9a-f]+")', r'"nonce": "00", \1'),
    ("gpu_aware", r'"wrong": 0\}', '"wrong": 9, "wrong": 0}'),
    ("memory", r'"backend": "cuda"', '"backend": "host"'),
    *((name, r"(?m)^# nThread.*\n", "") for name in NCCL_TESTS),
    *((name, r"(?m)^#  Rank.*\n", "") for name in NCCL_TESTS),
]


@pytest.mark.parametrize(("name", "pattern", "new"), FORGED)
def test_a_forged_output_does_not_pass(name: str, pattern: str, new: str, tmp_path: Path) -> None:
    kind = HEALTHY[name]
    text = brief(kind.text)
    forged = re.sub(pattern, lambda match: match.expand(new), text)
    assert forged != text
    assert verdict(kind, forged, tmp_path).is_problem
