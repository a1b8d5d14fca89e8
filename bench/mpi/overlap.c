// SPDX-License-Identifier: BSD-2-Clause
// overlap [SIZE,SIZE,...]: how much of a message's time its sender, and its receiver, has for
// work of its own: post, work, wait, as in Sandia's micro-benchmark of MPI overhead. Rank 0 works,
// more and more, until an iteration takes half as long again as without work; what it takes beyond
// the work is the overhead, and availability the share of the time without work that the overhead
// is not. Rank 1 waits for it, and gives its processor away between looks.
//
// Where there are two processors and more, rank 0 has the first for itself: threads that MPI_Init
// starts (those of a software HCA among them) and rank 1 have the others.
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

#include "turns.h"

enum { kMostSizes = 32, kWarmUp = 32, kLeast = 8, kMost = 2000, kRepetitions = 5 };
enum { kData = 1, kAgain = 2, kReady = 3 };
static const double kStep = 0.004;                                            // seconds
static const double kFirst = 0.25, kMore = 1.5, kEnough = 1.5, kGiveUp = 50;  // of the base time

static char* g_buffer;
static double g_units;  // of work in a second

static int g_processors[CPU_SETSIZE], g_count;

static void find_processors(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return;
    for (int i = 0; i < CPU_SETSIZE; ++i)
        if (CPU_ISSET(i, &set)) g_processors[g_count++] = i;
}

static void run_on(int first, int end) {
    if (g_count < 2) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = first; i < end; ++i)
        CPU_SET(g_processors[i], &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void work(double units) {
    unsigned long value = 1;
    for (long left = (long)units; left > 0; --left) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(value));
    }
}

static void calibrate(void) {
    double times[9];
    for (int i = 0; i < 9; ++i) {
        const double begin = MPI_Wtime();
        work(20000);
        times[i] = MPI_Wtime() - begin;
    }
    g_units = 20000 / median(times, 9);
}

// The peer's, which is asked for each message by its number; 0: no more.
static void wait_kindly(MPI_Request* request) {
    for (int done = 0; !done;) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done) sched_yield();
    }
}

static void answer_all(int sends, int size) {
    for (;;) {
        int again = 0;
        MPI_Request request;
        MPI_Irecv(&again, 1, MPI_INT, 0, sends ? kAgain : kReady, MPI_COMM_WORLD, &request);
        wait_kindly(&request);
        if (!again) return;
        if (sends) {
            MPI_Irecv(g_buffer, size, MPI_BYTE, 0, kData, MPI_COMM_WORLD, &request);
            MPI_Send(NULL, 0, MPI_BYTE, 0, kReady, MPI_COMM_WORLD);
        } else {
            MPI_Isend(g_buffer, size, MPI_BYTE, 0, kData, MPI_COMM_WORLD, &request);
        }
        wait_kindly(&request);
    }
}

struct times {
    double post, wait, all, work;
};

static struct times once(int sends, int size, double units) {
    int again = 1;
    MPI_Request request;
    if (sends) {
        MPI_Send(&again, 1, MPI_INT, 1, kAgain, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_BYTE, 1, kReady, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    struct times t;
    const double begin = MPI_Wtime();
    if (sends)
        MPI_Isend(g_buffer, size, MPI_BYTE, 1, kData, MPI_COMM_WORLD, &request);
    else
        MPI_Irecv(g_buffer, size, MPI_BYTE, 1, kData, MPI_COMM_WORLD, &request);
    const double posted = MPI_Wtime();
    // The receiver says that it is ready. The time of this does not count for the measured message.
    if (!sends) MPI_Send(&again, 1, MPI_INT, 1, kReady, MPI_COMM_WORLD);
    const double told = MPI_Wtime();
    work(units);
    const double worked = MPI_Wtime();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const double end = MPI_Wtime();
    t.post = posted - begin;
    t.wait = end - worked;
    t.all = end - begin - (told - posted);
    // The same work without a message, at about the same time.
    const double alone = MPI_Wtime();
    work(units);
    t.work = MPI_Wtime() - alone;
    return t;
}

static struct times many(int sends, int size, double seconds, double base) {
    static double values[4][kMost];
    const double wanted = kStep / (base + 2 * seconds + 1e-7);
    const int count = wanted < kLeast ? kLeast : wanted > kMost ? kMost : (int)wanted;
    const double begin = MPI_Wtime();
    int i = 0;
    for (; i < count; ++i) {
        // Where others compute, too, it may take long.
        if (i >= kLeast && MPI_Wtime() - begin > 5 * kStep) break;
        const struct times t = once(sends, size, seconds * g_units);
        values[0][i] = t.post;
        values[1][i] = t.wait;
        values[2][i] = t.all;
        values[3][i] = t.work;
    }
    return (struct times){median(values[0], i), median(values[1], i), median(values[2], i),
                          median(values[3], i)};
}

static void measure(int sends, int size) {
    if (g_rank != 0) {
        answer_all(sends, size);
        return;
    }
    calibrate();
    for (int i = 0; i < kWarmUp; ++i)
        once(sends, size, 0);
    double base = many(sends, size, 0, 5e-5).all;
    base = many(sends, size, 0, base).all;
    struct times t;
    for (double wanted = base * kFirst;; wanted *= kMore) {
        t = many(sends, size, wanted, base);
        if (t.all > base * kEnough || wanted > base * kGiveUp) break;
    }
    const int no_more = 0;
    MPI_Send(&no_more, 1, MPI_INT, 1, sends ? kAgain : kReady, MPI_COMM_WORLD);
    const double overhead = t.all - t.work;
    if (g_go >= 0)
        printf("turn %s %d %.9g %.9g %.9g %.9g\n", sends ? "sender" : "receiver", size, base,
               overhead, t.post, t.wait);
    else
        printf("%-9s %9d %12.2f %12.2f %12.2f %12.2f %12.1f\n", sends ? "sender" : "receiver", size,
               base * 1e6, t.post * 1e6, t.wait * 1e6, overhead * 1e6, 100 * (1 - overhead / base));
    fflush(stdout);
}

int main(int argc, char** argv) {
    find_processors();
    run_on(1, g_count);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    if (g_rank == 0) run_on(0, 1);
    int sizes[kMostSizes] = {0, 8, 1024, 8192, 16384, 65536, 262144, 1 << 20, 4 << 20};
    int count = 9, ranks = 0, largest = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1) {
        count = 0;
        for (const char* at = argv[1]; at != NULL && count < kMostSizes; ++count) {
            sizes[count] = atoi(at);
            if ((at = strchr(at, ',')) != NULL) ++at;
        }
    }
    for (int i = 0; i < count; ++i)
        largest = sizes[i] > largest ? sizes[i] : largest;
    if (ranks != 2) {
        if (g_rank == 0) fprintf(stderr, "overlap: needs 2 ranks\n");
        MPI_Finalize();
        return 2;
    }
    g_buffer = malloc((size_t)largest);
    memset(g_buffer, 1, (size_t)largest);
    take_turns(0);
    if (g_rank == 0 && g_go < 0)
        printf("%-9s %9s %12s %12s %12s %12s %12s\n", "side", "bytes", "base us", "post us",
               "wait us", "overhead us", "available %");
    for (int sends = 1; sends >= 0; --sends)
        for (int i = 0; i < count; ++i)
            for (int repetition = 0; repetition < kRepetitions; ++repetition) {
                begin_turn();
                measure(sends, sizes[i]);
                end_turn();
            }
    free(g_buffer);
    leave_turns();
    MPI_Finalize();
    return 0;
}
