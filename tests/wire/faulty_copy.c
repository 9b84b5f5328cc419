// SPDX-License-Identifier: MIT
// A test double for faulty memory: preloaded, it flips one bit in every n-th large copy (FAULT_EVERY), on the host and between GPUs.
//
//   cc -shared -fPIC -O2 faulty_copy.c -o faulty_copy.so -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int is_hit(size_t bytes) {
    static long copies;
    const char *every = getenv("FAULT_EVERY");
    return bytes >= 1 << 20 && every && __sync_add_and_fetch(&copies, 1) % atol(every) == 0;
}

void *memcpy(void *to, const void *from, size_t bytes) {
    static void *(*real)(void *, const void *, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "memcpy");
    real(to, from, bytes);
    if (is_hit(bytes)) ((char *)to)[bytes / 3] ^= 2;
    return to;
}

int cudaMemcpyPeer(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes) {
    static int (*real)(void *, int, const void *, int, size_t), (*set)(void *, int, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "cudaMemcpyPeer");
    if (!set) *(void **)&set = dlsym(RTLD_DEFAULT, "cudaMemset");
    const int status = real(to, to_gpu, from, from_gpu, bytes);
    return status || !is_hit(bytes) ? status : set((char *)to + bytes / 3, 1, 8);
}
