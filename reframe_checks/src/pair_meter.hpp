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
#pragma once

#include <numeric>
#include <utility>

#include "exchange.hpp"

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
