// SPDX-License-Identifier: MIT
// What gpu_aware needs beside MPI and the device: options, JSON lines, payload patterns, clocks.
#pragma once

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
