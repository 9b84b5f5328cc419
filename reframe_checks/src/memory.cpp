// SPDX-License-Identifier: MIT
// What a plain copy reaches without MPI: the host's memory, each GPU's own, between each GPU and the host, and from
// every GPU to every other.
// It is the ceiling that MPI is judged against. Output: JSON lines as gpu_aware prints them; all rates are bytes
// copied over time, once, though a local copy both reads and writes them.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device.hpp"
#include "support.hpp"

namespace {

// Runs `copy` until `seconds` are over, at least three times after one that is not timed; the best rate in GB/s.
double best_rate(std::size_t bytes, double seconds, const std::function<void()> &copy) {
    copy();
    double best = 0;
    const double begin = now();
    for (int runs = 0; runs < 3 || now() - begin < seconds; ++runs) {
        const double start = now();
        copy();
        best = std::max(best, 1e-9 * static_cast<double>(bytes) / (now() - start));
    }
    return best;
}

// `memory_rate` in GB/s is what the GPU's memory carries by its own word, reading and writing together; 0 if it does not say.
void report(const char *kind, int from, int to, const char *buffers, std::size_t bytes, double rate, std::size_t wrong, double memory_rate = 0) {
    Line line("reading");
    line
        .add("metric", "bandwidth")
        .add("operation", kind)
        .add("from", from)
        .add("to", to)
        .add("buffers", buffers)
        .add("bytes", bytes)
        .add("gb_per_s", rate)
        .add("wrong", wrong);
    if (memory_rate > 0) line.add("memory_gb_per_s", memory_rate);
    line.print();
}

std::size_t wrong_bytes(const std::vector<unsigned char> &got, std::uint64_t seed) {
    return count_wrong(got.data(), got.size(), seed);
}

// All cores copy parts of one buffer at once, as STREAM's copy does; one core alone is what a rank of MPI has.
std::size_t host(std::size_t bytes, double seconds, unsigned threads) {
    std::vector<unsigned char> from(bytes), to(bytes);
    fill_payload(from.data(), bytes, 1);
    const std::size_t part = bytes / threads;
    const double rate = best_rate(part * threads, seconds, [&] {
        std::vector<std::thread> team;
        for (unsigned t = 1; t < threads; ++t)
            team.emplace_back([&, t] { std::memcpy(to.data() + t * part, from.data() + t * part, part); });
        std::memcpy(to.data(), from.data(), part);
        for (auto &member : team) member.join();
    });
    to.resize(part * threads);
    const std::size_t wrong = wrong_bytes(to, 1);
    report(threads == 1 ? "one_core" : "all_cores", 0, 0, "H", part * threads, rate, wrong);
    return wrong;
}

struct Free {
    void operator()(void *pointer) const {
#ifdef GPU
        static_cast<void>(GPU(Free)(pointer));
#else
        std::free(pointer);
#endif
    }
};
using Memory = std::unique_ptr<void, Free>;

#ifdef GPU
// From one GPU to another, or within one; peer access lets the copy go over the links between them.
std::size_t gpu(int from, int to, std::size_t bytes, double seconds) {
    const std::uint64_t seed = static_cast<std::uint64_t>(from) + 1;
    std::vector<unsigned char> payload(bytes);
    fill_payload(payload.data(), bytes, seed);
    device::select(from);
    Memory source(device::allocate(bytes));
    device::copy(source.get(), payload.data(), bytes);
    int direct = 1;
    if (from != to) {
        device::check(GPU(DeviceCanAccessPeer)(&direct, from, to), "asking for peer access");
        if (direct) {
            const auto status = GPU(DeviceEnablePeerAccess)(to, 0);
            if (status != GPU(ErrorPeerAccessAlreadyEnabled)) device::check(status, "enabling peer access");
            static_cast<void>(GPU(GetLastError)());  // the error of an access that was on already
        }
    }
    device::select(to);
    Memory target(device::allocate(bytes));
    device::clear(target.get(), bytes);
    device::select(from);
    const double rate = best_rate(bytes, seconds, [&] {
        if (from == to)
            device::copy(target.get(), source.get(), bytes);
        else {
            device::check(GPU(MemcpyPeer)(target.get(), to, source.get(), from, bytes), "copying between GPUs");
            device::check(GPU(DeviceSynchronize)(), "waiting for the GPU");
        }
    });
    device::select(to);
    std::fill(payload.begin(), payload.end(), 0);
    device::copy(payload.data(), target.get(), bytes);
    const std::size_t wrong = wrong_bytes(payload, seed);
    const char *kind = from == to ? "local" : direct ? "peer" : "peer_through_host";
    report(kind, from, to, from == to ? "D" : "D D", bytes, rate, wrong, from == to ? device::memory_rate(from) : 0);
    return wrong;
}

struct FreePinned {
    void operator()(void *pointer) const { device::free_staging(pointer); }
};

// Between a GPU and pinned host memory, in one direction. The memory is that of the GPU's NUMA node, which is local to the
// CPUs beside the GPU.
std::size_t host_link(int index, bool to_gpu, std::size_t bytes, double seconds) {
    const NearCpus near(device::bus_id(index));
    device::select(index);
    std::unique_ptr<void, FreePinned> pinned(device::allocate_staging(bytes));
    Memory memory(device::allocate(bytes));
    void *source = to_gpu ? pinned.get() : memory.get(), *target = to_gpu ? memory.get() : pinned.get();
    const std::uint64_t seed = 2 * static_cast<std::uint64_t>(index) + (to_gpu ? 101 : 102);
    std::vector<unsigned char> payload(bytes);
    fill_payload(payload.data(), bytes, seed);
    device::copy(source, payload.data(), bytes);
    if (to_gpu)
        device::clear(target, bytes);
    else
        std::memset(target, 0xff, bytes);
    const double rate = best_rate(bytes, seconds, [&] { device::copy(target, source, bytes); });
    std::fill(payload.begin(), payload.end(), 0);
    device::copy(payload.data(), target, bytes);
    const std::size_t wrong = wrong_bytes(payload, seed);
    report(to_gpu ? "to_gpu" : "from_gpu", index, index, to_gpu ? "H D" : "D H", bytes, rate, wrong);
    return wrong;
}
#endif

int run(int argc, char **argv) {
    if (argc != 3)
        throw Failure(fault::usage, "usage: memory GPUS BYTES, as in: memory 4 256M (0 GPUs: only the host's memory)");
    const int asked = std::stoi(argv[1]);
    const std::size_t bytes = parse_bytes(argv[2]);
    Line("start")
        .add("program", "memory")
        .add("version", "1.0")
        .add("backend", device::backend)
        .add("ranks", 1)
        .add("asked_ranks", 1)
        .print();
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    Line("rank").add("rank", 0).add("ranks", 1).add("node_rank", 0).add("host", name).add("pid", static_cast<int>(getpid())).add("cpus", cpu_list()).print();
    if (device::count() < asked)
        throw Failure(fault::too_few_gpus, "asked for " + std::to_string(asked) + " GPUs, " + std::to_string(device::count()) + " are visible");
    std::size_t wrong = host(bytes, 0.2, 1);
    wrong += host(bytes, 0.2, std::max(2U, std::thread::hardware_concurrency()));
#ifdef GPU
    for (int index = 0; index < asked; ++index)
        for (bool to_gpu : {true, false}) wrong += host_link(index, to_gpu, bytes, 0.02);
    for (int from = 0; from < asked; ++from)
        for (int to = 0; to < asked; ++to) wrong += gpu(from, to, bytes, 0.02);
#endif
    Line("end").add("wrong", wrong).print();
    return wrong ? fault::wrong_data : 0;
}

}  // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        Line::error(0, error).print();
        return fault_of(error).status;
    }
}
