// SPDX-License-Identifier: MIT
// What a plain copy reaches without MPI: the host's memory, each GPU's own, between each GPU and the host, and from
// every GPU to every other.
// It is the ceiling that MPI is judged against. Output: JSON lines as gpu_aware prints them; all rates are bytes
// copied over time, once, though a local copy both reads and writes them.
#include <algorithm>
#include <atomic>
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

// Calls `work(at, part)` for parts of `bytes` bytes, each in a thread of its own where they are many.
template <typename Work>
void in_parts(std::size_t bytes, Work work) {
    constexpr std::size_t least = 8 << 20, most = 16;  // threads: more would only wait for the memory
    const std::size_t threads = std::clamp<std::size_t>(bytes / least, 1, std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, most));
    const std::size_t part = bytes / threads / step * step;
    std::vector<std::thread> team;
    for (std::size_t t = 1; t < threads; ++t) team.emplace_back(work, (t - 1) * part, part);
    work((threads - 1) * part, bytes - (threads - 1) * part);
    for (auto &member : team) member.join();
}

void fill(void *memory, std::size_t bytes, std::uint64_t seed) {
    in_parts(bytes, [=](std::size_t at, std::size_t part) { fill_payload(static_cast<unsigned char *>(memory) + at, part, seed, at / 8); });
}

void clear_host(void *memory, std::size_t bytes) {
    in_parts(bytes, [=](std::size_t at, std::size_t part) { std::memset(static_cast<char *>(memory) + at, 0xff, part); });
}

// The bytes of `memory`, which holds a target between two guards, that differ: the first `bytes` of the target from the payload of
// `seed` from `shift` bytes on, and what lies around them from what clearing left.
std::size_t wrong_between_guards(const unsigned char *memory, std::size_t bytes, std::uint64_t seed, std::size_t shift) {
    const auto touched = [](const unsigned char *at) { return guard - static_cast<std::size_t>(std::count(at, at + guard, 0xff)); };
    std::atomic<std::size_t> wrong{touched(memory) + touched(memory + guard + bytes)};
    in_parts(bytes, [&](std::size_t at, std::size_t part) { wrong += count_wrong(memory + guard + at, part, seed, (shift + at) / 8); });
    return wrong;
}

// Copies until `seconds` of copying are over, at least three times after one that is not timed; the best rate. Each copy
// begins elsewhere in the source, so it changes every word of the target. It is compared whole, outside its time, while that
// takes less time than the copies; the first and the last always are, the last into memory that was cleared. Short copies
// follow, of which each is compared, so that a fault in every n-th copy is seen up to n = 104.
Rate best_rate(std::size_t bytes, double seconds, const Copy &copy, const Wrong &wrong, const std::function<void()> &clear,
               device::Marks *marks = nullptr) {
    Rate rate;
    double copying = 0, comparing = 0;
    std::size_t turn = 0;
    for (bool last = false; !last; ++turn) {
        last = turn >= 4 && copying >= seconds;
        const std::size_t shift = turn % steps * step;
        if (turn == 0 || last) clear();
        if (marks) marks->begin();
        const Span span;
        copy(shift, bytes);
        const double shown = span.seconds(), copied = now();
        if (marks) marks->end();
        if (last || turn == 0 || comparing < copying) rate.wrong += wrong(shift, bytes);
        // The GPU's time begins earlier and ends later, by little. If it is much longer, the copy went on after it was waited for.
        const double of_gpu = marks ? marks->seconds() : 0, took = of_gpu > 1.25 * shown + 2e-5 ? of_gpu : shown;
        if (turn == 0 || last) continue;
        copying += took;
        comparing += now() - copied;
        rate.gb_per_s = std::max(rate.gb_per_s, 1e-9 * static_cast<double>(bytes) / took);
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
std::size_t host(std::vector<unsigned char> &from, std::vector<unsigned char> &to, double seconds, unsigned threads) {
    const std::size_t whole = (from.size() - margin) / threads * threads;
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
        [&] { clear_host(to.data(), to.size()); });
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
struct FreePinned {
    void operator()(void *pointer) const { device::free_staging(pointer); }
};
using Pinned = std::unique_ptr<void, FreePinned>;

constexpr std::size_t around = std::max(margin, 2 * guard);  // more than the bytes that are copied

// From one GPU to another, or within one; peer access lets the copy go over the links between them. `host` is where the
// payload is made and compared.
std::size_t gpu(int from, int to, std::size_t bytes, double seconds, unsigned char *host) {
    const std::uint64_t seed = static_cast<std::uint64_t>(from) + 1;
    fill(host, bytes + margin, seed);
    device::select(from);
    Memory source(device::allocate(bytes + margin));
    device::copy(source.get(), host, bytes + margin);
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
            device::copy(host, memory.get(), copied + 2 * guard);
            bytes_wrong = wrong_between_guards(host, copied, seed, shift);
        });
        return bytes_wrong;
    };
    device::Marks marks;
    const auto clear = [&] { at_target([&] { device::clear(memory.get(), bytes + 2 * guard); }); };
    const Rate rate = best_rate(bytes, seconds, copy, wrong, clear, &marks);
    const char *kind = from == to ? "local" : direct ? "peer" : "peer_through_host";
    return report(kind, from, to, from == to ? "D" : "D D", bytes, rate, from == to ? device::memory_rate(from) : 0);
}

// Between a GPU and pinned host memory, in both directions. The memory is that of the GPU's NUMA node, which is local to the
// CPUs beside the GPU.
std::size_t host_link(int index, std::size_t bytes, double seconds, unsigned char *host) {
    const NearCpus near(device::bus_id(index));
    device::select(index);
    Pinned pinned(device::allocate_staging(bytes + around));
    Memory memory(device::allocate(bytes + around));
    std::size_t all_wrong = 0;
    for (bool to_gpu : {true, false}) {
        char *source = static_cast<char *>(to_gpu ? pinned.get() : memory.get());
        char *target = static_cast<char *>(to_gpu ? memory.get() : pinned.get());
        const std::uint64_t seed = 2 * static_cast<std::uint64_t>(index) + (to_gpu ? 101 : 102);
        fill(to_gpu ? pinned.get() : host, bytes + margin, seed);
        if (!to_gpu) device::copy(source, host, bytes + margin);
        const Copy copy = [&](std::size_t shift, std::size_t copied) { device::copy(target + guard, source + shift, copied); };
        const Wrong wrong = [&](std::size_t shift, std::size_t copied) {
            if (to_gpu) device::copy(host, target, copied + 2 * guard);
            return wrong_between_guards(to_gpu ? host : reinterpret_cast<unsigned char *>(target), copied, seed, shift);
        };
        const auto clear = [&] { to_gpu ? device::clear(target, bytes + 2 * guard) : clear_host(target, bytes + 2 * guard); };
        device::Marks marks;
        const Rate rate = best_rate(bytes, seconds, copy, wrong, clear, &marks);
        all_wrong += report(to_gpu ? "to_gpu" : "from_gpu", index, index, to_gpu ? "H D" : "D H", bytes, rate);
    }
    return all_wrong;
}
#endif

int run(int argc, char **argv) {
    if (argc != 3)
        throw Failure(fault::usage, "usage: memory GPUS BYTES, as in: memory 4 256M (0 GPUs: only the host's memory)");
    const int asked = std::stoi(argv[1]);
    const std::size_t bytes = parse_bytes(argv[2]);
    const ClockCheck clock;
    run_key() = payload_word(key_of_nonce() ^ static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(now() * 1e9));
    Line("start")
        .add("program", "memory")
        .add("version", "1.3")
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
    std::size_t wrong = 0;
    {
        std::vector<unsigned char> from(bytes + margin), to(bytes + 2 * guard);
        fill(from.data(), from.size(), 1);
        for (unsigned threads : {1U, std::max(2U, std::thread::hardware_concurrency())}) wrong += host(from, to, 0.1, threads);
    }
#ifdef GPU
    Pinned pinned(asked ? device::allocate_staging(bytes + around) : nullptr);
    auto *scratch = static_cast<unsigned char *>(pinned.get());
    for (int index = 0; index < asked; ++index) wrong += host_link(index, bytes, 0.02, scratch);
    for (int from = 0; from < asked; ++from)
        for (int to = 0; to < asked; ++to) wrong += gpu(from, to, bytes, 0.02, scratch);
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
