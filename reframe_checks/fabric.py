# SPDX-License-Identifier: MIT
"""Does each layer below MPI and NCCL carry data the way it should?"""

from __future__ import annotations

from statistics import median
from typing import ClassVar

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from busbar.judge.launch import BenchLaunch, LaunchOutput
from busbar.judge.plugin import contradictions, used
from busbar.judge.results import Result
from busbar.mpi import SHARED_MEMORY, network_transports
from busbar.output.reading import Reading
from busbar.parse.fabtests import providers, rows
from busbar.parse.ucx_perftest import bandwidth
from busbar.site.model import Nic
from busbar.units import format_bytes, parse_bytes
from busbar.verdict import Verdict

from .base import SOURCES, Judgement
from .bench import BenchCheck

_SIZE = 1 << 26
_PAIR = str(SOURCES / "pair.sh")
_EVEN = 0.9
"""A port below this share of the middle one of its node is slow: they are of one kind."""


_ON_GPUS = ["+ucx +cuda", "+ucx +rocm"]


def _gpu_memory(check: BenchCheck) -> str:
    return "cuda" if check.environment.stack == "cuda" else "rocm"


class Pair(BenchCheck, special=True):
    """A server and a client, which ``pair.sh`` starts; on one node it does both."""

    @run_after("setup")
    def keep_them_off_one_core(self) -> None:
        self.leave_all_cores()


class UcxPerf(Pair, special=True):
    """``ucx_perftest`` between two processes."""

    size_set = parameter(["quick"])
    size_options: ClassVar = {"quick": f"-t tag_bw -s {_SIZE} -n 50"}
    # UCX says at log level info which transports it took.
    env_vars = {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "stderr"}
    memory = "host"

    def launches(self) -> list[BenchLaunch]:
        gpu = self.memory != "host"
        return [
            BenchLaunch(
                bench="ucx_perftest",
                command=self.command("node"),
                ranks=1,
                sizes=(_SIZE,),
                buffers="D D" if gpu else "H H",
                transports=self.environment.transports if gpu else SHARED_MEMORY,
                placed=False,
                bands=gpu,
            )
        ]

    def command(self, name: str) -> tuple[str, ...]:
        """Both parts of one measurement."""
        program = self.program("ucx_perftest")
        return (_PAIR, name, "-p", "-p", program, "-m", self.memory, *self.options())

    def derived(self, launch: BenchLaunch, shown: LaunchOutput) -> list[Reading]:
        rate = bandwidth(shown.text)
        ports = [value for name, value in launch.environment if name == "UCX_NET_DEVICES"]
        operation = " ".join(["tag_bw", *ports])
        return [Reading("bw", _SIZE, rate, operation=operation)] if rate else []


@rfm.simple_test
class fabric_ucx(UcxPerf):  # noqa: N801 - ReFrame's test names are what users type
    """UCX alone, host memory."""

    descr = "ucx_perftest in host memory"
    valid_prog_environs = ["+ucx"]


@rfm.simple_test
class fabric_ucx_gpu(UcxPerf):  # noqa: N801 - see above
    """UCX alone, from GPU to GPU."""

    descr = "ucx_perftest between two GPUs"
    valid_prog_environs = _ON_GPUS

    memory = property(_gpu_memory)


class UcxNodes(UcxPerf, special=True):
    """``ucx_perftest`` between two nodes, by one port after the other."""

    # On EFA and Slingshot the traffic goes by libfabric.
    valid_systems = ["+remote -efa -cxi"]
    nodes = 2

    def launches(self) -> list[BenchLaunch]:
        nics = self.site.node_type(self.current_partition.name).nics
        return [self.between(nic) for nic in nics] or [self.between(None)]

    def between(self, nic: Nic | None) -> BenchLaunch:
        """One port of each node; whatever UCX takes where the site names none."""
        gpu = self.memory != "host"
        chosen = (("UCX_NET_DEVICES", f"{nic.name}:1"),) if nic else ()
        if gpu:
            chosen += self.visible(nic.near_gpus[0] if nic and nic.near_gpus else 0)
        return BenchLaunch(
            bench="ucx_perftest",
            command=self.command(nic.name if nic else "any"),
            ranks=2,
            nodes=2,
            sizes=(_SIZE,),
            buffers="D D" if gpu else "H H",
            environment=chosen,
            transports=network_transports(self.site),
            bands=False,
        )

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        judged = super().judgement(output, errors)
        return Judgement([*judged.results, *self.uneven(judged.results)], judged.versions)

    def uneven(self, results: list[Result]) -> list[Result]:
        """Ports that are slower than the others of their node."""
        read = [result for result in results if result.gb_per_s is not None]
        if len(read) < 2:
            return []
        middle = median(result.gb_per_s or 0 for result in read)
        return [
            Result(
                self.name,
                Verdict.DEGRADED,
                where=result.where,
                pair=result.pair,
                message=f"{result.pair}: {result.gb_per_s:.4g} GB/s, the middle one of"
                f" {len(read)} ports has {middle:.4g}",
            )
            for result in read
            if (result.gb_per_s or 0) < _EVEN * middle
        ]


@rfm.simple_test
class fabric_ucx_nodes(UcxNodes):  # noqa: N801 - see above
    """Every port, host memory."""

    descr = "ucx_perftest between two nodes, port by port"
    valid_prog_environs = ["+ucx"]


@rfm.simple_test
class fabric_ucx_gpu_nodes(UcxNodes):  # noqa: N801 - see above
    """Every port, with the memory of the GPU next to it."""

    descr = "ucx_perftest between GPUs of two nodes, port by port"
    valid_prog_environs = _ON_GPUS

    memory = property(_gpu_memory)


class Libfabric(Pair, special=True):
    """``fi_pingpong`` over the provider that the site's fabric has; data checked, then timed."""

    valid_prog_environs = ["+libfabric"]
    size_set = parameter(["quick"])
    size_options: ClassVar = {"quick": "-S 1048576 -I 100"}

    @property
    def provider(self) -> str:
        """As libfabric names it; sockets alone where the site states no fabric."""
        fabric = self.site.fabric
        return fabric.provider if fabric else "tcp"

    def launches(self) -> list[BenchLaunch]:
        checked = ("-c", "-S", "4096", "-I", "10")
        launches = [self.pingpong("data", checked), self.pingpong("rate", ("-v", *self.options()))]
        if "fi_rma_bw" in self.environment.programs:
            launches.append(self.writing())
        return launches

    def pingpong(self, name: str, options: tuple[str, ...]) -> BenchLaunch:
        """The test that comes with libfabric itself."""
        asked = (self.program("fi_pingpong"), "-e", "rdm", "-p", self.provider, *options)
        return self.launch("fi_pingpong", (_PAIR, name, "-B", "-P", *asked), options)

    def writing(self) -> BenchLaunch:
        """The one-sided test of fabtests, where the site has it."""
        asked = (self.program("fi_rma_bw"), "-e", "rdm", "-o", "write", "-p", self.provider)
        options = tuple(self.options())
        return self.launch("fi_rma_bw", (_PAIR, "write", "-E", "-E", *asked, *options), options)

    def launch(
        self, bench: str, command: tuple[str, ...], options: tuple[str, ...]
    ) -> BenchLaunch:
        """A server and its client, on one node or on two."""
        return BenchLaunch(
            bench=bench,
            command=command,
            ranks=self.nodes,
            nodes=self.nodes,
            sizes=(parse_bytes(options[options.index("-S") + 1]),),
            buffers="H H",
            placed=self.nodes > 1,
            validated="-c" in options,
            bands=False,
        )

    def derived(self, launch: BenchLaunch, shown: LaunchOutput) -> list[Reading]:
        operation = f"{launch.bench} {self.provider}"
        # The rate of the launch that checks the data is that of checking.
        return [
            Reading("bw", row.nbytes, row.gb_per_s, operation=operation)
            for row in rows(shown.text)
            if row.nbytes in launch.sizes
        ]

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        judged = super().judgement(output, errors)
        wrong = [
            Result(self.name, verdict, pair=launch.bench, message=message)
            for launch, shown in zip(self.planned, self.shown, strict=False)
            for verdict, message in self.wrong(launch, shown)
        ]
        return Judgement([*judged.results, *wrong], judged.versions)

    def wrong(self, launch: BenchLaunch, shown: LaunchOutput) -> list[tuple[Verdict, str]]:
        """Another provider than asked for, or messages that did not come back."""
        found: list[tuple[Verdict, str]] = []
        if lost := [format_bytes(r.nbytes) for r in rows(shown.text) if not r.all_arrived]:
            found.append((Verdict.FAILED, f"messages of {', '.join(lost)} were lost"))
        # Only fi_pingpong says what it took, with -v and when it came to that. Told to check the
        # data, it would with -v print a line for each byte as well.
        if "-v" not in launch.command or not _ended_well(shown):
            return found
        used = providers(shown.text)
        if not used:
            found.append((Verdict.FAILED, "fi_pingpong does not say which provider it took"))
        # What puts messages on top of a provider is named after it: tcp;ofi_rxm.
        elif other := {name for name in used if name.partition(";")[0] != self.provider}:
            took = ", ".join(sorted(other))
            found.append((Verdict.DEGRADED, f"libfabric took {took}, not {self.provider}"))
        return found


@rfm.simple_test
class fabric_libfabric(Libfabric):  # noqa: N801 - see above
    """Between two processes of a node, where there is no network to other nodes."""

    descr = "fi_pingpong on one node"
    valid_systems = ["-remote"]


@rfm.simple_test
class fabric_libfabric_nodes(Libfabric):  # noqa: N801 - see above
    """Between two nodes."""

    descr = "fi_pingpong between two nodes"
    valid_systems = ["+remote"]
    nodes = 2


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

    def launches(self) -> list[BenchLaunch]:
        # Published: mpirun -n 2 -N 1 --hostfile hosts ... nccl_message_transfer
        return [
            BenchLaunch(
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
            [*judged.results, *failed, *([] if failed else [passed])],
            judged.versions | self.named(),
        )

    def named(self) -> dict[str, str]:
        """The versions and the topology file that the plugin names."""
        return used(self.shown[0].facts) if self.shown else {}

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
        done = set(facts.values("ofi.completions", "rank"))
        if done != {"0", "1"}:
            found.append(f"messages of {len(done)} of 2 ranks came through")
        return [*found, *(contradictions(fabric, self.named()) if fabric else ())]


def _ended_well(shown: LaunchOutput) -> bool:
    status = shown.facts.exit_status
    return status is not None and status.code == 0
