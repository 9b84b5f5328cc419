// SPDX-License-Identifier: MIT
// A test double for a faulty NCCL: preloaded, it spoils every n-th result of 4 KiB or more, in the order of the stream.
//
//   cc -shared -fPIC -O2 faulty_nccl.c -o faulty_nccl.so -ldl
//
//   FAULT        flip   one byte of the result changes
//                half   the second half of the result does not arrive
//                drop   nothing of it arrives
//                repeat the previous result of that size arrives again
//                blocks its two halves change places
//                past   64 bytes behind it are written as well
//                ahead  4 bytes before it are written as well
//                lost   the stream goes on before the operation has run
//                root   a broadcast takes the next rank as its root
//                type   a sum adds 32-bit integers
//                op     a sum is a maximum
//                clock  the clock and the events of CUDA go at half their speed
//                events the events of CUDA do so for times below 0.4 s
//   FAULT_EVERY  every n-th (7)
//   FAULT_RANK   only in the rank with this RANK (any)
// At the end it prints "faulty_nccl: N faults".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LEAST = 4096, MOST = 1024, DEVICE_TO_DEVICE = 3, NON_BLOCKING = 1, INT32 = 2, FLOAT32 = 7, SUM = 0, MAX = 2 };

struct result {
    char *out, *before;
    size_t bytes;
    void *stream;
    int hit;
};

static struct result queue[MOST];  // of the operations of a group
static int queued, depth;
static long results, faults;
static char *previous[MOST];
static size_t previous_bytes[MOST];

static int fault_is(const char *name) {
    const char *fault = getenv("FAULT");
    return fault && strcmp(fault, name) == 0;
}

// A function of a library that is loaded already, perhaps for its caller only.
static void *next(const char *name) {
    static const char *const libraries[] = {"libnccl.so.2", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    void *found = dlsym(RTLD_NEXT, name);
    for (size_t i = 0; !found && i < sizeof libraries / sizeof *libraries; ++i) {
        void *library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library) found = dlsym(library, name);
    }
    if (found) return found;
    fprintf(stderr, "faulty_nccl: the program has no %s\n", name);
    abort();
}

// Declares `real`, the function of that name that this library stands in front of.
#define REAL(type, name)           \
    static __typeof__(type) *real; \
    if (!real) *(void **)&real = next(name)

static void check(int status, const char *what) {
    if (!status) return;
    fprintf(stderr, "faulty_nccl: %s failed with %d\n", what, status);
    abort();
}

static void copy(void *to, const void *from, size_t bytes, void *stream) {
    REAL(int(void *, const void *, size_t, int, void *), "cudaMemcpyAsync");
    check(real(to, from, bytes, DEVICE_TO_DEVICE, stream), "cudaMemcpyAsync");
}

static void set(void *to, int value, size_t bytes, void *stream) {
    REAL(int(void *, int, size_t, void *), "cudaMemsetAsync");
    check(real(to, value, bytes, stream), "cudaMemsetAsync");
}

static char *room(size_t bytes) {  // never given back: a test is short
    REAL(int(void **, size_t), "cudaMalloc");
    void *memory = NULL;
    check(real(&memory, bytes), "cudaMalloc");
    return memory;
}

// Memory for a copy of a result; there is one of each size and use.
static char *room_for(size_t bytes, int use) {
    static char *memory[2][MOST];
    static size_t size[2][MOST];
    int i = 0;
    while (size[use][i] && size[use][i] != bytes) ++i;
    if (!size[use][i]) memory[use][i] = room(size[use][i] = bytes);
    return memory[use][i];
}

// A stream that is busy for some milliseconds.
static void *busy_stream(void) {
    static void *stream;
    static char *memory;
    const size_t bytes = (size_t)256 << 20;
    REAL(int(void **, unsigned), "cudaStreamCreateWithFlags");
    if (!stream) {
        check(real(&stream, NON_BLOCKING), "cudaStreamCreateWithFlags");
        memory = room(bytes);
    }
    for (int i = 0; i < 60; ++i) set(memory, i, bytes, stream);
    return stream;
}

static int is_hit(size_t bytes) {
    const char *every = getenv("FAULT_EVERY"), *wanted = getenv("FAULT_RANK"), *rank = getenv("RANK");
    if (bytes < LEAST || !getenv("FAULT")) return 0;
    return ++results % (every ? atol(every) : 7) == 0 && (!wanted || !rank || strcmp(wanted, rank) == 0);
}

static void spoil(const struct result *it) {
    char *half = it->out + it->bytes / 8 * 4;
    const size_t rest = it->bytes - it->bytes / 8 * 4;
    if (it->hit) {
        // Small whole numbers have zeros in the lower half of a float.
        if (fault_is("flip")) set(half + 1, 0x40, 1, it->stream);
        if (fault_is("past")) set(it->out + it->bytes, 0, 64, it->stream);
        if (fault_is("ahead")) set(it->out - 4, 0, 4, it->stream);
        if (fault_is("half")) copy(half, it->before + (half - it->out), rest, it->stream);
        if (fault_is("drop")) copy(it->out, it->before, it->bytes, it->stream);
        if (fault_is("blocks")) {
            char *other = room_for(it->bytes, 1);
            copy(other, it->out, it->bytes, it->stream);
            copy(it->out, other + rest, it->bytes - rest, it->stream);
            copy(it->out + (it->bytes - rest), other, rest, it->stream);
        }
    }
    if (!fault_is("repeat")) return;
    int i = 0;
    while (previous_bytes[i] && previous_bytes[i] != it->bytes) ++i;
    char *now = room_for(it->bytes, 1);
    copy(now, it->out, it->bytes, it->stream);
    if (it->hit && previous_bytes[i]) copy(it->out, previous[i], it->bytes, it->stream);
    if (!previous_bytes[i]) previous[i] = room(previous_bytes[i] = it->bytes);
    copy(previous[i], now, it->bytes, it->stream);
}

static size_t size_of(int type) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return sizes[type];
}

// Before an operation whose result is `bytes` bytes at `out`: whether it is hit. It may go to another stream.
static int begin(struct result *it, void *out, size_t bytes, void **stream) {
    *it = (struct result){out, NULL, bytes, *stream, is_hit(bytes)};
    if (!it->hit) return 0;
    if (!fault_is("clock") && !fault_is("events")) __sync_add_and_fetch(&faults, 1);
    if (fault_is("lost")) *stream = busy_stream();
    if (fault_is("half") || fault_is("drop")) {
        it->before = room_for(bytes, 0);
        copy(it->before, out, bytes, it->stream);
    }
    return 1;
}

static int end(const struct result *it, int status) {
    if (depth == 0)
        spoil(it);
    else if (queued < MOST)
        queue[queued++] = *it;
    return status;
}

int ncclGroupStart(void) {
    REAL(int(void), "ncclGroupStart");
    ++depth;
    return real();
}

int ncclGroupEnd(void) {
    REAL(int(void), "ncclGroupEnd");
    const int status = real();
    if (--depth == 0) {
        for (int i = 0; i < queued; ++i) spoil(&queue[i]);
        queued = 0;
    }
    return status;
}

static int ranks_of(void *comm) {
    REAL(int(void *, int *), "ncclCommCount");
    int ranks = 1;
    check(real(comm, &ranks), "ncclCommCount");
    return ranks;
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream) {
    REAL(int(const void *, void *, size_t, int, int, void *, void *), "ncclAllReduce");
    struct result it;
    const int hit = begin(&it, out, count * size_of(type), &stream), sums = hit && type == FLOAT32 && op == SUM;
    return end(&it, real(in, out, count, sums && fault_is("type") ? INT32 : type, sums && fault_is("op") ? MAX : op, comm, stream));
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *comm, void *stream) {
    REAL(int(const void *, void *, size_t, int, int, void *, void *), "ncclReduceScatter");
    struct result it;
    const int hit = begin(&it, out, count * size_of(type), &stream), sums = hit && type == FLOAT32 && op == SUM;
    return end(&it, real(in, out, count, sums && fault_is("type") ? INT32 : type, sums && fault_is("op") ? MAX : op, comm, stream));
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream) {
    REAL(int(const void *, void *, size_t, int, int, void *, void *), "ncclBroadcast");
    struct result it;
    if (begin(&it, out, count * size_of(type), &stream) && fault_is("root")) root = (root + 1) % ranks_of(comm);
    return end(&it, real(in, out, count, type, root, comm, stream));
}

int ncclBcast(void *data, size_t count, int type, int root, void *comm, void *stream) {
    return ncclBroadcast(data, data, count, type, root, comm, stream);
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream) {
    REAL(int(const void *, void *, size_t, int, void *, void *), "ncclAllGather");
    struct result it;
    begin(&it, out, count * size_of(type) * (size_t)ranks_of(comm), &stream);
    return end(&it, real(in, out, count, type, comm, stream));
}

// Of NCCL 2.28 and newer; older ones send and receive.
int ncclAlltoAll(const void *in, void *out, size_t count, int type, void *comm, void *stream) {
    REAL(int(const void *, void *, size_t, int, void *, void *), "ncclAlltoAll");
    struct result it;
    begin(&it, out, count * size_of(type) * (size_t)ranks_of(comm), &stream);
    return end(&it, real(in, out, count, type, comm, stream));
}

int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream) {
    REAL(int(void *, size_t, int, int, void *, void *), "ncclRecv");
    struct result it;
    begin(&it, out, count * size_of(type), &stream);
    return end(&it, real(out, count, type, peer, comm, stream));
}

static int half_of_the_time(const char *name, float *milliseconds, void *from, void *to) {
    int (*real)(float *, void *, void *);
    *(void **)&real = next(name);
    const int status = real(milliseconds, from, to);
    if (fault_is("clock") || (fault_is("events") && *milliseconds < 400)) *milliseconds /= 2;
    return status;
}

int cudaEventElapsedTime(float *milliseconds, void *from, void *to) {
    return half_of_the_time("cudaEventElapsedTime", milliseconds, from, to);
}

int cudaEventElapsedTime_v2(float *milliseconds, void *from, void *to) {
    return half_of_the_time("cudaEventElapsedTime_v2", milliseconds, from, to);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static long start[16];
    const int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (!fault_is("clock") || clock < 0 || clock > 15 || clock == CLOCK_REALTIME) return result;
    long nanoseconds = time->tv_sec * 1000000000L + time->tv_nsec;
    if (!start[clock]) start[clock] = nanoseconds;
    nanoseconds = start[clock] + (nanoseconds - start[clock]) / 2;
    time->tv_sec = nanoseconds / 1000000000L;
    time->tv_nsec = nanoseconds % 1000000000L;
    faults = 1;
    return result;
}

__attribute__((destructor)) static void report(void) { fprintf(stderr, "faulty_nccl: %ld faults\n", faults); }
