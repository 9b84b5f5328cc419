# SPDX-License-Identifier: MIT
"""The statement about two deliveries, and the layer in which they differ."""

from __future__ import annotations

import random

import pytest

from busbar.engine.parity import LEAST, compare, enough
from busbar.explain.containers import layer_cause
from busbar.preflight.layers import differences
from busbar.preflight.model import Origin
from busbar.verdict import Verdict
from tests.cases import cases

BARE = [394.2, 394.4, 394.1, 394.3, 394.5, 394.2, 394.4, 394.3, 394.4]


def scaled(share: float, scatter: float = 0.0, seed: int = 1) -> list[float]:
    draw = random.Random(seed)  # noqa: S311 - no secret
    return [value * share * (1 + draw.uniform(-scatter, scatter)) for value in BARE]


@cases(
    ("image", "verdict"),
    [
        (scaled(1.0), Verdict.PASS),
        (scaled(0.985, 0.002), Verdict.PASS),
        (scaled(1.3, 0.01), Verdict.PASS),
        (scaled(0.97, 0.002), Verdict.DEGRADED),
        (scaled(0.5, 0.1), Verdict.DEGRADED),
        (scaled(1.0, 0.1), Verdict.UNKNOWN),
        (scaled(0.975, 0.05), Verdict.UNKNOWN),
    ],
)
def test_the_verdict(image: list[float], verdict: Verdict) -> None:
    parity = compare(image, BARE, statements=24)
    assert parity.verdict is verdict, parity
    assert parity.low <= parity.ratio <= parity.high


def test_few_repetitions_say_nothing() -> None:
    """However clear they look: a coin falls the same way four times in 16."""
    for share in (0.5, 1.5):
        assert compare(scaled(share)[:4], BARE[:4], statements=1).verdict is Verdict.UNKNOWN


def test_the_error_is_shared_among_the_statements() -> None:
    slow = scaled(0.9)
    assert compare(slow[:6], BARE[:6], statements=2).verdict is Verdict.DEGRADED
    assert compare(slow[:6], BARE[:6], statements=24).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("statements", "repetitions"), [(4, 9), (24, 9), (112, 12)])
def test_a_slow_image_can_be_told_on_every_node(statements: int, repetitions: int) -> None:
    """8 GPUs have 56 pairs at two sizes, for which nine repetitions say nothing."""
    assert enough(statements) == repetitions
    bare = (BARE * 2)[:repetitions]
    slow = [value * 0.5 for value in bare]
    assert compare(slow, bare, statements).verdict is Verdict.DEGRADED


def test_one_disturbed_repetition_does_not_fail_a_run_or_hide_a_fault() -> None:
    disturbed = scaled(1.0)
    disturbed[3] *= 0.4
    assert compare(disturbed, BARE, statements=24).verdict is Verdict.PASS
    slow = scaled(0.9)
    slow[3] *= 1.5
    assert compare(slow, BARE, statements=24).verdict is not Verdict.PASS


def test_a_pass_by_chance_is_rare() -> None:
    """An image just below the bar, with noise: the stated error of 5 % holds."""
    runs = 2000
    passes = sum(
        compare(scaled(LEAST - 1e-9, 0.05, seed), BARE, statements=1).verdict is Verdict.PASS
        for seed in range(runs)
    )
    assert passes / runs < 0.05


def side(**digests: str) -> list[Origin]:
    names = {name.replace("__", "."): digest for name, digest in digests.items()}
    return [Origin(name, f"/lib/{name}", "image", digest) for name, digest in names.items()]


def test_the_first_layer_is_named() -> None:
    bare = side(libmpi__so__40="a", libucp__so__0="b", libcuda__so__1="c")
    image = side(libmpi__so__40="x", libucp__so__0="y", libcuda__so__1="c")
    found = differences(bare, image, {}, {})
    assert [each.layer for each in found] == ["UCX", "MPI"]
    cause = layer_cause(found)
    assert cause.id == "deliveries-differ"
    assert "UCX, libucp.so.0: /lib/libucp.so.0" in cause.summary


def test_settings_come_first_and_harmless_ones_not_at_all() -> None:
    bare = {"UCX_LOG_LEVEL": "info", "PATH": "/a", "OMPI_MCA_pml": "ucx"}
    image = {"UCX_LOG_LEVEL": "warn", "PATH": "/b", "OMPI_MCA_pml": "ucx", "UCX_TLS": "tcp"}
    found = differences(side(libmpi__so__40="a"), side(libmpi__so__40="b"), bare, image)
    assert found[0].text == "UCX_TLS is tcp in the image and is not set outside"
    assert [each.layer for each in found] == ["settings", "MPI"]


def test_equal_layers_point_at_the_runtime() -> None:
    same = side(libmpi__so__40="a")
    assert layer_cause(differences(same, same, {}, {})).id == "container-runtime"
