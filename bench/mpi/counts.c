// SPDX-License-Identifier: BSD-2-Clause
// What a ping-pong of 8 bytes costs the processor of rank 0, on two ranks. For any MPI, on Linux.
//
// counts steps MESSAGES FOLDER: one message at a time, for callgrind. Each rank learns by a FIFO of
// FOLDER that its message has been sent, and gives the device time to deliver it. So MPI_Recv finds
// it at once, unless the machine is so busy that delivery takes longer: empty polls count then.
// Counted are counted_send() and counted_receive(). counts turns MESSAGES TURNS: as fast as it
// goes, in turns (turns.h). Rank 0 writes what the processor counts of it in user mode
// (perf_event_open(2)), waiting included, by message: turn NAME VALUE, or once for what is not
// counted: not NAME REASON.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "turns.h"

enum { kWarmUp = 20 };
static long g_out, g_in;

__attribute__((noinline)) static void send_one(void) {
    MPI_Send(&g_out, sizeof g_out, MPI_BYTE, 1 - g_rank, 1, MPI_COMM_WORLD);
}
__attribute__((noinline)) static void receive_one(void) {
    MPI_Recv(&g_in, sizeof g_in, MPI_BYTE, 1 - g_rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
// Callgrind collects only below these. The barrier keeps each call a call.
__attribute__((noinline)) void counted_send(void) {
    send_one();
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) void counted_receive(void) {
    receive_one();
    __asm__ volatile("" ::: "memory");
}

static void check(long expected) {
    if (g_in == expected) return;
    printf("counts: rank %d: %ld came, not %ld\n", g_rank, g_in, expected);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// Steps.

// A software HCA looks for doorbells of unknown programs every 2 ms (docs/reference/softhca.md).
static const struct timespec kDelivery = {.tv_sec = 0, .tv_nsec = 20000000};

static int fifo(const char* folder, int rank, int how) {
    char path[4096];
    snprintf(path, sizeof path, "%s/sent.%d", folder, rank);
    const int file = open(path, how);
    if (file < 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return file;
}

static void tell(int file) {
    if (write(file, ".", 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
}

static void learn(int file) {
    char byte;
    if (read(file, &byte, 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
    nanosleep(&kDelivery, NULL);
}

static void step(int messages, const char* folder) {
    const int ours = fifo(folder, g_rank, O_RDWR), theirs = fifo(folder, 1 - g_rank, O_RDWR);
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = 0; i < kWarmUp + messages; ++i) {
        const int counts = i >= kWarmUp;
        g_out = 2 * i + g_rank;
        if (g_rank == 0) {
            counts ? counted_send() : send_one();
            tell(theirs);
            learn(ours);
            counts ? counted_receive() : receive_one();
        } else {
            learn(ours);
            receive_one();
            send_one();
            tell(theirs);
        }
        check(2 * i + (1 - g_rank));
    }
    close(ours);
    close(theirs);
}

// Turns.

#define CACHE_READS(cache, result) \
    ((cache) | (PERF_COUNT_HW_CACHE_OP_READ << 8) | ((uint64_t)(result) << 16))
static struct kind {
    const char* name;
    uint32_t type;
    uint64_t config;
    int file;
} g_kinds[] = {
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, -1},
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, -1},
    {"stalled_frontend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, -1},
    {"stalled_backend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND, -1},
    {"data_reads", PERF_TYPE_HW_CACHE,
     CACHE_READS(PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_RESULT_ACCESS), -1},
    {"data_read_misses", PERF_TYPE_HW_CACHE,
     CACHE_READS(PERF_COUNT_HW_CACHE_L1D, PERF_COUNT_HW_CACHE_RESULT_MISS), -1},
    {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, -1},
    {"branch_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, -1},
    {"task_clock_ns", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, -1},
};
enum { kKinds = sizeof g_kinds / sizeof *g_kinds };

static const char* reason(int error) {
    if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
        return "this processor, or virtual machine, does not count it";
    if (error == EACCES || error == EPERM)
        return "not permitted (kernel.perf_event_paranoid, or a container's rules)";
    return strerror(error);
}

// Each counter is a group of its own: processors differ in how many they count at once, and the
// kernel says for how long of the time each was counted.
static void open_counters(void) {
    for (int i = 0; i < kKinds; ++i) {
        struct perf_event_attr attributes = {
            .size = sizeof attributes,
            .type = g_kinds[i].type,
            .config = g_kinds[i].config,
            .disabled = 1,
            .exclude_kernel = g_kinds[i].type != PERF_TYPE_SOFTWARE,
            .exclude_hv = 1,
            .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING};
        g_kinds[i].file =
            (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        if (g_kinds[i].file < 0) printf("not %s %s\n", g_kinds[i].name, reason(errno));
    }
    fflush(stdout);
}

struct reading {
    uint64_t value, enabled, running;
};

static struct reading reading_of(const struct kind* kind) {
    struct reading now = {0, 0, 0};
    if (read(kind->file, &now, sizeof now) != sizeof now) now.running = now.enabled = 0;
    return now;
}

static void turn(int messages) {
    struct reading before[kKinds] = {{0, 0, 0}};
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kKinds; ++i)
        if (g_kinds[i].file >= 0) {
            before[i] = reading_of(&g_kinds[i]);
            ioctl(g_kinds[i].file, PERF_EVENT_IOC_ENABLE, 0);
        }
    for (long i = 0; i < messages; ++i) {
        g_out = 2 * i + g_rank;
        if (g_rank == 0) send_one();
        receive_one();
        if (g_rank == 1) send_one();
        check(2 * i + (1 - g_rank));
    }
    for (int i = 0; i < kKinds; ++i)
        if (g_kinds[i].file >= 0) ioctl(g_kinds[i].file, PERF_EVENT_IOC_DISABLE, 0);
    for (int i = 0; i < kKinds; ++i) {
        if (g_kinds[i].file < 0) continue;
        const struct reading after = reading_of(&g_kinds[i]);
        const double enabled = (double)(after.enabled - before[i].enabled);
        const double running = (double)(after.running - before[i].running);
        if (running > 0)  // else others had the processor's counters all the while
            printf("turn %s %.9g\n", g_kinds[i].name,
                   (double)(after.value - before[i].value) * enabled / running / messages);
    }
    fflush(stdout);
}

int main(int argc, char** argv) {
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int messages = argc == 4 ? atoi(argv[2]) : 0;
    if (ranks != 2 || messages < 1) {
        if (g_rank == 0)
            fprintf(stderr, "counts steps MESSAGES FOLDER | turns MESSAGES TURNS, on 2 ranks\n");
        MPI_Finalize();
        return 2;
    }
    if (strcmp(argv[1], "steps") == 0) {
        step(messages, argv[3]);
    } else {
        take_turns(1);
        if (g_rank == 0) open_counters();
        for (int i = 0; i <= atoi(argv[3]); ++i) {  // the first one makes connections
            begin_turn();
            turn(messages);
            end_turn();
        }
    }
    leave_turns();
    MPI_Finalize();
    return 0;
}
