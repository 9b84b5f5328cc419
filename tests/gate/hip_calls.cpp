// SPDX-License-Identifier: MIT
// The functions of HIP that busbar/gate/engine.py calls by ctypes, with the types and numbers that it assumes.
#include <hip/hip_runtime_api.h>

// A function pointer converts to no other type; of overloaded functions the one with this type is taken.
template <typename Wanted>
bool same(Wanted function) {
    return function != nullptr;
}

using E = hipError_t;
bool checked = same<E (*)(unsigned)>(hipInit) && same<E (*)(int *)>(hipGetDeviceCount) && same<E (*)(char *, int, int)>(hipDeviceGetPCIBusId) &&
               same<E (*)(int)>(hipSetDevice) && same<E (*)(hipStream_t *, unsigned)>(hipStreamCreateWithFlags) && same<E (*)(hipEvent_t *)>(hipEventCreate) &&
               same<E (*)(size_t *, size_t *)>(hipMemGetInfo) && same<E (*)(void **, size_t)>(hipMalloc) && same<E (*)(void **, size_t, unsigned)>(hipHostMalloc) &&
               same<E (*)(void *, int, size_t)>(hipMemset) && same<E (*)()>(hipDeviceSynchronize) &&
               same<E (*)(void *, const void *, size_t, hipMemcpyKind, hipStream_t)>(hipMemcpyAsync) &&
               same<E (*)(void *, int, const void *, int, size_t, hipStream_t)>(hipMemcpyPeerAsync) &&
               same<E (*)(int *, int, int)>(hipDeviceCanAccessPeer) && same<E (*)(int, unsigned)>(hipDeviceEnablePeerAccess) &&
               same<E (*)(hipEvent_t, hipStream_t)>(hipEventRecord) && same<E (*)(hipEvent_t)>(hipEventSynchronize) &&
               same<E (*)(float *, hipEvent_t, hipEvent_t)>(hipEventElapsedTime) && same<const char *(*)(E)>(hipGetErrorName);

static_assert(hipSuccess == 0 && hipErrorPeerAccessAlreadyEnabled == 704);
static_assert(hipStreamNonBlocking == 1 && hipHostMallocPortable == 1);
static_assert(hipMemcpyHostToDevice == 1 && hipMemcpyDeviceToHost == 2);
static_assert(sizeof(hipMemcpyKind) == sizeof(int));

int main() { return checked ? 0 : 1; }
