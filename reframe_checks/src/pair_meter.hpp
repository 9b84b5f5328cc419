// SPDX-License-Identifier: MIT
// Bandwidth and latency between two ranks, as osu_bw and osu_latency measure them.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "buffers.hpp"

constexpr std::uint64_t stream_seed = 1 << 20;  // the payload of rank r in the measurements; checks use lower seeds
constexpr int tag_data = 1, tag_control = 2, tag_ack = 3;

// Made by both ranks of a pair; the sender prints.
class PairMeter {
  public:
    PairMeter(const Options &options, BufferSet &buffers, int from, int to, int rank, bool silent)
        : options_(options), buffers_(buffers), from_(from), to_(to), sender_(rank == from), peer_(sender_ ? to : from), silent_(silent) {}

    void bandwidth(Buffers kinds, std::size_t bytes) {
        void *memory = sender_ ? buffers_.send(kinds.send) : buffers_.receive(kinds.receive);
        if (!sender_) BufferSet::clear(kinds.receive, memory, bytes);
        agree(0);
        // The first message opens connections and memory handles. The second tells whether a whole window would
        // take too long: a path that is a hundred times too slow must still give a reading before the time limit.
        constexpr double longest_window = 0.25;
        window(memory, bytes, 1);
        const double message = window(memory, bytes, 1);
        const int messages = agree(static_cast<int>(std::clamp(longest_window / message, 1.0, 1.0 * options_.window)));
        const double once = window(memory, bytes, messages);
        const int windows = agree(static_cast<int>(std::clamp(options_.seconds / once, 3.0, 10000.0)));
        std::vector<double> times;
        for (int i = 0; i < windows; ++i) times.push_back(window(memory, bytes, messages));
        const std::size_t wrong = wrong_at_receiver(memory, bytes);
        if (!sender_) return;
        std::sort(times.begin(), times.end());
        // One window in ten may have been interrupted on a machine that is shared (in less than ten, which are long, that
        // counts for little); a path that stalls more often is slow.
        const int kept = windows - windows / 10;
        const double each = options_.best ? times.front() : std::accumulate(times.begin(), times.begin() + kept, 0.0) / kept;
        const double counted = static_cast<double>(bytes) * messages * (options_.inject == "miscount" ? 10 : 1);
        reading("bandwidth", kinds, bytes)
            .add("gb_per_s", counted / each / 1e9)
            .add("window", messages)
            .add("windows", windows)
            .add("wrong", wrong)
            .print_unless(silent_);
    }

    // Half of a round trip. In many short batches, of which a machine that is shared interrupts some: one in ten is
    // faster than what is reported, and `best` is the fastest. A path that is slow is slow in all of them.
    void latency(Buffers kinds, std::size_t bytes) {
        void *out = buffers_.send(sender_ ? kinds.send : kinds.receive);
        void *in = buffers_.receive(sender_ ? kinds.send : kinds.receive);
        BufferSet::clear(sender_ ? kinds.send : kinds.receive, in, bytes);
        agree(0);
        const auto batch = [&](int trips) { return round_trips(out, in, bytes, trips) / (2.0 * trips); };
        const double once = std::min({batch(10), batch(10), batch(10)});
        constexpr double batch_seconds = 2e-4;
        const int trips = agree(static_cast<int>(std::clamp(batch_seconds / (2 * once), 2.0, 1000.0)));
        const int batches = agree(static_cast<int>(std::clamp(options_.seconds / (trips * 2 * once), 3.0, 10000.0)));
        std::vector<double> times;
        for (int i = 0; i < batches; ++i) times.push_back(batch(trips));
        const std::size_t mine = sender_ ? buffers_.verify(in, bytes, stream_seed + static_cast<std::uint64_t>(to_)) : 0;
        const std::size_t wrong = mine + wrong_at_receiver(in, bytes);
        const double driver = kinds.send == 'D' && kinds.receive == 'D' ? driver_time() : 0;
        if (!sender_) return;
        Line line = reading("latency", kinds, bytes);
        line.add("us", chosen(times) * 1e6).add("trips", trips * batches).add("wrong", wrong);
        if (driver > 0) line.add("driver_us", driver * 1e6);
        line.print_unless(silent_);
    }

  private:
    // Of times of the same thing the one that one in ten beats, or the best.
    double chosen(std::vector<double> &times) const {
        const auto place = times.begin() + (options_.best ? 0 : static_cast<std::ptrdiff_t>(times.size() / 10));
        std::nth_element(times.begin(), place, times.end());
        return *place;
    }

    // What a driver takes for a copy that goes nowhere: how fast the CPUs are at this moment. The faster of both counts, so
    // that an end that is sick does not excuse itself.
    double driver_time() const {
        std::vector<double> times;
        for (int i = 0; i < 200; ++i) {
            const double start = now();
            device::shortest_copy(buffers_.receive('D'), buffers_.send('D'));
            times.push_back(now() - start);
        }
        double mine = chosen(times), other = 0;
        MPI_Sendrecv(&mine, 1, MPI_DOUBLE, peer_, tag_control, &other, 1, MPI_DOUBLE, peer_, tag_control, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return std::min(mine, other);
    }

    // The sender says how much work there is; it alone has timed the warm-up.
    int agree(int count) const {
        if (sender_)
            MPI_Send(&count, 1, MPI_INT, peer_, tag_control, MPI_COMM_WORLD);
        else
            MPI_Recv(&count, 1, MPI_INT, peer_, tag_control, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return count;
    }

    // A window of messages, then an acknowledgement; in seconds.
    double window(void *memory, std::size_t bytes, int messages) const {
        std::vector<MPI_Request> requests(static_cast<std::size_t>(messages));
        char ack = 0;
        const double start = now();
        for (auto &request : requests) {
            if (sender_)
                MPI_Isend(memory, static_cast<int>(bytes), MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, &request);
            else
                MPI_Irecv(memory, static_cast<int>(bytes), MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, &request);
        }
        MPI_Waitall(messages, requests.data(), MPI_STATUSES_IGNORE);
        if (sender_)
            MPI_Recv(&ack, 1, MPI_CHAR, peer_, tag_ack, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&ack, 1, MPI_CHAR, peer_, tag_ack, MPI_COMM_WORLD);
        return now() - start;
    }

    double round_trips(void *out, void *in, std::size_t bytes, int trips) const {
        const int count = static_cast<int>(bytes);
        const double start = now();
        for (int i = 0; i < trips; ++i) {
            if (sender_) MPI_Send(out, count, MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD);
            MPI_Recv(in, count, MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (!sender_) MPI_Send(out, count, MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD);
        }
        return now() - start;
    }

    // The receiver checks the last message of the stream; the sender prints the count beside the reading.
    std::size_t wrong_at_receiver(const void *memory, std::size_t bytes) {
        unsigned long long wrong = 0;
        if (sender_) {
            MPI_Recv(&wrong, 1, MPI_UNSIGNED_LONG_LONG, peer_, tag_control, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            wrong = buffers_.verify(memory, bytes, stream_seed + static_cast<std::uint64_t>(from_));
            MPI_Send(&wrong, 1, MPI_UNSIGNED_LONG_LONG, peer_, tag_control, MPI_COMM_WORLD);
        }
        return static_cast<std::size_t>(wrong);
    }

    Line reading(const char *metric, Buffers kinds, std::size_t bytes) const {
        Line line("reading");
        line.add("metric", metric).add("from", from_).add("to", to_).add("buffers", kinds.name()).add("bytes", bytes);
        return line;
    }

    const Options &options_;
    BufferSet &buffers_;
    int from_, to_;
    bool sender_;
    int peer_;
    bool silent_;
};
