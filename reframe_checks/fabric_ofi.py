# SPDX-License-Identifier: MIT
"""Does NCCL's network plugin alone carry data the way it should?

$ nccl_message_transfer
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import parameter

from busbar.engine.launch import BenchLaunch
from busbar.engine.results import Result
from busbar.tools.aws_ofi_nccl import used
from busbar.verdict import Verdict

from .bench import BenchCheck, Launches
from .judging import Judgement


@rfm.simple_test
class fabric_ofi(BenchCheck):  # noqa: N801 - see above
    """NCCL's network plugin alone: provider, NICs, GPUDirect, every message through."""

    descr = "nccl_message_transfer between two nodes"
    valid_systems = ["+remote"]
    valid_prog_environs = ["+ofi-tests +cuda"]  # a plugin for RCCL has no such program
    size_set = parameter(["quick"])
    node_count = 2
    env_vars = {"NCCL_DEBUG": "INFO"}

    def launches(self) -> Launches:
        # Published: mpirun -n 2 -N 1 --hostfile hosts ... nccl_message_transfer
        yield BenchLaunch(
            bench="nccl_message_transfer",
            command=(self.program("nccl_message_transfer"), *self.added),
            ranks=2,
            sizes=(),
            nodes=2,
            bands=False,
        )

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        judged = super().judgement(output, errors)
        failed = [Result(self.name, Verdict.FAILED, message=message) for message in self.wrong()]
        passed = Result(self.name, Verdict.PASS, metric="correctness", pair="messages")
        return judged._replace(
            results=[*judged.results, *failed, *([] if failed else [passed])],
            versions=judged.versions | (used(self.shown[0].facts) if self.shown else {}),
        )

    def wrong(self) -> list[str]:
        """What the plugin should have said and did not."""
        if not self.shown:
            return ["nccl_message_transfer was not started"]
        facts = self.shown[0].facts
        fabric, node = self.site.fabric, self.site.node_type(self.current_partition.name)
        chosen = facts.first("ofi.provider")
        found: list[str] = []
        if chosen is None or fabric is None or chosen["provider"] != fabric.provider:
            name = chosen["provider"] if chosen else "none"
            found.append(f"the provider is {name}, not {fabric.provider if fabric else '?'}")
        elif chosen["nics"] and int(chosen["nics"]) != node.nic_count:
            found.append(f"the plugin found {chosen['nics']} NICs of {node.nic_count}")
        if any(nic.gpudirect for nic in node.nics) and not facts.first("ofi.gdr-on"):
            found.append("the plugin does not say that the NIC reads GPU memory")
        return found
