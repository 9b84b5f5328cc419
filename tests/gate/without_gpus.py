# SPDX-License-Identifier: MIT
"""A double of the GPUs that this machine does not have: their memory is host memory, and their
clock says what the test chooses."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from busbar.gate.engine import EngineError

Work = Callable[[], None]


@dataclass
class WithoutGpus:
    """As `busbar.gate.engine.GpuEngine`, with GPUs at 0000:01:00.0, 0000:02:00.0..."""

    count: int = 2
    gb_per_s: float = 55.0
    peer_gb_per_s: float = 376.0
    slow: Mapping[str, float] = field(default_factory=dict)
    """GB/s by link: ``host->0``, ``0->host``, ``0->1``."""
    corrupt: str = ""
    """The link that spoils a byte."""
    fault: str = ""
    """``hang``, ``crash``, ``error`` or ``full``, of GPU 1."""
    current: int = 0
    direct: bool = True
    kept: list[object] = field(default_factory=list)
    link: str = ""
    nbytes: int = 0

    def bus_ids(self) -> list[str]:
        return [f"0000:{n + 1:02x}:00.0" for n in range(self.count)]

    def use(self, gpu: int) -> None:
        self.current = gpu
        if gpu == 1 and self.fault == "hang":
            time.sleep(600)
        if gpu == 1 and self.fault == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if gpu == 1 and self.fault == "error":
            raise EngineError("cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE")

    def free_bytes(self) -> int:
        return 0 if self.fault == "full" and self.current == 1 else 1 << 40

    def on_gpu(self, nbytes: int) -> int:
        memory = ctypes.create_string_buffer(nbytes)
        self.kept.append(memory)
        return ctypes.addressof(memory)

    on_host = on_gpu

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        ctypes.memset(address, byte, nbytes)

    def to_gpu(self, gpu: int, host: int, nbytes: int) -> Work:
        return self._copy(f"host->{self.current}", gpu, host, nbytes)

    def to_host(self, host: int, gpu: int, nbytes: int) -> Work:
        return self._copy(f"{self.current}->host", host, gpu, nbytes)

    def to_peer(self, there: int, peer: int, here: int, gpu: int, nbytes: int) -> Work:
        return self._copy(f"{gpu}->{peer}", there, here, nbytes)

    def peers(self, gpu: int, peer: int) -> bool:
        return self.direct

    def milliseconds(self, work: Work) -> float:
        work()
        usual = self.gb_per_s if "host" in self.link else self.peer_gb_per_s
        return self.nbytes / self.slow.get(self.link, usual) * 1e-6

    def _copy(self, link: str, to: int, source: int, nbytes: int) -> Work:
        def work() -> None:
            self.link, self.nbytes = link, nbytes
            ctypes.memmove(to, source, nbytes)
            if link == self.corrupt:
                byte = ctypes.c_ubyte.from_address(to + nbytes // 2)
                byte.value ^= 0xFF

        return work
