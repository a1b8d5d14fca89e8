// SPDX-License-Identifier: BSD-2-Clause
// threads [COUNT]: MPI_THREAD_MULTIPLE. COUNT threads of each rank (4), each on a communicator of
// its own from MPI_Comm_dup, all at once: ping-pong and windows of nonblocking messages around the
// ring of ranks, collectives, requests completed by another thread; then all on one communicator,
// told apart by tags. Each byte is looked at.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static int g_threads = 4;
static MPI_Comm* g_comms;

struct thread {
    pthread_t id;
    int index;
    MPI_Comm comm;
    int tag;
};

static void run_threads(void* (*body)(void*), bool own_communicator) {
    struct thread* threads = calloc((size_t)g_threads, sizeof *threads);
    for (int i = 0; i < g_threads; ++i) {
        threads[i].index = i;
        threads[i].comm = own_communicator ? g_comms[i] : MPI_COMM_WORLD;
        threads[i].tag = own_communicator ? 1 : 100 + i;
        if (pthread_create(&threads[i].id, NULL, body, &threads[i]) != 0)
            fail("thread %d could not be started", i);
    }
    for (int i = 0; i < g_threads; ++i)
        pthread_join(threads[i].id, NULL);
    free(threads);
}

static void* ping_pong_body(void* argument) {
    static const size_t sizes[] = {0, 1, 8, 100, 1000, 5000, 20000, 100000, 500000};
    const struct thread* t = argument;
    const int peer = g_rank ^ 1;
    if (peer >= g_ranks) return NULL;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
        const size_t size = sizes[s];
        unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 0);
        const int rounds = size <= 5000 ? 50 : 5;
        for (int i = 0; i < rounds; ++i) {
            const long number = (t->index + 1) * 1000 + i;
            MPI_Status status;
            fill(out, size, g_rank, peer, number);
            if (g_rank < peer) MPI_Send(out, (int)size, MPI_BYTE, peer, t->tag, t->comm);
            MPI_Recv(in, (int)size, MPI_BYTE, i % 2 ? peer : MPI_ANY_SOURCE, t->tag, t->comm,
                     &status);
            if (g_rank > peer) MPI_Send(out, (int)size, MPI_BYTE, peer, t->tag, t->comm);
            check_status(&status, peer, t->tag, size, "ping-pong of threads");
            check_filled(in, size, peer, g_rank, number, "ping-pong of threads");
        }
        buffer_free(out);
        buffer_free(in);
    }
    return NULL;
}

static void* window_body(void* argument) {
    enum { kWindow = 64, kLargest = 20000 };
    static const size_t sizes[] = {8, 1000, kLargest};
    const struct thread* t = argument;
    const int to = (g_rank + 1) % g_ranks, from = (g_rank + g_ranks - 1) % g_ranks;
    unsigned char *out = buffer_make(kWindow * kLargest, 0),
                  *in = buffer_make(kWindow * kLargest, 0);
    MPI_Request requests[2 * kWindow];
    for (int s = 0; s < 3; ++s)
        for (int round = 0; round < 10; ++round) {
            const size_t size = sizes[s];
            const long base = (t->index + 1) * 100000 + round * kWindow;
            for (int i = 0; i < kWindow; ++i)
                MPI_Irecv(in + (size_t)i * size, (int)size, MPI_BYTE, from, t->tag, t->comm,
                          &requests[i]);
            for (int i = 0; i < kWindow; ++i) {
                fill(out + (size_t)i * size, size, g_rank, to, base + i);
                MPI_Isend(out + (size_t)i * size, (int)size, MPI_BYTE, to, t->tag, t->comm,
                          &requests[kWindow + i]);
            }
            MPI_Waitall(2 * kWindow, requests, MPI_STATUSES_IGNORE);
            for (int i = 0; i < kWindow; ++i)
                check_filled(in + (size_t)i * size, size, from, g_rank, base + i,
                             "window of a thread");
        }
    buffer_check_guards(in, "window of a thread");
    buffer_free(out);
    buffer_free(in);
    return NULL;
}

static void* collective_body(void* argument) {
    const struct thread* t = argument;
    for (int i = 0; i < 50; ++i) {
        const int count = i % 5 == 4 ? 3000 : 4;
        int64_t out[3000], in[3000];
        for (int j = 0; j < count; ++j)
            out[j] = (int64_t)(g_rank + 1) * (j + i) + t->index;
        MPI_Allreduce(out, in, count, MPI_INT64_T, MPI_SUM, t->comm);
        for (int j = 0; j < count; ++j) {
            const int64_t expected =
                (int64_t)g_ranks * (g_ranks + 1) / 2 * (j + i) + (int64_t)g_ranks * t->index;
            if (in[j] != expected)
                fail("allreduce of thread %d: element %d is %lld, expected %lld", t->index, j,
                     (long long)in[j], (long long)expected);
        }
        count_check();
        int root = i % g_ranks, value = g_rank == root ? i * 100 + t->index : -1;
        MPI_Bcast(&value, 1, MPI_INT, root, t->comm);
        CHECK(value == i * 100 + t->index, "bcast of thread %d: %d", t->index, value);
    }
    return NULL;
}

// Threads in pairs: the even one posts a receive, the odd one completes it.
static pthread_barrier_t g_handover;
static MPI_Request* g_requests;

static void* handover_body(void* argument) {
    const struct thread* t = argument;
    const int to = (g_rank + 1) % g_ranks, from = (g_rank + g_ranks - 1) % g_ranks;
    static unsigned char in[64][2000];  // by thread: this test has no more
    unsigned char* out = buffer_make(2000, 0);
    for (int i = 0; i < 20; ++i) {
        MPI_Irecv(in[t->index], 2000, MPI_BYTE, from, t->tag, t->comm, &g_requests[t->index]);
        pthread_barrier_wait(&g_handover);
        fill(out, 2000, g_rank, to, i);
        MPI_Send(out, 2000, MPI_BYTE, to, t->tag, t->comm);
        const int other = (t->index + 1) % g_threads;
        MPI_Wait(&g_requests[other], MPI_STATUS_IGNORE);
        check_filled(in[other], 2000, from, g_rank, i, "a request completed by another thread");
        pthread_barrier_wait(&g_handover);
    }
    buffer_free(out);
    return NULL;
}

static void ping_pong(void) { run_threads(ping_pong_body, true); }
static void windows(void) { run_threads(window_body, true); }
static void collectives(void) { run_threads(collective_body, true); }
static void one_communicator(void) {
    run_threads(ping_pong_body, false);
    MPI_Barrier(
        MPI_COMM_WORLD);  // a rank without a partner would be ahead of the others' ANY_SOURCE
    run_threads(window_body, false);
}

static void handover(void) {
    if (g_threads > 64) return;
    pthread_barrier_init(&g_handover, NULL, (unsigned)g_threads);
    g_requests = calloc((size_t)g_threads, sizeof *g_requests);
    run_threads(handover_body, true);
    free(g_requests);
    pthread_barrier_destroy(&g_handover);
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"ping_pong", ping_pong},
                                        {"windows", windows},
                                        {"collectives", collectives},
                                        {"handover", handover},
                                        {"one_communicator", one_communicator}};
    start(&argc, &argv, MPI_THREAD_MULTIPLE);
    char** names = argv + 1;
    if (*names != NULL && atoi(*names) > 0) g_threads = atoi(*names++);
    g_comms = malloc((size_t)g_threads * sizeof *g_comms);
    for (int i = 0; i < g_threads; ++i)
        MPI_Comm_dup(MPI_COMM_WORLD, &g_comms[i]);
    run_steps(steps, sizeof steps / sizeof steps[0], names);
    for (int i = 0; i < g_threads; ++i)
        MPI_Comm_free(&g_comms[i]);
    free(g_comms);
    return finish();
}
