// SPDX-License-Identifier: BSD-2-Clause
// Two or more jobs of the same program can take turns, so that what is compared sees the same
// machine (turns.py): with TURNS=PATH ranks wait asleep for a byte in PATH.RANK.go before each
// repetition, and tell its end by one in PATH.RANK.done.
#pragma once

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int g_rank;
static int g_go = -1, g_done = -1;

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

static void take_turns(void) {
    const char* const turns = getenv("TURNS");
    if (turns == NULL) return;
    g_go = opened(turns, "go", O_RDONLY);
    g_done = opened(turns, "done", O_WRONLY);
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
    spread();
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
