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
    static constexpr std::size_t margin = 64 * 4096;

    int from() const { return from_; }
    int to() const { return to_; }
    int peer() const { return peer_; }
    bool sender() const { return sender_; }

    // Where message number `sequence` begins in the sender's buffer: each differs from those before it in every word,
    // though nothing is written between them. The moduli are primes, so that no period of a fault falls on equal messages.
    // Short messages come from 8 KiB: 32 KiB would fill a level-1 cache and add a percent to the latency of host memory.
    // A batch of round trips is shorter than 1021, so no message equals what its place held.
    static std::size_t offset(std::uint64_t sequence, std::size_t bytes) {
        return bytes < 64 ? sequence % 1021 * 8 : sequence % 4093 * 64;
    }

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
    std::size_t status_wrong(MPI_Status &status, std::size_t bytes) const {
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        const auto got = static_cast<std::size_t>(std::max(count, 0));
        if (status.MPI_SOURCE != peer_ || status.MPI_TAG != tag_data) return bytes;
        return got > bytes ? got - bytes : bytes - got;
    }

    // Passes `messages` messages, several in flight, into memory that was cleared, and compares each whole. Returns the
    // bytes that are not as they were sent, at both ranks.
    std::size_t verified(Buffers kinds, std::size_t bytes, int messages) {
        const std::size_t stride = (bytes + 63) / 64 * 64;
        const auto most = std::clamp(buffers_.bytes() / stride, std::size_t{1}, static_cast<std::size_t>(window_));
        char *memory = sender_ ? buffers_.send(kinds.send) : buffers_.receive(kinds.receive);
        if (!sender_) BufferSet::clear(kinds.receive, memory, most * stride);
        std::size_t wrong = 0;
        for (auto left = static_cast<std::size_t>(messages); left > 0;) {
            // Lengths without a period: a fault at every n-th message must not always hit the same place of a window.
            const std::size_t length = std::min(left, most - payload_word(sequence_, 0) % ((most + 1) / 2));
            left -= length;
            std::vector<MPI_Request> requests(length);
            std::vector<MPI_Status> statuses(length);
            std::vector<std::size_t> offsets(length);
            for (std::size_t i = 0; i < length; ++i) {
                offsets[i] = offset(next(), bytes);
                if (sender_)
                    MPI_Isend(memory + offsets[i], static_cast<int>(bytes), MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, &requests[i]);
                else
                    MPI_Irecv(memory + i * stride, static_cast<int>(bytes), MPI_BYTE, peer_, tag_data, MPI_COMM_WORLD, &requests[i]);
            }
            MPI_Waitall(static_cast<int>(length), requests.data(), statuses.data());
            if (sender_) continue;
            for (auto &status : statuses) wrong += buffers_.count(status_wrong(status, bytes));
            wrong += buffers_.verify_each(kinds.receive, memory, stride, length, bytes, stream_seed(from_),
                                          [&](std::size_t i) { return offsets[i] / 8; });
        }
        return settle(wrong);
    }

  private:
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
