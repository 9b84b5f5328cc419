// SPDX-License-Identifier: MIT
// What a rank sends from and receives into, host and GPU, with a payload that is checked byte by byte.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "device.hpp"
#include "support.hpp"

// Messages that lie beside each other in one buffer. Each has room around it that no transfer may touch, and begins `shift`
// bytes behind a multiple of 64.
struct Batch {
    static constexpr std::size_t guard = 128;

    char kind;
    char *memory;
    std::size_t bytes, messages, shift;
    std::size_t room = bytes;  // for each message, which may be shorter

    // For any shift below 64.
    static std::size_t stride(std::size_t room) { return (2 * guard + room + 127) / 64 * 64; }
    std::size_t span() const { return messages * stride(room); }
    char *message(std::size_t i) const { return memory + i * stride(room) + guard + shift; }
};

class BufferSet {
  public:
    // `bytes` is the room of each buffer; a `corrupt` one spoils a byte in every KiB of what it is loaded with.
    BufferSet(const std::vector<Buffers> &all, std::size_t bytes, bool corrupt) : bytes_(bytes), corrupt_(corrupt) {
        shadow_ = static_cast<unsigned char *>(device::allocate_staging(staging));
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

    char *send(char kind) const { return static_cast<char *>(kind == 'D' ? device_[0] : host_[0]); }
    char *receive(char kind) const { return static_cast<char *>(kind == 'D' ? device_[1] : host_[1]); }
    std::size_t bytes() const { return bytes_; }
    std::size_t wrong() const { return wrong_; }  // bytes, in all that was verified so far

    // Old bytes must not pass for new ones.
    static void clear(char kind, void *memory, std::size_t bytes) {
        if (kind == 'D')
            device::clear(memory, bytes);
        else
            std::memset(memory, 0xff, bytes);
    }

    void load(char *to, std::size_t bytes, std::uint64_t seed) {
        for (std::size_t at = 0; at < bytes; at += staging) {
            const std::size_t part = std::min(staging, bytes - at);
            fill(shadow_, part, seed, at / 8);
            device::copy(to + at, shadow_, part);
        }
    }

    // Loads the messages of a batch, message i with the payload of `seed_of(i)`, and clears the room around them.
    template <typename SeedOf>
    void load_each(const Batch &batch, SeedOf seed_of) {
        const bool at_once = batch.kind == 'D' && batch.span() <= staging;  // one copy to the GPU instead of many
        if (at_once)
            clear('H', shadow_, batch.span());
        else
            clear(batch.kind, batch.memory, batch.span());
        for (std::size_t i = 0; i < batch.messages; ++i) {
            const auto place = static_cast<std::size_t>(batch.message(i) - batch.memory);
            if (batch.kind == 'H')
                fill(reinterpret_cast<unsigned char *>(batch.message(i)), batch.bytes, seed_of(i), 0);
            else if (at_once)
                fill(shadow_ + place, batch.bytes, seed_of(i), 0);
            else
                load(batch.message(i), batch.bytes, seed_of(i));
        }
        if (at_once) device::copy(batch.memory, shadow_, batch.span());
    }

    // Loads every send buffer that there is.
    void load_all(std::uint64_t seed) {
        for (char kind : {'H', 'D'})
            if (send(kind)) load(send(kind), bytes_, seed);
    }

    // Counts bytes that are wrong for a reason that the bytes do not show.
    std::size_t count(std::size_t wrong) {
        wrong_ += wrong;
        return wrong;
    }

    // Compares with the payload of `seed` from word `first` on.
    std::size_t verify(char kind, const char *from, std::size_t bytes, std::uint64_t seed, std::uint64_t first = 0) {
        if (kind == 'H') return count(count_wrong(reinterpret_cast<const unsigned char *>(from), bytes, seed, first));
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < bytes; at += staging) {
            const std::size_t part = std::min(staging, bytes - at);
            device::copy(shadow_, from + at, part);
            wrong += count_wrong(shadow_, part, seed, first + at / 8);
        }
        return count(wrong);
    }

    // Compares the messages of a batch, and the bytes around each, which must be as `clear` left them.
    template <typename SeedOf>
    std::size_t verify_batch(const Batch &batch, SeedOf seed_of) {
        Batch seen = batch;
        if (batch.kind == 'D' && batch.span() <= staging) {  // one copy from the GPU instead of many
            device::copy(shadow_, batch.memory, batch.span());
            seen.memory = reinterpret_cast<char *>(shadow_);
            seen.kind = 'H';
        }
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < seen.messages; ++i) {
            wrong += verify(seen.kind, seen.message(i), seen.bytes, seed_of(i));
            wrong += verify_around(seen, i);
        }
        return wrong;
    }

    // The room around a message must be as `clear` left it.
    std::size_t verify_around(const Batch &batch, std::size_t i) {
        const char *message = batch.message(i);
        return verify_clear(batch.kind, message - Batch::guard, Batch::guard) + verify_clear(batch.kind, message + batch.bytes, batch.room - batch.bytes + Batch::guard);
    }

    // The bytes that are not as `clear` left them.
    std::size_t verify_clear(char kind, const char *from, std::size_t bytes) {
        std::size_t wrong = 0;
        for (std::size_t at = 0; at < bytes; at += staging) {
            const std::size_t part = std::min(staging, bytes - at);
            const auto *seen = reinterpret_cast<const unsigned char *>(from + at);
            if (kind == 'D') {
                device::copy(shadow_, from + at, part);
                seen = shadow_;
            }
            wrong += part - static_cast<std::size_t>(std::count(seen, seen + part, 0xff));
        }
        return count(wrong);
    }

    // Compares `messages` messages that lie `stride` bytes apart; message i begins with word `first_of(i)`.
    template <typename FirstOf>
    std::size_t verify_each(char kind, const char *from, std::size_t stride, std::size_t messages, std::size_t bytes, std::uint64_t seed,
                            FirstOf first_of) {
        if (kind == 'D' && stride * messages <= staging) {  // one copy from the GPU instead of many
            device::copy(shadow_, from, stride * messages);
            from = reinterpret_cast<const char *>(shadow_);
            kind = 'H';
        }
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < messages; ++i) wrong += verify(kind, from + i * stride, bytes, seed, first_of(i));
        return wrong;
    }

    // Loads `words` words, word i with what `word_of(i)` returns; `verify_words` compares with it.
    template <typename WordOf>
    void load_words(char *to, std::size_t words, WordOf word_of) {
        for (std::size_t i = 0; i < words; ++i) {
            const std::uint64_t word = word_of(i);
            const std::size_t at = i % (staging / 8);
            std::memcpy(&shadow_[at * 8], &word, 8);
            if (i + 1 == words || at + 1 == staging / 8) device::copy(to + (i - at) * 8, shadow_, (at + 1) * 8);
        }
    }

    template <typename WordOf>
    std::size_t verify_words(const char *from, std::size_t words, WordOf word_of) {
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < words; ++i) {
            const std::size_t at = i % (staging / 8);
            if (at == 0) device::copy(shadow_, from + i * 8, std::min(staging, (words - i) * 8));
            const std::uint64_t expected = word_of(i);
            if (std::memcmp(&expected, &shadow_[at * 8], 8) != 0) wrong += 8;
        }
        return count(wrong);
    }

  private:
    void fill(unsigned char *to, std::size_t bytes, std::uint64_t seed, std::uint64_t first) const {
        fill_payload(to, bytes, seed, first);
        for (std::size_t i = 0; corrupt_ && i < bytes; i += 1024) to[i] ^= 1;
    }

    static constexpr std::size_t staging = 4 << 20;  // small enough to stay in a cache
    std::size_t bytes_, wrong_ = 0;
    bool corrupt_;
    unsigned char *shadow_ = nullptr;  // host side of filling and checking
    void *host_[2] = {}, *device_[2] = {};
};
