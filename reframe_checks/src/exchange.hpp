// SPDX-License-Identifier: MIT
// What two ranks say to each other, and messages of which each is compared whole.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <vector>

#include "buffers.hpp"

constexpr int tag_data = 1, tag_control = 2, tag_other = 3;

// A communicator of all ranks, made once: MPI must keep its messages apart from those of MPI_COMM_WORLD.
inline MPI_Comm twin_of_world() {
    static const MPI_Comm twin = [] {
        MPI_Comm made;
        MPI_Comm_dup(MPI_COMM_WORLD, &made);
        return made;
    }();
    return twin;
}

// The payload that `rank` sends to others.
inline std::uint64_t stream_seed(int rank) { return (1 << 20) + static_cast<std::uint64_t>(rank); }

// Made by both ranks of a pair; data goes one way.
class Exchange {
  public:
    Exchange(BufferSet &buffers, int from, int to, int rank, int window)
        : buffers_(buffers), from_(from), to_(to), sender_(rank == from), peer_(sender_ ? to : from), window_(window),
          sequence_(static_cast<std::uint64_t>(from) * 1009 + static_cast<std::uint64_t>(to) * 257) {}

    // How far the sender's room must reach behind the largest message.
    static constexpr std::size_t margin = 64 * 4096 + 2 * Batch::guard + 128;

    int from() const { return from_; }
    int to() const { return to_; }
    int rank() const { return sender_ ? from_ : to_; }
    int peer() const { return peer_; }
    bool sender() const { return sender_; }

    // Where message number `sequence` begins in the sender's buffer: each differs from those before it in every word,
    // though nothing is written between them. The moduli are primes, so that no period of a fault falls on equal messages.
    // Short messages come from 8 KiB: 32 KiB would fill a level-1 cache and add a percent to the latency of host memory.
    // A batch of round trips is shorter than 1021, so no message equals what its place held.
    static std::size_t offset(std::uint64_t sequence, std::size_t bytes) {
        return bytes < 64 ? sequence % 1021 * 8 : sequence % 4093 * 64;
    }

    // How far the places of short messages of `bytes` reach.
    static std::size_t reach(std::size_t bytes) { return (bytes < 64 ? 1021 * 8 : 4093 * 64) + bytes; }

    // A number that both ranks know, and nobody before the run.
    std::uint64_t dice() const { return payload_word(keyed(stream_seed(from_)), sequence_); }

    // The number of the next message; both ranks count.
    std::uint64_t next() { return sequence_++; }

    // Control messages are numbered and carry a check of their own: one that is altered, lost or repeated ends the run.
    void say(std::uint64_t value) {
        const Control control = made(said_++, value, !sender_);
        MPI_Send(control.words, 3, MPI_UINT64_T, peer_, tag_control, MPI_COMM_WORLD);
    }

    std::uint64_t hear() {
        Control got;
        MPI_Status status;
        int count = 0;
        MPI_Recv(got.words, 3, MPI_UINT64_T, peer_, tag_control, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_UINT64_T, &count);
        const Control expected = made(heard_++, got.words[1], sender_);
        if (count != 3 || std::memcmp(got.words, expected.words, sizeof got.words) != 0)
            throw Failure(fault::runtime, "a control message from rank " + std::to_string(peer_) + " arrived wrong");
        return got.words[1];
    }

    // The sender decides for both.
    template <typename Number>
    Number agree(Number mine) {
        if (!sender_) return static_cast<Number>(hear());
        say(static_cast<std::uint64_t>(mine));
        return mine;
    }

    // The receiver has counted; both know it then.
    std::size_t settle(std::size_t wrong) {
        if (sender_) return static_cast<std::size_t>(hear());
        say(wrong);
        return wrong;
    }

    // The receiver's numbers, one for each of the sender's.
    std::vector<double> of_receiver(std::vector<double> numbers) {
        const int count = static_cast<int>(numbers.size());
        if (sender_)
            MPI_Recv(numbers.data(), count, MPI_DOUBLE, peer_, tag_control, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(numbers.data(), count, MPI_DOUBLE, peer_, tag_control, MPI_COMM_WORLD);
        return numbers;
    }

    // The bytes by which the status of a receive differs from what the peer sent.
    std::size_t status_wrong(const MPI_Status &status, std::size_t bytes, int tag = tag_data) const {
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        const auto got = static_cast<std::size_t>(std::max(count, 0));
        if (status.MPI_SOURCE != peer_ || status.MPI_TAG != tag) return bytes;
        return got > bytes ? got - bytes : bytes - got;
    }

    // Passes `messages` messages, several in flight, into memory that was cleared, and compares each whole and the room around
    // it; all but half of the large ones once more after a later message, as nothing may change any more. Each has a payload of
    // its own, and what it was sent from is overwritten as soon as MPI says that it is sent; one batch in four is compared there
    // instead, as MPI may not change what it sends. Three batches of four are pairs of which one message begins its way only when
    // the other is there: a wait that ends before all have arrived is seen. If they are `varied`, one batch in eight has shorter
    // messages, in the same room. Returns the bytes that are wrong, at both ranks. The sender's buffer does not hold what
    // `load_all` put there any more.
    std::size_t verified(Buffers kinds, std::size_t bytes, int messages, bool varied = false) {
        const char kind = sender_ ? kinds.send : kinds.receive;
        Batch batch{kind, sender_ ? buffers_.send(kind) : buffers_.receive(kind), bytes, 0, 0, bytes};
        const auto most = std::clamp(buffers_.bytes() / Batch::stride(bytes), std::size_t{1}, static_cast<std::size_t>(window_));
        std::size_t wrong = 0;
        for (auto left = static_cast<std::size_t>(messages); left > 0; left -= batch.messages) {
            // Both ranks throw the same dice. Lengths without a period: a fault at every n-th message must not always hit the
            // same place of a window.
            const std::uint64_t thrown = dice();
            const bool apart = std::min(left, most) >= 2 && (thrown >> 59) % 4 != 0;
            batch.messages = apart ? 2 : std::min(left, most - thrown % ((most + 1) / 2));
            batch.shift = thrown >> 16 & 63;
            const auto way = static_cast<Way>((thrown >> 32) % 3);
            batch.bytes = varied && (thrown >> 42) % 8 == 0 ? bytes - (thrown >> 45) % (bytes / 2 + 1) : bytes;
            Transfer transfer{batch, way, (thrown >> 40) % 4 == 0, batch.span() < large || thrown >> 61 & 1,
                              apart || (way != Way::blocking && thrown >> 62 != 0), apart,
                              way != Way::blocking && thrown >> 58 & 1 ? std::size_t{0} : 1};
            make(transfer);
            wrong += pass(transfer);
            if (way == Way::persistent && left >= 2 * batch.messages) {  // once more, by the same requests
                left -= batch.messages;
                wrong += pass(transfer);
            }
            for (auto &request : transfer.requests)
                if (way == Way::persistent) MPI_Request_free(&request);
        }
        const std::size_t received = settle(wrong);
        return received + agree(wrong);
    }

  private:
    enum class Way { nonblocking, blocking, persistent };  // MPI has code of its own for each

    // A batch on its way.
    struct Transfer {
        Batch batch;
        Way way;
        bool keeps;  // the sender does not overwrite what it has sent
        bool twice;  // the receiver compares it twice
        bool turned;  // the receiver looks for the lanes in another order, before anything is sent
        bool apart;   // of the two messages, one is held back
        std::size_t held;
        std::vector<MPI_Request> requests = std::vector<MPI_Request>(batch.messages);
        std::vector<MPI_Status> statuses = std::vector<MPI_Status>(batch.messages);
    };

    static constexpr std::size_t large = 1 << 20;

    // How long a message is held back: many times what a receiver takes to see that a wait has ended too early.
    static void hold() {
        const timespec pause{0, 100000};
        nanosleep(&pause, nullptr);
    }

    // Messages take turns on four lanes, of which MPI must keep each apart: two tags in two communicators.
    static constexpr std::size_t lanes = 4;
    static int tag_of(std::size_t i) { return i & 1 ? tag_other : tag_data; }
    static MPI_Comm comm_of(std::size_t i) { return i & 2 ? twin_of_world() : MPI_COMM_WORLD; }

    // Persistent requests, which can be started more than once.
    void make(Transfer &transfer) {
        const Batch &batch = transfer.batch;
        const int count = static_cast<int>(sender_ ? batch.bytes : batch.room);
        for (std::size_t i = 0; i < batch.messages && transfer.way == Way::persistent; ++i)
            if (sender_)
                MPI_Send_init(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), &transfer.requests[i]);
            else
                MPI_Recv_init(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), &transfer.requests[i]);
    }

    // Loads the messages of a batch, passes and compares them; returns the bytes that are wrong.
    std::size_t pass(Transfer &transfer) {
        const Batch &batch = transfer.batch;
        const std::uint64_t first = sequence_;
        sequence_ += batch.messages;
        const auto seed = [&](std::size_t i) { return stream_seed(from_) << 40 | (first + i); };
        if (sender_)
            buffers_.load_each(batch, seed);
        else
            BufferSet::clear(batch.kind, batch.memory, batch.span());
        run(transfer);
        if (sender_) {
            say(first);
            return transfer.keeps ? buffers_.verify_batch(batch, seed) : 0;
        }
        std::size_t wrong = 0;
        if (transfer.apart) wrong = buffers_.verify(batch.kind, batch.message(transfer.held), std::min(batch.bytes, std::size_t{64}), seed(transfer.held));
        if (wrong == 0) wrong = buffers_.verify_batch(batch, seed);
        for (std::size_t i = 0; i < batch.messages; ++i) wrong += buffers_.count(status_wrong(transfer.statuses[i], batch.bytes, tag_of(i)));
        hear();
        return wrong == 0 && transfer.twice ? buffers_.verify_batch(batch, seed) : wrong;
    }

    // Sends the messages of a batch in order, or receives them; the sender overwrites them then, unless it keeps them.
    void run(Transfer &transfer) {
        const Batch &batch = transfer.batch;
        const int count = static_cast<int>(sender_ ? batch.bytes : batch.room);
        if (transfer.turned && sender_) hear();
        if (transfer.way == Way::blocking) {
            if (transfer.turned && !sender_) say(sequence_);
            for (std::size_t i = 0; i < batch.messages; ++i) {
                char *message = batch.message(i);
                if (!sender_) {
                    MPI_Recv(message, count, MPI_BYTE, peer_, tag_of(i), comm_of(i), &transfer.statuses[i]);
                    continue;
                }
                if (transfer.apart && i == transfer.held) hold();
                MPI_Send(message, count, MPI_BYTE, peer_, tag_of(i), comm_of(i));
                if (!transfer.keeps) BufferSet::clear(batch.kind, message, batch.bytes);
            }
            return;
        }
        const auto start = [&](std::size_t i) {
            MPI_Request *request = &transfer.requests[i];
            if (transfer.way == Way::persistent)
                MPI_Start(request);
            else if (sender_)
                MPI_Isend(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), request);
            else
                MPI_Irecv(batch.message(i), count, MPI_BYTE, peer_, tag_of(i), comm_of(i), request);
        };
        // Early messages are taken in the order in which they were sent: libfabric's provider udp;ofi_rxd, which MPICH 3.4.3
        // takes without a network, crashes or waits without end if one of several packets is taken before another.
        const bool turns = transfer.turned && !sender_;
        if (transfer.apart && sender_) {
            start(1 - transfer.held);
            MPI_Wait(&transfer.requests[1 - transfer.held], MPI_STATUS_IGNORE);
            hold();
            start(transfer.held);
        } else {
            for (std::size_t lane = turns ? lanes : 1; lane-- > 0;)
                for (std::size_t i = lane; i < batch.messages; i += turns ? lanes : 1) start(i);
        }
        if (turns) say(sequence_);
        MPI_Waitall(static_cast<int>(batch.messages), transfer.requests.data(), transfer.statuses.data());
        if (sender_ && !transfer.keeps) BufferSet::clear(batch.kind, batch.memory, batch.span());
    }

    struct Control {
        std::uint64_t words[3] = {};  // number, value, check
    };

    Control made(std::uint64_t number, std::uint64_t value, bool by_receiver) const {
        Control control;
        control.words[0] = number;
        control.words[1] = value;
        const auto pair = static_cast<std::uint64_t>(from_) << 32 | static_cast<std::uint64_t>(to_) << 1 | by_receiver;
        control.words[2] = payload_word(payload_word(pair, number), value);
        return control;
    }

    BufferSet &buffers_;
    int from_, to_;
    bool sender_;
    int peer_, window_;
    std::uint64_t sequence_, said_ = 0, heard_ = 0;
};
