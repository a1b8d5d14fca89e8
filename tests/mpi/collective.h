// SPDX-License-Identifier: BSD-2-Clause
// Running a collective in its blocking and in its nonblocking form, on several communicators. For
// collectives.c, neighbors.c and reductions.c.
#pragma once

#include "support.h"

extern bool g_nonblocking;
extern MPI_Comm g_comm;  // the one at hand; this process's rank in it, and its size
extern int g_me, g_size;

// COLLECTIVE(Bcast, bcast, ...) is MPI_Bcast(...), or MPI_Ibcast(...) and MPI_Wait.
#define COLLECTIVE(Name, name, ...)                 \
    do {                                            \
        if (g_nonblocking) {                        \
            MPI_Request request_;                   \
            MPI_I##name(__VA_ARGS__, &request_);    \
            MPI_Wait(&request_, MPI_STATUS_IGNORE); \
        } else {                                    \
            MPI_##Name(__VA_ARGS__);                \
        }                                           \
    } while (0)

// Runs `body` on the world, on all ranks in reverse order, and on the even and odd ones apart; on
// each blocking, then nonblocking.
void everywhere(void (*body)(void));
