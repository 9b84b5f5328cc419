// SPDX-License-Identifier: MIT
// A test double for a faulty MPI, driver or link: preloaded, it spoils what ranks receive (or send), in host and GPU memory.
//
//   cc -shared -fPIC -O2 faulty_mpi.c -o faulty_mpi.so -I<mpi.h> -ldl
//
//   FAULT        flip     one bit of the message
//                half     the second half of the message does not arrive
//                repeat   the previous message of that size arrives again
//                swap     two messages that are in flight together change places
//                truncate as half, and the status says so
//                sent     one bit flips before the message leaves
//   FAULT_EVERY  every n-th of the messages that the filters let through (97)
//   FAULT_TAG    only messages with this tag (any)
//   FAULT_LEAST, FAULT_MOST  only messages of this many bytes (0, any)
//   FAULT_AFTER  only after so many of these messages (0)
//   FAULT_RANK   only in this rank (-1: all)
//   FAULT_AT     where bits flip: the share of the message in percent (50)
// At the end each rank prints "faulty_mpi: N faults".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, KIND_DEFAULT = 4 };

struct receive {
    MPI_Request request;
    char *memory, *before;
    long bytes;
    int tag;
};

static struct receive pending[MOST];
static char *previous, *copies[MOST];
static long previous_bytes = -1, messages, faults;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int fault_is(const char *name) {
    const char *fault = getenv("FAULT");
    return fault && strcmp(fault, name) == 0;
}

// Host memory, or GPU memory where the program has the CUDA runtime.
static void copy(void *to, const void *from, long bytes) {
    static int (*cuda_copy)(void *, const void *, size_t, int), (*synchronize)(void);
    static int searched;
    if (!searched++) {
        *(void **)&cuda_copy = dlsym(RTLD_DEFAULT, "cudaMemcpy");
        *(void **)&synchronize = dlsym(RTLD_DEFAULT, "cudaDeviceSynchronize");
    }
    if (!cuda_copy || !synchronize) {
        memcpy(to, from, (size_t)bytes);
    } else if (cuda_copy(to, from, (size_t)bytes, KIND_DEFAULT) || synchronize()) {
        fprintf(stderr, "faulty_mpi: cudaMemcpy failed\n");
        abort();
    }
}

static char *copied(const void *from, long bytes) {
    char *memory = malloc((size_t)bytes + 1);
    copy(memory, from, bytes);
    return memory;
}

static int is_filtered_out(long bytes, int tag) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const long wanted_rank = number("FAULT_RANK", -1), wanted_tag = number("FAULT_TAG", -1), most = number("FAULT_MOST", -1);
    return bytes <= 0 || bytes < number("FAULT_LEAST", 0) || (most >= 0 && bytes > most) || (wanted_tag >= 0 && tag != wanted_tag) ||
           (wanted_rank >= 0 && rank != wanted_rank);
}

// Count a message that the filters let through.
static int is_hit(void) {
    ++messages;
    return messages > number("FAULT_AFTER", 0) && messages % number("FAULT_EVERY", 97) == 0;
}

static void flip(char *memory, long bytes) {
    char byte, *at = memory + (bytes - 1) * number("FAULT_AT", 50) / 100;
    copy(&byte, at, 1);
    byte ^= 16;
    copy(at, &byte, 1);
    ++faults;
}

// One message has arrived in `memory`; `before` is what was there.
static void arrived(char *memory, const char *before, long bytes, int tag, MPI_Status *status) {
    if (is_filtered_out(bytes, tag)) return;
    const int repeats = fault_is("repeat");
    char *now = repeats ? copied(memory, bytes) : NULL;
    if (!fault_is("swap") && !fault_is("sent") && is_hit()) {
        if (fault_is("flip")) flip(memory, bytes);
        if (fault_is("half") || fault_is("truncate")) {
            copy(memory + bytes / 2, before + bytes / 2, bytes - bytes / 2);
            if (fault_is("truncate") && status) MPI_Status_set_elements(status, MPI_BYTE, (int)(bytes / 2));
            ++faults;
        }
        if (repeats && previous_bytes == bytes) {
            copy(memory, previous, bytes);
            ++faults;
        }
    }
    if (repeats) {
        free(previous);
        previous = now;
        previous_bytes = bytes;
    }
}

static int size_of(MPI_Datatype type) {
    int size;
    MPI_Type_size(type, &size);
    return size;
}

static int needs_before(void) { return fault_is("half") || fault_is("truncate"); }

int MPI_Recv(void *memory, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const long most = (long)count * size_of(type);
    char *before = needs_before() ? copied(memory, most) : NULL;
    const int result = PMPI_Recv(memory, count, type, from, tag, comm, status);
    int got = 0;
    PMPI_Get_count(status, MPI_BYTE, &got);
    arrived(memory, before, got, tag, status);
    free(before);
    return result;
}

int MPI_Irecv(void *memory, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
    const long bytes = (long)count * size_of(type);
    char *before = needs_before() ? copied(memory, bytes) : NULL;
    const int result = PMPI_Irecv(memory, count, type, from, tag, comm, request);
    int slot = 0;
    while (pending[slot].memory) ++slot;
    pending[slot] = (struct receive){*request, memory, before, bytes, tag};
    return result;
}

// The pending receive of a request, or NULL.
static struct receive *receive_of(MPI_Request request) {
    for (int slot = 0; slot < MOST; ++slot)
        if (pending[slot].memory && pending[slot].request == request) return &pending[slot];
    return NULL;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    MPI_Status *own = malloc(sizeof *own * (size_t)(count + 1));
    struct receive **done = calloc((size_t)count + 1, sizeof *done);
    for (int i = 0; i < count; ++i) done[i] = receive_of(requests[i]);
    MPI_Status *filled = statuses == MPI_STATUSES_IGNORE ? own : statuses;
    const int result = PMPI_Waitall(count, requests, filled);
    struct receive *last = NULL;
    int armed = 0;
    for (int i = 0; i < count; ++i) {
        if (!done[i]) continue;
        arrived(done[i]->memory, done[i]->before, done[i]->bytes, done[i]->tag, &filled[i]);
        if (fault_is("swap") && !is_filtered_out(done[i]->bytes, done[i]->tag)) {
            armed |= is_hit();
            if (armed && last && last->bytes == done[i]->bytes && last->memory != done[i]->memory) {
                char *one = copied(last->memory, last->bytes), *other = copied(done[i]->memory, last->bytes);
                copy(last->memory, other, last->bytes);
                copy(done[i]->memory, one, last->bytes);
                free(one);
                free(other);
                armed = 0;
                ++faults;
            }
            last = done[i];
        }
    }
    for (int i = 0; i < count; ++i)
        if (done[i]) {
            free(done[i]->before);
            done[i]->memory = NULL;
        }
    free(own);
    free(done);
    return result;
}

int MPI_Send(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    const long bytes = (long)count * size_of(type);
    if (!fault_is("sent") || is_filtered_out(bytes, tag) || !is_hit()) return PMPI_Send(memory, count, type, to, tag, comm);
    char *spoiled = copied(memory, bytes);
    flip(spoiled, bytes);
    const int result = PMPI_Send(spoiled, count, type, to, tag, comm);
    free(spoiled);
    return result;
}

// The copy stays until the end: nobody says when the message has left.
int MPI_Isend(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    const long bytes = (long)count * size_of(type);
    if (!fault_is("sent") || is_filtered_out(bytes, tag) || !is_hit()) return PMPI_Isend(memory, count, type, to, tag, comm, request);
    char *spoiled = copies[faults % MOST] = copied(memory, bytes);
    flip(spoiled, bytes);
    return PMPI_Isend(spoiled, count, type, to, tag, comm, request);
}

// All ranks are still there: a launcher ends them as soon as one of them has failed.
int MPI_Finalize(void) {
    fprintf(stderr, "faulty_mpi: %ld faults\n", faults);
    PMPI_Barrier(MPI_COMM_WORLD);
    return PMPI_Finalize();
}
