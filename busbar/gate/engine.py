# SPDX-License-Identifier: MIT
"""Copies by the GPU's copy engines, through the library that the driver of the vendor installs.

CUDA: the driver API of libcuda.so.1. ROCm: the runtime API of libamdhip64.so. Both are called by
ctypes, so that a node needs neither a compiler nor a toolkit. A call that fails raises
``EngineError`` with the library's own words.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_char, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Protocol

Address = int
"""A pointer to memory of the host or of a GPU."""
Work = Callable[[], None]


class EngineError(RuntimeError):
    """A call that failed."""


class Engine(Protocol):
    """What the measurement needs of a vendor's library."""

    def bus_ids(self) -> list[str]:
        """Return the PCI address of every GPU, in the order of the library."""

    def use(self, gpu: int) -> None:
        """Make a GPU the current one; its context is created at the first use."""

    def free_bytes(self) -> int:
        """Return the free memory of the current GPU."""

    def on_gpu(self, nbytes: int) -> Address:
        """Allocate memory of the current GPU."""

    def on_host(self, nbytes: int) -> Address:
        """Allocate pinned memory of the host."""

    def fill(self, address: Address, byte: int, nbytes: int) -> None:
        """Fill memory of the current GPU."""

    def to_gpu(self, gpu: Address, host: Address, nbytes: int) -> Work:
        """Return a copy from pinned memory to the current GPU."""

    def to_host(self, host: Address, gpu: Address, nbytes: int) -> Work:
        """Return a copy from the current GPU to pinned memory."""

    def to_peer(self, there: Address, peer: int, here: Address, gpu: int, nbytes: int) -> Work:
        """Return a copy from the current GPU ``gpu`` to the memory of another."""

    def peers(self, gpu: int, peer: int) -> bool:
        """Let the current GPU access the memory of another; False if it cannot."""

    def milliseconds(self, work: Work) -> float:
        """Run a copy and return how long it took by the clock of the current GPU."""


class _Library:
    """A library whose functions return 0 if they succeed."""

    def __init__(self, names: tuple[str, ...]) -> None:
        for name in names:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                problem = str(error)
        else:
            raise EngineError(f"cannot be loaded: {problem}")

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; raise ``EngineError`` unless it returns 0."""
        status = self.status(name, *arguments)
        if status:
            raise EngineError(f"{name}: {self._words(status)}")

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function and return its status."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise EngineError(f"{name} is not in the library") from None
        return int(function(*arguments))

    def _words(self, status: int) -> str:
        return f"error {status}"


class _CudaLibrary(_Library):
    def _words(self, status: int) -> str:
        text = c_char_p()
        if self.status("cuGetErrorName", status, byref(text)) or not text.value:
            return f"error {status}"
        return text.value.decode(errors="replace")


class _HipLibrary(_Library):
    def _words(self, status: int) -> str:
        self._library.hipGetErrorName.restype = c_char_p
        name = self._library.hipGetErrorName(status)
        return name.decode(errors="replace") if name else f"error {status}"


_PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE and hipHostMallocPortable: pinned for all GPUs."""
_BUS_BYTES = 32


class Cuda:
    """The CUDA driver API."""

    def __init__(self) -> None:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi and the site number them
        self._call = _CudaLibrary(("libcuda.so.1",))
        self._call("cuInit", 0)
        self._contexts: dict[int, c_void_p] = {}
        self._streams: dict[int, tuple[c_void_p, c_void_p, c_void_p]] = {}
        self._current = -1

    def bus_ids(self) -> list[str]:
        count = c_int()
        self._call("cuDeviceGetCount", byref(count))
        found = []
        for gpu in range(count.value):
            text = (c_char * _BUS_BYTES)()
            self._call("cuDeviceGetPCIBusId", text, _BUS_BYTES, gpu)
            found.append(text.value.decode(errors="replace").lower())
        return found

    def use(self, gpu: int) -> None:
        if gpu not in self._contexts:
            context = c_void_p()
            self._call("cuDevicePrimaryCtxRetain", byref(context), gpu)
            self._contexts[gpu] = context
            self._call("cuCtxSetCurrent", context)
            stream, start, end = c_void_p(), c_void_p(), c_void_p()
            self._call("cuStreamCreate", byref(stream), c_uint(1))
            self._call("cuEventCreate", byref(start), c_uint(0))
            self._call("cuEventCreate", byref(end), c_uint(0))
            self._streams[gpu] = stream, start, end
        self._call("cuCtxSetCurrent", self._contexts[gpu])
        self._current = gpu

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def on_gpu(self, nbytes: int) -> Address:
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(nbytes))
        return address.value

    def on_host(self, nbytes: int) -> Address:
        address = c_void_p()
        self._call("cuMemHostAlloc", byref(address), c_size_t(nbytes), c_uint(_PORTABLE))
        return address.value or 0

    def fill(self, address: Address, byte: int, nbytes: int) -> None:
        self._call("cuMemsetD8_v2", c_uint64(address), ctypes.c_ubyte(byte), c_size_t(nbytes))
        self._call("cuCtxSynchronize")

    def to_gpu(self, gpu: Address, host: Address, nbytes: int) -> Work:
        there, here, size = c_uint64(gpu), c_void_p(host), c_size_t(nbytes)
        return lambda: self._call("cuMemcpyHtoDAsync_v2", there, here, size, self._stream)

    def to_host(self, host: Address, gpu: Address, nbytes: int) -> Work:
        there, here, size = c_void_p(host), c_uint64(gpu), c_size_t(nbytes)
        return lambda: self._call("cuMemcpyDtoHAsync_v2", there, here, size, self._stream)

    def to_peer(self, there: Address, peer: int, here: Address, gpu: int, nbytes: int) -> Work:
        target, source, size = c_uint64(there), c_uint64(here), c_size_t(nbytes)
        contexts = self._contexts[peer], self._contexts[gpu]
        return lambda: self._call(
            *("cuMemcpyPeerAsync", target, contexts[0], source, contexts[1], size, self._stream)
        )

    def peers(self, gpu: int, peer: int) -> bool:
        can = c_int()
        self._call("cuDeviceCanAccessPeer", byref(can), gpu, peer)
        enabled = 704  # CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        if not can.value:
            return False
        status = self._call.status("cuCtxEnablePeerAccess", self._contexts[peer], c_uint(0))
        return status in (0, enabled)

    def milliseconds(self, work: Work) -> float:
        stream, start, end = self._streams[self._current]
        self._call("cuEventRecord", start, stream)
        work()
        self._call("cuEventRecord", end, stream)
        self._call("cuEventSynchronize", end)
        time = c_float()
        self._call("cuEventElapsedTime", byref(time), start, end)
        return time.value

    @property
    def _stream(self) -> c_void_p:
        return self._streams[self._current][0]


class Hip:
    """The HIP runtime API."""

    def __init__(self) -> None:
        names = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
        paths = tuple(f"/opt/rocm/lib/{name}" for name in names)
        self._call = _HipLibrary((*names, *paths))
        self._call("hipInit", c_uint(0))
        self._streams: dict[int, tuple[c_void_p, c_void_p, c_void_p]] = {}
        self._current = -1

    def bus_ids(self) -> list[str]:
        count = c_int()
        self._call("hipGetDeviceCount", byref(count))
        found = []
        for gpu in range(count.value):
            text = (c_char * _BUS_BYTES)()
            self._call("hipDeviceGetPCIBusId", text, _BUS_BYTES, gpu)
            found.append(text.value.decode(errors="replace").lower())
        return found

    def use(self, gpu: int) -> None:
        self._call("hipSetDevice", gpu)
        if gpu not in self._streams:
            stream, start, end = c_void_p(), c_void_p(), c_void_p()
            self._call("hipStreamCreateWithFlags", byref(stream), c_uint(1))
            self._call("hipEventCreate", byref(start))
            self._call("hipEventCreate", byref(end))
            self._streams[gpu] = stream, start, end
        self._current = gpu

    def free_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self._call("hipMemGetInfo", byref(free), byref(total))
        return free.value

    def on_gpu(self, nbytes: int) -> Address:
        address = c_void_p()
        self._call("hipMalloc", byref(address), c_size_t(nbytes))
        return address.value or 0

    def on_host(self, nbytes: int) -> Address:
        address = c_void_p()
        self._call("hipHostMalloc", byref(address), c_size_t(nbytes), c_uint(_PORTABLE))
        return address.value or 0

    def fill(self, address: Address, byte: int, nbytes: int) -> None:
        self._call("hipMemset", c_void_p(address), c_int(byte), c_size_t(nbytes))
        self._call("hipDeviceSynchronize")

    def to_gpu(self, gpu: Address, host: Address, nbytes: int) -> Work:
        return self._copy(gpu, host, nbytes, 1)

    def to_host(self, host: Address, gpu: Address, nbytes: int) -> Work:
        return self._copy(host, gpu, nbytes, 2)

    def _copy(self, to: Address, source: Address, nbytes: int, kind: int) -> Work:
        there, here, size = c_void_p(to), c_void_p(source), c_size_t(nbytes)
        return lambda: self._call(
            *("hipMemcpyAsync", there, here, size, c_int(kind), self._streams[self._current][0])
        )

    def to_peer(self, there: Address, peer: int, here: Address, gpu: int, nbytes: int) -> Work:
        target, source, size = c_void_p(there), c_void_p(here), c_size_t(nbytes)
        return lambda: self._call(
            *("hipMemcpyPeerAsync", target, c_int(peer), source, c_int(gpu), size),
            self._streams[self._current][0],
        )

    def peers(self, gpu: int, peer: int) -> bool:
        can = c_int()
        self._call("hipDeviceCanAccessPeer", byref(can), gpu, peer)
        enabled = 704  # hipErrorPeerAccessAlreadyEnabled
        if not can.value:
            return False
        return self._call.status("hipDeviceEnablePeerAccess", peer, c_uint(0)) in (0, enabled)

    def milliseconds(self, work: Work) -> float:
        stream, start, end = self._streams[self._current]
        self._call("hipEventRecord", start, stream)
        work()
        self._call("hipEventRecord", end, stream)
        self._call("hipEventSynchronize", end)
        time = c_float()
        self._call("hipEventElapsedTime", byref(time), start, end)
        return time.value
