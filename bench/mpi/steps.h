// SPDX-License-Identifier: BSD-2-Clause
// Two ranks that take one step at a time: each waits, by a FIFO, until the other one has taken its
// step. After turns.h.
#pragma once

#include <poll.h>
#include <time.h>

static int g_ours = -1, g_theirs = -1;  // bytes for this rank, and for the other one

static int fifo(const char* folder, int rank) {
    char path[4096];
    snprintf(path, sizeof path, "%s/sent.%d", folder, rank);
    const int file = open(path, O_RDWR);
    if (file < 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return file;
}

// The FIFOs sent.0 and sent.1 of this folder.
static void begin_steps(const char* folder) {
    g_ours = fifo(folder, g_rank);
    g_theirs = fifo(folder, 1 - g_rank);
}

static void end_steps(void) {
    close(g_ours);
    close(g_theirs);
}

// This rank has taken its step.
static void tell(void) {
    if (write(g_theirs, ".", 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
}

// Waits until the other rank has. Meanwhile calls `turn`, if there is one, every 0.3 ms.
static void learn(void (*turn)(void)) {
    static const struct timespec kEach = {.tv_sec = 0, .tv_nsec = 300000};
    struct pollfd ready = {.fd = g_ours, .events = POLLIN};
    char byte;
    while (turn != NULL && ppoll(&ready, 1, &kEach, NULL) == 0)
        turn();
    if (read(g_ours, &byte, 1) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
}

// Gives a software HCA the time to execute what was posted. Its threads look for doorbells of
// programs that are unknown to it (docs/reference/softhca.md).
static void pause_for_device(long microseconds) {
    const struct timespec time = {.tv_sec = 0, .tv_nsec = microseconds * 1000};
    nanosleep(&time, NULL);
}
