// SPDX-License-Identifier: MIT
// A test double for faulty memory: preloaded, it spoils every n-th copy of 1 MiB or more.
//
//   cc -shared -fPIC -O2 faulty_copy.c -o faulty_copy.so -ldl
//
//   FAULT        flip: one bit (default); past: the byte behind the copy; ahead: the byte before it; in host memory only
//                drop: nothing is copied; half: only the first half is; shift: the bytes arrive 8 behind their place
//                sync: nothing waits for the GPU; elsewhere: the first GPU is taken instead of another; managed, pinned: memory
//                of the GPU is managed or pinned host memory
//   FAULT_EVERY  every n-th copy
//   FAULT_COPY   only copies of this kind: host, to_gpu, from_gpu, local (within a GPU), peer (any)
// At the end it prints "faulty_copy: N faults".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_DEFAULT = 4, TYPE_DEVICE = 2 };

// As the CUDA runtime declares it, with room for what later versions append.
struct attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    char room[128];
};

typedef int copy_function(void *, const void *, size_t, int);
typedef int copy_async_function(void *, const void *, size_t, int, void *);
typedef int copy_peer_function(void *, int, const void *, int, size_t);

static long copies, faults;

static void *next(const char *name) {
    void *function = dlsym(RTLD_NEXT, name);
    if (function) return function;
    fprintf(stderr, "faulty_copy: the program has no %s\n", name);
    abort();
}

static int is_hit(const char *kind, size_t bytes) {
    const char *every = getenv("FAULT_EVERY"), *wanted = getenv("FAULT_COPY");
    if (bytes < 1 << 20 || !every || (wanted && strcmp(wanted, kind) != 0)) return 0;
    return __sync_add_and_fetch(&copies, 1) % atol(every) == 0;
}

// The GPU of a pointer, or -1 for host memory.
static int gpu_of(const void *pointer) {
    static int (*attributes_of)(struct attributes *, const void *);
    if (!attributes_of) *(void **)&attributes_of = next("cudaPointerGetAttributes");
    struct attributes found;
    memset(&found, 0, sizeof found);
    return attributes_of(&found, pointer) == 0 && found.type == TYPE_DEVICE ? found.device : -1;
}

// The CUDA kind of a copy does not tell: programs pass cudaMemcpyDefault.
static const char *kind_of(const void *to, const void *from) {
    const int target = gpu_of(to), source = gpu_of(from);
    if (target < 0) return source < 0 ? "host" : "from_gpu";
    return source < 0 ? "to_gpu" : source == target ? "local" : "peer";
}

static copy_function *gpu_copy(void) {
    static copy_function *real;
    if (!real) *(void **)&real = next("cudaMemcpy");
    return real;
}

static int fault_is(const char *name) {
    const char *fault = getenv("FAULT");
    return fault && strcmp(fault, name) == 0;
}

// Which byte of a copy changes.
static long place(size_t bytes) { return fault_is("past") ? (long)bytes : fault_is("ahead") ? -1 : (long)bytes / 3; }

static int flip(void *memory, size_t bytes) {
    char byte, *at = (char *)memory + place(bytes);
    if (gpu_of(at) != gpu_of(memory)) return 0;  // outside of the allocation
    const int status = gpu_copy()(&byte, at, 1, KIND_DEFAULT);
    byte ^= 2;
    __sync_add_and_fetch(&faults, 1);
    return status ? status : gpu_copy()(at, &byte, 1, KIND_DEFAULT);
}

void *memcpy(void *to, const void *from, size_t bytes) {
    static void *(*real)(void *, const void *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "memcpy");
    if (!is_hit("host", bytes)) return real(to, from, bytes);
    __sync_add_and_fetch(&faults, 1);
    if (fault_is("drop")) return to;
    if (fault_is("half")) return real(to, from, bytes / 2);
    if (fault_is("shift")) return (char *)real((char *)to + 8, from, bytes - 8) - 8;
    real(to, from, bytes);
    ((char *)to)[place(bytes)] ^= 2;
    return to;
}

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    const int status = gpu_copy()(to, from, bytes, kind);
    return status || !is_hit(kind_of(to, from), bytes) ? status : flip(to, bytes);
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    static copy_async_function *real;
    static int (*synchronize)(void *);
    if (!real) *(void **)&real = next("cudaMemcpyAsync");
    if (!synchronize) *(void **)&synchronize = next("cudaStreamSynchronize");
    const int status = real(to, from, bytes, kind, stream);
    if (status || !is_hit(kind_of(to, from), bytes)) return status;
    const int waited = synchronize(stream);
    return waited ? waited : flip(to, bytes);
}

int cudaDeviceSynchronize(void) {
    static int (*real)(void);
    if (!real) *(void **)&real = next("cudaDeviceSynchronize");
    if (!fault_is("sync")) return real();
    __sync_add_and_fetch(&faults, 1);
    return 0;
}

int cudaSetDevice(int gpu) {
    static int (*real)(int);
    if (!real) *(void **)&real = next("cudaSetDevice");
    if (fault_is("elsewhere") && gpu && __sync_add_and_fetch(&faults, 1)) gpu = 0;
    return real(gpu);
}

int cudaMalloc(void **memory, size_t bytes) {
    static int (*real)(void **, size_t), (*other)(void **, size_t, unsigned);
    const int is_managed = fault_is("managed");
    if (!real) *(void **)&real = next("cudaMalloc");
    if (!is_managed && !fault_is("pinned")) return real(memory, bytes);
    *(void **)&other = next(is_managed ? "cudaMallocManaged" : "cudaHostAlloc");
    __sync_add_and_fetch(&faults, 1);
    return other(memory, bytes, is_managed);  // attached to all GPUs, or without flags
}

int cudaMemcpyPeer(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes) {
    static copy_peer_function *real;
    if (!real) *(void **)&real = next("cudaMemcpyPeer");
    const int status = real(to, to_gpu, from, from_gpu, bytes);
    return status || !is_hit("peer", bytes) ? status : flip(to, bytes);
}

__attribute__((destructor)) static void report(void) { fprintf(stderr, "faulty_copy: %ld faults\n", faults); }
