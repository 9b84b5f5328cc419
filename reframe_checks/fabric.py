# SPDX-License-Identifier: MIT
"""Does each layer below MPI and NCCL carry data the way it should?"""

from __future__ import annotations

from typing import ClassVar

import reframe as rfm
from reframe.core.builtins import parameter

from busbar.check.launch import Launch, Shown
from busbar.check.results import Result
from busbar.check.unstaged import expectation as unstaged
from busbar.expect import NoExpectation
from busbar.explain.model import Reading
from busbar.parse.ucx_perftest import bandwidth
from busbar.verdict import Expectation, Verdict

from .base import SOURCES, Judgement
from .bench import BenchCheck

_SHARED_MEMORY = ("sysv", "posix", "cma", "knem", "xpmem")
_SIZE = 1 << 26


class UcxPerf(BenchCheck, special=True):
    """``ucx_perftest`` between two processes of a node."""

    size_set = parameter(["quick"])
    size_options: ClassVar = {"quick": f"-t tag_bw -s {_SIZE} -n 50"}
    memory = "host"

    def launches(self) -> list[Launch]:
        gpu = self.memory != "host"
        program = self.program("ucx_perftest")
        return [
            Launch(
                bench="ucx_perftest",
                command=(
                    *(str(SOURCES / "loopback.sh"), program, "-m", self.memory),
                    *self.options(),
                ),
                ranks=1,
                sizes=(_SIZE,),
                buffers="D D" if gpu else "H H",
                transports=tuple(self.current_environ.extras["transports"])
                if gpu
                else _SHARED_MEMORY,
                placed=False,
                bands=gpu,
            )
        ]

    def derived(self, launch: Launch, shown: Shown) -> list[Reading]:
        rate = bandwidth(shown.text)
        return [Reading("bw", _SIZE, rate, operation="tag_bw")] if rate else []

    def expect(self, launch: Launch, reading: Reading) -> Expectation:
        if self.memory == "host":
            raise NoExpectation("host buffers use no link of the GPUs")
        # The server is on GPU 0, the client on GPU 1: the tool takes them by its own order.
        return unstaged(
            self.site,
            operation="sendrecv",
            ranks=2,
            nodes=1,
            partition=self.current_partition.name,
            nbytes=reading.nbytes,
        )


@rfm.simple_test
class fabric_ucx(UcxPerf):  # noqa: N801 - ReFrame's test names are what users type
    """UCX alone, host memory."""

    descr = "ucx_perftest in host memory"
    valid_prog_environs = ["+ucx"]


@rfm.simple_test
class fabric_ucx_gpu(UcxPerf):  # noqa: N801 - see above
    """UCX alone, from GPU to GPU."""

    descr = "ucx_perftest between two GPUs"
    valid_prog_environs = ["+ucx +cuda", "+ucx +rocm"]

    @property
    def memory(self) -> str:
        """As the tool names it."""
        return "cuda" if self.current_environ.extras["stack"] == "cuda" else "rocm"


@rfm.simple_test
class fabric_ofi(BenchCheck):  # noqa: N801 - see above
    """NCCL's network plugin alone: provider, NICs, GPUDirect, every message through."""

    descr = "nccl_message_transfer between two nodes"
    valid_systems = ["+remote"]
    valid_prog_environs = ["+ofi-tests +cuda", "+ofi-tests +rocm"]
    size_set = parameter(["quick"])
    size_options: ClassVar = {"quick": ""}
    nodes = 2
    env_vars = {"NCCL_DEBUG": "INFO"}

    def launches(self) -> list[Launch]:
        # Published: mpirun -n 2 -N 1 --hostfile hosts ... nccl_message_transfer
        return [
            Launch(
                bench="nccl_message_transfer",
                command=(self.program("nccl_message_transfer"), *self.options()),
                ranks=2,
                sizes=(),
                nodes=2,
                bands=False,
            )
        ]

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        judged = super().judgement(output, errors)
        failed = [Result(self.name, Verdict.FAILED, message=message) for message in self.wrong()]
        passed = Result(self.name, Verdict.PASS, metric="correctness", pair="messages")
        return Judgement(
            [*judged.results, *failed, *([] if failed else [passed])], judged.versions
        )

    def wrong(self) -> list[str]:
        """What the plugin should have said and did not."""
        if not self.shown:
            return ["nccl_message_transfer was not started"]
        facts = self.shown[0].facts
        fabric, node = self.site.fabric, self.site.node_type(self.current_partition.name)
        chosen = facts.first("ofi.provider")
        found: list[str] = []
        if chosen is None or fabric is None or chosen.values[0] != fabric.provider:
            name = chosen.values[0] if chosen else "none"
            found.append(f"the provider is {name}, not {fabric.provider if fabric else '?'}")
        elif chosen.values[2] and int(chosen.values[2]) != node.nic_count:
            found.append(f"the plugin found {chosen.values[2]} NICs of {node.nic_count}")
        if any(nic.gpudirect for nic in node.nics) and not facts.first("ofi.gdr-on"):
            found.append("the plugin does not say that the NIC reads GPU memory")
        done = set(facts.values("ofi.completions", 1))
        if done != {"0", "1"}:
            found.append(f"messages of {len(done)} of 2 ranks came through")
        return found
