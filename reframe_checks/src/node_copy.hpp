// SPDX-License-Identifier: MIT
// What two processes of one node can reach without MPI: the ceiling that MPI through shared memory is judged by.
#pragma once

#include <mpi.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "support.hpp"

// Made by both ranks of a pair together; the receiver copies from a segment that the sender has written (memcpy), and
// from the sender's own memory through the kernel (process_vm_readv, what MPI calls cross memory attach).
class NodeCopy {
  public:
    NodeCopy(bool active, int from, int to, bool sender, std::size_t bytes)
        : active_(active), sender_(sender), from_(from), to_(to) {
        if (!active_) return;
        MPI_Group world, pair;
        const int members[] = {from, to};
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, 2, members, &pair);
        MPI_Comm_create_group(MPI_COMM_WORLD, pair, 0, &comm_);
        MPI_Group_free(&pair);
        MPI_Group_free(&world);
        const std::size_t room = std::max(bytes, std::size_t{4096});
        MPI_Win_allocate_shared(sender ? static_cast<MPI_Aint>(room) : 0, 1, MPI_INFO_NULL, comm_, &segment_, &window_);
        MPI_Aint size = 0;
        int unit = 0;
        MPI_Win_shared_query(window_, 0, &size, &unit, &segment_);
        if (sender) {
            std::memset(segment_, 1, room);
            new (segment_) std::atomic<unsigned>(0);
            new (static_cast<char *>(segment_) + back_offset) std::atomic<unsigned>(0);
        }
        there_ = static_cast<std::atomic<unsigned> *>(segment_);
        back_ = reinterpret_cast<std::atomic<unsigned> *>(static_cast<char *>(segment_) + back_offset);
        long identity[1] = {getpid()};
        MPI_Bcast(identity, 1, MPI_LONG, 0, comm_);
        sender_pid_ = static_cast<pid_t>(identity[0]);
        MPI_Barrier(comm_);
    }
    NodeCopy(const NodeCopy &) = delete;
    NodeCopy &operator=(const NodeCopy &) = delete;
    ~NodeCopy() {
        if (!active_) return;
        MPI_Win_free(&window_);
        MPI_Comm_free(&comm_);
    }

    bool active() const { return active_; }

    // `source` is the sender's buffer and `target` the receiver's, as MPI will use them.
    void measure(void *source, void *target, std::size_t bytes, double seconds, bool best) {
        unsigned long long address = reinterpret_cast<unsigned long long>(source);
        MPI_Bcast(&address, 1, MPI_UNSIGNED_LONG_LONG, 0, comm_);
        if (!sender_) {
            report("memcpy", bytes, seconds, best, [&] {
                std::memcpy(target, segment_, bytes);
                return true;
            });
            report("process_vm_readv", bytes, seconds, best, [&] {
                for (std::size_t done = 0; done < bytes;) {
                    iovec local{static_cast<char *>(target) + done, bytes - done};
                    iovec remote{reinterpret_cast<char *>(address) + done, bytes - done};
                    const ssize_t n = process_vm_readv(sender_pid_, &local, 1, &remote, 1, 0);
                    if (n <= 0) return false;
                    done += static_cast<std::size_t>(n);
                }
                return true;
            });
        }
        MPI_Barrier(comm_);
    }

    // The fastest possible message: a flag that goes from core to core and back. In short batches, so that some are not
    // interrupted, and between those of the latency that it is compared with: a hypervisor may move the cores in between.
    void pass_flag() {
        if (!active_) return;
        constexpr unsigned trips = 50;
        const auto await = [](const std::atomic<unsigned> &flag, unsigned wanted) {
            for (unsigned spins = 1; flag.load(std::memory_order_acquire) != wanted; ++spins)
                if (spins % 4096 == 0) sched_yield();  // both ranks may have to share one core
        };
        const Span span;
        for (unsigned i = 0; i < trips; ++i) {
            ++trip_;
            if (sender_) {
                there_->store(trip_, std::memory_order_release);
                await(*back_, trip_);
            } else {
                await(*there_, trip_);
                back_->store(trip_, std::memory_order_release);
            }
        }
        fastest_flag_ = std::min(fastest_flag_, span.seconds() / (2 * trips));
    }

    // Of all flags since the last report.
    void report_flag() {
        if (!active_) return;
        if (sender_) Line("flag").add("from", from_).add("to", to_).add("us", fastest_flag_ * 1e6).print();
        fastest_flag_ = 1e9;
    }

  private:
    template <typename Copy>
    void report(const char *method, std::size_t bytes, double seconds, bool best, Copy copy) {
        Line line("copy");
        line.add("from", from_).add("to", to_).add("bytes", bytes).add("method", method);
        if (!copy()) {  // the first also touches the pages
            line.add("error", std::strerror(errno)).print();
            return;
        }
        double total = 0, least = 1e9;
        int copies = 0;
        for (; copies < 3 || total < seconds; ++copies) {
            const Span span;
            copy();
            const double took = span.seconds();
            total += took;
            least = std::min(least, took);
        }
        line.add("gb_per_s", static_cast<double>(bytes) / (best ? least : total / copies) / 1e9).print();
    }

    static constexpr std::size_t back_offset = 2048;  // in other cache lines

    bool active_, sender_;
    int from_, to_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    MPI_Win window_ = MPI_WIN_NULL;
    void *segment_ = nullptr;
    pid_t sender_pid_ = 0;
    std::atomic<unsigned> *there_ = nullptr, *back_ = nullptr;
    unsigned trip_ = 0;
    double fastest_flag_ = 1e9;
};
