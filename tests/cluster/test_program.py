# SPDX-License-Identifier: MIT
"""Rails, message sizes, the command line of a step, and what the program prints."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from busbar import site as sites
from busbar.cluster.measure.program import Program, Rail, message_bytes, rails_of
from busbar.cluster.measure.step import PairRank, PairRate, PairStart, PairStep, parse_event
from busbar.delivery.choice import Choice
from busbar.delivery.environments import environments
from busbar.engine.own_programs import latest_version
from tests.cases import cases

SITE = sites.load("h20-roce")
ENVIRONMENT = environments(SITE, Choice(declared=True), 1)[0]


def test_each_gpu_has_the_nic_beside_it() -> None:
    node = SITE.node
    rails = rails_of(node, ENVIRONMENT, "verbs")
    assert node.gpus
    assert len(rails) == node.gpus.count
    near = {gpu: [nic for nic in node.nics if gpu in nic.near_gpus] for gpu in range(len(rails))}
    for gpu, rail in enumerate(rails):
        own = len(near[gpu]) == 1 and near[gpu][0].count == 1
        assert rail.device == (f"{near[gpu][0].name}:1" if own else "")


def test_without_ucx_the_transport_chooses_the_nic() -> None:
    rails = rails_of(SITE.node, replace(ENVIRONMENT, across=()), "efa")
    assert {rail.device for rail in rails} == {""}
    assert [rail.name for rail in rails] == [f"gpu{n}" for n in range(len(rails))]


def test_a_stack_without_gpus_has_a_rail_per_nic() -> None:
    host = replace(ENVIRONMENT, stack="host")
    rails = rails_of(SITE.node, host, "tcp")
    assert [(rail.name, rail.device) for rail in rails] == [
        (n.name, n.name) for n in SITE.node.nics
    ]
    assert rails_of(SITE.node, replace(host, across=()), "tcp") == (Rail("all"),)


@cases(("rate", "size"), [(None, 1 << 20), (0.025, 1 << 16), (1.0, 1 << 19), (50.0, 1 << 22)])
def test_messages_suit_the_rate(rate: float | None, size: int) -> None:
    assert message_bytes(rate) == size


def test_a_step_has_every_rank_and_survives_a_node() -> None:
    rails = (Rail("eth0", "eth0"), Rail("eth1", "eth1"))
    program = Program(Path("/x y/sweep"), ENVIRONMENT, rails, 65536, 0.25)
    line = program.script(["n1", "n2", "n3"], ranks_per_cpu=True, patience=60).splitlines()[-1]
    words = shlex.split(line)
    assert {"--no-kill", "--nodes=3", "--ntasks=6", "--overcommit", "/x y/sweep"} <= set(words)
    assert {"--ranks=6", "--per-node=2", "--nics=eth0,eth1", "--patience=60"} <= set(words)


def test_events_are_parsed_and_everything_else_is_ignored() -> None:
    start = (
        '{"event": "start", "program": "sweep", "version": "1.0", "nonce": "x", "node": "n1",'
        ' "rail": 0, "step": 3}'
    )
    assert parse_event(start) == PairStart("n1", 0, 3, "x", "1.0")
    rank = '{"event": "rank", "rank": 1, "node": "n1", "rail": 1, "device": "", "nic": ""}'
    assert parse_event(rank) == PairRank(1, "n1", 1, "")
    pair = (
        '{"event": "pair", "pass": 2, "rank": 1, "partner": 3, "gb_per_s": 1.5, "messages": 9,'
        ' "seconds": 0.25, "wrong": 0, "lost": ""}'
    )
    assert parse_event(pair) == PairRate(2, 1, 3, 1.5, 0, "")
    forged = [
        *("", "UCX WARN", "{", "[]", '{"event": []}', '{"event": "pair"}', "{" * 100_000),
        pair.replace("1.5", "NaN"),
        pair.replace('"rank": 1', '"rank": "x"'),
    ]
    assert [parse_event(line) for line in forged] == [None] * len(forged)


@cases(("version", "starts"), [(latest_version("sweep"), True), ("0.9", False)])
def test_only_the_program_of_the_source_is_believed(
    version: str, starts: bool, tmp_path: Path
) -> None:
    start = '{"event": "start", "node": "a", "rail": 0, "step": 3, "version": "%s", "nonce": "%s"}'
    rank = '{"event": "rank", "rank": 0, "node": "a", "rail": 0, "device": ""}'
    script = f"printf '{start}\\n{rank}\\n' {version} $BUSBAR_NONCE"
    program = SimpleNamespace(rails=(Rail("all"),), script=lambda *_: script)
    step = PairStep(cast(Program, program), ["a"], tmp_path / "log", few_cpus=False, patience=9)
    assert step.wait_for_ranks(time.monotonic() + 9) is starts
    assert ([*step.nodes], len(step.errors)) == (["a"] * starts, 1 - starts)
    step.close()
