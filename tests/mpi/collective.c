// SPDX-License-Identifier: BSD-2-Clause
#include "collective.h"

bool g_nonblocking;
MPI_Comm g_comm;
int g_me, g_size;

void everywhere(void (*body)(void)) {
    MPI_Comm comms[3];
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -g_rank, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, g_rank, &comms[2]);
    for (int i = 0; i < 3; ++i) {
        g_comm = comms[i];
        MPI_Comm_rank(g_comm, &g_me);
        MPI_Comm_size(g_comm, &g_size);
        for (int way = 0; way < 2; ++way) {
            g_nonblocking = way;
            body();
        }
    }
    MPI_Comm_free(&comms[1]);
    MPI_Comm_free(&comms[2]);
}
