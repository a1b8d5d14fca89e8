// SPDX-License-Identifier: BSD-2-Clause
// An MPI program that looks at every byte it is sent: a ring, broadcast, allreduce, all-to-all, and
// put, get, accumulate and fetch-and-op on a window, from nothing to a mebibyte. Any number of
// ranks. Prints "mpi_check: N checks passed" at rank 0; the first wrong value ends the job with 1.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLargest = 1 << 20, kGuard = 64 };
static const int kSizes[] = {0, 1, 7, 8, 64, 127, 1000, 4096, 8192, 65536, 131072, kLargest};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0] };

static int g_rank, g_ranks;
static long g_checks;

static unsigned char pattern(int from, int to, int round, size_t i) {
    const size_t seed = (size_t)(37 * from + 101 * to + 13 * round);
    return (unsigned char)(seed + 7 * i + (i >> 8) + (i >> 16));
}

static void fill(unsigned char* data, int size, int from, int to, int round) {
    for (int i = 0; i < size; ++i)
        data[i] = pattern(from, to, round, (size_t)i);
}

static void fail(const char* what, int size, long index, long long seen, long long expected) {
    printf("mpi_check: rank %d of %d: %s, %d bytes: element %ld is %lld, expected %lld\n", g_rank,
           g_ranks, what, size, index, seen, expected);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// The contents, and that nothing was stored after them.
static void check(const char* what, const unsigned char* data, int size, int from, int to,
                  int round) {
    for (int i = 0; i < size; ++i)
        if (data[i] != pattern(from, to, round, (size_t)i))
            fail(what, size, i, data[i], pattern(from, to, round, (size_t)i));
    ++g_checks;
}

static void check_guard(const char* what, const unsigned char* data, int size) {
    for (int i = 0; i < kGuard; ++i)
        if (data[size + i] != 0xee) fail(what, size, size + i, data[size + i], 0xee);
}

static unsigned char* allocate(size_t size) {
    unsigned char* data = malloc(size + kGuard);
    if (!data) MPI_Abort(MPI_COMM_WORLD, 2);
    memset(data, 0xee, size + kGuard);
    return data;
}

static void ring(int size, int round) {
    const int next = (g_rank + 1) % g_ranks, previous = (g_rank + g_ranks - 1) % g_ranks;
    unsigned char *out = allocate((size_t)size), *in = allocate((size_t)size);
    MPI_Request requests[2];
    MPI_Status status[2];
    int count;
    fill(out, size, g_rank, next, round);
    MPI_Irecv(in, size, MPI_BYTE, previous, round, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, size, MPI_BYTE, next, round, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, status);
    MPI_Get_count(&status[0], MPI_BYTE, &count);
    if (count != size) fail("ring, length", size, 0, count, size);
    check("ring", in, size, previous, g_rank, round);
    check_guard("ring", in, size);

    // Unexpected and synchronous: the message is there, or announced, before its receive.
    memset(in, 0xee, (size_t)size);
    MPI_Issend(out, size, MPI_BYTE, next, round, MPI_COMM_WORLD, &requests[1]);
    MPI_Probe(MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &status[0]);
    if (status[0].MPI_SOURCE != previous)
        fail("probe, source", size, 0, status[0].MPI_SOURCE, previous);
    MPI_Recv(in, size, MPI_BYTE, MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &status[0]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    check("ring, synchronous", in, size, previous, g_rank, round);
    check_guard("ring, synchronous", in, size);
    free(out);
    free(in);
}

// Many small ones at once must arrive in order.
static void order(void) {
    enum { kCount = 500 };
    const int next = (g_rank + 1) % g_ranks, previous = (g_rank + g_ranks - 1) % g_ranks;
    int out[kCount], in[kCount];
    MPI_Request requests[2 * kCount];
    for (int i = 0; i < kCount; ++i) {
        out[i] = g_rank * kCount + i;
        MPI_Irecv(&in[i], 1, MPI_INT, previous, 7, MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(&out[i], 1, MPI_INT, next, 7, MPI_COMM_WORLD, &requests[kCount + i]);
    }
    MPI_Waitall(2 * kCount, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kCount; ++i)
        if (in[i] != previous * kCount + i) fail("order", 4, i, in[i], previous * kCount + i);
    ++g_checks;
}

static void broadcast(int size, int round) {
    unsigned char* data = allocate((size_t)size);
    for (int root = 0; root < g_ranks; ++root) {
        if (g_rank == root)
            fill(data, size, root, root, round);
        else
            memset(data, 0xee, (size_t)size);
        MPI_Bcast(data, size, MPI_BYTE, root, MPI_COMM_WORLD);
        check("bcast", data, size, root, root, round);
        check_guard("bcast", data, size);
    }
    free(data);
}

static void allreduce(int size) {
    const int count = size / 8;
    int64_t *in = malloc((size_t)size + 8), *out = malloc((size_t)size + 8);
    for (int i = 0; i < count; ++i)
        in[i] = (int64_t)(g_rank + 1) * (i + 1);
    MPI_Allreduce(in, out, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) {
        const int64_t expected = (int64_t)g_ranks * (g_ranks + 1) / 2 * (i + 1);
        if (out[i] != expected) fail("allreduce", size, i, out[i], expected);
    }
    MPI_Allreduce(in, out, count, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i)
        if (out[i] != (int64_t)g_ranks * (i + 1))
            fail("allreduce, max", size, i, out[i], (int64_t)g_ranks * (i + 1));
    ++g_checks;
    free(in);
    free(out);
}

static void all_to_all(int size, int round) {
    const size_t total = (size_t)size * (size_t)g_ranks;
    unsigned char *out = allocate(total), *in = allocate(total);
    for (int to = 0; to < g_ranks; ++to)
        fill(out + (size_t)to * (size_t)size, size, g_rank, to, round);
    MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < g_ranks; ++from)
        check("alltoall", in + (size_t)from * (size_t)size, size, from, g_rank, round);
    free(out);
    free(in);
}

static void one_sided(int size, int round) {
    const int next = (g_rank + 1) % g_ranks, previous = (g_rank + g_ranks - 1) % g_ranks;
    unsigned char *window_data = NULL, *data = allocate((size_t)size);
    MPI_Win window;
    MPI_Win_allocate(size + kGuard, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_data, &window);
    memset(window_data, 0xee, (size_t)size + kGuard);

    MPI_Win_fence(0, window);
    fill(data, size, g_rank, next, round);
    MPI_Put(data, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check("put", window_data, size, previous, g_rank, round);
    check_guard("put", window_data, size);

    memset(data, 0xee, (size_t)size);
    MPI_Win_fence(0, window);
    MPI_Get(data, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check("get", data, size, g_rank, next, round);
    check_guard("get", data, size);
    MPI_Win_free(&window);
    free(data);
}

// Every rank adds into every rank's window; then all take numbers from one counter.
static void accumulate(int size) {
    const int count = size / 8;
    int64_t *window_data = NULL, *data = malloc((size_t)size + 8);
    MPI_Win window;
    MPI_Win_allocate(count * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window_data, &window);
    for (int i = 0; i < count; ++i) {
        window_data[i] = i;
        data[i] = (int64_t)(g_rank + 1) * (i + 3);
    }
    MPI_Win_fence(0, window);
    for (int to = 0; to < g_ranks; ++to)
        MPI_Accumulate(data, count, MPI_INT64_T, to, 0, count, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < count; ++i) {
        const int64_t expected = i + (int64_t)g_ranks * (g_ranks + 1) / 2 * (i + 3);
        if (window_data[i] != expected) fail("accumulate", size, i, window_data[i], expected);
    }
    MPI_Win_free(&window);
    free(data);
    ++g_checks;
}

static void counter(void) {
    enum { kDraws = 200 };
    int64_t* value = NULL;
    const int64_t one = 1;
    MPI_Win window;
    unsigned char* drawn = calloc((size_t)g_ranks, kDraws);
    MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &value, &window);
    *value = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    int64_t last = -1;
    for (int i = 0; i < kDraws; ++i) {
        int64_t mine = -1;
        MPI_Fetch_and_op(&one, &mine, MPI_INT64_T, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        if (mine <= last || mine >= (int64_t)g_ranks * kDraws)
            fail("fetch_and_op", 8, i, mine, last + 1);
        drawn[mine] = 1;
        last = mine;
    }
    MPI_Win_unlock_all(window);
    MPI_Allreduce(MPI_IN_PLACE, drawn, g_ranks * kDraws, MPI_UNSIGNED_CHAR, MPI_SUM,
                  MPI_COMM_WORLD);
    for (int i = 0; i < g_ranks * kDraws; ++i)
        if (drawn[i] != 1) fail("fetch_and_op, times drawn", 8, i, drawn[i], 1);
    ++g_checks;
    MPI_Win_free(&window);
    free(drawn);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < kSizeCount; ++i) {
            ring(kSizes[i], round);
            broadcast(kSizes[i], round);
            allreduce(kSizes[i]);
            all_to_all(kSizes[i], round);
            one_sided(kSizes[i], round);
            accumulate(kSizes[i]);
        }
        order();
        counter();
    }
    long total = 0;
    MPI_Reduce(&g_checks, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (g_rank == 0) printf("mpi_check: %ld checks passed by %d ranks\n", total, g_ranks);
    MPI_Finalize();
    return 0;
}
