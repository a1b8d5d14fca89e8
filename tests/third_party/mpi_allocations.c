// SPDX-License-Identifier: BSD-2-Clause
// An MPI program whose buffers come and go: blocks of a few bytes to a mebibyte are allocated,
// cleared, grown, exchanged with the neighbours and freed in random order, while the MPI keeps
// registrations of freed memory and the allocator gives its pages back. Every byte is looked at:
// received ones, kept ones, and that calloc() clears. Prints "mpi_allocations: N blocks by R ranks"
// at rank 0; the first wrong byte ends the job with 1.
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kKept = 64, kLargest = 1 << 20 };

struct block {
    unsigned char* at;
    size_t bytes;
    unsigned seed;
};

static int g_rank, g_ranks;

static void fail(const char* what, size_t bytes, size_t at, int seen, int expected) {
    printf("mpi_allocations: rank %d of %d: %s, %zu bytes: byte %zu is %d, expected %d\n", g_rank,
           g_ranks, what, bytes, at, seen, expected);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char pattern(unsigned seed, size_t i) {
    return (unsigned char)(seed * 167 + 7 * i + (i >> 8) + (i >> 16) + 1);
}
static void fill(unsigned char* at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; ++i)
        at[i] = pattern(seed, i);
}
static void check(const char* what, const unsigned char* at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; ++i)
        if (at[i] != pattern(seed, i)) fail(what, bytes, i, at[i], pattern(seed, i));
}

// The same sequence for all ranks where they must agree.
static unsigned next(unsigned* state) { return *state = *state * 1103515245u + 12345u; }
static size_t size_of(unsigned random) {
    const size_t most = (size_t)1 << (4 + (random >> 16) % 17);
    return 1 + (random >> 8) % most;
}

static unsigned char* cleared(size_t bytes) {
    unsigned char* at = calloc(1, bytes);
    if (!at) MPI_Abort(MPI_COMM_WORLD, 2);
    for (size_t i = 0; i < bytes; ++i)
        if (at[i] != 0) fail("calloc", bytes, i, at[i], 0);
    return at;
}

// Allocates beside MPI's thread, so that freed pages wander between the threads.
static atomic_int g_stop;
static void* churn(void* unused) {
    unsigned state = 4242u + (unsigned)g_rank;
    (void)unused;
    while (!atomic_load(&g_stop)) {
        const size_t bytes = size_of(next(&state)), kept = bytes / 2;
        const unsigned seed = next(&state);
        unsigned char* at = cleared(bytes);
        fill(at, bytes, seed);
        at = realloc(at, kept + size_of(next(&state)));
        if (!at) MPI_Abort(MPI_COMM_WORLD, 2);
        check("another thread's block", at, kept, seed);
        free(at);
        sched_yield();
    }
    return NULL;
}

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    struct block kept[kKept] = {{NULL, 0, 0}};
    unsigned common = 1, own;
    long blocks = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    own = 77u + (unsigned)g_rank;
    pthread_t other;
    pthread_create(&other, NULL, churn, NULL);
    const int to = (g_rank + 1) % g_ranks, from = (g_rank + g_ranks - 1) % g_ranks;
    for (int round = 0; round < rounds; ++round) {
        const size_t bytes = size_of(next(&common));
        const unsigned seed = 31u * (unsigned)round;
        unsigned char *out = cleared(bytes), *in = cleared(bytes);
        fill(out, bytes, seed + (unsigned)g_rank);
        MPI_Sendrecv(out, (int)bytes, MPI_BYTE, to, 0, in, (int)bytes, MPI_BYTE, from, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check("received", in, bytes, seed + (unsigned)from);
        check("sent", out, bytes, seed + (unsigned)g_rank);
        // What was received is kept, and looked at again when its place is wanted.
        struct block* place = &kept[(next(&own) >> 16) % kKept];
        if (place->at) {
            check("kept", place->at, place->bytes, place->seed);
            if ((next(&own) >> 16) % 3 == 0) {
                const size_t grown = place->bytes + size_of(next(&own));
                place->at = realloc(place->at, grown);
                check("grown", place->at, place->bytes, place->seed);
                fill(place->at, grown, place->seed);
                MPI_Request requests[2];
                // Used in both directions at once with itself.
                unsigned char* copy = cleared(grown);
                MPI_Irecv(copy, (int)grown, MPI_BYTE, g_rank, 1, MPI_COMM_WORLD, &requests[0]);
                MPI_Isend(place->at, (int)grown, MPI_BYTE, g_rank, 1, MPI_COMM_WORLD, &requests[1]);
                MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
                check("sent to itself", copy, grown, place->seed);
                free(copy);
            }
            free(place->at);
        }
        *place = (struct block){in, bytes, seed + (unsigned)from};
        free(out);
        blocks += 2;
    }
    atomic_store(&g_stop, 1);
    pthread_join(other, NULL);
    for (int i = 0; i < kKept; ++i)
        if (kept[i].at) {
            check("kept to the end", kept[i].at, kept[i].bytes, kept[i].seed);
            free(kept[i].at);
        }
    MPI_Reduce(&blocks, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (g_rank == 0) printf("mpi_allocations: %ld blocks by %d ranks\n", all, g_ranks);
    MPI_Finalize();
    return 0;
}
