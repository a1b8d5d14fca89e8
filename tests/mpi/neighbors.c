// SPDX-License-Identifier: BSD-2-Clause
// Collectives among neighbours, blocking and nonblocking, on a ring of processes (a cartesian grid
// of one dimension; MPICH 5.0.2 has faults of its own in distributed graphs, see
// tests/mpi/README.md).
#include "collective.h"

static const size_t kSizes[] = {0, 1, 8, 100, 1000, 5000, 20000, 100000, 600000};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0] };

// A ring: the neighbours are the one before and the one after. With two processes both are the
// same one, and the messages are told apart by their order.
static void ring_body(void) {
    const int periodic = 1;
    MPI_Comm ring;
    MPI_Cart_create(g_comm, 1, &g_size, &periodic, 0, &ring);
    const int before = (g_me + g_size - 1) % g_size, after = (g_me + 1) % g_size;
    for (int s = 0; s < kSizeCount; ++s) {
        const size_t size = kSizes[s];
        const int n = (int)size, counts[] = {n, n}, places[] = {0, n};
        const MPI_Aint far_places[] = {0, n};
        const MPI_Datatype bytes[] = {MPI_BYTE, MPI_BYTE};
        unsigned char *out = buffer_make(2 * size, 0), *in = buffer_make(2 * size, 0);
        fill(out, size, g_me, 0, 0);
        for (int v = 0; v < 2; ++v) {
            buffer_clear(in);
            if (v)
                COLLECTIVE(Neighbor_allgatherv, neighbor_allgatherv, out, n, MPI_BYTE, in, counts,
                           places, MPI_BYTE, ring);
            else
                COLLECTIVE(Neighbor_allgather, neighbor_allgather, out, n, MPI_BYTE, in, n,
                           MPI_BYTE, ring);
            check_filled(in, size, before, 0, 0, "neighbor_allgather, before");
            check_filled(in + size, size, after, 0, 0, "neighbor_allgather, after");
        }
        fill(out, size, g_me, 0, 10);         // to the one before
        fill(out + size, size, g_me, 0, 11);  // to the one after
        for (int way = 0; way < 3 && g_size > 2; ++way) {
            buffer_clear(in);
            if (way == 0)
                COLLECTIVE(Neighbor_alltoall, neighbor_alltoall, out, n, MPI_BYTE, in, n, MPI_BYTE,
                           ring);
            else if (way == 1)
                COLLECTIVE(Neighbor_alltoallv, neighbor_alltoallv, out, counts, places, MPI_BYTE,
                           in, counts, places, MPI_BYTE, ring);
            else
                COLLECTIVE(Neighbor_alltoallw, neighbor_alltoallw, out, counts, far_places, bytes,
                           in, counts, far_places, bytes, ring);
            check_filled(in, size, before, 0, 11, "neighbor_alltoall, from before");
            check_filled(in + size, size, after, 0, 10, "neighbor_alltoall, from after");
            buffer_check_guards(in, "neighbor_alltoall");
        }
        buffer_free(out);
        buffer_free(in);
    }
    MPI_Comm_free(&ring);
}

static void ring(void) { everywhere(ring_body); }

int main(int argc, char** argv) {
    static const struct step steps[] = {{"ring", ring}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
