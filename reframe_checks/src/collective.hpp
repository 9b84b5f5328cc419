// SPDX-License-Identifier: MIT
// Collectives and one-sided operations of which every result is compared whole.
#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "buffers.hpp"

// One operation at one size, made by all ranks of the world. A rank sends blocks to each rank or one to all, and knows what
// each byte of its own buffer must hold then: a block, a sum of blocks, or what was there before.
class Collective {
  public:
    // A get that `may_be_late` is compared again when its window is freed.
    Collective(BufferSet &memory, const std::string &operation, char kind, std::size_t bytes, int rank, int ranks, bool may_be_late)
        : memory_(memory), operation_(operation), kind_(kind), rank_(rank), ranks_(ranks), may_be_late_(may_be_late),
          reduces_(is({"allreduce", "reduce", "reduce_scatter_block"})), bytes_(reduces_ ? words(bytes) * 8 : bytes) {}

    static bool one_sided(const std::string &operation) { return operation == "put" || operation == "get"; }

    // What a buffer needs for any operation.
    static std::size_t room(std::size_t bytes, int ranks) {
        return static_cast<std::size_t>(ranks) * (words(bytes) * 8 + gap) + 2 * Batch::guard + 64;
    }

    // The bytes of gets that arrived only when their window was freed.
    std::size_t late() const { return late_; }

    // Runs it once, and returns the bytes that are wrong at this rank. Each `turn` has another payload, root and alignment.
    std::size_t wrong(std::uint64_t turn) {
        turn_ = turn;
        root_ = static_cast<int>(turn % static_cast<std::uint64_t>(ranks_));
        const std::uint64_t dice = payload_word(keyed(turn), bytes_);
        const std::size_t shift = reduces_ ? dice % 8 * 8 : dice % 64;
        out_ = memory_.send(kind_) + Batch::guard + shift;
        in_ = memory_.receive(kind_) + Batch::guard + shift;
        const bool many_out = is({"alltoall", "alltoallv", "reduce_scatter_block", "put", "get"}) || (operation_ == "scatter" && rank_ == root_);
        const int blocks = many_out ? ranks_ : 1;
        for (char *memory : {memory_.send(kind_), memory_.receive(kind_)}) BufferSet::clear(kind_, memory, room(bytes_, ranks_));
        in_place_ = (dice >> 10) % 4 == 0;
        fractions_ = reduces_ && (dice >> 12 & 1);
        for (int to = 0; to < blocks; ++to) {
            const auto numbers = [&](std::size_t i) { return number(rank_, to, i); };
            reduces_ ? memory_.load_words(out_ + place(to), bytes_ / 8, numbers) : memory_.load(out_ + place(to), sent(rank_, to), seed(rank_, to));
        }
        std::size_t wrong = run();
        Seen kept{memory_, kind_, out_};
        if (dice >> 9 & 1) {  // MPI may not change what it sends
            for (int to = 0; to < blocks; ++to)
                if (reduces_)
                    kept.words(place(to), bytes_ / 8, [&](std::size_t i) { return number(rank_, to, i); });
                else
                    kept.block(place(to), sent(rank_, to), seed(rank_, to));
        } else {  // nor read it any more
            BufferSet::clear(kind_, memory_.send(kind_), room(bytes_, ranks_));
        }
        kept.rest();
        wrong += kept.wrong + compare();
        if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
        MPI_Barrier(MPI_COMM_WORLD);
        return wrong == 0 ? compare() : wrong;  // nothing may change any more
    }

  private:
    // A buffer that is compared from its start on: all but its blocks must be as `clear` left it.
    struct Seen {
        BufferSet &memory;
        char kind;
        char *start;
        std::size_t end = 0, wrong = 0;  // behind what has been compared, and the bytes that are wrong

        void block(std::size_t begin, std::size_t bytes, std::uint64_t seed) {
            wrong += memory.verify_clear(kind, start + end, begin - end) + memory.verify(kind, start + begin, bytes, seed);
            end = begin + bytes;
        }
        template <typename WordOf>
        void words(std::size_t begin, std::size_t count, WordOf word_of) {
            wrong += memory.verify_clear(kind, start + end, begin - end) + memory.verify_words(start + begin, count, word_of);
            end = begin + 8 * count;
        }
        void rest() {
            wrong += memory.verify_clear(kind, start + end, Batch::guard) + memory.verify_clear(kind, start - Batch::guard, Batch::guard);
        }
    };

    static constexpr std::size_t gap = 64;  // between the blocks of an operation with displacements

    static std::size_t words(std::size_t bytes) { return std::max(bytes / 8, std::size_t{1}); }
    bool is(const std::vector<std::string> &names) const { return std::find(names.begin(), names.end(), operation_) != names.end(); }
    bool spaced() const { return is({"allgatherv", "alltoallv"}); }

    // Where the block of a rank begins, in bytes.
    std::size_t place(int rank) const { return static_cast<std::size_t>(rank) * (bytes_ + (spaced() ? gap : 0)); }

    // How many bytes a rank sends to another: with counts of their own, each pair sends another number.
    std::size_t sent(int from, int to) const {
        const auto less = static_cast<std::size_t>(operation_ == "allgatherv" ? from : 3 * from + to);
        return spaced() ? bytes_ - less % bytes_ : bytes_;
    }

    std::uint64_t seed(int from, int to) const {
        const auto pair = static_cast<std::uint64_t>(from + 1) * static_cast<std::uint64_t>(ranks_ + 1) + static_cast<std::uint64_t>(to);
        return turn_ << 40 | pair;
    }

    // What a rank adds to a sum: 64 bits, or a number of 40 bits in a double, so that sums are exact in any order.
    std::uint64_t number(int from, int to, std::size_t i) const {
        const std::uint64_t word = payload_word(keyed(seed(from, to)), i);
        return fractions_ ? bits(static_cast<double>(word >> 24)) : word;
    }

    std::uint64_t sum(int to, std::size_t i) const {
        std::uint64_t whole = 0;
        double fraction = 0;
        for (int from = 0; from < ranks_; ++from) {
            const std::uint64_t word = payload_word(keyed(seed(from, to)), i);
            whole += word;
            fraction += static_cast<double>(word >> 24);
        }
        return fractions_ ? bits(fraction) : whole;
    }

    static std::uint64_t bits(double number) {
        std::uint64_t word;
        std::memcpy(&word, &number, 8);
        return word;
    }

    std::size_t run() {
        const int count = static_cast<int>(bytes_), numbers = static_cast<int>(bytes_ / 8);
        const auto type = fractions_ ? MPI_DOUBLE : MPI_UINT64_T;
        const auto all = MPI_COMM_WORLD;
        const void *const out = source();
        if (operation_ == "bcast") {
            if (rank_ == root_) device::copy(in_, out_, bytes_);
            MPI_Bcast(in_, count, MPI_BYTE, root_, all);
        } else if (operation_ == "allgather") {
            MPI_Allgather(out, count, MPI_BYTE, in_, count, MPI_BYTE, all);
        } else if (operation_ == "gather") {
            MPI_Gather(out, count, MPI_BYTE, in_, count, MPI_BYTE, root_, all);
        } else if (operation_ == "scatter") {
            MPI_Scatter(out_, count, MPI_BYTE, in_, count, MPI_BYTE, root_, all);
        } else if (operation_ == "alltoall") {
            MPI_Alltoall(out, count, MPI_BYTE, in_, count, MPI_BYTE, all);
        } else if (operation_ == "allgatherv") {
            const auto counts = per_rank([&](int from) { return sent(from, 0); }), places = per_rank([&](int from) { return place(from); });
            MPI_Allgatherv(out, counts[static_cast<std::size_t>(rank_)], MPI_BYTE, in_, counts.data(), places.data(), MPI_BYTE, all);
        } else if (operation_ == "alltoallv") {
            const auto places = per_rank([&](int rank) { return place(rank); });
            const auto counts = per_rank([&](int to) { return sent(rank_, to); }), in = per_rank([&](int from) { return sent(from, rank_); });
            MPI_Alltoallv(out_, counts.data(), places.data(), MPI_BYTE, in_, in.data(), places.data(), MPI_BYTE, all);
        } else if (operation_ == "allreduce") {
            MPI_Allreduce(out, in_, numbers, type, MPI_SUM, all);
        } else if (operation_ == "reduce") {
            MPI_Reduce(out, in_, numbers, type, MPI_SUM, root_, all);
        } else if (operation_ == "reduce_scatter_block") {
            MPI_Reduce_scatter_block(out_, in_, numbers, type, MPI_SUM, all);
        } else {
            return access();
        }
        return 0;
    }

    // What MPI sends from: this rank's buffer, or in place, where it takes it from what it will overwrite.
    const void *source() {
        const bool rooted = is({"gather", "reduce"});
        if (!in_place_ || (rooted && rank_ != root_) || !(rooted || is({"allgather", "allgatherv", "alltoall", "allreduce"}))) return out_;
        if (operation_ == "alltoall")
            device::copy(in_, out_, place(ranks_));
        else
            device::copy(in_ + (reduces_ ? 0 : place(rank_)), out_, sent(rank_, 0));
        return MPI_IN_PLACE;
    }

    // Each rank writes a block into the memory of every rank, or reads one from it, between fences: under locks, Open MPI that
    // was built for UCX 1.20 can wait without end if UCX 1.14.1 is loaded. The window of a put stays: what arrives only when it
    // is freed arrives too late. A get is compared before that; returns the bytes that are wrong then. UCX before 1.16 can complete
    // it only when its window is freed.
    std::size_t access() {
        const bool puts = operation_ == "put";
        const auto count = static_cast<int>(bytes_);
        MPI_Win_create(puts ? in_ : out_, static_cast<MPI_Aint>(place(ranks_)), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_);
        MPI_Win_fence(0, window_);
        for (int other = 0; other < ranks_; ++other) {
            if (puts)
                MPI_Put(out_ + place(other), count, MPI_BYTE, other, static_cast<MPI_Aint>(place(rank_)), count, MPI_BYTE, window_);
            else
                MPI_Get(in_ + place(other), count, MPI_BYTE, other, static_cast<MPI_Aint>(place(rank_)), count, MPI_BYTE, window_);
        }
        MPI_Win_fence(0, window_);
        if (puts) return 0;
        const std::size_t wrong = compare();
        MPI_Win_free(&window_);
        if (!may_be_late_) return wrong;
        late_ += wrong;
        memory_.count(-wrong);
        return 0;
    }

    template <typename Number>
    std::vector<int> per_rank(Number number) const {
        std::vector<int> numbers;
        for (int rank = 0; rank < ranks_; ++rank) numbers.push_back(static_cast<int>(number(rank)));
        return numbers;
    }

    std::size_t compare() {
        Seen seen{memory_, kind_, in_};
        if (operation_ == "bcast") {
            seen.block(0, bytes_, seed(root_, 0));
        } else if (operation_ == "scatter") {
            seen.block(0, bytes_, seed(root_, rank_));
        } else if (reduces_) {
            if (operation_ != "reduce" || rank_ == root_) {
                const int to = operation_ == "reduce_scatter_block" ? rank_ : 0;
                seen.words(0, bytes_ / 8, [&](std::size_t i) { return sum(to, i); });
            }
        } else if (operation_ != "gather" || rank_ == root_) {
            const bool own = is({"alltoall", "alltoallv", "put", "get"});
            for (int from = 0; from < ranks_; ++from) seen.block(place(from), sent(from, rank_), seed(from, own ? rank_ : 0));
        }
        seen.rest();
        return seen.wrong;
    }

    BufferSet &memory_;
    std::string operation_;
    char kind_;
    int rank_, ranks_;
    bool may_be_late_, reduces_;
    std::size_t bytes_, late_ = 0;
    std::uint64_t turn_ = 0;
    int root_ = 0;
    bool in_place_ = false, fractions_ = false;
    MPI_Win window_ = MPI_WIN_NULL;
    char *out_ = nullptr, *in_ = nullptr;
};
