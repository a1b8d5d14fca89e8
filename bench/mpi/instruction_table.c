// SPDX-License-Identifier: BSD-2-Clause
// MPI operations on two ranks, one step at a time, so that callgrind counts each of them without
// waiting: a rank takes its step when the other one has taken its own and the device has executed
// what was posted. For MPICH, on Linux, below callgrind with --instr-atstart=no,
// --toggle-collect=counted and a first cache of 256 KiB (instruction_table.py).
//
// instruction_table FOLDER MESSAGES CHUNKS ROW...: each row is a turn (turns.h). Its messages are
// counted in chunks. After each of them each rank writes two profiles: "ROW steps", of the calls
// that count, and "ROW rest", of calls that progress afterwards. FOLDER has the FIFOs of steps.h.
#define _GNU_SOURCE
#include <stdint.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include "below_valgrind.h"
#include "turns.h"
// turns.h first.
#include "steps.h"

enum {
    kWarmUp = 24,
    kRest = 16,         // calls that progress, after a chunk
    kMost = 65536,      // bytes of a message
    kCache = 262144,    // of callgrind's first cache
    kNever = 77,        // a tag that no message has
    kPause = 1000,      // microseconds
    kLongPause = 5000,  // where the target's processor may have to answer
};

enum call { kSend, kReceive, kIsend, kIreceive, kTest, kTurn, kPut, kGet, kFetch, kFlush };
struct step {
    int rank;
    enum call call;
    int counts;  // whether the call is counted
};
enum { kSteps = 7 };
static const struct row {
    const char* name;
    int bytes;
    int of_window;
    int steps;
    struct step step[kSteps];
} kRows[] = {
    {"idle", 8, 0, 2, {{0, kTurn, 1}, {1, kTurn, 1}}},
    {"pingpong", 8, 0, 4, {{0, kSend, 1}, {1, kReceive, 0}, {1, kSend, 0}, {0, kReceive, 1}}},
    {"send", 8, 0, 3, {{1, kIreceive, 0}, {0, kSend, 1}, {1, kTest, 0}}},
    {"irecv", 8, 0, 3, {{1, kIreceive, 1}, {0, kSend, 0}, {1, kTest, 0}}},
    {"completion", 8, 0, 3, {{1, kIreceive, 0}, {0, kSend, 0}, {1, kTest, 1}}},
    {"early", 8, 0, 3, {{0, kSend, 0}, {1, kTurn, 1}, {1, kReceive, 0}}},
    {"early_receive", 8, 0, 3, {{0, kSend, 0}, {1, kTurn, 0}, {1, kReceive, 1}}},
#define EAGER(bytes)                                                          \
    {                                                                         \
        "eager" #bytes, bytes, 0, 4, {                                        \
            {1, kIreceive, 1}, {0, kIsend, 1}, {1, kTest, 1}, { 0, kTest, 1 } \
        }                                                                     \
    }
    EAGER(64),
    EAGER(1024),
    EAGER(8192),
    // The receiver reads, and answers.
    {"rget",
     65536,
     0,
     5,
     {{1, kIreceive, 1}, {0, kIsend, 1}, {1, kTest, 1}, {1, kTest, 1}, {0, kTest, 1}}},
    // The receiver answers, and the sender writes.
    {"rput",
     65536,
     0,
     6,
     {{1, kIreceive, 1},
      {0, kIsend, 1},
      {1, kTest, 1},
      {0, kTest, 1},
      {0, kTest, 1},
      {1, kTest, 1}}},
    {"put", 8, 1, 2, {{0, kPut, 1}, {0, kFlush, 1}}},
    {"get", 8, 1, 2, {{0, kGet, 1}, {0, kFlush, 1}}},
    {"fetch", 8, 1, 2, {{0, kFetch, 1}, {0, kFlush, 1}}},
};
enum { kNumber = sizeof kRows / sizeof *kRows };

static struct {
    int bytes;
    unsigned char *out, *in;
    MPI_Request request, never;
    MPI_Win window;
    int64_t *target, operand, result;
} g;

static long g_pause;          // before each call
static const int kOther = 1;  // the tag of all messages

static void turn(void) {
    int is_done;
    MPI_Test(&g.never, &is_done, MPI_STATUS_IGNORE);
}

__attribute__((noinline)) static void perform(enum call call) {
    const int other = 1 - g_rank;
    int is_done;
    switch (call) {
        case kSend:
            MPI_Send(g.out, g.bytes, MPI_BYTE, other, kOther, MPI_COMM_WORLD);
            break;
        case kReceive:
            MPI_Recv(g.in, g.bytes, MPI_BYTE, other, kOther, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        case kIsend:
            MPI_Isend(g.out, g.bytes, MPI_BYTE, other, kOther, MPI_COMM_WORLD, &g.request);
            break;
        case kIreceive:
            MPI_Irecv(g.in, g.bytes, MPI_BYTE, other, kOther, MPI_COMM_WORLD, &g.request);
            break;
        case kTest:
            MPI_Test(&g.request, &is_done, MPI_STATUS_IGNORE);
            break;
        case kTurn:
            turn();
            break;
        case kPut:
            MPI_Put(g.out, g.bytes, MPI_BYTE, other, 0, g.bytes, MPI_BYTE, g.window);
            break;
        case kGet:
            MPI_Get(g.in, g.bytes, MPI_BYTE, other, 0, g.bytes, MPI_BYTE, g.window);
            break;
        case kFetch:
            MPI_Fetch_and_op(&g.operand, &g.result, MPI_INT64_T, other, 0, MPI_SUM, g.window);
            break;
        case kFlush:
            MPI_Win_flush(other, g.window);
            break;
    }
}

// Callgrind collects only below it. The barrier keeps the call a call.
__attribute__((noinline)) void counted(enum call call) {
    perform(call);
    __asm__ volatile("" ::: "memory");
}

// Afterwards the simulated cache has nothing but this: each line that a call touches is a miss.
static void fill_cache(void) {
    static _Alignas(kCache) const volatile unsigned char filling[kCache];
    for (int at = 0; at < kCache; at += 64)
        (void)filling[at];
}

static void take(enum call call, int counts) {
    pause_for_device(g_pause);
    if (counts) {
        fill_cache();
        counted(call);
    } else {
        perform(call);
    }
}

static void fail(const char* row, long message) {
    printf("instruction_table: rank %d: row %s: message %ld did not come\n", g_rank, row, message);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check_window(const struct row* row, long number) {
    static int64_t there;  // what the target has
    const int64_t got = strcmp(row->name, "get") == 0 ? *(int64_t*)g.in : g.result;
    if (strcmp(row->name, "put") == 0)
        there = number;
    else if (g_rank == 0 && got != there)
        fail(row->name, number);
    there += strcmp(row->name, "fetch") == 0;
    if (g_rank == 1 && *(volatile int64_t*)g.target != there) fail(row->name, number);
}

static void check(const struct row* row, long number) {
    const int receives = g_rank == 1 || strcmp(row->name, "pingpong") == 0;
    if (row->of_window)
        check_window(row, number);
    else if (receives && strcmp(row->name, "idle") != 0)
        for (int at = 0; at < row->bytes; at += 8)
            if (*(long*)(g.in + at) != number) fail(row->name, number);
}

static void fill(const struct row* row, long number) {
    for (int at = 0; at < row->bytes; at += 8)
        *(long*)(g.out + at) = number;
}

static void message(const struct row* row, long number, int counts) {
    void (*const meanwhile)(void) = row->of_window ? turn : NULL;
    fill(row, number);
    int at = 0;  // the rank whose step it is
    int tests_count = 0;
    for (int i = 0; i < row->steps; ++i) {
        const struct step* const step = &row->step[i];
        if (step->rank != at) {
            if (at == g_rank)
                tell();
            else
                learn(meanwhile);
            at = step->rank;
        }
        if (step->rank != g_rank) continue;
        take(step->call, counts && step->counts);
        tests_count |= step->call == kTest && step->counts;
    }
    // Where more calls are needed than the row has.
    while (g.request != MPI_REQUEST_NULL)
        take(kTest, counts && tests_count);
    tell();
    learn(meanwhile);
    check(row, number);
    // Nothing changes until both have looked.
    tell();
    learn(meanwhile);
}

static void count(const struct row* row, int messages, int chunks) {
    static long number = 0;
    char name[64];
    g.bytes = row->bytes;
    g_pause = row->of_window ? kLongPause : kPause;
    for (int i = 0; i < kWarmUp; ++i)
        message(row, ++number, 0);
    for (int chunk = 0; chunk < chunks; ++chunk) {
        for (int i = 0; i < messages; ++i)
            message(row, ++number, 1);
        snprintf(name, sizeof name, "%s steps", row->name);
        CALLGRIND_DUMP_STATS_AT(name);
        for (int i = 0; i < kRest; ++i)
            take(kTurn, 1);
        snprintf(name, sizeof name, "%s rest", row->name);
        CALLGRIND_DUMP_STATS_AT(name);
        tell();
        learn(row->of_window ? turn : NULL);
    }
}

static const struct row* row_of(const char* name) {
    for (int i = 0; i < kNumber; ++i)
        if (strcmp(kRows[i].name, name) == 0) return &kRows[i];
    fprintf(stderr, "instruction_table: no row %s\n", name);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return NULL;
}

static void* pages(size_t bytes) {
    void* memory = NULL;
    if (posix_memalign(&memory, 4096, bytes) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    return memset(memory, 0, bytes);
}

// Queues that grow have grown: after a burst both ways, and a while.
static void grow_queues(void) {
    enum { kBurst = 64 };
    static char in[kBurst], out[kBurst];
    MPI_Request requests[2 * kBurst];
    for (int i = 0; i < kBurst; ++i)
        MPI_Isend(out + i, 1, MPI_BYTE, 1 - g_rank, kOther, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < kBurst; ++i)
        MPI_Irecv(in + i, 1, MPI_BYTE, 1 - g_rank, kOther, MPI_COMM_WORLD, &requests[kBurst + i]);
    MPI_Waitall(2 * kBurst, requests, MPI_STATUSES_IGNORE);
    usleep(50 * 1000);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void count_all(int messages, int chunks, char** names, int number) {
    int has_window = 0;
    for (int i = 0; i < number; ++i)
        has_window |= row_of(names[i])->of_window;
    g.out = pages(kMost);
    g.in = pages(kMost);
    g.request = MPI_REQUEST_NULL;
    g.operand = 1;
    MPI_Irecv(pages(8), 8, MPI_BYTE, 1 - g_rank, kNever, MPI_COMM_WORLD, &g.never);
    if (has_window) {
        // Without it MPICH has accumulates executed by the target's processor.
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "disable_shm_accumulate", "true");
        MPI_Info_set(info, "which_accumulate_ops", "sum");
        // Not MPI_Win_allocate(), which may give memory that ranks of one host share.
        g.target = pages(4096);
        MPI_Win_create(g.target, 4096, 1, info, MPI_COMM_WORLD, &g.window);
        MPI_Info_free(&info);
        *g.target = 0;
        MPI_Win_lock_all(0, g.window);
    }
    grow_queues();
    CALLGRIND_START_INSTRUMENTATION;
    for (int i = 0; i < number; ++i) {
        begin_turn();
        count(row_of(names[i]), messages, chunks);
        end_turn();
    }
    CALLGRIND_STOP_INSTRUMENTATION;
    leave_turns();
    if (has_window) {
        MPI_Win_unlock_all(g.window);
        MPI_Win_free(&g.window);
    }
    MPI_Cancel(&g.never);
    MPI_Wait(&g.never, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int messages = argc > 4 ? atoi(argv[2]) : 0, chunks = argc > 4 ? atoi(argv[3]) : 0;
    if (ranks != 2 || messages < 1 || chunks < 1) {
        if (g_rank == 0)
            fprintf(stderr, "instruction_table FOLDER MESSAGES CHUNKS ROW..., on 2 ranks\n");
        MPI_Finalize();
        return 2;
    }
    begin_steps(argv[1]);
    take_turns(0);
    count_all(messages, chunks, argv + 4, argc - 4);
    end_steps();
    MPI_Finalize();
    return 0;
}
