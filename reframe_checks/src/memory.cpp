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

// A copy of `bytes` bytes from a place in the source that begins `shift` bytes behind its start, and the bytes that are wrong
// after it.
using Copy = std::function<void(std::size_t shift, std::size_t bytes)>;
using Wrong = std::function<std::size_t(std::size_t shift, std::size_t bytes)>;

constexpr std::size_t step = 4096, steps = 16, margin = step * steps;  // where sources of copies begin
constexpr std::size_t guard = 4096;                                    // before and after a target; no copy may touch it
constexpr std::size_t short_copies = 104, short_bytes = 2 << 20;       // of which each is compared

struct Rate {
    double gb_per_s = 0;
    std::size_t wrong = 0;
};

// The bytes of `memory`, which holds a target between two guards, that differ: the first `bytes` of the target from the payload of
// `seed` from `shift` bytes on, and what lies around them from what clearing left.
std::size_t wrong_between_guards(const unsigned char *memory, std::size_t bytes, std::uint64_t seed, std::size_t shift) {
    const auto touched = [](const unsigned char *at) { return guard - static_cast<std::size_t>(std::count(at, at + guard, 0xff)); };
    return touched(memory) + count_wrong(memory + guard, bytes, seed, shift / 8) + touched(memory + guard + bytes);
}

// Copies until `seconds` of copying are over, at least three times after one that is not timed; the best rate. Each copy
// begins elsewhere in the source, so it changes every word of the target. It is compared whole, outside its time, while
// that takes less than five times as long as the copies; the first and the last always are, the last into memory
// that was cleared. Short copies follow, of which each is compared, so that a fault in every n-th copy is seen up to n = 104.
Rate best_rate(std::size_t bytes, double seconds, const Copy &copy, const Wrong &wrong, const std::function<void()> &clear) {
    Rate rate;
    double copying = 0, comparing = 0;
    std::size_t turn = 0;
    for (bool last = false; !last; ++turn) {
        last = turn >= 4 && copying >= seconds;
        const std::size_t shift = turn % steps * step;
        if (turn == 0 || last) clear();
        const double start = now();
        copy(shift, bytes);
        const double copied = now();
        if (last || turn == 0 || comparing < 5 * copying) rate.wrong += wrong(shift, bytes);
        if (turn == 0 || last) continue;
        copying += copied - start;
        comparing += now() - copied;
        rate.gb_per_s = std::max(rate.gb_per_s, 1e-9 * static_cast<double>(bytes) / (copied - start));
    }
    clear();
    for (std::size_t i = 0; i < short_copies; ++i) {
        const std::size_t shift = (turn + i) % steps * step, part = std::min(bytes, short_bytes);
        copy(shift, part);
        rate.wrong += wrong(shift, part);
    }
    return rate;
}

// `memory_rate` in GB/s is what the GPU's memory carries by its own word, reading and writing together; 0 if it does not say.
std::size_t report(const char *kind, int from, int to, const char *buffers, std::size_t bytes, const Rate &rate, double memory_rate = 0) {
    Line line("reading");
    line
        .add("metric", "bandwidth")
        .add("operation", kind)
        .add("from", from)
        .add("to", to)
        .add("buffers", buffers)
        .add("bytes", bytes)
        .add("gb_per_s", rate.gb_per_s)
        .add("wrong", rate.wrong);
    if (memory_rate > 0) line.add("memory_gb_per_s", memory_rate);
    line.print();
    return rate.wrong;
}

// All cores copy parts of one buffer at once, as STREAM's copy does; one core alone is what a rank of MPI has.
std::size_t host(std::size_t bytes, double seconds, unsigned threads) {
    const std::size_t whole = bytes / threads * threads;
    std::vector<unsigned char> from(whole + margin), to(whole + 2 * guard);
    fill_payload(from.data(), from.size(), 1);
    const Copy copy = [&](std::size_t shift, std::size_t copied) {
        const std::size_t part = copied / threads;
        std::vector<std::thread> team;
        for (unsigned t = 1; t < threads; ++t)
            team.emplace_back([&, t] {
                const std::size_t at = copied - t * part;
                std::memcpy(to.data() + guard + at, from.data() + shift + at, part);
            });
        std::memcpy(to.data() + guard, from.data() + shift, copied - part * (threads - 1));
        for (auto &member : team) member.join();
    };
    const Rate rate = best_rate(
        whole, seconds, copy, [&](std::size_t shift, std::size_t copied) { return wrong_between_guards(to.data(), copied, 1, shift); },
        [&] { std::fill(to.begin(), to.end(), 0xff); });
    return report(threads == 1 ? "one_core" : "all_cores", 0, 0, "H", whole, rate);
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
    std::vector<unsigned char> payload(bytes + std::max(margin, 2 * guard));
    fill_payload(payload.data(), payload.size(), seed);
    device::select(from);
    Memory source(device::allocate(bytes + margin));
    device::copy(source.get(), payload.data(), bytes + margin);
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
    Memory memory(device::allocate(bytes + 2 * guard));
    char *target = static_cast<char *>(memory.get()) + guard;
    device::select(from);
    const Copy copy = [&](std::size_t shift, std::size_t copied) {
        const char *begin = static_cast<const char *>(source.get()) + shift;
        if (from == to) {
            device::copy(target, begin, copied);
        } else {
            device::check(GPU(MemcpyPeer)(target, to, begin, from, copied), "copying between GPUs");
            device::check(GPU(DeviceSynchronize)(), "waiting for the GPU");
        }
    };
    // The other GPU is current only while its memory is looked at.
    const auto at_target = [&](auto look) {
        device::select(to);
        look();
        device::select(from);
    };
    const Wrong wrong = [&](std::size_t shift, std::size_t copied) {
        std::size_t bytes_wrong = 0;
        at_target([&] {
            device::copy(payload.data(), memory.get(), copied + 2 * guard);
            bytes_wrong = wrong_between_guards(payload.data(), copied, seed, shift);
        });
        return bytes_wrong;
    };
    const Rate rate = best_rate(bytes, seconds, copy, wrong, [&] { at_target([&] { device::clear(memory.get(), bytes + 2 * guard); }); });
    const char *kind = from == to ? "local" : direct ? "peer" : "peer_through_host";
    return report(kind, from, to, from == to ? "D" : "D D", bytes, rate, from == to ? device::memory_rate(from) : 0);
}

struct FreePinned {
    void operator()(void *pointer) const { device::free_staging(pointer); }
};

// Between a GPU and pinned host memory, in one direction. The memory is that of the GPU's NUMA node, which is local to the
// CPUs beside the GPU.
std::size_t host_link(int index, bool to_gpu, std::size_t bytes, double seconds) {
    const NearCpus near(device::bus_id(index));
    device::select(index);
    constexpr std::size_t more = std::max(margin, 2 * guard);
    std::unique_ptr<void, FreePinned> pinned(device::allocate_staging(bytes + more));
    Memory memory(device::allocate(bytes + more));
    char *source = static_cast<char *>(to_gpu ? pinned.get() : memory.get());
    char *target = static_cast<char *>(to_gpu ? memory.get() : pinned.get());
    const std::uint64_t seed = 2 * static_cast<std::uint64_t>(index) + (to_gpu ? 101 : 102);
    std::vector<unsigned char> payload(bytes + more);
    fill_payload(payload.data(), payload.size(), seed);
    device::copy(source, payload.data(), payload.size());
    const Wrong wrong = [&](std::size_t shift, std::size_t copied) {
        device::copy(payload.data(), target, copied + 2 * guard);
        return wrong_between_guards(payload.data(), copied, seed, shift);
    };
    const auto clear = [&] {
        if (to_gpu)
            device::clear(target, bytes + 2 * guard);
        else
            std::memset(target, 0xff, bytes + 2 * guard);
    };
    const Rate rate = best_rate(bytes, seconds, [&](std::size_t shift, std::size_t copied) { device::copy(target + guard, source + shift, copied); }, wrong, clear);
    return report(to_gpu ? "to_gpu" : "from_gpu", index, index, to_gpu ? "H D" : "D H", bytes, rate);
}
#endif

int run(int argc, char **argv) {
    if (argc != 3)
        throw Failure(fault::usage, "usage: memory GPUS BYTES, as in: memory 4 256M (0 GPUs: only the host's memory)");
    const int asked = std::stoi(argv[1]);
    const std::size_t bytes = parse_bytes(argv[2]);
    const ClockCheck clock;
    run_key() = payload_word(key_of_nonce() ^ static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(kernel_now() * 1e9));
    Line("start")
        .add("program", "memory")
        .add("version", "1.2")
        .add("nonce", nonce())
        .add("backend", device::backend)
        .add("ranks", 1)
        .add("asked_ranks", 1)
        .print();
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    Line("rank").add("rank", 0).add("ranks", 1).add("node_rank", 0).add("host", name).add("pid", static_cast<int>(getpid())).add("cpus", cpu_list()).add("preloaded", preloaded()).print();
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
    Line("end").add("wrong", wrong).add("clock_ratio", clock.ratio()).print();
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
