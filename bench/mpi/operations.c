// SPDX-License-Identifier: BSD-2-Clause
// operations OPERATION,... SIZE,... TURNS [fresh]: what one operation takes, as OSU's
// micro-benchmarks measure it: latency (half a ping-pong), bandwidth and bidirectional (windows of
// nonblocking messages), put, get and accumulate (each with its fence; a sum of 64-bit numbers),
// allgather, alltoall, scatter, gather, allreduce, bcast. Point-to-point between ranks 0 and 1;
// collectives of all, one after the other, by the slowest rank. For any MPI. `fresh`: the buffers
// of each turn are at addresses that no turn had before, so that what the library learns of buffers
// is learnt inside each turn.
//
// Jobs take turns (turns.h, operations.py): the first turn of each operation and size finds how
// many fit into one, TURNS follow, and rank 0 writes the seconds of each: turn OPERATION SIZE
// SECONDS. What has come last is checked.
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "turns.h"

enum { kWindow = 64, kMostSizes = 32 };
static const double kTurn = 0.01;  // seconds
enum { kMostRounds = 20000 };

static int g_ranks, g_size;
static unsigned char *g_out, *g_in;
static unsigned char* g_exposed;  // the window: what is put arrives, behind it what is got
static size_t g_bytes;            // of each of the buffers
static MPI_Win g_window = MPI_WIN_NULL;
static MPI_Request g_requests[2 * kWindow];

static void latency(void) {
    if (g_rank > 1) return;
    const int peer = 1 - g_rank;
    if (g_rank == 0) MPI_Send(g_out, g_size, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
    MPI_Recv(g_in, g_size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (g_rank == 1) MPI_Send(g_out, g_size, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
}

static void window(int sends, int receives) {
    if (g_rank > 1) return;
    const int peer = 1 - g_rank;
    int count = 0;
    for (int i = 0; i < kWindow && receives; ++i)
        MPI_Irecv(g_in, g_size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &g_requests[count++]);
    for (int i = 0; i < kWindow && sends; ++i)
        MPI_Isend(g_out, g_size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &g_requests[count++]);
    MPI_Waitall(count, g_requests, MPI_STATUSES_IGNORE);
    if (receives) MPI_Send(NULL, 0, MPI_BYTE, peer, 3, MPI_COMM_WORLD);
    if (sends) MPI_Recv(NULL, 0, MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void bandwidth(void) { window(g_rank == 0, g_rank == 1); }
static void bidirectional(void) { window(1, 1); }

static void put(void) {
    if (g_rank == 0) MPI_Put(g_out, g_size, MPI_BYTE, 1, 0, g_size, MPI_BYTE, g_window);
    MPI_Win_fence(0, g_window);
}
static int g_accumulated;  // since the window was cleared
static void accumulate(void) {
    const int count = g_size / 8;
    ++g_accumulated;
    if (g_rank == 0)
        MPI_Accumulate(g_out, count, MPI_UINT64_T, 1, 0, count, MPI_UINT64_T, MPI_SUM, g_window);
    MPI_Win_fence(0, g_window);
}
static void get(void) {
    const MPI_Aint there = (MPI_Aint)g_bytes;
    if (g_rank == 0) MPI_Get(g_in, g_size, MPI_BYTE, 1, there, g_size, MPI_BYTE, g_window);
    MPI_Win_fence(0, g_window);
}

static void allgather(void) {
    MPI_Allgather(g_out, g_size, MPI_BYTE, g_in, g_size, MPI_BYTE, MPI_COMM_WORLD);
}
static void alltoall(void) {
    MPI_Alltoall(g_out, g_size, MPI_BYTE, g_in, g_size, MPI_BYTE, MPI_COMM_WORLD);
}
static void scatter(void) {
    MPI_Scatter(g_out, g_size, MPI_BYTE, g_in, g_size, MPI_BYTE, 0, MPI_COMM_WORLD);
}
static void gather(void) {
    MPI_Gather(g_out, g_size, MPI_BYTE, g_in, g_size, MPI_BYTE, 0, MPI_COMM_WORLD);
}
static void allreduce(void) {
    MPI_Allreduce(g_out, g_in, g_size, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD);
}
static void bcast(void) {
    MPI_Bcast(g_rank == 0 ? g_out : g_in, g_size, MPI_BYTE, 0, MPI_COMM_WORLD);
}

// Byte i of what rank sends.
static unsigned char sent(int rank, size_t i) {
    return (unsigned char)(i * 7 + (i >> 8) + (size_t)rank * 31 + 1);
}

// Byte i of what this rank has in the end, of `size` bytes a rank.
static unsigned char from_peer(size_t i, size_t size) {
    (void)size;
    return sent(1 - g_rank, i);
}
static unsigned char sum_of_peer(size_t i, size_t size) {
    (void)size;
    unsigned char bytes[8];
    uint64_t word;
    for (size_t k = 0; k < 8; ++k)
        bytes[k] = sent(1 - g_rank, i / 8 * 8 + k);
    memcpy(&word, bytes, 8);
    word *= (uint64_t)g_accumulated;
    memcpy(bytes, &word, 8);
    return bytes[i % 8];
}
static unsigned char from_root(size_t i, size_t size) {
    (void)size;
    return sent(0, i);
}
static unsigned char block_of_root(size_t i, size_t size) {
    return sent(0, (size_t)g_rank * size + i);
}
static unsigned char block_of_each(size_t i, size_t size) {
    return sent((int)(i / size), i % size);
}
static unsigned char block_for_us(size_t i, size_t size) {
    return sent((int)(i / size), (size_t)g_rank * size + i % size);
}
static unsigned char of_all(size_t i, size_t size) {
    (void)size;
    unsigned char value = 0;
    for (int rank = 0; rank < g_ranks; ++rank)
        value ^= sent(rank, i);
    return value;
}

enum { kPair, kLastOfPair, kWindowOfLast, kFirstOfPair, kEverybody, kRootOnly, kAllButRoot };
static const struct operation {
    const char* name;
    void (*go)(void);
    int messages;  // of one go, what its time is divided by
    int checked;   // which ranks have something in the end
    int blocks;    // does it have one of each rank?
    unsigned char (*expected)(size_t, size_t);
} kOperations[] = {
    {"latency", latency, 2, kPair, 0, from_peer},
    {"bandwidth", bandwidth, kWindow, kLastOfPair, 0, from_peer},
    {"bidirectional", bidirectional, kWindow, kPair, 0, from_peer},
    {"put", put, 1, kWindowOfLast, 0, from_peer},
    {"accumulate", accumulate, 1, kWindowOfLast, 0, sum_of_peer},
    {"get", get, 1, kFirstOfPair, 0, from_peer},
    {"allgather", allgather, 1, kEverybody, 1, block_of_each},
    {"alltoall", alltoall, 1, kEverybody, 1, block_for_us},
    {"scatter", scatter, 1, kEverybody, 0, block_of_root},
    {"gather", gather, 1, kRootOnly, 1, block_of_each},
    {"allreduce", allreduce, 1, kEverybody, 0, of_all},
    {"bcast", bcast, 1, kAllButRoot, 0, from_root},
};
enum { kCount = sizeof kOperations / sizeof *kOperations };

static int has_some(int checked) {
    switch (checked) {
        case kPair:
            return g_rank < 2;
        case kLastOfPair:
        case kWindowOfLast:
            return g_rank == 1;
        case kFirstOfPair:
        case kRootOnly:
            return g_rank == 0;
        case kAllButRoot:
            return g_rank != 0;
        default:
            return 1;
    }
}

static void check(const struct operation* what) {
    if (!has_some(what->checked)) return;
    const unsigned char* const in = what->checked == kWindowOfLast ? g_exposed : g_in;
    const size_t size = (size_t)g_size;
    size_t bytes = what->blocks ? size * (size_t)g_ranks : size;
    if (what->go == accumulate) bytes = bytes / 8 * 8;
    for (size_t i = 0; i < bytes; ++i)
        if (in[i] != what->expected(i, size)) {
            printf("operations: %s of %d bytes: rank %d: byte %zu is %d, not %d\n", what->name,
                   g_size, g_rank, i, in[i], what->expected(i, size));
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

// Seconds of one, by the slowest rank. No rank begins before all have looked at the clock: one that
// gets its processor late would miss what the others have done by then.
static double seconds(const struct operation* what, int rounds) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < rounds; ++i)
        what->go();
    double mine = (MPI_Wtime() - begin) / rounds / what->messages, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

// So many that a turn takes its time. What one of the first lasts says little: connections are
// made, processes moved to processors. The quickest of some counts.
static int rounds_of_a_turn(const struct operation* what) {
    for (int rounds = 8;;) {
        double one = seconds(what, rounds);
        for (int i = 0; i < 4; ++i) {
            const double again = seconds(what, rounds);
            if (again < one) one = again;
        }
        const double all = one * what->messages * rounds;
        if (all >= kTurn / 2 || rounds >= kMostRounds) return rounds;
        rounds = all * 8 < kTurn ? rounds * 8 : (int)(rounds * kTurn / all) + 1;
        if (rounds > kMostRounds) rounds = kMostRounds;
    }
}

static unsigned char* mapped(void) {
    void* const memory =
        mmap(NULL, g_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
    return memory;
}

// Buffers that no turn had before. The pages of the former ones go, their addresses stay taken.
static void renew_buffers(void) {
    unsigned char* const before[] = {g_out, g_in};
    g_out = mapped();
    g_in = mapped();
    for (size_t i = 0; i < g_bytes; ++i)
        g_out[i] = sent(g_rank, i);
    memset(g_in, 0, g_bytes);
    for (int i = 0; i < 2; ++i)
        if (before[i] != NULL)
            mmap(before[i], g_bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void expose_window(void) {
    g_exposed = malloc(2 * g_bytes);
    memset(g_exposed, 0, g_bytes);
    for (size_t i = 0; i < g_bytes; ++i)
        g_exposed[g_bytes + i] = sent(g_rank, i);
    MPI_Win_create(g_exposed, (MPI_Aint)(2 * g_bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &g_window);
    MPI_Win_fence(0, g_window);
}

static void measure(const struct operation* what, int turns, int fresh) {
    begin_turn();
    seconds(what, 2);
    const int rounds = rounds_of_a_turn(what);
    end_turn();
    for (int i = 0; i < turns; ++i) {
        begin_turn();
        if (fresh) renew_buffers();
        const double taken = seconds(what, rounds);
        if (g_rank == 0) {
            printf("turn %s %d %.9g\n", what->name, g_size, taken);
            fflush(stdout);
        }
        end_turn();
    }
    check(what);
}

static const struct operation* found(const char* name) {
    for (int i = 0; i < kCount; ++i)
        if (strcmp(kOperations[i].name, name) == 0) return &kOperations[i];
    return NULL;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    const int turns = argc > 3 ? atoi(argv[3]) : 0;
    if (turns < 1 || g_ranks < 2) {
        if (g_rank == 0)
            fprintf(stderr, "operations OPERATION,... SIZE,... TURNS, on 2 ranks and more\n");
        MPI_Finalize();
        return 2;
    }
    int sizes[kMostSizes], count = 0, largest = 1;
    for (char* word = strtok(argv[2], ","); word && count < kMostSizes; word = strtok(NULL, ",")) {
        sizes[count++] = atoi(word);
        if (sizes[count - 1] > largest) largest = sizes[count - 1];
    }
    take_turns(1);
    const int fresh = argc > 4 && strcmp(argv[4], "fresh") == 0;
    g_bytes = (size_t)largest * (size_t)g_ranks;
    renew_buffers();
    for (char* name = strtok(argv[1], ","); name != NULL; name = strtok(NULL, ",")) {
        const struct operation* const what = found(name);
        if (what == NULL) {
            if (g_rank == 0) fprintf(stderr, "operations: there is no %s\n", name);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        const int one_sided = what->go == put || what->go == get || what->go == accumulate;
        if (one_sided && g_window == MPI_WIN_NULL) expose_window();
        for (int i = 0; i < count; ++i) {
            g_size = sizes[i];
            memset(g_in, 0, g_bytes);
            if (g_exposed != NULL) {
                memset(g_exposed, 0, g_bytes);
                g_accumulated = 0;
                MPI_Win_fence(0, g_window);
            }
            measure(what, turns, fresh);
        }
    }
    if (g_window != MPI_WIN_NULL) MPI_Win_free(&g_window);
    free(g_exposed);
    munmap(g_out, g_bytes);
    munmap(g_in, g_bytes);
    leave_turns();
    MPI_Finalize();
    return 0;
}
