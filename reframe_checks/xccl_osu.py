# SPDX-License-Identifier: MIT
"""Do OSU's own tests of NCCL and RCCL see GPU links carry the data?

$ osu_xccl_allreduce -d cuda -m 4194304:67108864
$ osu_xccl_bw -d cuda -m 16777216:16777216 D D
"""

from __future__ import annotations

from dataclasses import replace

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from busbar.engine.launch import BenchLaunch
from busbar.tools.nccl_tests.request import LOG_FILES, LOGGED
from busbar.tools.osu.request import carried_by_xccl, command
from busbar.units import MIB

from .bench import BenchCheck
from .collective import OsuCollective
from .pt2pt import OsuPair

_ENVIRONS = ["+osu-xccl +cuda", "+osu-xccl +rocm"]


@rfm.simple_test
class xccl_osu(OsuCollective):  # noqa: N801 - ReFrame's test names are what users type
    """The collectives of ``collective``, carried by NCCL or RCCL instead of MPI."""

    descr = "OSU's collectives over NCCL or RCCL, all GPUs of a node"
    # The gate has nccl-tests or rccl-tests, which ask the same of the same library.
    size_set = parameter(["nightly"])
    message_sizes = {"nightly": (4 * MIB, 64 * MIB)}
    log_files = LOG_FILES
    keep_files = [*BenchCheck.keep_files, LOG_FILES]
    env_vars = {**LOGGED}

    @run_after("init")
    def set_features(self) -> None:
        self.valid_prog_environs = _ENVIRONS

    @property
    def test(self) -> str:
        return carried_by_xccl(self.bench)

    def launches(self) -> list[BenchLaunch]:
        (launch,) = super().launches()
        return [replace(launch, transports=self.nccl_ways(), log="nccl")]


@rfm.simple_test
class xccl_osu_pair(OsuPair):  # noqa: N801 - see above
    """From GPU 0 to each other one."""

    descr = "osu_xccl_bw between GPUs of a node"
    valid_prog_environs = _ENVIRONS
    size_set = parameter(["nightly"])
    message_sizes = {"nightly": (16 * MIB, 16 * MIB)}
    log_files = LOG_FILES
    keep_files = [*BenchCheck.keep_files, LOG_FILES]
    env_vars = {**LOGGED}

    def command(self) -> tuple[str, ...]:
        """Return ``osu_xccl_bw -d cuda -m FIRST:LAST D D``."""
        return command(
            self.program(carried_by_xccl(self.bench)),
            self.message_sizes[self.size_set],
            memory=self.gpu_memory,
            more=self.added,
            buffers=self.buffers,
        )

    def launch(self, source: int, target: int) -> BenchLaunch:
        launch = super().launch(source, target)
        return replace(
            launch,
            bench=carried_by_xccl(self.bench),
            transports=self.nccl_ways(),
            log="nccl",
            logs=f"nccl.{target}.*.log",
            environment=(
                *launch.environment,
                ("NCCL_DEBUG_FILE", f"nccl.{target}.%h.%p.log"),
            ),
        )
