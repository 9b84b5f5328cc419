# SPDX-License-Identifier: MIT
"""Copies by the GPU's copy engines, through the library that the driver of the vendor installs.

CUDA: the driver API of libcuda.so.1. ROCm: the runtime API of libamdhip64.so. Both are called by
ctypes, so that a node needs neither a compiler nor a toolkit. A call that fails raises
``EngineError`` with the library's own words.
"""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from ctypes import byref, c_char, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any

Address = int
"""A pointer to memory of the host or of a GPU."""
Work = Callable[[], None]


class EngineError(RuntimeError):
    """A call that failed."""


_PORTABLE = c_uint(1)
"""CU_MEMHOSTALLOC_PORTABLE and hipHostMallocPortable: pinned for all GPUs."""
_NON_BLOCKING = c_uint(1)
"""CU_STREAM_NON_BLOCKING and hipStreamNonBlocking."""
_ALREADY_ENABLED = 704
"""CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED and hipErrorPeerAccessAlreadyEnabled."""
_BUS_BYTES = 32


class GpuEngine(ABC):
    """The GPUs of one vendor: the calls that both libraries have, by the names of each."""

    _libraries: tuple[str, ...]
    _prefix: str
    """What the names of functions with the same rest begin with."""
    _names: tuple[str, str, str, str, str, str]
    """Count of GPUs, free memory, memory of a GPU, pinned memory, set memory, wait for it."""

    def __init__(self) -> None:
        for name in self._libraries:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                problem = str(error)
        else:
            raise EngineError(f"cannot be loaded: {problem}")
        self._count, self._free, self._malloc, self._pinned, self._set, self._wait = self._names
        self._streams: dict[int, tuple[c_void_p, c_void_p, c_void_p]] = {}
        self._current = -1
        self._call(f"{self._prefix}Init", c_uint(0))

    def _status(self, name: str, *arguments: Any) -> int:
        """Call a function and return its status."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise EngineError(f"the library lacks {name}") from None
        return int(function(*arguments))

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise ``EngineError`` unless it returns 0."""
        if status := self._status(name, *arguments):
            raise EngineError(f"{name}: {self._words(status) or f'error {status}'}")

    @abstractmethod
    def _words(self, status: int) -> str:
        """Return the name that the library has for an error; empty for none."""

    @abstractmethod
    def _select(self, gpu: int) -> None:
        """Make a GPU the current one."""

    @abstractmethod
    def _make_stream(self, stream: c_void_p, *events: c_void_p) -> None:
        """Create a stream and events of the current GPU."""

    @abstractmethod
    def to_gpu(self, gpu: Address, host: Address, nbytes: int) -> Work:
        """Return a copy from pinned memory to the current GPU."""

    @abstractmethod
    def to_host(self, host: Address, gpu: Address, nbytes: int) -> Work:
        """Return a copy from the current GPU to pinned memory."""

    @abstractmethod
    def to_peer(self, there: Address, peer: int, here: Address, gpu: int, nbytes: int) -> Work:
        """Return a copy from the current GPU ``gpu`` to the memory of another."""

    @abstractmethod
    def _enable(self, peer: int) -> int:
        """Let the current GPU access the memory of another; return the status."""

    def bus_ids(self) -> list[str]:
        """Return the PCI address of every GPU, in the order of the library."""
        count = c_int()
        self._call(self._count, byref(count))
        found = []
        for gpu in range(count.value):
            text = (c_char * _BUS_BYTES)()
            self._call(f"{self._prefix}DeviceGetPCIBusId", text, _BUS_BYTES, gpu)
            found.append(text.value.decode(errors="replace").lower())
        return found

    def use(self, gpu: int) -> None:
        """Make a GPU the current one; its context is created at the first use."""
        self._select(gpu)
        if gpu not in self._streams:
            made = c_void_p(), c_void_p(), c_void_p()
            self._make_stream(*made)
            self._streams[gpu] = made
        self._current = gpu

    def free_bytes(self) -> int:
        """Return the free memory of the current GPU."""
        free, total = c_size_t(), c_size_t()
        self._call(self._free, byref(free), byref(total))
        return free.value

    def on_gpu(self, nbytes: int) -> Address:
        """Allocate memory of the current GPU."""
        address = c_void_p()
        self._call(self._malloc, byref(address), c_size_t(nbytes))
        return address.value or 0

    def on_host(self, nbytes: int) -> Address:
        """Allocate pinned memory of the host."""
        address = c_void_p()
        self._call(self._pinned, byref(address), c_size_t(nbytes), _PORTABLE)
        return address.value or 0

    def fill(self, address: Address, byte: int, nbytes: int) -> None:
        """Fill memory of the current GPU."""
        self._call(self._set, c_void_p(address), c_int(byte), c_size_t(nbytes))
        self._call(self._wait)

    def peers(self, gpu: int, peer: int) -> bool:
        """Let the current GPU access the memory of another; False if it cannot."""
        can = c_int()
        self._call(f"{self._prefix}DeviceCanAccessPeer", byref(can), gpu, peer)
        return bool(can.value) and self._enable(peer) in (0, _ALREADY_ENABLED)

    def milliseconds(self, work: Work) -> float:
        """Run a copy and return how long it took by the clock of the current GPU."""
        stream, start, end = self._streams[self._current]
        self._call(f"{self._prefix}EventRecord", start, stream)
        work()
        self._call(f"{self._prefix}EventRecord", end, stream)
        self._call(f"{self._prefix}EventSynchronize", end)
        time = c_float()
        self._call(f"{self._prefix}EventElapsedTime", byref(time), start, end)
        return time.value

    def _copy(self, name: str, *arguments: Any) -> Work:
        return lambda: self._call(name, *arguments, self._streams[self._current][0])


class Cuda(GpuEngine):
    """The CUDA driver API."""

    _libraries = ("libcuda.so.1",)
    _prefix = "cu"
    _names = (
        *("cuDeviceGetCount", "cuMemGetInfo_v2", "cuMemAlloc_v2"),
        *("cuMemHostAlloc", "cuMemsetD8_v2", "cuCtxSynchronize"),
    )

    def __init__(self) -> None:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi and the site number them
        self._contexts: dict[int, c_void_p] = {}
        super().__init__()

    def _words(self, status: int) -> str:
        text = c_char_p()
        self._status("cuGetErrorName", status, byref(text))
        return (text.value or b"").decode(errors="replace")

    def _select(self, gpu: int) -> None:
        if gpu not in self._contexts:
            context = c_void_p()
            self._call("cuDevicePrimaryCtxRetain", byref(context), gpu)
            self._contexts[gpu] = context
        self._call("cuCtxSetCurrent", self._contexts[gpu])

    def _make_stream(self, stream: c_void_p, *events: c_void_p) -> None:
        self._call("cuStreamCreate", byref(stream), _NON_BLOCKING)
        for event in events:
            self._call("cuEventCreate", byref(event), c_uint(0))

    def to_gpu(self, gpu: Address, host: Address, nbytes: int) -> Work:
        return self._copy("cuMemcpyHtoDAsync_v2", c_void_p(gpu), c_void_p(host), c_size_t(nbytes))

    def to_host(self, host: Address, gpu: Address, nbytes: int) -> Work:
        return self._copy("cuMemcpyDtoHAsync_v2", c_void_p(host), c_void_p(gpu), c_size_t(nbytes))

    def to_peer(self, there: Address, peer: int, here: Address, gpu: int, nbytes: int) -> Work:
        target = c_void_p(there), self._contexts[peer]
        source = c_void_p(here), self._contexts[gpu]
        return self._copy("cuMemcpyPeerAsync", *target, *source, c_size_t(nbytes))

    def _enable(self, peer: int) -> int:
        return self._status("cuCtxEnablePeerAccess", self._contexts[peer], c_uint(0))


_HIP_FILES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")


class Hip(GpuEngine):
    """The HIP runtime API."""

    _libraries = (*_HIP_FILES, *(f"/opt/rocm/lib/{name}" for name in _HIP_FILES))
    _prefix = "hip"
    _names = (
        *("hipGetDeviceCount", "hipMemGetInfo", "hipMalloc"),
        *("hipHostMalloc", "hipMemset", "hipDeviceSynchronize"),
    )

    def _words(self, status: int) -> str:
        self._library.hipGetErrorName.restype = c_char_p
        return (self._library.hipGetErrorName(status) or b"").decode(errors="replace")

    def _select(self, gpu: int) -> None:
        self._call("hipSetDevice", gpu)

    def _make_stream(self, stream: c_void_p, *events: c_void_p) -> None:
        self._call("hipStreamCreateWithFlags", byref(stream), _NON_BLOCKING)
        for event in events:
            self._call("hipEventCreate", byref(event))

    def to_gpu(self, gpu: Address, host: Address, nbytes: int) -> Work:
        return self._copy_kind(gpu, host, nbytes, 1)

    def to_host(self, host: Address, gpu: Address, nbytes: int) -> Work:
        return self._copy_kind(host, gpu, nbytes, 2)

    def _copy_kind(self, to: Address, of: Address, nbytes: int, kind: int) -> Work:
        ends = c_void_p(to), c_void_p(of)
        return self._copy("hipMemcpyAsync", *ends, c_size_t(nbytes), c_int(kind))

    def to_peer(self, there: Address, peer: int, here: Address, gpu: int, nbytes: int) -> Work:
        target, source = (c_void_p(there), c_int(peer)), (c_void_p(here), c_int(gpu))
        return self._copy("hipMemcpyPeerAsync", *target, *source, c_size_t(nbytes))

    def _enable(self, peer: int) -> int:
        return self._status("hipDeviceEnablePeerAccess", peer, c_uint(0))
