// SPDX-License-Identifier: MIT
// A test double for a faulty MPI, driver or link: preloaded, it spoils what ranks receive (or send), in host and GPU memory.
//
//   cc -shared -fPIC -O2 faulty_mpi.c -o faulty_mpi.so -I<mpi.h> -ldl
//
//   FAULT        flip     one bit of the message or of the result of a collective
//                half     the second half of the message does not arrive
//                drop     nothing of it arrives
//                gap      64 bytes in its middle do not arrive
//                words    its first and last 8 bytes change places, which no sum of it shows
//                past     up to 64 bytes behind the message are written as well
//                ahead    the byte before the message is written as well
//                early    a send is complete before its memory is read
//                lost     a wait returns before a message has arrived
//                record   the messages are written to FAULT_FILE
//                replay   the messages of FAULT_FILE arrive instead
//                root     a rooted collective takes the next rank as its root
//                type     a sum adds 32-bit numbers
//                op       a sum is a maximum
//                shift    a message arrives 8 bytes behind its place
//                source   one bit of what was sent changes at the sender, after the message has left
//                blocks   two blocks of the result of a collective change places
//                clock    the clock goes at half its speed
//                edit     numbers change as they are printed
//                stall    the clock stands still for 0.7 ms of each millisecond
//                repeat   the previous message of that size arrives again
//                swap     two messages that are in flight together change places
//                truncate as half, and the status says so
//                sent     one bit flips before the message leaves
//                late     one bit of what has arrived flips at a later call
//                comm     messages of two communicators are not kept apart
//                tag      nor those of two tags
//                from     the status of a receive names another rank
//                count    the status says one byte less
//                restart  a persistent send that is started again sends what it sent first
//                narrow   sums of doubles are rounded to float
//                unseen   what a put has written or a get has read is there only when its window is freed
//   FAULT_EVERY  every n-th of the messages that the filters let through (97)
//   FAULT_TAG    only messages with one of these tags, a digit each (any)
//   FAULT_UNALIGNED  only into memory whose address is no multiple of this (any)
//   FAULT_LEAST, FAULT_MOST  only messages of this many bytes (0, any)
//   FAULT_AFTER  only after so many of these messages (0)
//   FAULT_RANK   only in this rank (-1: all)
//   FAULT_AT     where bits flip: the share of the message in percent (50)
//   FAULT_IN     only in this collective (any), and in no message; as in MPI_Gather
// At the end each rank prints "faulty_mpi: N faults".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4096, KIND_DEFAULT = 4 };

// A send that the program believes to be complete.
struct delayed {
    const void *memory;
    int count, to, tag;
    MPI_Datatype type;
    MPI_Comm comm;
};

// A persistent request, as the program made it.
struct persistent {
    MPI_Request request;
    void *memory;
    long bytes;
    int tag, from;
    struct delayed send;
    char *first;  // what it has sent first
};

struct receive {
    MPI_Request request;
    char *memory, *before;
    long bytes;
    int tag, from;
};

static struct receive pending[MOST];
static struct delayed delayed[MOST];
static struct persistent persistent[MOST];
static int waiting, waited;  // delayed sends, and those of which the program has seen the end
static MPI_Request lost = MPI_REQUEST_NULL;
static struct receive changing;  // a bit of it flips at the next call
static struct access {
    char *memory;
    int count, to;
    MPI_Aint place;
    int is_get;
} unseen[MOST];
static int unseen_count;
static FILE *messages_file;
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
    if (getenv("FAULT_IN")) return 1;
    const long wanted_rank = number("FAULT_RANK", -1), most = number("FAULT_MOST", -1);
    const char *tags = getenv("FAULT_TAG");
    return bytes <= 0 || bytes < number("FAULT_LEAST", 0) || (most >= 0 && bytes > most) || (tags && (tag > 9 || !strchr(tags, '0' + tag))) ||
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

static void write_around(char *memory, long bytes) {
    static const char zeros[64];
    copy(memory, zeros, bytes);
    ++faults;
}

static FILE *file_of_rank(void) {
    int rank;
    char name[4096];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "%s.%d", getenv("FAULT_FILE"), rank);
    FILE *file = fopen(name, fault_is("record") ? "wb" : "rb");
    if (!file) abort();
    return file;
}

// The next bytes of the file, which begins again at its end.
static int is_read(char *host, size_t bytes) {
    if (fread(host, 1, bytes, messages_file) == bytes) return 1;
    rewind(messages_file);
    return fread(host, 1, bytes, messages_file) == bytes;
}

// Does what the program believes to be done: sends of whose end it knows, and the message that a wait left out.
static void catch_up(void) {
    for (int i = 0; i < waited; ++i) PMPI_Send(delayed[i].memory, delayed[i].count, delayed[i].type, delayed[i].to, delayed[i].tag, delayed[i].comm);
    memmove(delayed, delayed + waited, sizeof *delayed * (size_t)(waiting - waited));
    waiting -= waited;
    waited = 0;
    int found;
    if (changing.memory) flip(changing.memory, changing.bytes);
    changing.memory = NULL;
    if (lost != MPI_REQUEST_NULL) PMPI_Test(&lost, &found, MPI_STATUS_IGNORE);
}

// One message has arrived in `memory`; `before` is what was there.
static void arrived(char *memory, const char *before, long bytes, int tag, MPI_Status *status) {
    if (is_filtered_out(bytes, tag) || (getenv("FAULT_UNALIGNED") && (uintptr_t)memory % (uintptr_t)number("FAULT_UNALIGNED", 1) == 0)) return;
    if (fault_is("record") || fault_is("replay")) {
        if (!messages_file) messages_file = file_of_rank();
        char *host = malloc((size_t)bytes);
        copy(host, memory, bytes);
        if (fault_is("record"))
            fwrite(host, 1, (size_t)bytes, messages_file);
        else if (is_read(host, (size_t)bytes) && ++faults)
            copy(memory, host, bytes);
        free(host);
        return;
    }
    const int repeats = fault_is("repeat");
    char *now = repeats ? copied(memory, bytes) : NULL;
    if (!fault_is("swap") && !fault_is("sent") && !fault_is("source") && !fault_is("early") && !fault_is("lost") && is_hit()) {
        if (fault_is("flip")) flip(memory, bytes);
        if (fault_is("late")) changing = (struct receive){.memory = memory, .bytes = bytes};
        if (fault_is("count") && status && ++faults) MPI_Status_set_elements(status, MPI_BYTE, (int)bytes - 1);
        if (fault_is("past")) write_around(memory + bytes, 64 - bytes % 64);
        if (fault_is("shift") && bytes > 8) {
            char *host = copied(memory, bytes);
            copy(memory + 8, host, bytes - 8);
            free(host);
            ++faults;
        }
        if (fault_is("ahead")) write_around(memory - 1, 1);
        if (fault_is("gap") && bytes >= 128) {
            copy(memory + bytes / 2, before + bytes / 2, 64);
            ++faults;
        }
        if (fault_is("words") && bytes >= 16) {
            char *host = copied(memory, bytes);
            copy(memory, host + bytes - 8, 8);
            copy(memory + bytes - 8, host, 8);
            free(host);
            ++faults;
        }
        if (fault_is("drop")) {
            copy(memory, before, bytes);
            ++faults;
        }
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

// Where messages of a communicator really go, and for which tag a receive really looks.
static MPI_Comm comm_of(MPI_Comm comm, int tag) {
    int same;
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &same);
    if (!fault_is("comm") || same != MPI_CONGRUENT || is_filtered_out(1, tag)) return comm;
    ++faults;
    return MPI_COMM_WORLD;
}

static int tag_of(int tag) {
    if (!fault_is("tag") || is_filtered_out(1, tag)) return tag;
    ++faults;
    return MPI_ANY_TAG;
}

// The program sees the tag that it asked for.
static void disguise(MPI_Status *status, int tag) {
    if (fault_is("tag")) status->MPI_TAG = tag;
    if (!fault_is("from") || is_filtered_out(1, tag) || !is_hit()) return;
    status->MPI_SOURCE += 1;
    ++faults;
}

static int needs_before(void) { return fault_is("half") || fault_is("truncate") || fault_is("drop") || fault_is("gap"); }

int MPI_Recv(void *memory, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
    MPI_Status own;
    catch_up();
    if (status == MPI_STATUS_IGNORE) status = &own;
    const long most = (long)count * size_of(type);
    char *before = needs_before() ? copied(memory, most) : NULL;
    const int result = PMPI_Recv(memory, count, type, from, tag_of(tag), comm_of(comm, tag), status);
    int got = 0;
    disguise(status, tag);
    PMPI_Get_count(status, MPI_BYTE, &got);
    arrived(memory, before, got, tag, status);
    free(before);
    return result;
}

// The message leaves as it is, and its memory changes then.
static void send_and_spoil(const struct delayed *it, long bytes) {
    PMPI_Send(it->memory, it->count, it->type, it->to, it->tag, it->comm);
    flip((char *)it->memory, bytes);
}

// Remember a receive, to spoil it when the program waits for it.
static void expect(MPI_Request request, void *memory, long bytes, int tag, int from) {
    int slot = 0;
    while (pending[slot].memory) ++slot;
    pending[slot] = (struct receive){request, memory, needs_before() ? copied(memory, bytes) : NULL, bytes, tag, from};
}

static struct persistent *persistent_of(MPI_Request request) {
    for (int slot = 0; slot < MOST; ++slot)
        if (persistent[slot].request == request && (persistent[slot].memory || persistent[slot].send.memory)) return &persistent[slot];
    return NULL;
}

static struct persistent *new_persistent(void) {
    static int last;
    return &persistent[last++ % MOST];
}

int MPI_Irecv(void *memory, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
    const long bytes = (long)count * size_of(type);
    catch_up();
    const int result = PMPI_Irecv(memory, count, type, from, tag_of(tag), comm_of(comm, tag), request);
    expect(*request, memory, bytes, tag, from);
    return result;
}

int MPI_Recv_init(void *memory, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
    const int result = PMPI_Recv_init(memory, count, type, from, tag_of(tag), comm_of(comm, tag), request);
    *new_persistent() = (struct persistent){*request, memory, (long)count * size_of(type), tag, from, {0}, NULL};
    return result;
}

int MPI_Send_init(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    const int result = PMPI_Send_init(memory, count, type, to, tag, comm_of(comm, tag), request);
    *new_persistent() = (struct persistent){*request, NULL, (long)count * size_of(type), tag, 0, {memory, count, to, tag, type, comm}, NULL};
    return result;
}

int MPI_Startall(int count, MPI_Request requests[]) {
    catch_up();
    for (int i = 0; i < count; ++i) {
        struct persistent *it = persistent_of(requests[i]);
        if (it && it->memory) expect(requests[i], it->memory, it->bytes, it->tag, it->from);
        if (it && !it->memory && fault_is("restart") && !is_filtered_out(it->bytes, it->tag) && !it->first) {
            it->first = copied(it->send.memory, it->bytes);
        } else if (it && !it->memory && fault_is("restart") && it->first) {
            copy((char *)it->send.memory, it->first, it->bytes);
            ++faults;
        }
        if (it && !it->memory && fault_is("source") && !is_filtered_out(it->bytes, it->tag) && is_hit()) {
            send_and_spoil(&it->send, it->bytes);
        } else if (it && !it->memory && fault_is("early") && !is_filtered_out(it->bytes, it->tag) && is_hit()) {
            delayed[waiting++] = it->send;
            ++faults;
        } else {
            PMPI_Start(&requests[i]);
        }
    }
    return MPI_SUCCESS;
}

int MPI_Start(MPI_Request *request) { return MPI_Startall(1, request); }

int MPI_Request_free(MPI_Request *request) {
    struct persistent *it = persistent_of(*request);
    if (it) {
        free(it->first);
        *it = (struct persistent){.request = MPI_REQUEST_NULL};
    }
    return PMPI_Request_free(request);
}

// The pending receive of a request, or NULL.
static struct receive *receive_of(MPI_Request request) {
    for (int slot = 0; slot < MOST; ++slot)
        if (pending[slot].memory && pending[slot].request == request) return &pending[slot];
    return NULL;
}

// Two messages that arrived at one look change places.
static void swap(struct receive *one, struct receive *other) {
    char *first = copied(one->memory, one->bytes), *second = copied(other->memory, one->bytes);
    copy(one->memory, second, one->bytes);
    copy(other->memory, first, one->bytes);
    free(first);
    free(second);
    ++faults;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    MPI_Status *own = malloc(sizeof *own * (size_t)(count + 1));
    struct receive **done = calloc((size_t)count + 1, sizeof *done);
    for (int i = 0; i < count; ++i) done[i] = receive_of(requests[i]);
    MPI_Status *filled = statuses == MPI_STATUSES_IGNORE ? own : statuses;
    catch_up();
    MPI_Request left_out = MPI_REQUEST_NULL;
    const int out = count > 0 ? (int)(faults % count) : 0;  // the one that is not waited for
    if (fault_is("lost") && lost == MPI_REQUEST_NULL && count > 1 && done[out] && !persistent_of(requests[out]) && !is_filtered_out(done[out]->bytes, done[out]->tag) && is_hit()) {
        left_out = requests[out];
        requests[out] = MPI_REQUEST_NULL;
        ++faults;
    }
    const int result = PMPI_Waitall(count, requests, filled);
    if (left_out != MPI_REQUEST_NULL) {  // the status says that all is well
        filled[out] = filled[(out + 1) % count];
        MPI_Status_set_elements(&filled[out], MPI_BYTE, (int)done[out]->bytes);
        filled[out].MPI_SOURCE = done[out]->from;
        filled[out].MPI_TAG = done[out]->tag;
        lost = left_out;
    }
    waited = waiting;
    struct receive *last = NULL;
    int armed = 0;
    for (int i = 0; i < count; ++i) {
        if (!done[i]) continue;
        int got = 0;
        PMPI_Get_count(&filled[i], MPI_BYTE, &got);
        disguise(&filled[i], done[i]->tag);
        arrived(done[i]->memory, done[i]->before, got, done[i]->tag, &filled[i]);
        if (fault_is("swap") && !is_filtered_out(done[i]->bytes, done[i]->tag)) {
            armed |= is_hit();
            if (armed && last && last->bytes == done[i]->bytes && last->memory != done[i]->memory) {
                swap(last, done[i]);
                armed = 0;
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

int MPI_Testsome(int count, MPI_Request requests[], int *completed, int indices[], MPI_Status statuses[]) {
    MPI_Request *before = malloc(sizeof *before * (size_t)(count + 1));
    memcpy(before, requests, sizeof *before * (size_t)count);
    catch_up();
    for (int i = 0; i < count && fault_is("lost") && lost == MPI_REQUEST_NULL; ++i) {
        struct receive *it = receive_of(requests[i]);
        if (!it || is_filtered_out(it->bytes, it->tag) || !is_hit()) continue;
        lost = requests[i];
        requests[i] = MPI_REQUEST_NULL;
        indices[0] = i;
        *completed = 1;
        it->memory = NULL;
        ++faults;
        free(before);
        return MPI_SUCCESS;
    }
    const int result = PMPI_Testsome(count, requests, completed, indices, statuses);
    if (*completed > 0) waited = waiting;
    struct receive *last = NULL;
    for (int i = 0; i < *completed; ++i) {
        struct receive *it = receive_of(before[indices[i]]);
        if (!it) continue;
        if (fault_is("swap") && last && last->bytes == it->bytes && !is_filtered_out(it->bytes, it->tag) && is_hit()) swap(last, it);
        last = it;
    }
    for (int i = 0; i < *completed; ++i) {
        struct receive *it = receive_of(before[indices[i]]);
        if (!it) continue;
        arrived(it->memory, it->before, it->bytes, it->tag, NULL);
        free(it->before);
        it->memory = NULL;
    }
    free(before);
    return result;
}

int MPI_Cancel(MPI_Request *request) {
    struct receive *it = receive_of(*request);
    if (it) {
        free(it->before);
        it->memory = NULL;
    }
    return PMPI_Cancel(request);
}

int MPI_Send(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    const long bytes = (long)count * size_of(type);
    catch_up();
    const int is_spoiled = (fault_is("sent") || fault_is("source") || fault_is("early")) && !is_filtered_out(bytes, tag) && is_hit();
    if (!is_spoiled) return PMPI_Send(memory, count, type, to, tag, comm_of(comm, tag));
    if (fault_is("source")) {
        send_and_spoil(&(struct delayed){memory, count, to, tag, type, comm}, bytes);
        return MPI_SUCCESS;
    }
    if (fault_is("early")) {
        delayed[waiting++] = (struct delayed){memory, count, to, tag, type, comm};
        waited = waiting;
        ++faults;
        return MPI_SUCCESS;
    }
    char *spoiled = copied(memory, bytes);
    flip(spoiled, bytes);
    const int result = PMPI_Send(spoiled, count, type, to, tag, comm);
    free(spoiled);
    return result;
}

// The copy stays until the end: nobody says when the message has left.
int MPI_Isend(const void *memory, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    const long bytes = (long)count * size_of(type);
    catch_up();
    const int is_spoiled = (fault_is("sent") || fault_is("source") || fault_is("early")) && !is_filtered_out(bytes, tag) && is_hit();
    if (!is_spoiled) return PMPI_Isend(memory, count, type, to, tag, comm_of(comm, tag), request);
    if (fault_is("source")) {
        send_and_spoil(&(struct delayed){memory, count, to, tag, type, comm}, bytes);
        return PMPI_Ibarrier(MPI_COMM_SELF, request);  // one that is complete
    }
    if (fault_is("early")) {
        delayed[waiting++] = (struct delayed){memory, count, to, tag, type, comm};
        ++faults;
        return PMPI_Ibarrier(MPI_COMM_SELF, request);  // one that is complete
    }
    char *spoiled = copies[faults % MOST] = copied(memory, bytes);
    flip(spoiled, bytes);
    return PMPI_Isend(spoiled, count, type, to, tag, comm, request);
}

// ---- collectives: the result of this rank, spoiled
static int is_chosen(const char *operation) {
    const char *wanted = getenv("FAULT_IN");
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const long wanted_rank = number("FAULT_RANK", -1);
    return wanted && (strcmp(wanted, operation) == 0 || strcmp(wanted, "any") == 0) && (wanted_rank < 0 || rank == wanted_rank) && is_hit();
}

// `bytes` of result in blocks of `block`.
static int spoil(const char *operation, void *memory, long bytes, long block, int result) {
    if (bytes < 8 || fault_is("root") || fault_is("type") || fault_is("op") || fault_is("source") || fault_is("narrow")) return result;
    const int repeats = fault_is("repeat");
    char *now = repeats ? copied(memory, bytes) : NULL;
    const int hit = is_chosen(operation);
    if (hit && repeats && previous_bytes == bytes) {
        copy(memory, previous, bytes);
        ++faults;
    }
    if (repeats) {
        free(previous);
        previous = now;
        previous_bytes = bytes;
    }
    if (!hit) return result;
    if (fault_is("flip")) flip(memory, bytes);
    if (fault_is("late")) changing = (struct receive){.memory = memory, .bytes = bytes};
    if (fault_is("half") || fault_is("drop")) {  // the program has cleared it
        const long begin = fault_is("half") ? bytes / 2 : 0;
        char *cleared = malloc((size_t)bytes);
        memset(cleared, 0xff, (size_t)bytes);
        copy((char *)memory + begin, cleared, bytes - begin);
        free(cleared);
        ++faults;
    }
    if (fault_is("ahead")) write_around((char *)memory - 1, 1);
    if (fault_is("past")) write_around((char *)memory + bytes, 64 - bytes % 64);
    if (fault_is("blocks") && bytes >= 2 * block) {
        char *one = copied(memory, block), *other = copied((char *)memory + block, block);
        copy(memory, other, block);
        copy((char *)memory + block, one, block);
        free(one);
        free(other);
        ++faults;
    }
    return result;
}

static int ranks_of(MPI_Comm comm) {
    int ranks;
    MPI_Comm_size(comm, &ranks);
    return ranks;
}

// All ranks agree, as all count alike; FAULT_RANK does not apply.
static int root_of(const char *operation, int root, MPI_Comm comm) {
    if (!fault_is("root") || !is_chosen(operation)) return root;
    ++faults;
    return (root + 1) % ranks_of(comm);
}

static MPI_Datatype type_of(const char *operation, MPI_Datatype type, int *count) {
    if (!fault_is("type") || type != MPI_UINT64_T || !is_chosen(operation)) return type;
    ++faults;
    *count *= 2;
    return MPI_UINT32_T;
}

static MPI_Op op_of(const char *operation, MPI_Op op) {
    if (!fault_is("op") || !is_chosen(operation)) return op;
    ++faults;
    return MPI_MAX;
}

// The sums of doubles, made in float.
static int rounded(const char *operation, void *in, MPI_Datatype type, int count, int result) {
    if (!fault_is("narrow") || type != MPI_DOUBLE || !is_chosen(operation)) return result;
    double *sums = (double *)copied(in, 8L * count);
    for (int i = 0; i < count; ++i) sums[i] = (float)sums[i];
    copy(in, sums, 8L * count);
    free(sums);
    ++faults;
    return result;
}

// One bit of what a rank has sent changes.
static int keep(const char *operation, const void *sent, long bytes, int result) {
    if (fault_is("source") && bytes >= 8 && sent != MPI_IN_PLACE && is_chosen(operation)) flip((char *)sent, bytes);
    return result;
}

static int is_root(int root, MPI_Comm comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    return rank == root;
}

#define BYTES(count, type) ((long)(count) * size_of(type))

// The program's own decisions, of 4 bytes, stay as they are.
int MPI_Bcast(void *memory, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    const long bytes = BYTES(count, type);
    catch_up();
    if (bytes <= 8) return PMPI_Bcast(memory, count, type, root, comm);
    return spoil("MPI_Bcast", memory, bytes, bytes / 2, PMPI_Bcast(memory, count, type, root_of("MPI_Bcast", root, comm), comm));
}

int MPI_Allgather(const void *out, int sent, MPI_Datatype type, void *in, int count, MPI_Datatype kind, MPI_Comm comm) {
    const long block = BYTES(count, kind);
    catch_up();
    return spoil("MPI_Allgather", in, block * ranks_of(comm), block, keep("MPI_Allgather", out, block, PMPI_Allgather(out, sent, type, in, count, kind, comm)));
}

int MPI_Allgatherv(const void *out, int sent, MPI_Datatype type, void *in, const int counts[], const int places[], MPI_Datatype kind, MPI_Comm comm) {
    catch_up();
    return spoil("MPI_Allgatherv", in, BYTES(counts[0], kind), 1, PMPI_Allgatherv(out, sent, type, in, counts, places, kind, comm));
}

int MPI_Alltoall(const void *out, int sent, MPI_Datatype type, void *in, int count, MPI_Datatype kind, MPI_Comm comm) {
    const long block = BYTES(count, kind);
    catch_up();
    return spoil("MPI_Alltoall", in, block * ranks_of(comm), block, keep("MPI_Alltoall", out, block, PMPI_Alltoall(out, sent, type, in, count, kind, comm)));
}

int MPI_Alltoallv(const void *out, const int sent[], const int from[], MPI_Datatype type, void *in, const int counts[], const int places[], MPI_Datatype kind, MPI_Comm comm) {
    catch_up();
    return spoil("MPI_Alltoallv", in, BYTES(counts[0], kind), 1, PMPI_Alltoallv(out, sent, from, type, in, counts, places, kind, comm));
}

int MPI_Gather(const void *out, int sent, MPI_Datatype type, void *in, int count, MPI_Datatype kind, int root, MPI_Comm comm) {
    const long block = BYTES(count, kind);
    catch_up();
    const int used = root_of("MPI_Gather", root, comm);
    if (used != root && out == MPI_IN_PLACE) {  // of the root that there should be
        out = (char *)in + root * block;
        sent = count;
        type = kind;
    }
    const int result = keep("MPI_Gather", out, block, PMPI_Gather(out, sent, type, in, count, kind, used, comm));
    return is_root(root, comm) ? spoil("MPI_Gather", in, block * ranks_of(comm), block, result) : result;
}

int MPI_Scatter(const void *out, int sent, MPI_Datatype type, void *in, int count, MPI_Datatype kind, int root, MPI_Comm comm) {
    const long block = BYTES(count, kind);
    catch_up();
    return spoil("MPI_Scatter", in, block, block / 2, PMPI_Scatter(out, sent, type, in, count, kind, root_of("MPI_Scatter", root, comm), comm));
}

// The program's own sums have one number.
int MPI_Allreduce(const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const long bytes = BYTES(count, type);
    catch_up();
    if (count == 1) return PMPI_Allreduce(out, in, count, type, op, comm);
    MPI_Datatype used = type_of("MPI_Allreduce", type, &count);
    return rounded("MPI_Allreduce", in, type, count, spoil("MPI_Allreduce", in, bytes, bytes / 2, keep("MPI_Allreduce", out, bytes, PMPI_Allreduce(out, in, count, used, op_of("MPI_Allreduce", op), comm))));
}

int MPI_Reduce(const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    const long bytes = BYTES(count, type);
    catch_up();
    MPI_Datatype used = type_of("MPI_Reduce", type, &count);
    const int other = root_of("MPI_Reduce", root, comm);
    if (other != root && out == MPI_IN_PLACE) out = in;
    const int result = keep("MPI_Reduce", out, bytes, PMPI_Reduce(out, in, count, used, op_of("MPI_Reduce", op), other, comm));
    return is_root(root, comm) ? rounded("MPI_Reduce", in, type, count, spoil("MPI_Reduce", in, bytes, bytes / 2, result)) : result;
}

int MPI_Reduce_scatter_block(const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const long bytes = BYTES(count, type);
    catch_up();
    MPI_Datatype used = type_of("MPI_Reduce_scatter_block", type, &count);
    return rounded("MPI_Reduce_scatter_block", in, type, count, spoil("MPI_Reduce_scatter_block", in, bytes, bytes / 2, keep("MPI_Reduce_scatter_block", out, bytes, PMPI_Reduce_scatter_block(out, in, count, used, op_of("MPI_Reduce_scatter_block", op), comm))));
}

int MPI_Put(const void *out, int count, MPI_Datatype type, int to, MPI_Aint place, int there, MPI_Datatype kind, MPI_Win window) {
    if (!is_chosen("MPI_Put") || BYTES(count, type) < 8) return PMPI_Put(out, count, type, to, place, there, kind, window);
    if (fault_is("drop")) {
        ++faults;
        return MPI_SUCCESS;
    }
    if (fault_is("unseen")) {
        unseen[unseen_count++ % MOST] = (struct access){copied(out, BYTES(count, type)), count, to, place, 0};
        ++faults;
        return MPI_SUCCESS;
    }
    char *spoiled = copies[faults % MOST] = copied(out, BYTES(count, type));
    flip(spoiled, BYTES(count, type));
    return PMPI_Put(spoiled, count, type, to, place, there, kind, window);
}

int MPI_Get(void *in, int count, MPI_Datatype type, int from, MPI_Aint place, int there, MPI_Datatype kind, MPI_Win window) {
    if (!is_chosen("MPI_Get") || BYTES(count, type) < 8) return PMPI_Get(in, count, type, from, place, there, kind, window);
    ++faults;
    if (fault_is("unseen")) unseen[unseen_count++ % MOST] = (struct access){in, count, from, place, 1};
    if (fault_is("drop") || fault_is("unseen")) return MPI_SUCCESS;
    // One byte less arrives.
    return PMPI_Get(in, count - 1, type, from, place, there - 1, kind, window);
}

int MPI_Barrier(MPI_Comm comm) {
    catch_up();
    return PMPI_Barrier(comm);
}

int MPI_Win_free(MPI_Win *window) {
    if (fault_is("unseen")) PMPI_Win_fence(0, *window);
    for (int i = 0; i < unseen_count; ++i) {
        const struct access *one = &unseen[i];
        if (one->is_get)
            PMPI_Get(one->memory, one->count, MPI_BYTE, one->to, one->place, one->count, MPI_BYTE, *window);
        else
            PMPI_Put(one->memory, one->count, MPI_BYTE, one->to, one->place, one->count, MPI_BYTE, *window);
    }
    unseen_count = 0;
    if (fault_is("unseen")) PMPI_Win_fence(0, *window);
    return PMPI_Win_free(window);
}

// A clock at half its speed, by which all rates are doubled, or one that stalls and catches up.
int clock_gettime(clockid_t clock, struct timespec *time) {
    static long begin[16];
    const int result = (int)syscall(SYS_clock_gettime, clock, time);
    if ((!fault_is("clock") && !fault_is("stall")) || clock < 0 || clock > 15) return result;
    long nanoseconds = time->tv_sec * 1000000000L + time->tv_nsec;
    if (!begin[clock]) begin[clock] = nanoseconds;
    const long late = fault_is("stall") ? nanoseconds % 1000000 : 0;
    nanoseconds = fault_is("clock") ? begin[clock] + (nanoseconds - begin[clock]) / 2 : late < 700000 ? nanoseconds - late : nanoseconds;
    time->tv_sec = nanoseconds / 1000000000L;
    time->tv_nsec = nanoseconds % 1000000000L;
    faults = 1;
    return result;
}

// A library that edits what a program prints: all latencies are half of what they were.
static int halved(char *text, size_t room, double value) {
    ++faults;
    return (int)strlen(gcvt(value / 2, room > 6 ? 6 : (int)room - 1, text));
}

int snprintf(char *text, size_t room, const char *format, ...) {
    va_list values;
    va_start(values, format);
    const int length = fault_is("edit") && strcmp(format, "%.6g") == 0 ? halved(text, room, va_arg(values, double)) : vsnprintf(text, room, format, values);
    va_end(values);
    return length;
}

ssize_t write(int file, const void *text, size_t bytes) {
    const char *reading = fault_is("edit") && file == STDOUT_FILENO ? memmem(text, bytes, "\"us\": ", 6) : NULL;
    if (!reading) return syscall(SYS_write, file, text, bytes);
    char *edited = malloc(bytes);
    memcpy(edited, text, bytes);
    edited[reading + 6 - (const char *)text] = '1';
    const ssize_t written = syscall(SYS_write, file, edited, bytes);
    free(edited);
    ++faults;
    return written;
}

// All ranks are still there: a launcher ends them as soon as one of them has failed.
int MPI_Finalize(void) {
    catch_up();
    if (messages_file) fclose(messages_file);
    fprintf(stderr, "faulty_mpi: %ld faults\n", faults);
    PMPI_Barrier(MPI_COMM_WORLD);
    return PMPI_Finalize();
}
