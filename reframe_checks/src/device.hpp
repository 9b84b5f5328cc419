// SPDX-License-Identifier: MIT
// The three back ends of gpu_aware, chosen at compile time: host memory (default), -DGPU_CUDA, -DGPU_HIP.
// Only the runtime API is used and no kernel, so that any MPI compiler wrapper (mpic++, Cray CC, hipcc) compiles it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#if defined(GPU_CUDA)
#include <cuda_runtime_api.h>
#define GPU(name) cuda##name
#define GPU_BACKEND "cuda"
using DeviceProperties = cudaDeviceProp;
using PointerAttributes = cudaPointerAttributes;
inline bool is_device_memory(const PointerAttributes &found) { return found.type == cudaMemoryTypeDevice; }
#elif defined(GPU_HIP)
#include <hip/hip_runtime_api.h>
#define GPU(name) hip##name
#define GPU_BACKEND "hip"
#define hipHostAlloc hipHostMalloc  // HIP's older names, which every ROCm has
#define hipFreeHost hipHostFree
using DeviceProperties = hipDeviceProp_t;
using PointerAttributes = hipPointerAttribute_t;
inline bool is_device_memory(const PointerAttributes &) { return true; }  // the member's name depends on the version of HIP
#else
#define GPU_BACKEND "host"
#endif

namespace device {

constexpr const char *backend = GPU_BACKEND;

#ifdef GPU
constexpr bool present = true;

inline void check(GPU(Error_t) status, const char *what) {
    if (status != GPU(Success))
        throw std::runtime_error(std::string(what) + ": " + GPU(GetErrorString)(status));
}

inline int count() {
    int devices = 0;
    check(GPU(GetDeviceCount)(&devices), "counting the visible GPUs");
    return devices;
}

// The GPU of this thread, by our own word.
inline int &selected() {
    static int index = 0;
    return index;
}

inline void select(int index) {
    check(GPU(SetDevice)(index), "selecting a GPU");
    selected() = index;
}

inline std::string bus_id(int index) {
    char text[32] = "";
    check(GPU(DeviceGetPCIBusId)(text, sizeof text, index), "reading a GPU's bus id");
    return text;
}

inline std::string name(int index) {
    DeviceProperties properties;
    check(GPU(GetDeviceProperties)(&properties, index), "reading a GPU's name");
    return properties.name;
}

// "580.159.04 (cuda 13000)": the kernel driver, where it says its version, and the API that it offers.
inline std::string driver() {
    int api = 0;
    check(GPU(DriverGetVersion)(&api), "reading the driver's version");
    std::string version;
    for (const char *module : {"/sys/module/nvidia/version", "/sys/module/amdgpu/version"})
        if (version.empty()) std::getline(std::ifstream(module) >> std::ws, version);
    return version + (version.empty() ? "(" : " (") + backend + " " + std::to_string(api) + ")";
}

// Memory of the selected GPU: neither of another nor managed or host memory, which carries data as well.
inline void *allocate(std::size_t bytes) {
    void *pointer = nullptr;
    check(GPU(Malloc)(&pointer, bytes), "allocating GPU memory");
    PointerAttributes found;
    check(GPU(PointerGetAttributes)(&found, pointer), "asking where GPU memory lies");
    if (found.device != selected() || !is_device_memory(found))
        throw std::runtime_error("memory that was allocated on GPU " + std::to_string(selected()) + " does not lie there");
    return pointer;
}

// Host memory that the GPU reaches at full speed.
inline void *allocate_staging(std::size_t bytes) {
    void *pointer = nullptr;
    check(GPU(HostAlloc)(&pointer, bytes, 0), "allocating pinned host memory");
    return pointer;
}

inline void free_staging(void *pointer) { static_cast<void>(GPU(FreeHost)(pointer)); }

// GB/s that the GPU's memory carries, from its clock and width: two transfers a cycle. 0 on AMD GPUs, where HBM3 makes
// four and the runtime does not say which.
inline double memory_rate(int index) {
#ifdef GPU_CUDA
    int kilohertz = 0, bits = 0;
    check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, index), "reading the clock of a GPU's memory");
    check(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, index), "reading the width of a GPU's memory");
    return 2e-6 * kilohertz * bits / 8;
#else
    static_cast<void>(index);
    return 0;
#endif
}

inline void clear(void *pointer, std::size_t bytes) {
    check(GPU(Memset)(pointer, 0xff, bytes), "clearing GPU memory");
    check(GPU(DeviceSynchronize)(), "waiting for the GPU");
}

inline void copy(void *to, const void *from, std::size_t bytes) {
    check(GPU(Memcpy)(to, from, bytes, GPU(MemcpyDefault)), "copying between GPU and host");
    // A device-to-device or pageable copy may return before it is done; MPI must not see old bytes.
    check(GPU(DeviceSynchronize)(), "waiting for the GPU");
}

// Starts a copy of 8 bytes within the GPU and looks until it is done: what the CPU and the driver take for a message
// however short. UCX does the same for each message between GPUs.
inline void shortest_copy(void *to, const void *from) {
    static GPU(Stream_t) stream = [] {
        GPU(Stream_t) made;
        check(GPU(StreamCreateWithFlags)(&made, GPU(StreamNonBlocking)), "making a stream");
        return made;
    }();
    static GPU(Event_t) done = [] {
        GPU(Event_t) made;
        check(GPU(EventCreateWithFlags)(&made, GPU(EventDisableTiming)), "making an event");
        return made;
    }();
    check(GPU(MemcpyAsync)(to, from, 8, GPU(MemcpyDeviceToDevice), stream), "starting a copy");
    check(GPU(EventRecord)(done, stream), "recording an event");
    GPU(Error_t) status;
    while ((status = GPU(EventQuery)(done)) == GPU(ErrorNotReady)) {
    }
    check(status, "waiting for a copy");
}
// The time between two marks by the clock of the GPU: of all that was started on the current GPU between them.
class Marks {
  public:
    Marks() {
        check(GPU(EventCreate)(&begin_), "making an event");
        check(GPU(EventCreate)(&end_), "making an event");
    }
    Marks(const Marks &) = delete;
    Marks &operator=(const Marks &) = delete;
    ~Marks() {
        static_cast<void>(GPU(EventDestroy)(begin_));
        static_cast<void>(GPU(EventDestroy)(end_));
    }
    void begin() { check(GPU(EventRecord)(begin_, nullptr), "recording an event"); }
    void end() { check(GPU(EventRecord)(end_, nullptr), "recording an event"); }
    double seconds() {
        float milliseconds = 0;
        check(GPU(EventSynchronize)(end_), "waiting for an event");
        check(GPU(EventElapsedTime)(&milliseconds, begin_, end_), "reading the time between two events");
        return 1e-3 * static_cast<double>(milliseconds);
    }

  private:
    GPU(Event_t) begin_, end_;
};
#else
constexpr bool present = false;

struct Marks {
    void begin() {}
    void end() {}
    double seconds() { return 0; }
};

inline int count() { return 0; }
inline void select(int) {}
inline std::string bus_id(int) { return ""; }
inline std::string name(int) { return ""; }
inline std::string driver() { return ""; }

inline void *allocate(std::size_t bytes) {
    void *pointer = nullptr;
    if (posix_memalign(&pointer, 4096, bytes ? bytes : 1)) throw std::bad_alloc();
    return pointer;
}

inline void *allocate_staging(std::size_t bytes) { return allocate(bytes); }
inline void free_staging(void *pointer) { std::free(pointer); }
inline void clear(void *pointer, std::size_t bytes) { std::memset(pointer, 0xff, bytes); }
inline void copy(void *to, const void *from, std::size_t bytes) { std::memcpy(to, from, bytes); }
inline void shortest_copy(void *, const void *) {}
#endif

}  // namespace device
