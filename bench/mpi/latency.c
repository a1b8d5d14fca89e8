// SPDX-License-Identifier: BSD-2-Clause
// latency [LARGEST | SIZE,SIZE,...]: between ranks 0 and 1, for 8 bytes to LARGEST (4 MiB), or for
// these sizes: latency, half of a ping-pong's time, and bandwidth of windows of nonblocking
// messages. Medians of repetitions that alternate between the two, so that what disturbs the
// machine disturbs both. For any MPI.
//
// Two jobs can take turns (turns.h, peers.py); then rank 0 writes each repetition's seconds a
// message (latency, then stream) to its output.
#define _GNU_SOURCE
#include <string.h>

#include "turns.h"

enum { kWindow = 64, kRepetitions = 9, kMostSizes = 32 };

// Seconds of one message, one way.
static double ping_pong(char* out, char* in, int size, int rounds) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < rounds && g_rank < 2; ++i) {
        if (g_rank == 0) {
            MPI_Send(out, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - begin) / rounds / 2;
}

// Seconds of one message when many are on their way.
static double stream(char* out, char* in, int size, int rounds) {
    MPI_Request requests[kWindow];
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < rounds && g_rank < 2; ++i) {
        for (int j = 0; j < kWindow; ++j) {
            if (g_rank == 0)
                MPI_Isend(out, size, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[j]);
            else
                MPI_Irecv(in, size, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[j]);
        }
        MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
        if (g_rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begin) / rounds / kWindow;
}

// As many as take 20 ms, by rank 0's clock.
static int rounds_for(double seconds) {
    int rounds = seconds * 10000 < 0.02 ? 10000 : (int)(0.02 / seconds) + 2;
    MPI_Bcast(&rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return rounds;
}

// What came last is what the other sends.
static void check(const char* in, int size) {
    for (int i = 0; i < size; ++i)
        if (in[i] != (char)(i * 7 + 1 - g_rank)) {
            printf("latency: rank %d: byte %d of %d is wrong\n", g_rank, i, size);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

// The least time of some runs: in the first ones connections are made, and the kernel moves
// processes to processors.
static double quickest(double (*go)(char*, char*, int, int), char* out, char* in, int size,
                       int rounds) {
    double least = go(out, in, size, rounds);
    for (int i = 0; i < 6; ++i) {
        const double again = go(out, in, size, rounds);
        if (again < least) least = again;
    }
    return least;
}

static void measure(int size, char* out, char* in) {
    begin_turn();
    const int rounds = rounds_for(2 * quickest(ping_pong, out, in, size, 8));
    const int windows = rounds_for(kWindow * quickest(stream, out, in, size, 2));
    end_turn();
    double one_way[kRepetitions], streamed[kRepetitions];
    for (int i = 0; i < kRepetitions; ++i) {
        begin_turn();
        one_way[i] = ping_pong(out, in, size, rounds);
        streamed[i] = stream(out, in, size, windows);
        if (g_go >= 0 && g_rank == 0) {
            printf("turn %d %.9g %.9g\n", size, one_way[i], streamed[i]);
            fflush(stdout);
        }
        end_turn();
    }
    if (g_rank < 2) check(in, size);
    memset(in, 0, (size_t)size);
    const double latency = median(one_way, kRepetitions), each = median(streamed, kRepetitions);
    if (g_rank == 0 && g_go < 0) {
        printf("%10d %14.2f %14.1f %14.0f\n", size, latency * 1e6, size / each / 1e6, 1 / each);
        fflush(stdout);
    }
}

int main(int argc, char** argv) {
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int sizes[kMostSizes], count = 0, largest = 4 << 20;
    if (argc > 1 && strchr(argv[1], ',') != NULL) {
        largest = 0;
        for (const char* at = argv[1]; at != NULL && count < kMostSizes; ++count) {
            sizes[count] = atoi(at);
            if (sizes[count] > largest) largest = sizes[count];
            if ((at = strchr(at, ',')) != NULL) ++at;
        }
    } else {
        if (argc > 1) largest = atoi(argv[1]);
        for (int size = 8; size <= largest && count < kMostSizes; size *= 2)
            sizes[count++] = size;
    }
    if (ranks < 2 || largest < 8) {
        if (g_rank == 0) fprintf(stderr, "latency: needs 2 ranks, and LARGEST of 8 or more\n");
        MPI_Finalize();
        return 2;
    }
    take_turns(1);
    char *out = malloc((size_t)largest), *in = malloc((size_t)largest);
    for (int i = 0; i < largest; ++i)
        out[i] = (char)(i * 7 + g_rank);
    memset(in, 0, (size_t)largest);
    if (g_rank == 0 && g_go < 0)
        printf("%10s %14s %14s %14s\n", "bytes", "latency us", "MB/s", "messages/s");
    for (int i = 0; i < count; ++i)
        measure(sizes[i], out, in);
    free(out);
    free(in);
    leave_turns();
    MPI_Finalize();
    return 0;
}
