# SPDX-License-Identifier: MIT
"""Copies between GPUs that are not here: `without_gpus` stands in for the driver's library."""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

import pytest

from busbar.gate import active, copies
from busbar.gate.active import CpuClock, Others
from busbar.gate.findings import GateDocument
from busbar.gate.passive import gather
from busbar.gate.run import run
from busbar.gate.slurm import SlurmContext
from busbar.verdict import Verdict

from .node import Node, gpu, report
from .without_gpus import WithoutGpus

pytestmark = pytest.mark.usefixtures("at_once")
BUSY = "<processes><process_info><pid>77</pid><type>C</type><process_name>train</process_name>"
BUSY += "</process_info></processes>"


def measured(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    gpus: WithoutGpus,
    slurm: SlurmContext | None = None,
    cpus: float = 0.0,
) -> GateDocument:
    """Run the gate with copies of 1 MiB, whose rates the double says."""
    for name in ("between_host_and_gpu", "between_gpus"):
        small = functools.partial(getattr(copies, name), nbytes=1 << 20)
        monkeypatch.setattr(active, name, small)
    monkeypatch.setattr(active, "Cuda", lambda: gpus)
    monkeypatch.setattr(active, "_PAUSE_S", 0.0)
    # What other programs use of the CPUs here must not account for a slow copy.
    used = itertools.count(0, cpus * 1e6)
    monkeypatch.setattr(active, "cpu_clock", lambda: CpuClock(time.monotonic(), next(used), 0.0))
    return run(node.options(slurm, passive=False))


def of(result: GateDocument, *checks: str) -> dict[str, str]:
    """The verdicts of some checks by place."""
    return {each.where: str(each.verdict) for each in result.checks if each.check in checks}


def test_every_link_is_measured(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(node, monkeypatch, WithoutGpus())
    links = ["host->gpu0", "gpu0->host", "host->gpu1", "gpu1->host", "gpu0->gpu1", "gpu1->gpu0"]
    assert of(result, "host_copy", "peer_copy") == dict.fromkeys(links, "pass")
    assert of(result, "copy_data") == {"": "pass"}
    assert result.reason == ""


@pytest.mark.parametrize(
    ("slow", "where", "reason"),
    [
        ("host->0", "host->gpu0", "host_copy host->gpu0 20 GB/s vs 50.6-59.4 GB/s: check the PCI"),
        ("1->host", "gpu1->host", "host_copy gpu1->host 20 GB/s vs 50.6-59.4 GB/s: check the PCI"),
        ("1->0", "gpu1->gpu0", "peer_copy gpu1->gpu0 20 GB/s vs 346.1-406.3 GB/s: reset the GPU"),
    ],
)
def test_a_slow_link_is_named(
    node: Node, monkeypatch: pytest.MonkeyPatch, slow: str, where: str, reason: str
) -> None:
    result = measured(node, monkeypatch, WithoutGpus(slow={slow: 20.0}))
    verdicts = of(result, "host_copy", "peer_copy")
    assert {place for place, verdict in verdicts.items() if verdict != "pass"} == {where}
    assert result.reason.startswith(f"[node_problem] {reason}")


def test_a_slow_reading_that_is_not_confirmed_drains_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    then_fails = WithoutGpus(slow={"host->1": 20.0})
    again = active._again

    def fail(*arguments: Any) -> Any:
        then_fails.fault = "error"
        return again(*arguments)

    monkeypatch.setattr(active, "_again", fail)
    monkeypatch.setattr(active, "_PAUSE_S", 0)
    result = measured(node, monkeypatch, then_fails)
    assert of(result, "host_copy")["host->gpu1"] == "unknown"
    assert not result.drain


@pytest.mark.parametrize(("link", "where"), [("1->host", "gpu1->host"), ("0->1", "gpu0->gpu1")])
def test_wrong_data_drains(
    node: Node, monkeypatch: pytest.MonkeyPatch, link: str, where: str
) -> None:
    result = measured(node, monkeypatch, WithoutGpus(corrupt=link))
    assert of(result, "copy_data")[where] == "failed"
    assert result.drain


@pytest.mark.parametrize("fault", ["error", "full"])
def test_a_driver_that_fails_is_unknown(
    node: Node, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    result = measured(node, monkeypatch, WithoutGpus(fault=fault))
    verdicts = of(result, "host_copy", "peer_copy")
    good = {"host->gpu0", "gpu0->host"}
    assert {place for place, verdict in verdicts.items() if verdict == "pass"} == good
    assert set(verdicts.values()) == {"pass", "unknown"}
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "")


def test_beside_a_program_on_any_gpu_no_slow_link_drains(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The links share switches and the memory of the host. Fast ones still pass."""
    used = (("<processes></processes>", BUSY), ("gpu_util>0", "gpu_util>99"))
    node.smi(report(gpu(1, *used), gpu(2)))
    slow = {"host->0": 30.0, "1->host": 50.46, "0->1": 3.0}
    result = measured(node, monkeypatch, WithoutGpus(slow=slow))
    verdicts = of(result, "host_copy", "peer_copy")
    unknown = {place for place, verdict in verdicts.items() if verdict == "unknown"}
    assert unknown == {"host->gpu0", "gpu1->host", "gpu0->gpu1"}
    assert verdicts["gpu0->host"] == "pass"
    (busy,) = [each for each in result.checks if each.where == "gpu1->host"]
    assert "PID 77" in busy.note
    assert not result.drain


def test_a_slow_reading_is_repeated(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy at 50.46 of 50.6 GB/s is no fault of a node."""
    once = WithoutGpus(slow={"host->1": 50.46})

    def now_fast(_: float) -> None:
        once.slow = {}

    monkeypatch.setattr(active.time, "sleep", now_fast)
    result = measured(node, monkeypatch, once)
    assert of(result, "host_copy")["host->gpu1"] == "pass"


def test_full_cpus_account_for_a_slow_copy(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(node, monkeypatch, WithoutGpus(slow={"host->0": 30.0}), cpus=1.0)
    assert of(result, "host_copy")["host->gpu0"] == "unknown"


def test_if_the_use_is_not_known_no_slow_link_drains(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.smi(script="exit 9")
    result = measured(node, monkeypatch, WithoutGpus(slow={"host->0": 20.0}))
    assert of(result, "host_copy")["host->gpu0"] == "unknown"
    assert of(result, "host_copy")["gpu0->host"] == "pass"
    assert not result.drain


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("gpu_util>0", "gpu_util>40"), "not listed"),  # by another container
        (("hw_slowdown>Not Active", "hw_slowdown>Active"), "345 of 1980 MHz"),
        (("Disabled", "Disabled"), ""),
    ],
)
def test_who_uses_the_node(node: Node, change: tuple[str, str], words: str) -> None:
    node.smi(report(gpu(1, change), gpu(2)))
    facts = gather(5.0, (), node.root, nvidia=True)
    idle = CpuClock(0.0, 0.0, 0.0), CpuClock(1.0, 0.0, 0.0)
    why = Others(facts, facts.smi, True, *idle).slowed("D D")
    assert words in why
    assert bool(why) == bool(words)
    assert "PID 7" in Others(facts, facts.smi, False, *idle, kfd_pids=(7,)).slowed("D D")


def test_a_rate_beyond_the_links_drains_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = measured(node, monkeypatch, WithoutGpus(slow={"0->1": 999.0}))
    assert of(result, "peer_copy")["gpu0->gpu1"] == "impossible"
    assert not result.drain


def test_an_epilog_measures_the_gpus_of_its_job(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = SlurmContext("n1", job="7", gpus=(1,), context="epilog_slurmd")
    result = measured(node, monkeypatch, WithoutGpus(), slurm)
    assert set(of(result, "host_copy", "peer_copy")) == {"host->gpu1", "gpu1->host"}


def test_a_divided_gpu_is_not_measured(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.smi(report(gpu(1, ("mig>Disabled", "mig>Enabled")), gpu(2)))
    result = measured(node, monkeypatch, WithoutGpus())
    assert of(result, "host_copy")["gpu0"] == "unknown"
    assert not result.drain


def test_without_a_driver_the_copies_are_unknown(node: Node) -> None:
    """This machine has no libcuda: the library itself says so."""
    result = run(node.options(passive=False))
    notes = {each.note for each in result.checks if each.check == "host_copy"}
    assert any("libcuda.so.1" in note for note in notes)
    assert not result.drain
