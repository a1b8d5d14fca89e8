// SPDX-License-Identifier: BSD-2-Clause
// message_rate [THREADS [BYTES]]: THREADS (2) threads of rank 0, each with a communicator of its
// own from MPI_Comm_dup, send windows of small messages to the same thread of rank 1; both
// directions. One line: messages a second of all threads together, the median of repetitions. For
// any MPI with MPI_THREAD_MULTIPLE; in MPICH set MPIR_CVAR_CH4_NUM_VCIS to THREADS. In turns with
// other jobs (turns.h), the first of them to find out how many messages, also a line for each:
// turn rate THREADS BYTES MESSAGES, and the seconds of a message.
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>

#include "turns.h"

enum { kWindow = 64, kRepetitions = 7, kMostBytes = 8192 };

static int g_threads = 2, g_bytes = 8, g_rounds;
static pthread_barrier_t g_barrier;
static double g_seconds[kRepetitions];

struct thread {
    pthread_t id;
    int index;
    MPI_Comm comm;
};

// In both directions, by all threads.
static double messages(void) { return 2.0 * g_rounds * kWindow * g_threads; }

static void exchange(const struct thread* t, char* out, char* in, int rounds) {
    MPI_Request requests[2 * kWindow];
    const int peer = 1 - g_rank;
    for (int i = 0; i < rounds; ++i) {
        for (int j = 0; j < kWindow; ++j)
            MPI_Irecv(in + j * g_bytes, g_bytes, MPI_BYTE, peer, 1, t->comm, &requests[j]);
        for (int j = 0; j < kWindow; ++j)
            MPI_Isend(out + j * g_bytes, g_bytes, MPI_BYTE, peer, 1, t->comm,
                      &requests[kWindow + j]);
        MPI_Waitall(2 * kWindow, requests, MPI_STATUSES_IGNORE);
    }
}

// As many as take a tenth of a second, by the clock of the first thread of rank 0; in turns, a
// hundredth, as where threads share processors a message may take a hundred times as long next.
static void choose_rounds(const struct thread* t, char* out, char* in) {
    double least = 1;  // seconds, of some: in the first connections are made
    for (int i = 0; i < 6; ++i) {
        pthread_barrier_wait(&g_barrier);
        const double begin = MPI_Wtime();
        exchange(t, out, in, 4);
        pthread_barrier_wait(&g_barrier);
        if (MPI_Wtime() - begin < least) least = MPI_Wtime() - begin;
    }
    if (t->index == 0) {
        g_rounds = (int)((g_go >= 0 ? 0.04 : 0.4) / least) + 2;
        MPI_Bcast(&g_rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    pthread_barrier_wait(&g_barrier);
}

// A send may complete before its message has left, and a message that waits for room at the device
// leaves in a later call of MPI. So a rank sleeps only once the other one has received everything.
static void leave_turn(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    end_turn();
}

static void* body(void* argument) {
    const struct thread* t = argument;
    const size_t size = (size_t)g_bytes * kWindow;
    char *out = malloc(size), *in = calloc(1, size);
    for (size_t i = 0; i < size; ++i)
        out[i] = (char)(i * 3 + (size_t)t->index * 5 + (size_t)g_rank);
    if (t->index == 0) begin_turn();
    pthread_barrier_wait(&g_barrier);
    exchange(t, out, in, 4);
    choose_rounds(t, out, in);
    if (t->index == 0) leave_turn();
    for (int i = 0; i < kRepetitions; ++i) {
        pthread_barrier_wait(&g_barrier);
        if (t->index == 0) {
            begin_turn();
            MPI_Barrier(MPI_COMM_WORLD);
            g_seconds[i] = MPI_Wtime();
            MPI_Barrier(MPI_COMM_WORLD);  // the other rank's threads send nothing before that
        }
        pthread_barrier_wait(&g_barrier);
        exchange(t, out, in, g_rounds);
        pthread_barrier_wait(&g_barrier);
        if (t->index != 0) continue;
        g_seconds[i] = MPI_Wtime() - g_seconds[i];
        if (g_rank == 0 && g_go >= 0)
            printf("turn rate %d %d %.0f %.9g\n", g_threads, g_bytes, messages(),
                   g_seconds[i] / messages());
        leave_turn();
    }
    for (size_t i = 0; i < size; ++i)
        if (in[i] != (char)(i * 3 + (size_t)t->index * 5 + 1 - (size_t)g_rank)) {
            printf("message_rate: rank %d, thread %d: byte %zu is wrong\n", g_rank, t->index, i);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char** argv) {
    int ranks, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1) g_threads = atoi(argv[1]);
    if (argc > 2) g_bytes = atoi(argv[2]);
    if (ranks != 2 || provided < MPI_THREAD_MULTIPLE || g_threads < 1 || g_bytes < 1 ||
        g_bytes > kMostBytes) {
        if (g_rank == 0)
            fprintf(stderr, "message_rate: needs 2 ranks, MPI_THREAD_MULTIPLE, 1 to %d bytes\n",
                    kMostBytes);
        MPI_Finalize();
        return 2;
    }
    take_turns(g_threads == 1);
    struct thread* threads = calloc((size_t)g_threads, sizeof *threads);
    pthread_barrier_init(&g_barrier, NULL, (unsigned)g_threads);
    for (int i = 0; i < g_threads; ++i) {
        threads[i].index = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
    }
    for (int i = 1; i < g_threads; ++i)
        if (pthread_create(&threads[i].id, NULL, body, &threads[i]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 2);
    body(&threads[0]);
    for (int i = 1; i < g_threads; ++i)
        pthread_join(threads[i].id, NULL);
    qsort(g_seconds, kRepetitions, sizeof *g_seconds, ascending);
    const double sent = messages();
    if (g_rank == 0)
        printf("%d threads, %d B: %.0f messages/s (%.0f to %.0f)\n", g_threads, g_bytes,
               sent / g_seconds[kRepetitions / 2], sent / g_seconds[kRepetitions - 1],
               sent / g_seconds[0]);
    for (int i = 0; i < g_threads; ++i)
        MPI_Comm_free(&threads[i].comm);
    free(threads);
    leave_turns();
    MPI_Finalize();
    return 0;
}
