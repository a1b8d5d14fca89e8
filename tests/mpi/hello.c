// SPDX-License-Identifier: BSD-2-Clause
// The least an MPI program does: starts, meets all others, ends. Prints which library it runs on.
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

static void meet(void) {
    int* all = malloc((size_t)g_ranks * sizeof *all);
    MPI_Allgather(&g_rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < g_ranks; ++i)
        CHECK(all[i] == i, "allgather: element %d is %d", i, all[i]);
    free(all);
}

// Each with each, so that all connections are made; both sides at once.
static void everybody(void) {
    for (int distance = 0; distance < g_ranks; ++distance) {
        const int to = (g_rank + distance) % g_ranks,
                  from = (g_rank - distance + g_ranks) % g_ranks;
        int out = g_rank * 1000 + to, in = -1;
        MPI_Sendrecv(&out, 1, MPI_INT, to, 1, &in, 1, MPI_INT, from, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        CHECK(in == from * 1000 + g_rank, "from %d came %d", from, in);
    }
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"meet", meet}, {"everybody", everybody}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    if (g_rank == 0) printf("%.60s\n", version);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
