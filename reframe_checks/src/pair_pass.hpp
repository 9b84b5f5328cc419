// SPDX-License-Identifier: MIT
// What one rank of `sweep` measures: the messages of a pass with its partner.
#pragma once
#include <mpi.h>

#include <algorithm>

#include "buffers.hpp"
#include "device.hpp"
#include "support.hpp"

struct SweepOptions {
    int ranks = 0, per_node = 0, window = 16, corrupt = -1;
    double patience = 600;
    std::size_t bytes = 1 << 20;
    double seconds = 0.25;
    std::vector<std::string> nics;
};

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

    Pass(const SweepOptions &options, BufferSet &memory, int number, int me, int partner, double deadline)
        : options_(options), bytes_(options.bytes), memory_(memory), base_(8 * (number % (1 << 18))), number_(number), me_(me), partner_(partner), deadline_(deadline) {}

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
        const Span span;
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
        span.seconds();
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

    void pass_to_self() {
        std::vector<MPI_Request> both(2);
        check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, &both[0]));
        check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, &both[1]));
        finish(both);
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
            const auto seed_of = [&](std::size_t i) { return seed(partner_, done_before + i + 1); };
            std::size_t now_wrong = 0;
            // The sender makes a message after it has sent the one before: what a wait left out is not there yet.
            for (std::size_t i = 0; i < part; ++i) {
                std::vector<MPI_Request> one{requests[i]};
                finish(one);
                now_wrong += memory_.verify(kind, batch.message(i), std::min(bytes_, std::size_t{64}), seed_of(i));
            }
            if (now_wrong == 0) now_wrong = memory_.verify_batch(batch, seed_of);
            pass_to_self();  // no later message may change them
            wrong += now_wrong == 0 ? memory_.verify_batch(batch, seed_of) : now_wrong;
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
