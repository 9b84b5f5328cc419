// SPDX-License-Identifier: MIT
// What a rank sends from and receives into, host and GPU, with a payload that is checked byte by byte.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "device.hpp"
#include "support.hpp"

class BufferSet {
  public:
    // `bytes` is the room of each buffer; a `corrupt` one spoils the first byte of what it is loaded with.
    BufferSet(const std::vector<Buffers> &all, std::size_t bytes, bool corrupt) : bytes_(bytes), corrupt_(corrupt) {
        shadow_ = static_cast<unsigned char *>(device::allocate_staging(bytes));
        const auto uses = [&](char kind) {
            return std::any_of(all.begin(), all.end(), [&](Buffers b) { return b.send == kind || b.receive == kind; });
        };
        for (int i : {0, 1}) {
            if (uses('H') && posix_memalign(&host_[i], 4096, bytes)) throw std::bad_alloc();
            if (uses('H')) std::memset(host_[i], 0, bytes);
            if (uses('D')) device_[i] = device::allocate(bytes);
        }
    }
    BufferSet(const BufferSet &) = delete;
    BufferSet &operator=(const BufferSet &) = delete;

    void *send(char kind) const { return kind == 'D' ? device_[0] : host_[0]; }
    void *receive(char kind) const { return kind == 'D' ? device_[1] : host_[1]; }
    std::size_t bytes() const { return bytes_; }
    std::size_t wrong() const { return wrong_; }  // bytes, in all that was verified so far

    // Old bytes must not pass for new ones.
    static void clear(char kind, void *memory, std::size_t bytes) {
        if (kind == 'D')
            device::clear(memory, bytes);
        else
            std::memset(memory, 0xff, bytes);
    }

    void load(void *to, std::size_t bytes, std::uint64_t seed) {
        fill_payload(shadow_, bytes, seed);
        if (corrupt_) shadow_[0] ^= 1;
        device::copy(to, shadow_, bytes);
    }

    // Loads every send buffer that there is.
    void load_all(std::uint64_t seed) {
        for (void *memory : {host_[0], device_[0]})
            if (memory) load(memory, bytes_, seed);
    }

    std::size_t verify(const void *from, std::size_t bytes, std::uint64_t seed) {
        device::copy(shadow_, from, bytes);
        const std::size_t wrong = count_wrong(shadow_, bytes, seed);
        wrong_ += wrong;
        return wrong;
    }

    // `words` words, each the sum of the same word of every rank's payload.
    template <typename SeedOf>
    std::size_t verify_sum(const void *from, int words, int ranks, SeedOf seed_of) {
        device::copy(shadow_, from, static_cast<std::size_t>(words) * 8);
        std::size_t wrong = 0;
        for (int i = 0; i < words; ++i) {
            std::uint64_t expected = 0, got = 0;
            for (int rank = 0; rank < ranks; ++rank) expected += payload_word(seed_of(rank), static_cast<std::uint64_t>(i));
            std::memcpy(&got, &shadow_[static_cast<std::size_t>(i) * 8], 8);
            if (got != expected) wrong += 8;
        }
        wrong_ += wrong;
        return wrong;
    }

  private:
    std::size_t bytes_, wrong_ = 0;
    bool corrupt_;
    unsigned char *shadow_ = nullptr;  // host side of filling and checking
    void *host_[2] = {}, *device_[2] = {};
};
