// SPDX-License-Identifier: MIT
// sweep: measures many pairs of nodes at the same time, round after round, in one launch. `busbar sweep run` starts it.
//
// One rank for each GPU of a node, or for each NIC if there is no GPU: rank i of a node is its rail i, and only talks to
// rank i of other nodes. Ranks take orders from standard input, which srun gives to all of them, and answer in JSON lines:
//
//   pairs 0:1 2:3         the pairs of this round, by the positions of their nodes
//   pass 7 0 15           measure rail 0 of all these pairs, and give up after 15 s; 7 is unique
//   pass 8 -1 15          the same with all rails at the same time
//   quit
//
// Nothing here waits for all ranks. A partner that does not answer costs its own pair one deadline, and no other.
#include <mpi.h>
#include <poll.h>

#include <cerrno>
#include <csignal>
#include <memory>

#include "counters.hpp"
#include "pair_pass.hpp"

namespace {

constexpr const char *sweep_help = R"(usage: sweep --ranks N --per-node N [options]

Measures pairs of nodes by orders from standard input. Output: JSON lines. Exit status: 0 told to quit, 2 usage,
3 number of ranks, 4 placement, 5 runtime error.

  --ranks N            the number of ranks that was requested; another number is an error
  --per-node N         ranks of a node: its rails
  --nics LIST          the NIC of each rail, as UCX names it: mlx5_0:1,mlx5_1:1; empty entries leave the choice to UCX
  --bytes SIZE         bytes of a message (1M)
  --window N           messages in flight (16)
  --seconds S          time of one reading, for each direction (0.25)
  --corrupt RANK       this rank spoils what it sends, to see that it is caught
  --patience S         end if no order comes for so long (600): srun may be gone
)";

SweepOptions parse_sweep(int argc, char **argv) {
    const option known[] = {{"ranks", required_argument, nullptr, 'r'},   {"per-node", required_argument, nullptr, 'p'},
                            {"nics", required_argument, nullptr, 'n'},    {"bytes", required_argument, nullptr, 'b'},
                            {"window", required_argument, nullptr, 'w'},  {"seconds", required_argument, nullptr, 's'},
                            {"corrupt", required_argument, nullptr, 'c'},
                            {"patience", required_argument, nullptr, 't'},
                            {"help", no_argument, nullptr, 'h'},          {nullptr, 0, nullptr, 0}};
    SweepOptions options;
    for (int key; (key = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
        const std::string value = optarg ? optarg : "";
        switch (key) {
            case 'r': options.ranks = std::atoi(value.c_str()); break;
            case 'p': options.per_node = std::atoi(value.c_str()); break;
            case 'n': {  // empty entries count
                std::stringstream stream(value);
                for (std::string nic; std::getline(stream, nic, ',');) options.nics.push_back(nic);
                break;
            }
            case 'b': options.bytes = parse_bytes(value); break;
            case 'w': options.window = std::atoi(value.c_str()); break;
            case 's': options.seconds = std::atof(value.c_str()); break;
            case 'c': options.corrupt = std::atoi(value.c_str()); break;
            case 't': options.patience = std::atof(value.c_str()); break;
            case 'h': std::fputs(sweep_help, stdout); std::exit(0);
            default: throw Failure(fault::usage, "see sweep --help");
        }
    }
    if (optind < argc) throw Failure(fault::usage, std::string("'") + argv[optind] + "' is not an option; see sweep --help");
    if (options.ranks < 1 || options.per_node < 1 || options.ranks % options.per_node)
        throw Failure(fault::usage, "--ranks must be a multiple of --per-node, and both 1 or more");
    if (options.window < 1) throw Failure(fault::usage, "--window must be 1 or more");
    if (!(options.seconds > 0)) throw Failure(fault::usage, "--seconds must be above 0");
    return options;
}

int number_of(const char *name, int otherwise) {
    const char *value = std::getenv(name);
    return value ? std::atoi(value) : otherwise;
}

// The node by the name that Slurm has for it, which its host name need not be.
std::string node_name() {
    if (const char *name = std::getenv("SLURMD_NODENAME")) return name;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    return host;
}

class Sweep {
  public:
    Sweep(const SweepOptions &options, int rail) : options_(options), rail_(rail) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
    }

    // True if MPI can be finalized: no partner was lost.
    bool run() {
        if (size_ != options_.ranks)
            throw Failure(fault::rank_count, "asked for " + std::to_string(options_.ranks) + " ranks, MPI started " + std::to_string(size_) +
                                                 (size_ == 1 ? ": srun and this MPI do not speak the same PMI" : ""));
        if (rank_ % options_.per_node != rail_)
            throw Failure(fault::wrong_gpu, "rank " + std::to_string(rank_) + " is number " + std::to_string(rail_) + " of its node: ranks must fill node after node");
        run_key() = key_of_nonce();
        renew_memory();
        Line("rank")
            .add("rank", rank_)
            .add("node", node_name())
            .add("rail", rail_)
            .add("device", device::present ? device::bus_id(device_of(rail_)) : "")
            .add("nic", std::getenv("UCX_NET_DEVICES") ? std::getenv("UCX_NET_DEVICES") : "")
            .add("preloaded", preloaded())
            .print();
        for (std::string order; next(order);) {
            std::stringstream words(order);
            std::string word;
            words >> word;
            if (word == "pairs") {
                set_partner(words);
            } else if (word == "pass") {
                int number = 0, rail = 0;
                double seconds = 0;
                words >> number >> rail >> seconds;
                if (partner_ >= 0 && (rail < 0 || rail == rail_)) measure(number, now() + seconds);
            } else if (word == "quit") {
                break;
            } else {
                throw Failure(fault::usage, "'" + word + "' is not an order");
            }
        }
        return !lost_;
    }

    static int device_of(int rail) { return device::present ? rail % std::max(device::count(), 1) : 0; }

  private:
    static constexpr int look_ms = 20;

    void renew_memory() {
        static_cast<void>(memory_.release());  // MPI may still write into it
        const char kind = device::present ? 'D' : 'H';
        const std::size_t room = Batch::stride(options_.bytes) * static_cast<std::size_t>(options_.window) + Pass::shifts * 64;
        memory_.reset(new BufferSet({Buffers{kind, kind}}, room, options_.corrupt == rank_));
    }

    // The next line of standard input; false at its end. Sleeps until there is one.
    bool next(std::string &order) {
        for (const double start = now(); now() - start < options_.patience;) {
            const auto end = pending_.find('\n');
            if (end != std::string::npos) {
                order = pending_.substr(0, end);
                pending_.erase(0, end + 1);
                return true;
            }
            pollfd input{STDIN_FILENO, POLLIN, 0};
            if (poll(&input, 1, look_ms) == 0) {
                int any = 0;  // lets MPI answer what a transport still asks
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
                continue;
            }
            char block[65536];
            const ssize_t n = read(STDIN_FILENO, block, sizeof block);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            pending_.append(block, static_cast<std::size_t>(n));
        }
        return false;
    }

    void set_partner(std::stringstream &words) {
        const int node = rank_ / options_.per_node;
        partner_ = -1;
        int a = 0, b = 0;
        for (char colon = 0; words >> a >> colon >> b;)
            if (a == node || b == node) partner_ = (a == node ? b : a) * options_.per_node + rail_;
        if (partner_ >= size_ || partner_ == rank_) throw Failure(fault::usage, "the pair " + std::to_string(a) + ":" + std::to_string(b) + " is outside of the job");
    }

    void measure(int number, double deadline) {
        Line line("pair");
        line.add("pass", number).add("rank", rank_).add("partner", partner_);
        const TcpSegments before = tcp_segments();
        auto pass = std::make_unique<Pass>(options_, *memory_, number, rank_, partner_, deadline);
        try {
            const Rate rate = pass->run();
            line.add("gb_per_s", rate.gb_per_s).add("messages", rate.messages).add("seconds", rate.seconds).add("wrong", rate.wrong).add("lost", "");
        } catch (const Lost &lost) {
            lost_ = true;
            static_cast<void>(pass.release());  // as for the memory
            renew_memory();
            line.add("gb_per_s", 0.0).add("messages", 0).add("seconds", 0.0).add("wrong", 0).add("lost", lost.what());
        }
        const TcpSegments after = tcp_segments();
        line.add("segments", after.sent - before.sent).add("resent", after.resent - before.resent);
        line.add("clock_ratio", clock_.ratio()).print();
    }

    const SweepOptions &options_;
    ClockCheck clock_;
    int rail_, rank_ = 0, size_ = 0, partner_ = -1;
    bool lost_ = false;
    std::unique_ptr<BufferSet> memory_;
    std::string pending_;
};

}  // namespace

int main(int argc, char **argv) {
    const int local = number_of("SLURM_LOCALID", number_of("OMPI_COMM_WORLD_LOCAL_RANK", 0));
    std::signal(SIGPIPE, SIG_IGN);
    try {
        const SweepOptions options = parse_sweep(argc, argv);
        // Before MPI starts, which may hang: a node whose ranks do not say this did not start them.
        Line("start").add("program", "sweep").add("version", "1.0").add("nonce", nonce()).add("node", node_name()).add("rail", local).add("step", number_of("SLURM_STEP_ID", 0)).print();
        const auto at = static_cast<std::size_t>(local);
        if (at < options.nics.size() && !options.nics[at].empty()) setenv("UCX_NET_DEVICES", options.nics[at].c_str(), 1);
        std::unique_ptr<NearCpus> near;
        if (device::present) {
            const int device = Sweep::device_of(local);
            device::select(device);
            near = std::make_unique<NearCpus>(device::bus_id(device));
        }
        MPI_Init(&argc, &argv);
        const bool complete = Sweep(options, local).run();
        // With a partner that is gone, MPI_Finalize may wait forever.
        if (!complete) std::_Exit(0);
        MPI_Finalize();
        return 0;
    } catch (const std::exception &error) {
        Line::error(number_of("SLURM_PROCID", 0), error).print();
        std::_Exit(fault_of(error).status);
    }
}
