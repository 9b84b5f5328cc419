// SPDX-License-Identifier: MIT
// What two ranks say to each other, and messages of which each is compared whole.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <vector>

#include "buffers.hpp"

constexpr int tag_data = 1, tag_control = 2;

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
    std::size_t status_wrong(const MPI_Status &status, std::size_t bytes) const {
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        const auto got = static_cast<std::size_t>(std::max(count, 0));
        if (status.MPI_SOURCE != peer_ || status.MPI_TAG != tag_data) return bytes;
        return got > bytes ? got - bytes : bytes - got;
    }

    // Passes `messages` messages, several in flight, into memory that was cleared, and compares each whole and the room around
    // it. Each has a payload of its own, and what it was sent from is overwritten as soon as MPI says that it is sent; one batch
    // in four is compared there instead, as MPI may not change what it sends. Returns the bytes that are wrong, at both ranks.
    // The sender's buffer does not hold what `load_all` put there any more.
    std::size_t verified(Buffers kinds, std::size_t bytes, int messages) {
        const char kind = sender_ ? kinds.send : kinds.receive;
        Batch batch{kind, sender_ ? buffers_.send(kind) : buffers_.receive(kind), bytes, 0, 0};
        const auto most = std::clamp(buffers_.bytes() / Batch::stride(bytes), std::size_t{1}, static_cast<std::size_t>(window_));
        std::size_t wrong = 0;
        for (auto left = static_cast<std::size_t>(messages); left > 0; left -= batch.messages) {
            const std::uint64_t first = sequence_;
            // Both ranks throw the same dice. Lengths without a period: a fault at every n-th message must not always hit the
            // same place of a window.
            const std::uint64_t thrown = dice();
            batch.messages = std::min(left, most - thrown % ((most + 1) / 2));
            batch.shift = thrown >> 16 & 63;
            sequence_ += batch.messages;
            const auto seed = [&](std::size_t i) { return stream_seed(from_) << 40 | (first + i); };
            if (sender_)
                buffers_.load_each(batch, seed);
            else
                BufferSet::clear(kind, batch.memory, batch.span());
            const bool keeps = (thrown >> 40) % 4 == 0;
            const std::vector<MPI_Status> statuses = transfer(batch, static_cast<Way>((thrown >> 32) % 3), keeps);
            for (std::size_t i = 0; i < batch.messages && !sender_; ++i) wrong += buffers_.count(status_wrong(statuses[i], bytes));
            if (!sender_ || keeps) wrong += buffers_.verify_batch(batch, seed);
        }
        const std::size_t received = settle(wrong);
        return received + agree(wrong);
    }

  private:
    enum class Way { nonblocking, blocking, persistent };  // MPI has code of its own for each

    // Sends or receives the messages of a batch in order; the sender overwrites them then, unless it `keeps` them.
    std::vector<MPI_Status> transfer(const Batch &batch, Way way, bool keeps) {
        const int messages = static_cast<int>(batch.messages), count = static_cast<int>(batch.bytes);
        std::vector<MPI_Request> requests(batch.messages);
        std::vector<MPI_Status> statuses(batch.messages);
        for (std::size_t i = 0; i < batch.messages; ++i) {
            char *message = batch.message(i);
            if (way == Way::blocking && sender_) {
                MPI_Send(message, count, MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD);
                if (!keeps) BufferSet::clear(batch.kind, message, batch.bytes);
            } else if (way == Way::blocking) {
                MPI_Recv(message, count, MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, &statuses[i]);
            } else if (sender_) {
                const auto start = way == Way::persistent ? MPI_Send_init : MPI_Isend;
                start(message, count, MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, &requests[i]);
            } else {
                const auto start = way == Way::persistent ? MPI_Recv_init : MPI_Irecv;
                start(message, count, MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, &requests[i]);
            }
        }
        if (way == Way::blocking) return statuses;
        if (way == Way::persistent) MPI_Startall(messages, requests.data());
        MPI_Waitall(messages, requests.data(), statuses.data());
        if (sender_ && !keeps) BufferSet::clear(batch.kind, batch.memory, batch.span());
        for (auto &request : requests)
            if (way == Way::persistent) MPI_Request_free(&request);
        return statuses;
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
