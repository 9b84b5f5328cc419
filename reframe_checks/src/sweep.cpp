// SPDX-License-Identifier: MIT
// sweep: measures many pairs of nodes at the same time, round after round, in one launch. `busbar sweep run` starts it.
//
// One rank for each GPU of a node, or for each NIC if there is no GPU: rank i of a node is its rail i, and only talks to
// rank i of other nodes. Ranks take orders from standard input, which srun gives to all of them, and answer in JSON lines:
//
//   rails 0:1             in each node, rail 0 with rail 1; 0:0 is rail 0 with the memory of its host
//   pairs 0:1 2:3         the pairs of this round, by the positions of their nodes
//   pass 7 0 15           measure rail 0 of all these pairs, and give up after 15 s; 7 is unique
//   pass 8 -1 15          the same with all rails at the same time
//   quit
//
// Nothing here waits for all ranks. A partner that does not answer costs its own pair one deadline, and no other.
#include <mpi.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>

#include "buffers.hpp"
#include "counters.hpp"
#include "device.hpp"
#include "support.hpp"

namespace {

constexpr const char *sweep_help = R"(usage: sweep --ranks N --per-node N [options]

Measures pairs of nodes by orders from standard input. Output: JSON lines. Exit status: 0 told to quit, 2 usage,
3 number of ranks, 4 placement, 5 runtime error.

  --ranks N            the number of ranks that was requested; another number is an error
  --per-node N         ranks of a node: its rails
  --nics LIST          the NIC of each rail, as UCX names it: mlx5_0:1,mlx5_1:1; empty entries leave the choice to UCX
  --bytes SIZE         bytes of a message (1M)
  --inside SIZE        the least bytes of a message between two GPUs of a node, which are faster than NICs (16M)
  --window N           messages in flight (16)
  --seconds S          time of one reading, for each direction (0.25)
  --corrupt RANK       this rank spoils what it sends, to see that it is caught
  --patience S         end if no order comes for so long (600): srun may be gone
)";

struct SweepOptions {
    int ranks = 0, per_node = 0, window = 16, corrupt = -1;
    double patience = 600;
    std::size_t bytes = 1 << 20, inside = 16 << 20;
    double seconds = 0.25;
    std::vector<std::string> nics;
};

SweepOptions parse_sweep(int argc, char **argv) {
    const option known[] = {{"ranks", required_argument, nullptr, 'r'},   {"per-node", required_argument, nullptr, 'p'},
                            {"nics", required_argument, nullptr, 'n'},    {"bytes", required_argument, nullptr, 'b'},
                            {"inside", required_argument, nullptr, 'i'},
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
            case 'i': options.inside = parse_bytes(value); break;
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

// A partner did not do its part before the deadline, or MPI lost it.
struct Lost : std::runtime_error {
    using std::runtime_error::runtime_error;
};

void check_mpi(int status) {
    if (status == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(status, text, &length);
    throw Lost(std::string(text, static_cast<std::size_t>(length)));
}

// What one direction of a pair measured, at its receiver.
struct Rate {
    double gb_per_s = 0, seconds = 0;
    std::size_t messages = 0, wrong = 0;
};

// The messages of one pass between this rank and its partner. After a Lost, the requests stay with MPI, which may still
// write into the buffers: the owner gives those up and takes others.
class Pass {
  public:
    // Message n of a pass begins n % shifts times 64 bytes behind the start of the buffer, so that it differs in every word
    // from the one that its place held before. A prime: no window is a multiple of it.
    static constexpr std::size_t shifts = 61;

    Pass(const SweepOptions &options, std::size_t bytes, BufferSet &memory, int number, int me, int partner, double deadline)
        : options_(options), bytes_(bytes), memory_(memory), base_(8 * (number % (1 << 18))), number_(number), me_(me), partner_(partner), deadline_(deadline) {}

    // Both directions, the lower rank sends first; returns what arrived here.
    Rate run() {
        memory_.load(memory_.send(kind), shifts * 64 + bytes_, seed(me_));
        if (me_ < partner_) {
            send(0);
            return receive(1);
        }
        const Rate rate = receive(0);
        send(1);
        return rate;
    }

  private:
    static constexpr char kind = device::present ? 'D' : 'H';
    static constexpr int ready = 0, data = 2, count = 4, done = 6;  // each for two directions
    static constexpr std::size_t least_messages = 4, least_tail = 8, most_tail = 104;
    static constexpr double spin_seconds = 0.001;

    std::uint64_t seed(int from, std::size_t message = 0) const {
        return static_cast<std::uint64_t>(message) << 56 | static_cast<std::uint64_t>(number_) << 24 | static_cast<std::uint64_t>(from);
    }

    // Messages that follow the timed ones, of which each is compared: one where a link is slow.
    static std::size_t tail(unsigned long long timed) {
        return timed < 4 * least_tail ? 1 : std::clamp<std::size_t>(timed / 32, least_tail, most_tail);
    }
    int tag(int what, int direction) const { return base_ + what + direction; }

    // One more look at the requests; fails after the deadline.
    std::vector<int> some(std::vector<MPI_Request> &requests) {
        std::vector<int> indices(requests.size());
        int completed = 0;
        check_mpi(MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &completed, indices.data(), MPI_STATUSES_IGNORE));
        if (completed > 0) {
            last_completed_ = now();
        } else {
            const double time = now();
            if (time > deadline_) throw Lost("no answer before the deadline");
            // On a slow network the core is of more use to others; on a fast one no message takes that long.
            const timespec pause{0, 100000};
            if (time - last_completed_ > spin_seconds)
                nanosleep(&pause, nullptr);
            else
                sched_yield();
            completed = 0;
        }
        indices.resize(static_cast<std::size_t>(completed));
        return indices;
    }

    void finish(std::vector<MPI_Request> &requests) {
        for (auto left = requests.size(); left > 0;) left -= some(requests).size();
    }

    void send(int direction) {
        std::vector<MPI_Request> slots(static_cast<std::size_t>(options_.window), MPI_REQUEST_NULL);
        std::vector<MPI_Request> control(1);
        check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, partner_, tag(ready, direction), MPI_COMM_WORLD, &control[0]));
        finish(control);
        const double start = now();
        sent_ = 0;
        const auto start_one = [&](MPI_Request &slot) {
            check_mpi(MPI_Isend(memory_.send(kind) + sent_ % shifts * 64, static_cast<int>(bytes_), MPI_BYTE, partner_,
                                tag(data, direction), MPI_COMM_WORLD, &slot));
            ++sent_;
        };
        const auto go_on = [&] { return sent_ < least_messages || now() - start < options_.seconds; };
        std::size_t in_flight = 0;
        for (auto &slot : slots) {
            if (!go_on()) break;
            start_one(slot);
            ++in_flight;
        }
        while (in_flight > 0)
            for (int at : some(slots)) {
                if (go_on())
                    start_one(slots[static_cast<std::size_t>(at)]);
                else
                    --in_flight;
            }
        control.resize(2);
        check_mpi(MPI_Isend(&sent_, 1, MPI_UNSIGNED_LONG_LONG, partner_, tag(count, direction), MPI_COMM_WORLD, &control[0]));
        check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, partner_, tag(done, direction), MPI_COMM_WORLD, &control[1]));
        finish(control);
        // Each from the same memory, which is overwritten as soon as MPI says that the message is sent.
        for (std::size_t i = 0; i < tail(sent_); ++i) {
            memory_.load(memory_.send(kind), bytes_, seed(me_, i + 1));
            std::vector<MPI_Request> one(1);
            check_mpi(MPI_Isend(memory_.send(kind), static_cast<int>(bytes_), MPI_BYTE, partner_, tag(data, direction), MPI_COMM_WORLD, &one[0]));
            finish(one);
            BufferSet::clear(kind, memory_.send(kind), bytes_);
        }
    }

    Rate receive(int direction) {
        const auto window = static_cast<std::size_t>(options_.window);
        Batch slots{kind, memory_.receive(kind), bytes_, window, 0};
        BufferSet::clear(kind, slots.memory, slots.span());
        // The last request is the sender's count.
        std::vector<MPI_Request> requests(window + 1, MPI_REQUEST_NULL);
        std::vector<MPI_Request> control(1);
        std::vector<std::size_t> number(window), arrived(window);  // of the message that a slot waits for, and that it has
        std::size_t waiting = 0;
        const auto post = [&](std::size_t slot) {
            arrived[slot] = number[slot];
            number[slot] = waiting++;
            check_mpi(MPI_Irecv(slots.message(slot), static_cast<int>(bytes_), MPI_BYTE, partner_, tag(data, direction), MPI_COMM_WORLD,
                                &requests[slot]));
        };
        for (std::size_t slot = 0; slot < window; ++slot) post(slot);
        check_mpi(MPI_Irecv(&announced_, 1, MPI_UNSIGNED_LONG_LONG, partner_, tag(count, direction), MPI_COMM_WORLD, &requests[window]));
        check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, partner_, tag(ready, direction), MPI_COMM_WORLD, &control[0]));
        std::vector<bool> filled(window, false);
        const double posted = now();
        double before = posted, first = posted, last = posted;
        std::size_t at_first = 0, messages = 0;
        for (bool counted = false; !counted || messages < announced_;) {
            const double look = now();
            const std::vector<int> completed = some(requests);
            if (completed.empty()) {
                if (at_first == 0) before = look;
                continue;
            }
            for (int index : completed) {
                const auto slot = static_cast<std::size_t>(index);
                if (slot == window) {
                    counted = true;
                    continue;
                }
                ++messages;
                last = now();
                filled[slot] = true;
                post(slot);
            }
            if (at_first == 0 && messages > 0) {
                first = last;
                at_first = messages;
            }
        }
        if (messages == at_first) {  // all at one look: this rank had no core meanwhile
            first = posted;
            at_first = 0;
        }
        finish(control);
        for (std::size_t slot = 0; slot < window; ++slot) {
            check_mpi(MPI_Cancel(&requests[slot]));
            std::vector<MPI_Request> one{requests[slot]};
            finish(one);
        }
        Rate rate;
        for (std::size_t slot = 0; slot < window; ++slot)
            if (filled[slot]) {
                rate.wrong += memory_.verify(kind, slots.message(slot), bytes_, seed(partner_), arrived[slot] % shifts * 8);
                rate.wrong += memory_.verify_around(slots, slot);
            }
        rate.wrong += receive_tail(tail(announced_), direction);
        rate.messages = messages;
        rate.seconds = last - first;
        const auto gb = [this](std::size_t count) { return static_cast<double>(count * bytes_) / 1e9; };
        // A rank that had no core before its first look finds messages that took longer to arrive than it takes them.
        if (rate.seconds > 0) rate.gb_per_s = std::min(gb(messages - at_first) / rate.seconds, gb(messages) / (last - before));
        return rate;
    }

    // Tells the sender that its timed messages are here; returns the wrong bytes of those that follow.
    std::size_t receive_tail(std::size_t messages, int direction) {
        std::vector<MPI_Request> control(1);
        std::size_t wrong = 0;
        for (std::size_t done_before = 0; done_before < messages;) {
            const std::size_t part = std::min(messages - done_before, static_cast<std::size_t>(options_.window));
            const Batch batch{kind, memory_.receive(kind), bytes_, part, (static_cast<std::size_t>(number_) + done_before) % 64};
            BufferSet::clear(kind, batch.memory, batch.span());
            std::vector<MPI_Request> requests(part);
            for (std::size_t i = 0; i < part; ++i)
                check_mpi(MPI_Irecv(batch.message(i), static_cast<int>(bytes_), MPI_BYTE, partner_, tag(data, direction), MPI_COMM_WORLD, &requests[i]));
            if (done_before == 0) {
                check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, partner_, tag(done, direction), MPI_COMM_WORLD, &control[0]));
                finish(control);
            }
            finish(requests);
            wrong += memory_.verify_batch(batch, [&](std::size_t i) { return seed(partner_, done_before + i + 1); });
            done_before += part;
        }
        return wrong;
    }

    const SweepOptions &options_;
    std::size_t bytes_;
    BufferSet &memory_;
    int base_, number_, me_, partner_;
    double deadline_, last_completed_ = now();
    unsigned long long sent_ = 0, announced_ = 0;
};

// What a rank copies between its GPU and the memory of the host; without a GPU, within that memory. Only the best block
// counts: a rank that shares its core says nothing about the link.
class HostLink {
  public:
    HostLink(BufferSet &memory, std::uint64_t seed) : memory_(memory), seed_(seed) {}

    // Both directions, for `seconds` each; returns the slower one.
    Rate run(double seconds) {
        memory_.load(far_, room, seed_);
        std::memset(near_, 0xff, room);
        const double there = best(near_, far_, seconds);
        std::size_t wrong = memory_.verify('H', near_, room, seed_);
        BufferSet::clear(kind, far_, room);
        const double back = best(far_, near_, seconds);
        wrong += memory_.verify(kind, far_, room, seed_);
        Rate rate;
        rate.gb_per_s = std::min(there, back);
        rate.seconds = 2 * seconds;
        rate.messages = blocks_;
        rate.wrong = wrong;
        return rate;
    }

    ~HostLink() {
        device::free_staging(near_);
        if (!device::present) std::free(far_);
    }
    HostLink(const HostLink &) = delete;
    HostLink &operator=(const HostLink &) = delete;

    static constexpr std::size_t room = 32 << 20;  // more than the caches of a core

  private:
    static constexpr char kind = device::present ? 'D' : 'H';
    static constexpr std::size_t block = device::present ? room : 1 << 20;

    double best(char *to, const char *from, double seconds) {
        double found = 0;
        const double start = now();
        do
            for (std::size_t at = 0; at < room; at += block, ++blocks_) {
                const double begun = now();
                device::copy(to + at, from + at, block);
                const double took = now() - begun;
                if (took > 0) found = std::max(found, static_cast<double>(block) / took / 1e9);
            }
        while (now() - start < seconds);
        return found;
    }

    BufferSet &memory_;
    std::uint64_t seed_;
    std::size_t blocks_ = 0;
    char *near_ = static_cast<char *>(device::allocate_staging(room));
    char *far_ = device::present ? memory_.receive('D') : static_cast<char *>(device::allocate(room));
};

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
            } else if (word == "rails") {
                set_rail(words);
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

    // Bytes of a message.
    std::size_t message(bool inside) const { return device::present && inside ? std::max(options_.bytes, options_.inside) : options_.bytes; }

    void renew_memory() {
        static_cast<void>(memory_.release());  // MPI may still write into it
        const char kind = device::present ? 'D' : 'H';
        const std::size_t room = Batch::stride(message(true)) * static_cast<std::size_t>(options_.window) + Pass::shifts * 64;
        memory_.reset(new BufferSet({Buffers{kind, kind}}, device::present ? std::max(room, HostLink::room) : room, options_.corrupt == rank_));
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

    void set_rail(std::stringstream &words) {
        int a = 0, b = 0;
        char colon = 0;
        words >> a >> colon >> b;
        if (words.fail() || a < 0 || b < 0 || a >= options_.per_node || b >= options_.per_node)
            throw Failure(fault::usage, "the pair of rails " + std::to_string(a) + ":" + std::to_string(b) + " is outside of the node");
        partner_ = rail_ == a || rail_ == b ? rank_ - rail_ + (rail_ == a ? b : a) : -1;
    }

    void measure(int number, double deadline) {
        Line line("pair");
        line.add("pass", number).add("rank", rank_).add("partner", partner_);
        const bool inside = partner_ / options_.per_node == rank_ / options_.per_node;
        const TcpSegments before = tcp_segments();
        auto pass = std::make_unique<Pass>(options_, message(inside), *memory_, number, rank_, partner_, deadline);
        try {
            const Rate rate = partner_ == rank_ ? HostLink(*memory_, static_cast<std::uint64_t>(number) << 24).run(options_.seconds) : pass->run();
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
        Line("start").add("program", "sweep").add("nonce", nonce()).add("node", node_name()).add("rail", local).add("step", number_of("SLURM_STEP_ID", 0)).print();
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
