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

#include "buffers.hpp"
#include "collective.hpp"
#include "device.hpp"
#include "exchange.hpp"
#include "node_copy.hpp"
#include "pair_meter.hpp"
#include "support.hpp"

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
