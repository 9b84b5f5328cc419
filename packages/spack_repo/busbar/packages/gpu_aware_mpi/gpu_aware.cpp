// SPDX-License-Identifier: MIT
// Written by `make spack-pin` from reframe_checks/src; change the files there.
#line 1 "gpu_aware.cpp"
// SPDX-License-Identifier: MIT
// gpu_aware: passes host and GPU pointers to MPI, checks every byte, and measures every ordered pair in one launch.
//
//   host  mpic++ -O3 -std=c++17 gpu_aware.cpp -o gpu_aware
//   CUDA  mpic++ -O3 -std=c++17 -DGPU_CUDA -I$CUDA_HOME/include gpu_aware.cpp -L$CUDA_HOME/lib64 -lcudart -o gpu_aware
//   ROCm  OMPI_CXX=hipcc mpic++ -O3 -std=c++17 -DGPU_HIP gpu_aware.cpp -o gpu_aware, or
//         CC -O3 -std=c++17 -DGPU_HIP -D__HIP_PLATFORM_AMD__ gpu_aware.cpp -lamdhip64 -o gpu_aware
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>

#include <algorithm>
#include <optional>

#line 1 "buffers.hpp"
// SPDX-License-Identifier: MIT
// What a rank sends from and receives into, host and GPU, with a payload that is checked byte by byte.


#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#line 1 "device.hpp"
// SPDX-License-Identifier: MIT
// The three back ends of gpu_aware, chosen at compile time: host memory (default), -DGPU_CUDA, -DGPU_HIP.
// Only the runtime API is used and no kernel, so that any MPI compiler wrapper (mpic++, Cray CC, hipcc) compiles it.


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
#line 11 "buffers.hpp"
#line 1 "support.hpp"
// SPDX-License-Identifier: MIT
// What gpu_aware needs beside MPI and the device: options, JSON lines, payload patterns, clocks.


#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// Why a program gives up: the exit status, and the code of the error event (busbar/parse/events.py). Codes are stable.
struct Fault {
    int status;
    const char *code;
};

namespace fault {
constexpr int wrong_data = 1;  // no error event: checks and readings count the bytes
constexpr Fault usage{2, "usage"}, rank_count{3, "rank-count"}, too_few_gpus{4, "too-few-gpus"}, same_gpu{4, "same-gpu"},
    wrong_gpu{4, "wrong-gpu"}, runtime{5, "runtime"};
}  // namespace fault

// A fault with a sentence for the user.
struct Failure : std::runtime_error {
    Fault fault;
    Failure(Fault fault_, const std::string &text) : std::runtime_error(text), fault(fault_) {}
};

// The fault of any exception.
inline Fault fault_of(const std::exception &error) {
    const auto *failure = dynamic_cast<const Failure *>(&error);
    return failure ? failure->fault : fault::runtime;
}

// A system call that no library before ours can replace.
inline long kernel_call(long number, long first, long second, long third = 0) {
#if defined(__x86_64__)
    long result;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long call asm("x8") = number;
    register long one asm("x0") = first, two asm("x1") = second, three asm("x2") = third;
    asm volatile("svc 0" : "+r"(one) : "r"(call), "r"(two), "r"(three) : "memory");
    return one;
#else
    return syscall(number, first, second, third);
#endif
}

// As "%.6g", but no library that is put before libc's printf can change it.
inline std::string text_of(double value) {
    if (value < 0) return "-" + text_of(-value);
    if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
    if (value == 0) return "0";
    constexpr int most = 6;
    int exponent = static_cast<int>(std::floor(std::log10(value)));
    const auto rounded = [&] { return std::llround(value / std::pow(10, exponent - most + 1)); };
    if (rounded() >= 1000000) ++exponent;
    std::string digits = std::to_string(rounded());
    digits.resize(digits.find_last_not_of('0') + 1);
    const bool plain = exponent >= -4 && exponent < most;
    if (plain && exponent < 0) return "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    const auto whole = static_cast<std::size_t>(plain ? exponent + 1 : 1);
    if (digits.size() < whole) digits.resize(whole, '0');
    if (digits.size() > whole) digits.insert(whole, ".");
    if (plain) return digits;
    const std::string power = std::to_string(std::abs(exponent));
    return digits + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
}

// One line of output, written with one system call so that lines of several ranks do not mix, and no library changes them.
class Line {
  public:
    explicit Line(const char *event) { add("event", event); }

    Line &add(const char *key, const std::string &value) {
        open(key);
        text_ += '"';
        for (unsigned char c : value) {
            char escaped[8];
            if (c == '"' || c == '\\') {
                text_ += '\\';
                text_ += static_cast<char>(c);
            } else if (c < 0x20) {
                std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
                text_ += escaped;
            } else {
                text_ += static_cast<char>(c);
            }
        }
        text_ += '"';
        return *this;
    }
    Line &add(const char *key, const char *value) { return add(key, std::string(value)); }
    Line &add(const char *key, double value) {
        open(key);
        text_ += text_of(value);
        return *this;
    }
    Line &add(const char *key, std::size_t value) {
        open(key);
        text_ += std::to_string(value);
        return *this;
    }
    Line &add(const char *key, int value) {
        open(key);
        text_ += std::to_string(value);
        return *this;
    }

    // An event that says why `rank` gives up.
    static Line error(int rank, const std::exception &error) {
        return Line("error").add("rank", rank).add("code", fault_of(error).code).add("text", error.what());
    }

    void print_unless(bool silent) {
        if (!silent) print();
    }

    void print() {
        std::string line = text_ + "}\n";
        for (std::size_t done = 0; done < line.size();) {
            const long n = kernel_call(SYS_write, STDOUT_FILENO, reinterpret_cast<long>(line.data() + done), static_cast<long>(line.size() - done));
            if (n <= 0) return;  // nobody reads any more; the exit status still tells
            done += static_cast<std::size_t>(n);
        }
    }

  private:
    void open(const char *key) {
        text_ += text_.empty() ? "{\"" : ", \"";
        text_ += key;
        text_ += "\": ";
    }
    std::string text_;
};

// ---- payload: each 8-byte word tells its place and who sent it, so that a byte that is stale, moved or from another
// rank is seen. A message that begins at another word differs in every word. A Weyl sequence: compilers turn it into
// vector additions, and checking keeps up with the memory.
constexpr std::uint64_t payload_seed_step = 0xd1342543de82ef95ULL, payload_word_step = 0x9e3779b97f4a7c15ULL;

inline std::uint64_t payload_word(std::uint64_t seed, std::uint64_t index) {
    const std::uint64_t weyl = seed * payload_seed_step + (index + 1) * payload_word_step;
    return weyl ^ (weyl >> 29);
}

// What makes the payload of each run another: data of an earlier run is wrong. All ranks of a run have the same key.
inline std::uint64_t &run_key() {
    static std::uint64_t key = 0;
    return key;
}

inline std::uint64_t keyed(std::uint64_t seed) { return payload_word(run_key(), seed); }

// The payload of `seed` from word `first` on.
inline void fill_payload(unsigned char *to, std::size_t bytes, std::uint64_t seed, std::uint64_t first = 0) {
    seed = keyed(seed);
    const std::size_t words = bytes / 8;
    for (std::size_t i = 0; i < words; ++i) {
        const std::uint64_t word = payload_word(seed, first + i);
        std::memcpy(to + 8 * i, &word, 8);
    }
    const std::uint64_t last = payload_word(seed, first + words);
    std::memcpy(to + 8 * words, &last, bytes % 8);
}

// With the seed of this run.
inline std::size_t count_wrong_bytes(const unsigned char *got, std::size_t begin, std::size_t end, std::uint64_t seed, std::uint64_t first) {
    std::size_t wrong = 0;
    for (std::size_t at = begin; at < end; at += 8) {
        const std::size_t width = end - at < 8 ? end - at : 8;
        const std::uint64_t word = payload_word(seed, first + at / 8);
        if (std::memcmp(got + at, &word, width) == 0) continue;
        const auto *expected = reinterpret_cast<const unsigned char *>(&word);
        for (std::size_t i = 0; i < width; ++i) wrong += got[at + i] != expected[i];
    }
    return wrong;
}

// The number of bytes that differ from the payload of `seed` from word `first` on.
inline std::size_t count_wrong(const unsigned char *got, std::size_t bytes, std::uint64_t seed, std::uint64_t first = 0) {
    // Whole blocks first, without a branch for each word; only a block that differs is looked at byte by byte.
    constexpr std::size_t words = 512, block = 8 * words;
    std::size_t wrong = 0, at = 0;
    seed = keyed(seed);
    for (; at + block <= bytes; at += block) {
        std::uint64_t part[words], difference = 0;
        std::memcpy(part, got + at, block);
        for (std::size_t i = 0; i < words; ++i) difference |= part[i] ^ payload_word(seed, first + at / 8 + i);
        if (difference) wrong += count_wrong_bytes(got, at, at + block, seed, first);
    }
    return wrong + count_wrong_bytes(got, at, bytes, seed, first);
}

// What the check that started the job gave it; the start event repeats it, so that no other output is taken for this job's.
inline std::string nonce() {
    const char *value = std::getenv("BUSBAR_NONCE");
    return value ? value : "";
}

// The key of a run whose ranks cannot agree on one: from what the check gave to all of them (FNV-1a).
inline std::uint64_t key_of_nonce() {
    std::uint64_t key = 0xcbf29ce484222325ULL;
    for (unsigned char c : nonce()) key = (key ^ c) * 0x100000001b3ULL;
    return key;
}

// ---- clocks and CPUs
inline double seconds_of(const timespec &t) { return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec); }

// All times that are printed.
inline double now() {
    timespec t{};
    return kernel_call(SYS_clock_gettime, CLOCK_MONOTONIC_RAW, reinterpret_cast<long>(&t)) == 0 ? seconds_of(t) : NAN;
}

// The clock of other programs, which a library before libc can replace.
inline double shown_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return seconds_of(t);
}

// A time that is measured, within one by the other clock: that may be longer, but not shorter.
class Span {
  public:
    // The least of the other clock by the kernel's, of all spans that are long enough to tell.
    static double &least() {
        static double ratio = 1;
        return ratio;
    }

    double seconds() const {
        const double seconds = now() - start_, shown = shown_now() - shown_;
        if (seconds > 1e-5) least() = std::min(least(), shown / seconds);
        return seconds;
    }

  private:
    double shown_ = shown_now(), start_ = now();
};

// How fast the clock of other programs goes by the kernel's, which the readings are taken by: 1, but for what NTP slews
// (500 ppm at most). That since the start, or that of a span which differs more.
class ClockCheck {
  public:
    double ratio() const {
        const Both end;
        const double whole = (end.shown - start_.shown) / (end.kernel - start_.kernel);
        return std::abs(whole - 1) > 1 - Span::least() ? whole : Span::least();
    }

  private:
    struct Both {
        double kernel = 0, shown = 0;
        // At one time: other programs may interrupt some of the looks.
        Both() {
            for (double apart = INFINITY, looks = 0; apart > 1e-5 && looks < 100; ++looks) {
                const double before = now(), seen = shown_now(), after = now();
                if (after - before >= apart) continue;
                apart = after - before;
                kernel = (before + after) / 2;
                shown = seen;
            }
        }
    };
    Both start_;
};

// Libraries that a user puts before MPI and the GPU's; empty if there are none.
inline std::string preloaded() {
    std::string text;
    for (const char *name : {"LD_PRELOAD", "LD_AUDIT"})
        if (const char *value = std::getenv(name); value && *value) text += (text.empty() ? "" : " ") + std::string(name) + "=" + value;
    return text;
}

inline double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// For how many seconds the calling thread has been ready to run without a CPU; not a number where the kernel does not count
// that: a file of zeros, or none. A read takes a third of a microsecond. Helper threads of MPI are not counted: they wait for
// events, and what they wait for a CPU need not delay a message.
inline double cpu_wait_seconds() {
    static const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[64] = "";
    unsigned long long ran = 0, waited = 0;
    if (pread(file, text, sizeof text - 1, 0) <= 0 || std::sscanf(text, "%llu %llu", &ran, &waited) != 2 || ran == 0) return NAN;
    return 1e-9 * static_cast<double>(waited);
}

// "0-3,8": the CPUs this process may run on.
inline std::string cpu_list() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return "";
    std::string text;
    for (int first = 0; first < CPU_SETSIZE; ++first) {
        if (!CPU_ISSET(first, &set)) continue;
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(first);
        if (last > first) text += "-" + std::to_string(last);
        first = last;
    }
    return text;
}

// Keeps this thread on the CPUs beside a PCI device while it lives, so that new memory is local to them; on all CPUs where
// the kernel does not say which those are, or where the thread may use none of them.
class NearCpus {
  public:
    explicit NearCpus(std::string bus_id) {
        std::transform(bus_id.begin(), bus_id.end(), bus_id.begin(), ::tolower);
        cpu_set_t near;
        CPU_ZERO(&near);
        std::ifstream list("/sys/bus/pci/devices/" + bus_id.substr(bus_id.size() > 12 ? bus_id.size() - 12 : 0) + "/local_cpulist");
        for (std::string range; std::getline(list, range, ',');) {
            int first = 0, last = 0;
            const int numbers = std::sscanf(range.c_str(), "%d-%d", &first, &last);
            for (int cpu = first; numbers > 0 && cpu <= (numbers == 2 ? last : first) && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &near);
        }
        if (sched_getaffinity(0, sizeof before_, &before_)) return;
        CPU_AND(&near, &near, &before_);
        moved_ = CPU_COUNT(&near) > 0 && sched_setaffinity(0, sizeof near, &near) == 0;
    }
    NearCpus(const NearCpus &) = delete;
    NearCpus &operator=(const NearCpus &) = delete;
    ~NearCpus() {
        if (moved_) sched_setaffinity(0, sizeof before_, &before_);
    }

  private:
    cpu_set_t before_;
    bool moved_ = false;
};

// ---- options
struct Buffers {
    char send, receive;  // 'D' device memory, 'H' host memory
    std::string name() const { return std::string{send, ' ', receive}; }
};

struct Options {
    int ranks = 0;
    std::vector<Buffers> buffers;
    std::vector<std::size_t> sizes, latency_sizes, check_sizes;
    std::vector<std::string> collectives, devices;
    bool rounds = false, copy = false, best = false, share_devices = false;
    int window = 64;
    double seconds = 0.05;
    std::string inject;
    int inject_rank = 0;
};

inline std::vector<std::string> split(const std::string &text, char separator = ',') {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        if (!part.empty()) parts.push_back(part);
    return parts;
}

inline std::size_t parse_bytes(const std::string &text) {
    char *end = nullptr;
    const unsigned long long count = std::strtoull(text.c_str(), &end, 10);
    const std::string suffix = end;
    const char *suffixes = "KMG";
    if (!std::isdigit(static_cast<unsigned char>(text[0])) || count == 0 || suffix.size() > 1 || (suffix.size() == 1 && !std::strchr(suffixes, suffix[0])))
        throw Failure(fault::usage, "'" + text + "' is not a size; write bytes or a suffix, as in 65536, 64K, 16M");
    return suffix.empty() ? count : count << (10 * (1 + (std::strchr(suffixes, suffix[0]) - suffixes)));
}

inline std::vector<std::size_t> parse_sizes(const std::string &text) {
    std::vector<std::size_t> sizes;
    for (const auto &part : split(text)) sizes.push_back(parse_bytes(part));
    return sizes;
}

inline const std::vector<std::string> known_collectives = {
    "bcast",  "allgather", "allgatherv", "alltoall",  "alltoallv", "allreduce", "reduce_scatter_block",
    "reduce", "gather",    "scatter",    "put",       "get",
};

inline const char *help = R"(usage: gpu_aware --ranks N [options]

Passes host and GPU pointers to MPI, checks every byte that arrives, and measures every ordered pair of ranks.
Output: JSON lines. Exit status: 0 all correct, 1 wrong data, 2 usage, 3 number of ranks, 4 placement, 5 runtime error.

  --ranks N            the number of ranks that were asked for; another number is an error
  --buffers LIST       sender and receiver memory, D device or H host: DD,HD,DH,HH (default DD, host build HH)
  --sizes LIST         bandwidth of every ordered pair at these sizes, as in 1M,16M (as osu_bw measures it)
  --latency-sizes LIST latency of every ordered pair at these sizes (as osu_latency measures it)
  --check LIST         correctness of every ordered pair at these sizes, several messages in flight
  --collectives LIST   correctness at the sizes of --check of bcast,allgather,allgatherv,alltoall,alltoallv,allreduce,
                       reduce_scatter_block,reduce,gather,scatter, and one-sided put,get in host memory
  --schedule KIND      pairs: one pair at a time, the others asleep (default); rounds: disjoint pairs at once
  --window N           messages in flight in the bandwidth test (64)
  --seconds S          measured time of one reading, at least (0.05); mean bandwidths of up to 4M take four times that, or 0.2
  --statistic KIND     mean: over all windows but the slowest tenth (up to 4M: fifth), and a latency that one in ten beats (default);
                       best: the best window
  --copy               also measure a plain copy between the two processes of a pair (host memory, one node)
  --devices LIST       the bus id that each rank of a node should have, in order
  --share-devices      let several ranks use one GPU
  --inject FAULT[:RANK] corrupt, die, hang, miscount or omit, to see that it is caught (RANK 0)
)";

inline Options parse_options(int argc, char **argv) {
    enum { RANKS = 1, BUFFERS, SIZES, LATENCY, CHECK, COLLECTIVES, SCHEDULE, WINDOW, SECONDS, STATISTIC, COPY, DEVICES, SHARE, INJECT, HELP };
    const option known[] = {{"ranks", required_argument, nullptr, RANKS},
                            {"buffers", required_argument, nullptr, BUFFERS},
                            {"sizes", required_argument, nullptr, SIZES},
                            {"latency-sizes", required_argument, nullptr, LATENCY},
                            {"check", required_argument, nullptr, CHECK},
                            {"collectives", required_argument, nullptr, COLLECTIVES},
                            {"schedule", required_argument, nullptr, SCHEDULE},
                            {"window", required_argument, nullptr, WINDOW},
                            {"seconds", required_argument, nullptr, SECONDS},
                            {"statistic", required_argument, nullptr, STATISTIC},
                            {"copy", no_argument, nullptr, COPY},
                            {"devices", required_argument, nullptr, DEVICES},
                            {"share-devices", no_argument, nullptr, SHARE},
                            {"inject", required_argument, nullptr, INJECT},
                            {"help", no_argument, nullptr, HELP},
                            {nullptr, 0, nullptr, 0}};
    const auto choice = [](const std::string &name, const std::string &value, const std::vector<std::string> &allowed) {
        std::string list;
        for (const auto &one : allowed) {
            if (one == value) return;
            list += (list.empty() ? "" : ", ") + one;
        }
        throw Failure(fault::usage, name + " '" + value + "' is unknown; there are: " + list);
    };
    Options options;
    for (int key; (key = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        const std::string value = optarg ? optarg : "";
        switch (key) {
            case RANKS: options.ranks = std::atoi(value.c_str()); break;
            case BUFFERS:
                for (const auto &part : split(value)) {
                    choice("--buffers", part, {"DD", "HD", "DH", "HH"});
                    options.buffers.push_back({part[0], part[1]});
                }
                break;
            case SIZES: options.sizes = parse_sizes(value); break;
            case LATENCY: options.latency_sizes = parse_sizes(value); break;
            case CHECK: options.check_sizes = parse_sizes(value); break;
            case COLLECTIVES:
                options.collectives = split(value);
                for (const auto &name : options.collectives)
                    choice("--collectives", name, known_collectives);
                break;
            case SCHEDULE:
                choice("--schedule", value, {"pairs", "rounds"});
                options.rounds = value == "rounds";
                break;
            case WINDOW: options.window = std::atoi(value.c_str()); break;
            case SECONDS: options.seconds = std::atof(value.c_str()); break;
            case STATISTIC:
                choice("--statistic", value, {"mean", "best"});
                options.best = value == "best";
                break;
            case COPY: options.copy = true; break;
            case DEVICES: options.devices = split(value); break;
            case SHARE: options.share_devices = true; break;
            case INJECT: {
                const auto colon = value.find(':');
                options.inject = value.substr(0, colon);
                choice("--inject", options.inject, {"corrupt", "die", "hang", "miscount", "omit"});
                if (colon != std::string::npos) options.inject_rank = std::atoi(value.c_str() + colon + 1);
                break;
            }
            case HELP: std::fputs(help, stdout); std::exit(0);
            default: throw Failure(fault::usage, "see gpu_aware --help");
        }
    }
    if (optind < argc) throw Failure(fault::usage, std::string("'") + argv[optind] + "' is not an option; see gpu_aware --help");
    if (options.ranks < 1) throw Failure(fault::usage, "--ranks N is needed: the number of ranks that were asked for");
    if (options.window < 1) throw Failure(fault::usage, "--window must be 1 or more");
    if (!(options.seconds > 0)) throw Failure(fault::usage, "--seconds must be above 0");
    if (!options.collectives.empty() && options.check_sizes.empty())
        throw Failure(fault::usage, "--collectives needs --check with the sizes");
    return options;
}
#line 12 "buffers.hpp"

// Messages that lie beside each other in one buffer. Each has room around it that no transfer may touch, and begins `shift`
// bytes behind a multiple of 64.
struct Batch {
    static constexpr std::size_t guard = 128;

    char kind;
    char *memory;
    std::size_t bytes, messages, shift;
    std::size_t room = bytes;  // for each message, which may be shorter

    // For any shift below 64.
    static std::size_t stride(std::size_t room) { return (2 * guard + room + 127) / 64 * 64; }
    std::size_t span() const { return messages * stride(room); }
    char *message(std::size_t i) const { return memory + i * stride(room) + guard + shift; }
};

class BufferSet {
  public:
    // `bytes` is the room of each buffer; a `corrupt` one spoils a byte in every KiB of what it is loaded with.
    BufferSet(const std::vector<Buffers> &all, std::size_t bytes, bool corrupt) : bytes_(bytes), corrupt_(corrupt) {
        shadow_ = static_cast<unsigned char *>(device::allocate_staging(staging));
        const auto uses = [&](char kind) {
            return std::any_of(all.begin(), all.end(), [&](Buffers b) { return b.send == kind || b.receive == kind; });
        };
        for (int i : {0, 1}) {
            if (uses('H') && posix_memalign(&host_[i], 4096, bytes)) throw std::bad_alloc();
            if (uses('H')) std::memset(host_[i], 0, bytes);
            if (uses('D')) device_[i] = device::allocate(bytes);
        }
    }
    BufferSet(const BufferSet &) = delete;
    BufferSet &operator=(const BufferSet &) = delete;

    char *send(char kind) const { return static_cast<char *>(kind == 'D' ? device_[0] : host_[0]); }
    char *receive(char kind) const { return static_cast<char *>(kind == 'D' ? device_[1] : host_[1]); }
    std::size_t bytes() const { return bytes_; }
    std::size_t wrong() const { return wrong_; }  // bytes, in all that was verified so far

    // Old bytes must not pass for new ones.
    static void clear(char kind, void *memory, std::size_t bytes) {
        if (kind == 'D')
            device::clear(memory, bytes);
        else
            std::memset(memory, 0xff, bytes);
    }

    void load(char *to, std::size_t bytes, std::uint64_t seed) {
        for (std::size_t at = 0; at < bytes; at += staging) {
            const std::size_t part = std::min(staging, bytes - at);
            fill(shadow_, part, seed, at / 8);
            device::copy(to + at, shadow_, part);
        }
    }

    // Loads the messages of a batch, message i with the payload of `seed_of(i)`, and clears the room around them.
    template <typename SeedOf>
    void load_each(const Batch &batch, SeedOf seed_of) {
        const bool at_once = batch.kind == 'D' && batch.span() <= staging;  // one copy to the GPU instead of many
        if (at_once)
            clear('H', shadow_, batch.span());
        else
            clear(batch.kind, batch.memory, batch.span());
        for (std::size_t i = 0; i < batch.messages; ++i) {
            const auto place = static_cast<std::size_t>(batch.message(i) - batch.memory);
            if (batch.kind == 'H')
                fill(reinterpret_cast<unsigned char *>(batch.message(i)), batch.bytes, seed_of(i), 0);
            else if (at_once)
                fill(shadow_ + place, batch.bytes, seed_of(i), 0);
            else
                load(batch.message(i), batch.bytes, seed_of(i));
        }
        if (at_once) device::copy(batch.memory, shadow_, batch.span());
    }

    // Loads every send buffer that there is.
    void load_all(std::uint64_t seed) {
        for (char kind : {'H', 'D'})
            if (send(kind)) load(send(kind), bytes_, seed);
    }

    // Counts bytes that are wrong for a reason that the bytes do not show.
    std::size_t count(std::size_t wrong) {
        wrong_ += wrong;
        return wrong;
    }

    // Compares with the payload of `seed` from word `first` on.
    std::size_t verify(char kind, const char *from, std::size_t bytes, std::uint64_t seed, std::uint64_t first = 0) {
        if (kind == 'H') return count(count_wrong(reinterpret_cast<const unsigned char *>(from), bytes, seed, first));
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < bytes; at += staging) {
            const std::size_t part = std::min(staging, bytes - at);
            device::copy(shadow_, from + at, part);
            wrong += count_wrong(shadow_, part, seed, first + at / 8);
        }
        return count(wrong);
    }

    // Compares the messages of a batch, and the bytes around each, which must be as `clear` left them.
    template <typename SeedOf>
    std::size_t verify_batch(const Batch &batch, SeedOf seed_of) {
        Batch seen = batch;
        if (batch.kind == 'D' && batch.span() <= staging) {  // one copy from the GPU instead of many
            device::copy(shadow_, batch.memory, batch.span());
            seen.memory = reinterpret_cast<char *>(shadow_);
            seen.kind = 'H';
        }
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < seen.messages; ++i) {
            wrong += verify(seen.kind, seen.message(i), seen.bytes, seed_of(i));
            wrong += verify_around(seen, i);
        }
        return wrong;
    }

    // The room around a message must be as `clear` left it.
    std::size_t verify_around(const Batch &batch, std::size_t i) {
        const char *message = batch.message(i);
        return verify_clear(batch.kind, message - Batch::guard, Batch::guard) + verify_clear(batch.kind, message + batch.bytes, batch.room - batch.bytes + Batch::guard);
    }

    // The bytes that are not as `clear` left them.
    std::size_t verify_clear(char kind, const char *from, std::size_t bytes) {
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < bytes; at += staging) {
            const std::size_t part = std::min(staging, bytes - at);
            const auto *seen = reinterpret_cast<const unsigned char *>(from + at);
            if (kind == 'D') {
                device::copy(shadow_, from + at, part);
                seen = shadow_;
            }
            wrong += part - static_cast<std::size_t>(std::count(seen, seen + part, 0xff));
        }
        return count(wrong);
    }

    // Compares `messages` messages that lie `stride` bytes apart; message i begins with word `first_of(i)`.
    template <typename FirstOf>
    std::size_t verify_each(char kind, const char *from, std::size_t stride, std::size_t messages, std::size_t bytes, std::uint64_t seed,
                            FirstOf first_of) {
        if (kind == 'D' && stride * messages <= staging) {  // one copy from the GPU instead of many
            device::copy(shadow_, from, stride * messages);
            from = reinterpret_cast<const char *>(shadow_);
            kind = 'H';
        }
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < messages; ++i) wrong += verify(kind, from + i * stride, bytes, seed, first_of(i));
        return wrong;
    }

    // Loads `words` words, word i with what `word_of(i)` returns; `verify_words` compares with it.
    template <typename WordOf>
    void load_words(char *to, std::size_t words, WordOf word_of) {
        for (std::size_t i = 0; i < words; ++i) {
            const std::uint64_t word = word_of(i);
            const std::size_t at = i % (staging / 8);
            std::memcpy(&shadow_[at * 8], &word, 8);
            if (i + 1 == words || at + 1 == staging / 8) device::copy(to + (i - at) * 8, shadow_, (at + 1) * 8);
        }
    }

    template <typename WordOf>
    std::size_t verify_words(const char *from, std::size_t words, WordOf word_of) {
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < words; ++i) {
            const std::size_t at = i % (staging / 8);
            if (at == 0) device::copy(shadow_, from + i * 8, std::min(staging, (words - i) * 8));
            const std::uint64_t expected = word_of(i);
            if (std::memcmp(&expected, &shadow_[at * 8], 8) != 0) wrong += 8;
        }
        return count(wrong);
    }

  private:
    void fill(unsigned char *to, std::size_t bytes, std::uint64_t seed, std::uint64_t first) const {
        fill_payload(to, bytes, seed, first);
        for (std::size_t i = 0; corrupt_ && i < bytes; i += 1024) to[i] ^= 1;
    }

    static constexpr std::size_t staging = 4 << 20;  // small enough to stay in a cache
    std::size_t bytes_, wrong_ = 0;
    bool corrupt_;
    unsigned char *shadow_ = nullptr;  // host side of filling and checking
    void *host_[2] = {}, *device_[2] = {};
};
#line 16 "gpu_aware.cpp"
#line 1 "collective.hpp"
// SPDX-License-Identifier: MIT
// Collectives and one-sided operations of which every result is compared whole.


#include <mpi.h>

#include <functional>
#include <string>
#include <vector>



// One operation at one size, made by all ranks of the world. A rank sends blocks to each rank or one to all, and knows what
// each byte of its own buffer must hold then: a block, a sum of blocks, or what was there before.
class Collective {
  public:
    // A get that `may_be_late` is compared again when its window is freed.
    Collective(BufferSet &memory, const std::string &operation, char kind, std::size_t bytes, int rank, int ranks, bool may_be_late)
        : memory_(memory), operation_(operation), kind_(kind), rank_(rank), ranks_(ranks), may_be_late_(may_be_late),
          reduces_(is({"allreduce", "reduce", "reduce_scatter_block"})), bytes_(reduces_ ? words(bytes) * 8 : bytes) {}

    static bool one_sided(const std::string &operation) { return operation == "put" || operation == "get"; }

    // What a buffer needs for any operation.
    static std::size_t room(std::size_t bytes, int ranks) {
        return static_cast<std::size_t>(ranks) * (words(bytes) * 8 + gap) + 2 * Batch::guard + 64;
    }

    // The bytes of gets that arrived only when their window was freed.
    std::size_t late() const { return late_; }

    // Runs it once, and returns the bytes that are wrong at this rank. Each `turn` has another payload, root and alignment.
    std::size_t wrong(std::uint64_t turn) {
        turn_ = turn;
        root_ = static_cast<int>(turn % static_cast<std::uint64_t>(ranks_));
        const std::uint64_t dice = payload_word(keyed(turn), bytes_);
        const std::size_t shift = reduces_ ? dice % 8 * 8 : dice % 64;
        out_ = memory_.send(kind_) + Batch::guard + shift;
        in_ = memory_.receive(kind_) + Batch::guard + shift;
        const bool many_out = is({"alltoall", "alltoallv", "reduce_scatter_block", "put", "get"}) || (operation_ == "scatter" && rank_ == root_);
        const int blocks = many_out ? ranks_ : 1;
        for (char *memory : {memory_.send(kind_), memory_.receive(kind_)}) BufferSet::clear(kind_, memory, room(bytes_, ranks_));
        in_place_ = (dice >> 10) % 4 == 0;
        fractions_ = reduces_ && (dice >> 12 & 1);
        for (int to = 0; to < blocks; ++to) {
            const auto numbers = [&](std::size_t i) { return number(rank_, to, i); };
            reduces_ ? memory_.load_words(out_ + place(to), bytes_ / 8, numbers) : memory_.load(out_ + place(to), sent(rank_, to), seed(rank_, to));
        }
        std::size_t wrong = run();
        Seen kept{memory_, kind_, out_};
        if (dice >> 9 & 1) {  // MPI may not change what it sends
            for (int to = 0; to < blocks; ++to)
                if (reduces_)
                    kept.words(place(to), bytes_ / 8, [&](std::size_t i) { return number(rank_, to, i); });
                else
                    kept.block(place(to), sent(rank_, to), seed(rank_, to));
        } else {  // nor read it any more
            BufferSet::clear(kind_, memory_.send(kind_), room(bytes_, ranks_));
        }
        kept.rest();
        wrong += kept.wrong + compare();
        if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
        MPI_Barrier(MPI_COMM_WORLD);
        return wrong == 0 ? compare() : wrong;  // nothing may change any more
    }

  private:
    // A buffer that is compared from its start on: all but its blocks must be as `clear` left it.
    struct Seen {
        BufferSet &memory;
        char kind;
        char *start;
        std::size_t end = 0, wrong = 0;  // behind what has been compared, and the bytes that are wrong

        void block(std::size_t begin, std::size_t bytes, std::uint64_t seed) {
            wrong += memory.verify_clear(kind, start + end, begin - end) + memory.verify(kind, start + begin, bytes, seed);
            end = begin + bytes;
        }
        template <typename WordOf>
        void words(std::size_t begin, std::size_t count, WordOf word_of) {
            wrong += memory.verify_clear(kind, start + end, begin - end) + memory.verify_words(start + begin, count, word_of);
            end = begin + 8 * count;
        }
        void rest() {
            wrong += memory.verify_clear(kind, start + end, Batch::guard) + memory.verify_clear(kind, start - Batch::guard, Batch::guard);
        }
    };

    static constexpr std::size_t gap = 64;  // between the blocks of an operation with displacements

    static std::size_t words(std::size_t bytes) { return std::max(bytes / 8, std::size_t{1}); }
    bool is(const std::vector<std::string> &names) const { return std::find(names.begin(), names.end(), operation_) != names.end(); }
    bool spaced() const { return is({"allgatherv", "alltoallv"}); }

    // Where the block of a rank begins, in bytes.
    std::size_t place(int rank) const { return static_cast<std::size_t>(rank) * (bytes_ + (spaced() ? gap : 0)); }

    // How many bytes a rank sends to another: with counts of their own, each pair sends another number.
    std::size_t sent(int from, int to) const {
        const auto less = static_cast<std::size_t>(operation_ == "allgatherv" ? from : 3 * from + to);
        return spaced() ? bytes_ - less % bytes_ : bytes_;
    }

    std::uint64_t seed(int from, int to) const {
        const auto pair = static_cast<std::uint64_t>(from + 1) * static_cast<std::uint64_t>(ranks_ + 1) + static_cast<std::uint64_t>(to);
        return turn_ << 40 | pair;
    }

    // What a rank adds to a sum: 64 bits, or a number of 40 bits in a double, so that sums are exact in any order.
    std::uint64_t number(int from, int to, std::size_t i) const {
        const std::uint64_t word = payload_word(keyed(seed(from, to)), i);
        return fractions_ ? bits(static_cast<double>(word >> 24)) : word;
    }

    std::uint64_t sum(int to, std::size_t i) const {
        std::uint64_t whole = 0;
        double fraction = 0;
        for (int from = 0; from < ranks_; ++from) {
            const std::uint64_t word = payload_word(keyed(seed(from, to)), i);
            whole += word;
            fraction += static_cast<double>(word >> 24);
        }
        return fractions_ ? bits(fraction) : whole;
    }

    static std::uint64_t bits(double number) {
        std::uint64_t word;
        std::memcpy(&word, &number, 8);
        return word;
    }

    std::size_t run() {
        const int count = static_cast<int>(bytes_), numbers = static_cast<int>(bytes_ / 8);
        const auto type = fractions_ ? MPI_DOUBLE : MPI_UINT64_T;
        const auto all = MPI_COMM_WORLD;
        const void *const out = source();
        if (operation_ == "bcast") {
            if (rank_ == root_) device::copy(in_, out_, bytes_);
            MPI_Bcast(in_, count, MPI_BYTE, root_, all);
        } else if (operation_ == "allgather") {
            MPI_Allgather(out, count, MPI_BYTE, in_, count, MPI_BYTE, all);
        } else if (operation_ == "gather") {
            MPI_Gather(out, count, MPI_BYTE, in_, count, MPI_BYTE, root_, all);
        } else if (operation_ == "scatter") {
            MPI_Scatter(out_, count, MPI_BYTE, in_, count, MPI_BYTE, root_, all);
        } else if (operation_ == "alltoall") {
            MPI_Alltoall(out, count, MPI_BYTE, in_, count, MPI_BYTE, all);
        } else if (operation_ == "allgatherv") {
            const auto counts = per_rank([&](int from) { return sent(from, 0); }), places = per_rank([&](int from) { return place(from); });
            MPI_Allgatherv(out, counts[static_cast<std::size_t>(rank_)], MPI_BYTE, in_, counts.data(), places.data(), MPI_BYTE, all);
        } else if (operation_ == "alltoallv") {
            const auto places = per_rank([&](int rank) { return place(rank); });
            const auto counts = per_rank([&](int to) { return sent(rank_, to); }), in = per_rank([&](int from) { return sent(from, rank_); });
            MPI_Alltoallv(out_, counts.data(), places.data(), MPI_BYTE, in_, in.data(), places.data(), MPI_BYTE, all);
        } else if (operation_ == "allreduce") {
            MPI_Allreduce(out, in_, numbers, type, MPI_SUM, all);
        } else if (operation_ == "reduce") {
            MPI_Reduce(out, in_, numbers, type, MPI_SUM, root_, all);
        } else if (operation_ == "reduce_scatter_block") {
            MPI_Reduce_scatter_block(out_, in_, numbers, type, MPI_SUM, all);
        } else {
            return access();
        }
        return 0;
    }

    // What MPI sends from: this rank's buffer, or in place, where it takes it from what it will overwrite.
    const void *source() {
        const bool rooted = is({"gather", "reduce"});
        if (!in_place_ || (rooted && rank_ != root_) || !(rooted || is({"allgather", "allgatherv", "alltoall", "allreduce"}))) return out_;
        if (operation_ == "alltoall")
            device::copy(in_, out_, place(ranks_));
        else
            device::copy(in_ + (reduces_ ? 0 : place(rank_)), out_, sent(rank_, 0));
        return MPI_IN_PLACE;
    }

    // Each rank writes a block into the memory of every rank, or reads one from it, between fences: under locks, Open MPI that
    // was built for UCX 1.20 can wait without end if UCX 1.14.1 is loaded. The window of a put stays: what arrives only when it
    // is freed arrives too late. A get is compared before that; returns the bytes that are wrong then. UCX before 1.16 can complete
    // it only when its window is freed.
    std::size_t access() {
        const bool puts = operation_ == "put";
        const auto count = static_cast<int>(bytes_);
        MPI_Win_create(puts ? in_ : out_, static_cast<MPI_Aint>(place(ranks_)), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_);
        MPI_Win_fence(0, window_);
        for (int other = 0; other < ranks_; ++other) {
            if (puts)
                MPI_Put(out_ + place(other), count, MPI_BYTE, other, static_cast<MPI_Aint>(place(rank_)), count, MPI_BYTE, window_);
            else
                MPI_Get(in_ + place(other), count, MPI_BYTE, other, static_cast<MPI_Aint>(place(rank_)), count, MPI_BYTE, window_);
        }
        MPI_Win_fence(0, window_);
        if (puts) return 0;
        const std::size_t wrong = compare();
        MPI_Win_free(&window_);
        if (!may_be_late_) return wrong;
        late_ += wrong;
        memory_.count(-wrong);
        return 0;
    }

    template <typename Number>
    std::vector<int> per_rank(Number number) const {
        std::vector<int> numbers;
        for (int rank = 0; rank < ranks_; ++rank) numbers.push_back(static_cast<int>(number(rank)));
        return numbers;
    }

    std::size_t compare() {
        Seen seen{memory_, kind_, in_};
        if (operation_ == "bcast") {
            seen.block(0, bytes_, seed(root_, 0));
        } else if (operation_ == "scatter") {
            seen.block(0, bytes_, seed(root_, rank_));
        } else if (reduces_) {
            if (operation_ != "reduce" || rank_ == root_) {
                const int to = operation_ == "reduce_scatter_block" ? rank_ : 0;
                seen.words(0, bytes_ / 8, [&](std::size_t i) { return sum(to, i); });
            }
        } else if (operation_ != "gather" || rank_ == root_) {
            const bool own = is({"alltoall", "alltoallv", "put", "get"});
            for (int from = 0; from < ranks_; ++from) seen.block(place(from), sent(from, rank_), seed(from, own ? rank_ : 0));
        }
        seen.rest();
        return seen.wrong;
    }

    BufferSet &memory_;
    std::string operation_;
    char kind_;
    int rank_, ranks_;
    bool may_be_late_, reduces_;
    std::size_t bytes_, late_ = 0;
    std::uint64_t turn_ = 0;
    int root_ = 0;
    bool in_place_ = false, fractions_ = false;
    MPI_Win window_ = MPI_WIN_NULL;
    char *out_ = nullptr, *in_ = nullptr;
};
#line 17 "gpu_aware.cpp"

#line 1 "exchange.hpp"
// SPDX-License-Identifier: MIT
// What two ranks say to each other, and messages of which each is compared whole.


#include <mpi.h>

#include <algorithm>
#include <vector>



constexpr int tag_data = 1, tag_control = 2, tag_other = 3;

// A communicator of all ranks, made once: MPI must keep its messages apart from those of MPI_COMM_WORLD.
inline MPI_Comm twin_of_world() {
    static const MPI_Comm twin = [] {
        MPI_Comm made;
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
        return made;
    }();
    return twin;
}

// The payload that `rank` sends to others.
inline std::uint64_t stream_seed(int rank) { return (1 << 20) + static_cast<std::uint64_t>(rank); }

// Made by both ranks of a pair; data goes one way.
class Exchange {
  public:
    Exchange(BufferSet &buffers, int from, int to, int rank, int window)
        : buffers_(buffers), from_(from), to_(to), sender_(rank == from), peer_(sender_ ? to : from), window_(window),
          sequence_(static_cast<std::uint64_t>(from) * 1009 + static_cast<std::uint64_t>(to) * 257) {}

    // How far the sender's room must reach behind the largest message.
    static constexpr std::size_t margin = 64 * 4096 + 2 * Batch::guard + 128;

    int from() const { return from_; }
    int to() const { return to_; }
    int rank() const { return sender_ ? from_ : to_; }
    int peer() const { return peer_; }
    bool sender() const { return sender_; }

    // Where message number `sequence` begins in the sender's buffer: each differs from those before it in every word,
    // though nothing is written between them. The moduli are primes, so that no period of a fault falls on equal messages.
    // Short messages come from 8 KiB: 32 KiB would fill a level-1 cache and add a percent to the latency of host memory.
    // A batch of round trips is shorter than 1021, so no message equals what its place held.
    static std::size_t offset(std::uint64_t sequence, std::size_t bytes) {
        return bytes < 64 ? sequence % 1021 * 8 : sequence % 4093 * 64;
    }

    // How far the places of short messages of `bytes` reach.
    static std::size_t reach(std::size_t bytes) { return (bytes < 64 ? 1021 * 8 : 4093 * 64) + bytes; }

    // A number that both ranks know, and nobody before the run.
    std::uint64_t dice() const { return payload_word(keyed(stream_seed(from_)), sequence_); }

    // The number of the next message; both ranks count.
    std::uint64_t next() { return sequence_++; }

    // Control messages are numbered and carry a check of their own: one that is altered, lost or repeated ends the run.
    void say(std::uint64_t value) {
        const Control control = made(said_++, value, !sender_);
        MPI_Send(control.words, 3, MPI_UINT64_T, peer_, tag_control, MPI_COMM_WORLD);
    }

    std::uint64_t hear() {
        Control got;
        MPI_Status status;
        int count = 0;
        MPI_Recv(got.words, 3, MPI_UINT64_T, peer_, tag_control, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_UINT64_T, &count);
        const Control expected = made(heard_++, got.words[1], sender_);
        if (count != 3 || std::memcmp(got.words, expected.words, sizeof got.words) != 0)
            throw Failure(fault::runtime, "a control message from rank " + std::to_string(peer_) + " arrived wrong");
        return got.words[1];
    }

    // The sender decides for both.
    template <typename Number>
    Number agree(Number mine) {
        if (!sender_) return static_cast<Number>(hear());
        say(static_cast<std::uint64_t>(mine));
        return mine;
    }

    // The receiver has counted; both know it then.
    std::size_t settle(std::size_t wrong) {
        if (sender_) return static_cast<std::size_t>(hear());
        say(wrong);
        return wrong;
    }

    // The receiver's numbers, one for each of the sender's.
    std::vector<double> of_receiver(std::vector<double> numbers) {
        const int count = static_cast<int>(numbers.size());
        if (sender_)
            MPI_Recv(numbers.data(), count, MPI_DOUBLE, peer_, tag_control, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(numbers.data(), count, MPI_DOUBLE, peer_, tag_control, MPI_COMM_WORLD);
        return numbers;
    }

    // The bytes by which the status of a receive differs from what the peer sent.
    std::size_t status_wrong(const MPI_Status &status, std::size_t bytes, int tag = tag_data) const {
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        const auto got = static_cast<std::size_t>(std::max(count, 0));
        if (status.MPI_SOURCE != peer_ || status.MPI_TAG != tag) return bytes;
        return got > bytes ? got - bytes : bytes - got;
    }

    // Passes `messages` messages, several in flight, into memory that was cleared, and compares each whole and the room around
    // it; all but half of the large ones once more after a later message, as nothing may change any more. Each has a payload of
    // its own, and what it was sent from is overwritten as soon as MPI says that it is sent; one batch in four is compared there
    // instead, as MPI may not change what it sends. Three batches of four are pairs of which one message begins its way only when
    // the other is there: a wait that ends before all have arrived is seen. If they are `varied`, one batch in eight has shorter
    // messages, in the same room. Returns the bytes that are wrong, at both ranks. The sender's buffer does not hold what
    // `load_all` put there any more.
    std::size_t verified(Buffers kinds, std::size_t bytes, int messages, bool varied = false) {
        const char kind = sender_ ? kinds.send : kinds.receive;
        Batch batch{kind, sender_ ? buffers_.send(kind) : buffers_.receive(kind), bytes, 0, 0, bytes};
        const auto most = std::clamp(buffers_.bytes() / Batch::stride(bytes), std::size_t{1}, static_cast<std::size_t>(window_));
        std::size_t wrong = 0;
        for (auto left = static_cast<std::size_t>(messages); left > 0; left -= batch.messages) {
            // Both ranks throw the same dice. Lengths without a period: a fault at every n-th message must not always hit the
            // same place of a window.
            const std::uint64_t thrown = dice();
            const bool apart = std::min(left, most) >= 2 && (thrown >> 59) % 4 != 0;
            batch.messages = apart ? 2 : std::min(left, most - thrown % ((most + 1) / 2));
            batch.shift = thrown >> 16 & 63;
            const auto way = static_cast<Way>((thrown >> 32) % 3);
            batch.bytes = varied && (thrown >> 42) % 8 == 0 ? bytes - (thrown >> 45) % (bytes / 2 + 1) : bytes;
            Transfer transfer{batch, way, (thrown >> 40) % 4 == 0, batch.span() < large || thrown >> 61 & 1,
                              apart || (way != Way::blocking && thrown >> 62 != 0), apart,
                              way != Way::blocking && thrown >> 58 & 1 ? std::size_t{0} : 1};
            make(transfer);
            wrong += pass(transfer);
            if (way == Way::persistent && left >= 2 * batch.messages) {  // once more, by the same requests
                left -= batch.messages;
                wrong += pass(transfer);
            }
            for (auto &request : transfer.requests)
                if (way == Way::persistent) MPI_Request_free(&request);
        }
        const std::size_t received = settle(wrong);
        return received + agree(wrong);
    }

  private:
    enum class Way { nonblocking, blocking, persistent };  // MPI has code of its own for each

    // A batch on its way.
    struct Transfer {
        Batch batch;
        Way way;
        bool keeps;  // the sender does not overwrite what it has sent
        bool twice;  // the receiver compares it twice
        bool turned;  // the receiver looks for the lanes in another order, before anything is sent
        bool apart;   // of the two messages, one is held back
        std::size_t held;
        std::vector<MPI_Request> requests = std::vector<MPI_Request>(batch.messages);
        std::vector<MPI_Status> statuses = std::vector<MPI_Status>(batch.messages);
    };

    static constexpr std::size_t large = 1 << 20;

    // How long a message is held back: many times what a receiver takes to see that a wait has ended too early.
    static void hold() {
        const timespec pause{0, 100000};
        nanosleep(&pause, nullptr);
    }

    // Messages take turns on four lanes, of which MPI must keep each apart: two tags in two communicators.
    static constexpr std::size_t lanes = 4;
    static int tag_of(std::size_t i) { return i & 1 ? tag_other : tag_data; }
    static MPI_Comm comm_of(std::size_t i) { return i & 2 ? twin_of_world() : MPI_COMM_WORLD; }

    // Persistent requests, which can be started more than once.
    void make(Transfer &transfer) {
        const Batch &batch = transfer.batch;
        const int count = static_cast<int>(sender_ ? batch.bytes : batch.room);
        for (std::size_t i = 0; i < batch.messages && transfer.way == Way::persistent; ++i)
            if (sender_)
                MPI_Send_init(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), &transfer.requests[i]);
            else
                MPI_Recv_init(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), &transfer.requests[i]);
    }

    // Loads the messages of a batch, passes and compares them; returns the bytes that are wrong.
    std::size_t pass(Transfer &transfer) {
        const Batch &batch = transfer.batch;
        const std::uint64_t first = sequence_;
        sequence_ += batch.messages;
        const auto seed = [&](std::size_t i) { return stream_seed(from_) << 40 | (first + i); };
        if (sender_)
            buffers_.load_each(batch, seed);
        else
            BufferSet::clear(batch.kind, batch.memory, batch.span());
        run(transfer);
        if (sender_) {
            say(first);
            return transfer.keeps ? buffers_.verify_batch(batch, seed) : 0;
        }
        std::size_t wrong = 0;
        if (transfer.apart) wrong = buffers_.verify(batch.kind, batch.message(transfer.held), std::min(batch.bytes, std::size_t{64}), seed(transfer.held));
        if (wrong == 0) wrong = buffers_.verify_batch(batch, seed);
        for (std::size_t i = 0; i < batch.messages; ++i) wrong += buffers_.count(status_wrong(transfer.statuses[i], batch.bytes, tag_of(i)));
        hear();
        return wrong == 0 && transfer.twice ? buffers_.verify_batch(batch, seed) : wrong;
    }

    // Sends the messages of a batch in order, or receives them; the sender overwrites them then, unless it keeps them.
    void run(Transfer &transfer) {
        const Batch &batch = transfer.batch;
        const int count = static_cast<int>(sender_ ? batch.bytes : batch.room);
        if (transfer.turned && sender_) hear();
        if (transfer.way == Way::blocking) {
            if (transfer.turned && !sender_) say(sequence_);
            for (std::size_t i = 0; i < batch.messages; ++i) {
                char *message = batch.message(i);
                if (!sender_) {
                    MPI_Recv(message, count, MPI_BYTE, peer_, tag_of(i), comm_of(i), &transfer.statuses[i]);
                    continue;
                }
                if (transfer.apart && i == transfer.held) hold();
                MPI_Send(message, count, MPI_BYTE, peer_, tag_of(i), comm_of(i));
                if (!transfer.keeps) BufferSet::clear(batch.kind, message, batch.bytes);
            }
            return;
        }
        const auto start = [&](std::size_t i) {
            MPI_Request *request = &transfer.requests[i];
            if (transfer.way == Way::persistent)
                MPI_Start(request);
            else if (sender_)
                MPI_Isend(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), request);
            else
                MPI_Irecv(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), request);
        };
        // Early messages are taken in the order in which they were sent: libfabric's provider udp;ofi_rxd, which MPICH 3.4.3
        // takes without a network, crashes or waits without end if one of several packets is taken before another.
        const bool turns = transfer.turned && !sender_;
        if (transfer.apart && sender_) {
            start(1 - transfer.held);
            MPI_Wait(&transfer.requests[1 - transfer.held], MPI_STATUS_IGNORE);
            hold();
            start(transfer.held);
        } else {
            for (std::size_t lane = turns ? lanes : 1; lane-- > 0;)
                for (std::size_t i = lane; i < batch.messages; i += turns ? lanes : 1) start(i);
        }
        if (turns) say(sequence_);
        MPI_Waitall(static_cast<int>(batch.messages), transfer.requests.data(), transfer.statuses.data());
        if (sender_ && !transfer.keeps) BufferSet::clear(batch.kind, batch.memory, batch.span());
    }

    struct Control {
        std::uint64_t words[3] = {};  // number, value, check
    };

    Control made(std::uint64_t number, std::uint64_t value, bool by_receiver) const {
        Control control;
        control.words[0] = number;
        control.words[1] = value;
        const auto pair = static_cast<std::uint64_t>(from_) << 32 | static_cast<std::uint64_t>(to_) << 1 | by_receiver;
        control.words[2] = payload_word(payload_word(pair, number), value);
        return control;
    }

    BufferSet &buffers_;
    int from_, to_;
    bool sender_;
    int peer_, window_;
    std::uint64_t sequence_, said_ = 0, heard_ = 0;
};
#line 19 "gpu_aware.cpp"
#line 1 "node_copy.hpp"
// SPDX-License-Identifier: MIT
// What two processes of one node can reach without MPI: the ceiling that MPI through shared memory is judged by.


#include <mpi.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>



// Made by both ranks of a pair together; the receiver copies from a segment that the sender has written (memcpy), and
// from the sender's own memory through the kernel (process_vm_readv, what MPI calls cross memory attach).
class NodeCopy {
  public:
    NodeCopy(bool active, int from, int to, bool sender, std::size_t bytes)
        : active_(active), sender_(sender), from_(from), to_(to) {
        if (!active_) return;
        MPI_Group world, pair;
        const int members[] = {from, to};
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, 2, members, &pair);
        MPI_Comm_create_group(MPI_COMM_WORLD, pair, 0, &comm_);
        MPI_Group_free(&pair);
        MPI_Group_free(&world);
        const std::size_t room = std::max(bytes, std::size_t{4096});
        MPI_Win_allocate_shared(sender ? static_cast<MPI_Aint>(room) : 0, 1, MPI_INFO_NULL, comm_, &segment_, &window_);
        MPI_Aint size = 0;
        int unit = 0;
        MPI_Win_shared_query(window_, 0, &size, &unit, &segment_);
        if (sender) {
            std::memset(segment_, 1, room);
            new (segment_) std::atomic<unsigned>(0);
            new (static_cast<char *>(segment_) + back_offset) std::atomic<unsigned>(0);
        }
        there_ = static_cast<std::atomic<unsigned> *>(segment_);
        back_ = reinterpret_cast<std::atomic<unsigned> *>(static_cast<char *>(segment_) + back_offset);
        long identity[1] = {getpid()};
        MPI_Bcast(identity, 1, MPI_LONG, 0, comm_);
        sender_pid_ = static_cast<pid_t>(identity[0]);
        MPI_Barrier(comm_);
    }
    NodeCopy(const NodeCopy &) = delete;
    NodeCopy &operator=(const NodeCopy &) = delete;
    ~NodeCopy() {
        if (!active_) return;
        MPI_Win_free(&window_);
        MPI_Comm_free(&comm_);
    }

    bool active() const { return active_; }

    // `source` is the sender's buffer and `target` the receiver's, as MPI will use them.
    void measure(void *source, void *target, std::size_t bytes, double seconds, bool best) {
        unsigned long long address = reinterpret_cast<unsigned long long>(source);
        MPI_Bcast(&address, 1, MPI_UNSIGNED_LONG_LONG, 0, comm_);
        if (!sender_) {
            report("memcpy", bytes, seconds, best, [&] {
                std::memcpy(target, segment_, bytes);
                return true;
            });
            report("process_vm_readv", bytes, seconds, best, [&] {
                for (std::size_t done = 0; done < bytes;) {
                    iovec local{static_cast<char *>(target) + done, bytes - done};
                    iovec remote{reinterpret_cast<char *>(address) + done, bytes - done};
                    const ssize_t n = process_vm_readv(sender_pid_, &local, 1, &remote, 1, 0);
                    if (n <= 0) return false;
                    done += static_cast<std::size_t>(n);
                }
                return true;
            });
        }
        MPI_Barrier(comm_);
    }

    // The fastest possible message: a flag that goes from core to core and back. In short batches, so that some are not
    // interrupted, and between those of the latency that it is compared with: a hypervisor may move the cores in between.
    void pass_flag() {
        if (!active_) return;
        constexpr unsigned trips = 50;
        const auto await = [](const std::atomic<unsigned> &flag, unsigned wanted) {
            for (unsigned spins = 1; flag.load(std::memory_order_acquire) != wanted; ++spins)
                if (spins % 4096 == 0) sched_yield();  // both ranks may have to share one core
        };
        const Span span;
        for (unsigned i = 0; i < trips; ++i) {
            ++trip_;
            if (sender_) {
                there_->store(trip_, std::memory_order_release);
                await(*back_, trip_);
            } else {
                await(*there_, trip_);
                back_->store(trip_, std::memory_order_release);
            }
        }
        fastest_flag_ = std::min(fastest_flag_, span.seconds() / (2 * trips));
    }

    // Of all flags since the last report.
    void report_flag() {
        if (!active_) return;
        if (sender_) Line("flag").add("from", from_).add("to", to_).add("us", fastest_flag_ * 1e6).print();
        fastest_flag_ = 1e9;
    }

  private:
    template <typename Copy>
    void report(const char *method, std::size_t bytes, double seconds, bool best, Copy copy) {
        Line line("copy");
        line.add("from", from_).add("to", to_).add("bytes", bytes).add("method", method);
        if (!copy()) {  // the first also touches the pages
            line.add("error", std::strerror(errno)).print();
            return;
        }
        double total = 0, least = 1e9;
        int copies = 0;
        for (; copies < 3 || total < seconds; ++copies) {
            const Span span;
            copy();
            const double took = span.seconds();
            total += took;
            least = std::min(least, took);
        }
        line.add("gb_per_s", static_cast<double>(bytes) / (best ? least : total / copies) / 1e9).print();
    }

    static constexpr std::size_t back_offset = 2048;  // in other cache lines

    bool active_, sender_;
    int from_, to_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    MPI_Win window_ = MPI_WIN_NULL;
    void *segment_ = nullptr;
    pid_t sender_pid_ = 0;
    std::atomic<unsigned> *there_ = nullptr, *back_ = nullptr;
    unsigned trip_ = 0;
    double fastest_flag_ = 1e9;
};
#line 20 "gpu_aware.cpp"
#line 1 "pair_meter.hpp"
// SPDX-License-Identifier: MIT
// Bandwidth and latency between two ranks, as osu_bw and osu_latency measure them, and whether the data was right.
//
// What is verified, of each pair, kind of buffers and size:
// - Latency: every message, whole.
// - Bandwidth, timed windows: the count of every message, and the first and last cache line of what the window left. All
//   messages of a window go from one buffer to one buffer, as osu_bw sends them, so only the last can be looked at. It is
//   compared whole after every n-th window, so often that this takes about a twentieth of the measured time.
// - Latency and bandwidth, verified windows in the same buffers: every message, whole, each different in every word, into memory
//   that was cleared, with room around it that no message may touch; the sender overwrites a message as soon as it is sent.
//   Those of a bandwidth come before the timed windows, somewhere amid them, and after them. There are 512 after the timed windows, so a fault at every n-th message is caught for
//   certain up to n = 512, and one that hits each message with probability 1/97 with 99.5 %; over the two directions and
//   three sizes of two host ranks 1/668 is caught with 99 %. They may take three times --seconds; a path on which 512 take
//   longer gets fewer. It gets 104 of up to 4 MiB unless these take 10 s, and of larger ones unless these take eight times
//   --seconds; never less than 4 (of those above 32 MiB: 2), or less than 1 where a message takes half a second: such a path
//   gets one timed window and six messages in all. A reading tells how many were verified; of large messages between GPUs there
//   are few, because the host compares what it copies from the GPU.
// The sender's clock ends with the receiver's acknowledgement, before any comparison. It waits for the end of those that take
// long; the ends of a message in host memory are compared while it begins the next window.
//
// `cpu_wait_share` is the part of the time behind a reading in which the sender or the receiver was ready to run and had no CPU:
// the waiting of both, window by window, at most all of it. It can overlap, so the path had at least the rest of the time. The
// windows that count for the reading are in it, and ten at least: the best of three that waited does not show the path.


#include <numeric>
#include <utility>



// Made by both ranks of a pair; the sender prints.
class PairMeter {
  public:
    PairMeter(const Options &options, BufferSet &buffers, int from, int to, int rank)
        : options_(options), buffers_(buffers), exchange_(buffers, from, to, rank, options.window),
          faulty_(options.inject_rank == from) {}

    void bandwidth(Buffers kinds, std::size_t bytes) {
        Timed timed{kinds, bytes, exchange_.sender() ? buffers_.send(kinds.send) : buffers_.receive(kinds.receive)};
        if (!exchange_.sender()) BufferSet::clear(kinds.receive, timed.memory, bytes);
        // The first message opens connections and memory handles. The second tells whether a whole window would
        // take too long: a path that is a hundred times too slow must still give a reading before the time limit.
        constexpr double longest_window = 0.25;
        if (exchange_.sender()) restore(kinds.send, bytes + pages * page);
        window(timed, 1);
        double message = window(timed, 1).seconds;
        const auto takes_long = [&] { return exchange_.agree(message > 2 * longest_window ? 1 : 0) != 0; };
        if (takes_long()) message = std::min(message, window(timed, 1).seconds);  // other programs may have interrupted it
        const bool crawls = takes_long();
        const int messages = exchange_.agree(static_cast<int>(std::clamp(longest_window / message, 1.0, 1.0 * options_.window)));
        const double once = crawls ? message : running(window(timed, messages));
        const int windows = exchange_.agree(static_cast<int>(std::clamp(lasting(bytes) / once, crawls ? 1.0 : 3.0, 10000.0)));
        const int least = crawls ? 1 : bytes > large ? 2 : 4;
        std::size_t wrong = 0;
        int before = 0;
        double shortest = 1e9;
        for (int i = 0; i < (crawls ? 1 : 2); ++i, before += least) {
            const double start = now();
            wrong += exchange_.verified(kinds, bytes, least);
            shortest = std::min(shortest, now() - start);
        }
        const int verified = exchange_.agree(affordable(shortest / least, bytes, least));
        const int each_whole = exchange_.agree(static_cast<int>(std::clamp(shortest / least / (0.05 * once), 0.0, 1000.0)) | 1);
        if (exchange_.sender()) restore(kinds.send, bytes + pages * page);
        int amid = 0;
        const int when = static_cast<int>(exchange_.dice() % static_cast<std::uint64_t>(windows));
        const std::vector<Turn> turns = timed_in(windows, lasting(bytes), [&](int i) {
            if (i == when && !crawls) {
                const double start = now();
                wrong += exchange_.verified(kinds, bytes, amid = least);
                if (exchange_.sender()) restore(kinds.send, bytes + pages * page);
                paused_ += now() - start;
                waited();
            }
            return window(timed, messages, i % each_whole == 0);
        });
        wrong += exchange_.verified(kinds, bytes, verified);
        wrong += exchange_.settle(timed.wrong);
        if (!exchange_.sender()) return;
        // One window in ten may have been interrupted on a machine that is shared (in less than ten, which are long, that
        // counts for little), of short messages one in five; a path that stalls more often is slow.
        const int done = static_cast<int>(turns.size()), kept = options_.best ? 1 : done - done / (bytes <= cpu_bound ? 5 : 10);
        const double each = sum(turns, kept).seconds / kept;
        const double counted = static_cast<double>(bytes) * messages * (faulty_ && options_.inject == "miscount" ? 10 : 1);
        reading("bandwidth", kinds, bytes, turns, kept)
            .add("gb_per_s", counted / each / 1e9)
            .add("window", messages)
            .add("windows", done)
            .add("seconds", each)
            .add("verified", verified + before + amid)
            .add("wrong", wrong)
            .print_unless(omitted());
    }

    // Half of a round trip. In many short batches, of which a machine that is shared interrupts some: one in ten is
    // faster than what is reported, and `best` is the fastest. A path that is slow is slow in all of them. Both ranks call
    // `between` before each batch.
    template <typename Between>
    void latency(Buffers kinds, std::size_t bytes, Between between) {
        const bool sender = exchange_.sender();
        const char kind = sender ? kinds.send : kinds.receive;
        Trips way{kind, bytes, (bytes + 7) / 8 * 8, buffers_.send(kind), buffers_.receive(kind)};
        const double most = std::min(1000.0, static_cast<double>(buffers_.bytes() / way.stride));
        const std::size_t verified = exchange_.verified(kinds, bytes, common);
        restore(kind, Exchange::reach(bytes));
        BufferSet::clear(kind, way.in, way.stride * static_cast<std::size_t>(most));
        const int warm = static_cast<int>(std::min(10.0, most));
        const double once = std::min({round_trips(way, warm), round_trips(way, warm), round_trips(way, warm)}).seconds / (2.0 * warm);
        constexpr double batch_seconds = 2e-4;
        const int trips = exchange_.agree(static_cast<int>(std::clamp(batch_seconds / (2 * once), 2.0, most)));
        const int batches = exchange_.agree(static_cast<int>(std::clamp(options_.seconds / (trips * 2 * once), 3.0, 10000.0)));
        const std::vector<Turn> turns = timed_in(batches, options_.seconds, [&](int) {
            between();
            return round_trips(way, trips);
        });
        const std::size_t wrong = verified + (sender ? way.wrong : 0) + exchange_.settle(way.wrong);
        const double driver = kinds.send == 'D' && kinds.receive == 'D' ? driver_time() : 0;
        if (!sender) return;
        const int place = chosen(turns.size());
        Line line = reading("latency", kinds, bytes, turns, place + 1);
        line.add("us", turns[static_cast<std::size_t>(place)].seconds / (2.0 * trips) * 1e6).add("trips", trips * static_cast<int>(turns.size())).add("verified", common).add("wrong", wrong);
        if (driver > 0) line.add("driver_us", driver * 1e6);
        line.print_unless(omitted());
    }

  private:
    static constexpr int certain = 512, common = 104;
    static constexpr std::size_t cpu_bound = 4 << 20;
    static constexpr std::size_t large = 32 << 20;  // the host takes 30 ms and more to load or compare such a message
    static constexpr std::size_t pages = 16, page = 4096;  // where timed windows begin

    // Loads what timed messages are sent from, after verified ones have overwritten it.
    void restore(char kind, std::size_t bytes) {
        buffers_.load(buffers_.send(kind), std::min(bytes, buffers_.bytes()), stream_seed(exchange_.rank()));
    }

    // A window of messages or a batch of round trips: how long it took, and how long a rank of the pair waited for a CPU then.
    struct Turn {
        double seconds = 0, waited = 0;
        bool operator<(const Turn &other) const { return seconds < other.seconds; }
    };

    static Turn sum(const std::vector<Turn> &turns, int count) {
        return std::accumulate(turns.begin(), turns.begin() + count, Turn{}, [](const Turn &all, const Turn &one) {
            return Turn{all.seconds + one.seconds, all.waited + one.waited};
        });
    }

    // What the timed windows of one reading share.
    struct Timed {
        Buffers kinds;
        std::size_t bytes;
        char *memory;
        std::uint64_t turn = 0;
        std::size_t wrong = 0;  // at the receiver
    };

    // What the round trips of one reading share.
    struct Trips {
        char kind;  // of this rank's memory
        std::size_t bytes, stride;
        char *out, *in;
        std::size_t wrong = 0;
    };

    bool omitted() const { return faulty_ && options_.inject == "omit"; }

    // How long a turn took without the waiting of both ranks: one that waited must not leave a reading three windows.
    double running(const Turn &turn) {
        const double left = turn.seconds - turn.waited - exchange_.of_receiver({turn.waited}).front();
        return std::isnan(left) ? turn.seconds : std::max(left, 0.0);
    }

    // How long the timed windows of a size last. The CPU sets the rate of short messages, and that of a virtual machine can be slower
    // for up to 0.15 s while its guest counts no waiting: posting the sends, which needs no GPU, takes longer by the same factor.
    // Of readings of 0.05 s at 1 MiB between two H100, 7 to 18 % were below their band for that; windows must outlast it.
    double lasting(std::size_t bytes) const {
        constexpr double outlasts = 0.2;
        return bytes > cpu_bound || options_.best ? options_.seconds : std::max(options_.seconds, std::min(4 * options_.seconds, outlasts));
    }

    // `count` turns, the shortest first; more where they end before `seconds`, as the turn they were counted by may have been slow.
    // Where other programs take the CPUs, each may wait for its turn to run: what takes five times as long as it should ends then.
    // The clock is looked at after 4, 8, 16... turns.
    template <typename Body>
    std::vector<Turn> timed_in(int count, double seconds, Body body) {
        std::vector<Turn> turns;
        std::vector<double> waits;
        const double start = now();
        waited();
        paused_ = 0;
        for (int i = 0; i < count; ++i) {
            if (i >= 4 && (i & (i - 1)) == 0) {
                const double share = (now() - start - paused_) / seconds;
                count = exchange_.agree(share < 5 ? std::max(count, static_cast<int>(std::min(i / share, 10000.0))) : i);
                if (count == i) break;
            }
            turns.push_back(body(i));
            waits.push_back(turns.back().waited);
        }
        waits = exchange_.of_receiver(std::move(waits));
        for (std::size_t i = 0; i < turns.size(); ++i) turns[i].waited = std::min(turns[i].waited + waits[i], turns[i].seconds);
        std::sort(turns.begin(), turns.end());
        return turns;
    }

    // How many messages of a size can be verified, of which each takes `seconds`; at least `least`.
    int affordable(double seconds, std::size_t bytes, int least) const {
        const int count = static_cast<int>(std::min(3 * options_.seconds / seconds, 1.0 * certain));
        if (count >= common) return count;
        const double longest = bytes <= std::size_t{4} << 20 ? 10 : 8 * options_.seconds;
        return common * seconds < longest ? common : std::max(count, least);
    }

    // Of times of the same thing, the shortest first, the place of the one that one in ten beats, or of the best.
    int chosen(std::size_t count) const { return options_.best ? 0 : static_cast<int>(count / 10); }

    // How long this rank has waited for a CPU since it last asked.
    double waited() {
        const double before = std::exchange(waited_, cpu_wait_seconds());
        return waited_ - before;
    }

    // What a driver takes for a copy that goes nowhere: how fast the CPUs are at this moment. The faster of both counts, so
    // that an end that is sick does not excuse itself.
    double driver_time() {
        std::vector<double> times;
        for (int i = 0; i < 200; ++i) {
            const Span span;
            device::shortest_copy(buffers_.receive('D'), buffers_.send('D'));
            times.push_back(span.seconds());
        }
        std::sort(times.begin(), times.end());
        const double mine = times[static_cast<std::size_t>(chosen(times.size()))];
        return std::min(mine, 1e-12 * static_cast<double>(exchange_.settle(static_cast<std::size_t>(mine * 1e12))));
    }

    // A window of messages from one place to one place, then an acknowledgement; by the sender's clock. The receiver's waiting
    // counts from its last acknowledgement on, with which the sender may begin. Each window sends from another page: no two that
    // follow each other leave the same bytes, and nothing is written.
    Turn window(Timed &timed, int messages, bool whole = false) {
        // The last page and the first come first: a transport that registers memory has registered all of it then.
        const std::uint64_t half = timed.turn / 2 % (pages / 2), begin = (timed.turn % 2 ? half : pages - 1 - half) * page;
        ++timed.turn;
        std::vector<MPI_Request> requests(static_cast<std::size_t>(messages));
        std::vector<MPI_Status> statuses(static_cast<std::size_t>(messages));
        const int count = static_cast<int>(timed.bytes);
        if (exchange_.sender()) waited();
        const Span span;
        for (auto &request : requests) {
            if (exchange_.sender())
                MPI_Isend(timed.memory + begin, count, MPI_BYTE, exchange_.peer(), tag_data, MPI_COMM_WORLD, &request);
            else
                MPI_Irecv(timed.memory, count, MPI_BYTE, exchange_.peer(), tag_data, MPI_COMM_WORLD, &request);
        }
        MPI_Waitall(messages, requests.data(), statuses.data());
        const bool waits = whole || timed.kinds.receive == 'D';
        if (exchange_.sender()) {
            exchange_.hear();
            const Turn done{span.seconds(), waited()};
            if (waits) exchange_.hear();
            return done;
        }
        exchange_.say(timed.turn);
        const Turn done{span.seconds(), waited()};
        for (auto &status : statuses) timed.wrong += buffers_.count(exchange_.status_wrong(status, timed.bytes));
        const auto compare = [&](std::size_t at, std::size_t bytes) {
            timed.wrong += buffers_.verify(timed.kinds.receive, timed.memory + at, bytes, stream_seed(exchange_.from()), (begin + at) / 8);
        };
        if (whole || timed.bytes <= 128) {
            compare(0, timed.bytes);
        } else {
            compare(0, 64);
            compare(timed.bytes / 8 * 8 - 64, timed.bytes % 8 + 64);
        }
        if (waits) {
            exchange_.say(timed.turn);
            waited();
        }
        return done;
    }

    Turn round_trips(Trips &way, int trips) {
        const int count = static_cast<int>(way.bytes), peer = exchange_.peer();
        std::vector<MPI_Status> statuses(static_cast<std::size_t>(trips));
        std::vector<std::size_t> offsets(static_cast<std::size_t>(trips));
        for (auto &offset : offsets) offset = Exchange::offset(exchange_.next(), way.bytes);
        if (exchange_.sender()) exchange_.hear();
        waited();
        if (!exchange_.sender()) exchange_.say(0);
        const Span span;
        char *in = way.in;
        for (std::size_t i = 0; i < statuses.size(); ++i, in += way.stride) {
            if (exchange_.sender()) MPI_Send(way.out + offsets[i], count, MPI_BYTE, peer, tag_data, MPI_COMM_WORLD);
            MPI_Recv(in, count, MPI_BYTE, peer, tag_data, MPI_COMM_WORLD, &statuses[i]);
            if (!exchange_.sender()) MPI_Send(way.out + offsets[i], count, MPI_BYTE, peer, tag_data, MPI_COMM_WORLD);
        }
        const Turn done{span.seconds(), waited()};
        for (auto &status : statuses) way.wrong += buffers_.count(exchange_.status_wrong(status, way.bytes));
        way.wrong += buffers_.verify_each(way.kind, way.in, way.stride, statuses.size(), way.bytes, stream_seed(peer),
                                          [&](std::size_t i) { return offsets[i] / 8; });
        return done;
    }

    // The first `counted` turns are those of the reading.
    Line reading(const char *metric, Buffers kinds, std::size_t bytes, const std::vector<Turn> &turns, int counted) const {
        const Turn behind = sum(turns, std::max(counted, std::min(static_cast<int>(turns.size()), 10)));
        Line line("reading");
        line.add("metric", metric).add("from", exchange_.from()).add("to", exchange_.to()).add("buffers", kinds.name()).add("bytes", bytes);
        if (!std::isnan(behind.waited)) line.add("cpu_wait_share", behind.waited / behind.seconds);
        return line;
    }

    const Options &options_;
    BufferSet &buffers_;
    Exchange exchange_;
    double waited_ = 0;
    double paused_ = 0;  // for verified messages amid timed ones
    bool faulty_;  // whether the sender is the rank with the injected fault
};
#line 21 "gpu_aware.cpp"


namespace {

constexpr const char *version = "1.2";

struct World {
    int rank = 0, size = 0, node_rank = 0, node_size = 0;
    std::vector<int> node_of;  // for each rank, the lowest rank on its node
    MPI_Comm node = MPI_COMM_NULL;
};

// The UCX that MPI has loaded into this process, which is not always the one that was meant; empty without UCX.
std::string ucx_version() {
    void *library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return "";
    unsigned version[3] = {};
    if (void *symbol = dlsym(library, "ucp_get_version"))
        reinterpret_cast<void (*)(unsigned *, unsigned *, unsigned *)>(symbol)(&version[0], &version[1], &version[2]);
    dlclose(library);
    return std::to_string(version[0]) + "." + std::to_string(version[1]) + "." + std::to_string(version[2]);
}

// Where this rank stands on its node by its launcher's word: the GPU is selected before MPI_Init, because
// a transport may bind to the GPU that is current then. Checked against MPI's own word afterwards.
int launcher_node_rank() {
    for (const char *name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID",
                             "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID"})
        if (const char *value = std::getenv(name)) return std::atoi(value);
    return 0;
}

// One GPU visible: the scheduler has chosen. Several: the n-th rank of the node takes the n-th.
int device_of(int node_rank, bool share) {
    if (!device::present) return 0;
    const int visible = device::count();
    if (visible == 0) throw Failure(fault::too_few_gpus, "no GPU is visible to this rank");
    if (visible > 1 && node_rank >= visible && !share)
        throw Failure(fault::too_few_gpus, "rank " + std::to_string(node_rank) + " of the node has no GPU of its own: " +
                                               std::to_string(visible) + " are visible");
    return node_rank % visible;
}

class Program {
  public:
    Program(const Options &options, int selected) : options_(options), selected_(selected) {
        MPI_Comm_rank(MPI_COMM_WORLD, &world_.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &world_.size);
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &world_.node);
        MPI_Comm_rank(world_.node, &world_.node_rank);
        MPI_Comm_size(world_.node, &world_.node_size);
    }

    int run() {
        const double start = now();
        announce();
        place();
        agree_on_key();
        twin_of_world();  // made by all ranks together
        allocate();
        if (!options_.check_sizes.empty()) check_pairs();
        if (!options_.collectives.empty()) check_collectives();
        if (!options_.sizes.empty() || !options_.latency_sizes.empty()) measure_pairs();
        Line("idle").add("rank", world_.rank).add("seconds", idle_wall_).add("cpu_seconds", idle_cpu_).add("clock_ratio", clock_.ratio()).print();
        unsigned long long mine = memory_->wrong(), all = 0;
        MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (world_.rank == 0)
            Line("end").add("wrong", static_cast<std::size_t>(all)).add("seconds", now() - start).print();
        if (all == 0 && mine == 0) return 0;
        if (world_.rank == 0) std::fprintf(stderr, "gpu_aware: %llu bytes arrived wrong\n", all);
        return fault::wrong_data;
    }

  private:
    void announce() {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length = 0;
        MPI_Get_library_version(library, &length);
        std::string mpi(library);  // the length may count a final NUL; MPICH adds lines about its build
        mpi.resize(std::min(mpi.size(), mpi.find('\n')));
        if (world_.rank == 0)
            Line("start")
                .add("program", "gpu_aware")
                .add("version", version)
                .add("nonce", nonce())
                .add("share_devices", options_.share_devices ? 1 : 0)
                .add("backend", device::backend)
                .add("ranks", world_.size)
                .add("asked_ranks", options_.ranks)
                .add("mpi", mpi)
                .add("ucx", ucx_version())
                .add("gpu_driver", device::driver())
                .add("statistic", options_.best ? "best" : "mean")
                .print();
        if (world_.size != options_.ranks)
            throw Failure(fault::rank_count, "asked for " + std::to_string(options_.ranks) + " ranks, MPI started " +
                                                 std::to_string(world_.size) +
                                                 (world_.size == 1 ? ": the launcher and this MPI do not speak the same PMI" : ""));
    }

    void place() {
        const std::string bus = device::present ? device::bus_id(selected_) : "";
        char host[MPI_MAX_PROCESSOR_NAME];
        int length = 0;
        MPI_Barrier(MPI_COMM_WORLD);  // the start line comes first
        MPI_Get_processor_name(host, &length);
        Line("rank")
            .add("rank", world_.rank)
            .add("host", host)
            .add("pid", static_cast<int>(getpid()))
            .add("node_rank", world_.node_rank)
            .add("device", bus)
            .add("device_name", device::present ? device::name(selected_) : "")
            .add("cpus", cpu_list())
            .add("preloaded", preloaded())
            .print();
        world_.node_of.resize(static_cast<std::size_t>(world_.size));
        int leader = world_.rank;
        MPI_Bcast(&leader, 1, MPI_INT, 0, world_.node);
        MPI_Allgather(&leader, 1, MPI_INT, world_.node_of.data(), 1, MPI_INT, MPI_COMM_WORLD);
        std::optional<Failure> problem;
        if (device::present) {
            char mine[32] = "";
            std::strncpy(mine, bus.c_str(), sizeof mine - 1);
            std::vector<char> all(static_cast<std::size_t>(world_.node_size) * sizeof mine);
            MPI_Allgather(mine, sizeof mine, MPI_CHAR, all.data(), sizeof mine, MPI_CHAR, world_.node);
            for (int other = 0; other < world_.node_rank && !options_.share_devices; ++other)
                if (bus == &all[static_cast<std::size_t>(other) * sizeof mine])
                    problem = Failure(fault::same_gpu, "ranks " + std::to_string(other) + " and " + std::to_string(world_.node_rank) +
                                                           " of the node share GPU " + bus);
            const auto at = static_cast<std::size_t>(world_.node_rank);
            if (!options_.devices.empty() && (at >= options_.devices.size() || !same_bus(options_.devices[at], bus)))
                problem = Failure(fault::wrong_gpu, "rank " + std::to_string(world_.node_rank) + " of the node is on GPU " + bus + ", expected " +
                                                        (at < options_.devices.size() ? options_.devices[at] : std::string("none")));
        }
        fail_together(fault::wrong_gpu.status, problem);
    }

    // Drivers print the PCI domain with four or eight digits.
    static bool same_bus(std::string a, std::string b) {
        const auto tail = [](std::string text) {
            std::transform(text.begin(), text.end(), text.begin(), ::tolower);
            const auto colon = text.find(':');
            const auto digits = text.find_first_not_of('0');
            return colon == std::string::npos ? text : text.substr(std::min(digits, colon));
        };
        return tail(std::move(a)) == tail(std::move(b));
    }

    // Every rank leaves with the same status, after the rank that found the problem has said so.
    void fail_together(int exit_status, const std::optional<Failure> &problem) {
        int mine = problem ? 1 : 0, any = 0;
        MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (problem) throw *problem;
        if (any) {
            MPI_Finalize();
            std::exit(exit_status);
        }
    }

    // The payload of this run is that of no other, also of one that a check did not start.
    void agree_on_key() {
        std::uint64_t key = key_of_nonce();
        if (world_.rank == 0) key = payload_word(key ^ static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(now() * 1e9));
        MPI_Bcast(&key, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        run_key() = key;
    }

    void allocate() {
        std::size_t largest = 4096, together = 0;
        for (const auto *sizes : {&options_.sizes, &options_.latency_sizes, &options_.check_sizes})
            for (std::size_t bytes : *sizes) largest = std::max(largest, bytes);
        if (!options_.collectives.empty())
            for (std::size_t bytes : options_.check_sizes) together = std::max(together, Collective::room(bytes, world_.size));
        // As many messages side by side as a window has, but no more than two of those that are large.
        const std::size_t window = std::max(2 * largest, std::min(static_cast<std::size_t>(options_.window) * largest, std::size_t{64} << 20));
        memory_.emplace(options_.buffers, std::max(window, together) + Exchange::margin, options_.inject == "corrupt" && world_.rank == options_.inject_rank);
    }

    // Waits for the others without using a core: a spinning rank would take memory bandwidth and power from
    // the pair that is measured. MPI has no blocking wait, so it looks once a millisecond.
    void wait_quietly(MPI_Comm comm) {
        const double wall = now(), cpu = cpu_seconds();
        MPI_Request request;
        MPI_Ibarrier(comm, &request);
        for (int done = 0;;) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (done) break;
            const timespec pause{0, 1000000};
            nanosleep(&pause, nullptr);
        }
        idle_wall_ += now() - wall;
        idle_cpu_ += cpu_seconds() - cpu;
    }

    // Rounds of disjoint ordered pairs. Pairs mode has one pair a round; rounds mode pairs everybody at once
    // (circle method), each pairing in both directions.
    std::vector<std::vector<std::pair<int, int>>> schedule() const {
        std::vector<std::vector<std::pair<int, int>>> rounds;
        const int n = world_.size;
        if (!options_.rounds) {
            for (int from = 0; from < n; ++from)
                for (int to = 0; to < n; ++to)
                    if (from != to) rounds.push_back({{from, to}});
            return rounds;
        }
        const int even = n + n % 2;
        for (int turn = 0; turn + 1 < even; ++turn) {
            std::vector<std::pair<int, int>> forward, backward;
            for (int i = 0; i < even / 2; ++i) {
                const int a = i == 0 ? even - 1 : (turn + i) % (even - 1);
                const int b = (turn + even - 1 - i) % (even - 1);
                if (a >= n || b >= n) continue;
                forward.emplace_back(a, b);
                backward.emplace_back(b, a);
            }
            rounds.push_back(forward);
            rounds.push_back(backward);
        }
        return rounds;
    }

    // Calls `body(from, to, active)` for this rank in each round, then lets everybody rest until the round is over.
    template <typename Body>
    void for_each_pair(Body body) {
        for (const auto &round : schedule()) {
            for (const auto &[from, to] : round)
                if (world_.rank == from || world_.rank == to) body(from, to);
            wait_quietly(MPI_COMM_WORLD);
        }
    }

    // ---- correctness
    static constexpr int messages_in_flight = 8, messages_checked = 128, collectives_checked = 32, fewest_messages = 8;

    // Messages of a pair or a collective of one size. A rank compares at least `messages_checked` from all its peers: of
    // each of many peers fewer, or the time would grow with the square of the ranks.
    int messages_to_check() const {
        const int peers = std::max(world_.size - 1, 1);
        return std::max((messages_checked + peers - 1) / peers, fewest_messages);
    }

    // Seconds for the messages of one of `parts` parts of a run. A path that is a hundred times too slow takes fewer of
    // them, at least one: it must come to an end before the time limit of the job.
    static double allowance(std::size_t parts) { return std::clamp(60.0 / static_cast<double>(parts), 0.1, 5.0); }

    void check_pairs() {
        memory_->load_all(stream_seed(world_.rank));
        const double longest = allowance(schedule().size() * options_.buffers.size() * options_.check_sizes.size());
        for_each_pair([&](int from, int to) {
            Exchange exchange(*memory_, from, to, world_.rank, messages_in_flight);
            for (const Buffers &buffers : options_.buffers)
                for (std::size_t bytes : options_.check_sizes) {
                    const double start = now();
                    std::size_t wrong = 0;
                    int messages = 0;
                    do {
                        const int more = std::min(messages_to_check() - messages, std::max(messages, 1));
                        wrong += exchange.verified(buffers, bytes, more, true);
                        messages += more;
                    } while (messages < messages_to_check() && exchange.agree(now() - start < longest ? 1 : 0));
                    if (exchange.sender()) continue;
                    Line("check")
                        .add("operation", "send_recv")
                        .add("buffers", buffers.name())
                        .add("from", from)
                        .add("to", to)
                        .add("bytes", bytes)
                        .add("messages", messages)
                        .add("wrong", wrong)
                        .print();
                }
        });
    }

    // In each kind of memory that a pair has on both sides; one-sided operations in host memory only, as few MPIs take GPU
    // memory for them.
    void check_collectives() {
        for (const Buffers &buffers : options_.buffers) {
            if (buffers.send != buffers.receive) continue;
            for (const auto &operation : options_.collectives)
                for (std::size_t bytes : options_.check_sizes)
                    if (buffers.send == 'H' || !Collective::one_sided(operation)) check_collective(operation, buffers.send, bytes);
        }
    }

    // Every result of a collective is compared whole, and its payload is another each time.
    void check_collective(const std::string &operation, char kind, std::size_t bytes) {
        const int times = bytes <= 65536 ? std::min(messages_to_check(), collectives_checked) : fewest_messages;
        const double start = now(), longest = allowance(options_.collectives.size() * options_.check_sizes.size());
        unsigned release[2] = {};  // of UCX
        const bool known = std::sscanf(ucx_version().c_str(), "%u.%u", &release[0], &release[1]) == 2;
        Collective collective(*memory_, operation, kind, bytes, world_.rank, world_.size, known && release[0] == 1 && release[1] < 16);
        std::size_t wrong = 0;
        int turn = 0;
        for (int more = 1; more && turn < times; ++turn) {
            wrong += collective.wrong(static_cast<std::uint64_t>(turn));
            more = now() - start < longest ? 1 : 0;
            MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        unsigned long long mine = wrong, all = 0, my_late = collective.late(), late = 0;
        MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(&my_late, &late, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (world_.rank == 0)
            Line("check")
                .add("operation", operation)
                .add("buffers", Buffers{kind, kind}.name())
                .add("bytes", bytes)
                .add("messages", turn)
                .add("wrong", static_cast<std::size_t>(all))
                .add("late", static_cast<std::size_t>(late))
                .print();
    }

    // ---- measurement
    void measure_pairs() {
        memory_->load_all(stream_seed(world_.rank));
        int round = 0;
        for_each_pair([&](int from, int to) {
            // The second pair of a rank meets the fault, so that there is output before it.
            if (round++ == 1 && world_.rank == options_.inject_rank) die_or_hang();
            PairMeter meter(options_, *memory_, from, to, world_.rank);
            NodeCopy copy(options_.copy && memory_->send('H') && world_.node_of[static_cast<std::size_t>(from)] == world_.node_of[static_cast<std::size_t>(to)],
                          from, to, world_.rank == from, options_.sizes.empty() ? 0 : *std::max_element(options_.sizes.begin(), options_.sizes.end()));
            for (const Buffers &buffers : options_.buffers) {
                for (std::size_t bytes : options_.latency_sizes) {
                    meter.latency(buffers, bytes, [&] { copy.pass_flag(); });
                    copy.report_flag();
                }
                for (std::size_t bytes : options_.sizes) {
                    if (copy.active()) copy.measure(memory_->send('H'), memory_->receive('H'), bytes, options_.seconds, options_.best);
                    meter.bandwidth(buffers, bytes);
                }
            }
        });
    }

    void die_or_hang() {
        if (options_.inject == "die") raise(SIGKILL);
        while (options_.inject == "hang") pause();
    }

    const Options &options_;
    int selected_;
    World world_;
    std::optional<BufferSet> memory_;  // once the ranks are known to be where they should
    double idle_wall_ = 0, idle_cpu_ = 0;
    ClockCheck clock_;
};

}  // namespace

int main(int argc, char **argv) {
    int exit_status = 0;
    bool started = false;
    int rank = 0;
    try {
        Options options = parse_options(argc, argv);
        if (options.buffers.empty()) options.buffers.push_back(device::present ? Buffers{'D', 'D'} : Buffers{'H', 'H'});
        for (const auto &buffers : options.buffers)
            if (!device::present && (buffers.send == 'D' || buffers.receive == 'D'))
                throw Failure(fault::usage, "this gpu_aware was built for host memory; build it with -DGPU_CUDA or -DGPU_HIP for D buffers");
        const int selected = device_of(launcher_node_rank(), options.share_devices);
        if (device::present) device::select(selected);
        MPI_Init(&argc, &argv);
        started = true;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        exit_status = Program(options, selected).run();
    } catch (const std::exception &error) {
        exit_status = fault_of(error).status;
        if (exit_status != fault::usage.status) Line::error(rank, error).print();
        std::fprintf(stderr, "gpu_aware: rank %d: %s\n", rank, error.what());
        if (started) MPI_Abort(MPI_COMM_WORLD, exit_status);
    }
    if (started) MPI_Finalize();
    return exit_status;
}
