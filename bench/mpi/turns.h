// SPDX-License-Identifier: BSD-2-Clause
// Two or more jobs of the same program can take turns, so that what is compared sees the same
// machine (turns.py): with TURNS=PATH ranks wait asleep for a byte in PATH.RANK.go before each
// repetition, and tell its end by one in PATH.RANK.done.
#pragma once

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE first: sched_setaffinity()"
#endif
#include <dirent.h>
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int g_rank;
static int g_go = -1, g_done = -1;
static int g_pinned;  // to a processor of its own

static int opened(const char* turns, const char* what, int how) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d.%s", turns, g_rank, what);
    const int file = open(path, how);
    if (file < 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return file;
}

// Ranks of this host, and how many of them come before this one. Not MPI_Comm_split_type(), which
// takes each rank for alone where an MPI's shared memory is switched off.
static int ranks_here(int* before) {
    char mine[MPI_MAX_PROCESSOR_NAME] = "";
    int length, ranks, here = 0;
    MPI_Get_processor_name(mine, &length);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char* const names = malloc((size_t)ranks * sizeof mine);
    MPI_Allgather(mine, sizeof mine, MPI_CHAR, names, sizeof mine, MPI_CHAR, MPI_COMM_WORLD);
    *before = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        if (strcmp(mine, names + (size_t)rank * sizeof mine) != 0) continue;
        ++here;
        *before += rank < g_rank;
    }
    free(names);
    return here;
}

// The threads that this process has so far, among them those of libraries beneath MPI.
static int pin_threads(const cpu_set_t* processors) {
    DIR* const tasks = opendir("/proc/self/task");
    if (tasks == NULL) return 0;
    int pinned = 1;
    for (const struct dirent* task; (task = readdir(tasks)) != NULL;) {
        const pid_t thread = atoi(task->d_name);  // 0 for "." and ".."
        if (thread != 0 && sched_setaffinity(thread, sizeof *processors, processors) != 0)
            pinned = 0;
    }
    closedir(tasks);
    return pinned;
}

// Gives this process a processor of this host that no other rank has, as `--bind-to core` does.
// A thread of a library (softhca's progress thread, UCX's asynchronous one) that runs on another
// rank's processor would take its time: a state that a job falls into by chance. Returns 0 if there
// are too few.
static int pin(void) {
    int before, number = -1;
    const int ranks = ranks_here(&before);
    cpu_set_t allowed, mine;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < ranks)
        return 0;
    for (int left = before; left >= 0; --left)
        do {
            ++number;
        } while (!CPU_ISSET(number, &allowed));
    CPU_ZERO(&mine);
    CPU_SET(number, &mine);
    return pin_threads(&mine);
}

// may_pin: give each rank a processor, if there are as many. All its threads have it: not for a
// rank with several.
static void take_turns(int may_pin) {
    const char* const turns = getenv("TURNS");
    if (turns == NULL) return;
    g_go = opened(turns, "go", O_RDONLY);
    g_done = opened(turns, "done", O_WRONLY);
    g_pinned = may_pin && pin();
}

// After the last turn: waits until the other jobs have ended theirs. MPI_Finalize would disturb
// them.
static void leave_turns(void) {
    char byte;
    if (g_go >= 0 && read(g_go, &byte, 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
}

// The kernel decides on which processor a rank wakes up: perhaps two ranks on one, while another
// processor is idle. As long as they yield to each other, both look warm and stay there. When both
// are busy without a yield, one of them waits, and the kernel moves it.
static void spread(void) {
    static const double kBusy = 0.004;  // seconds
    const double begin = MPI_Wtime();
    while (MPI_Wtime() - begin < kBusy) {
    }
}

static void begin_turn(void) {
    char byte;
    if (g_go < 0) return;
    if (read(g_go, &byte, 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
    if (!g_pinned) spread();
}

static void end_turn(void) {
    if (g_done >= 0 && write(g_done, ".", 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double median(double* values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}
