// SPDX-License-Identifier: BSD-2-Clause
// heap: every rank exchanges a message with every other; then rank 0 says what malloc has given out
// in it: heap RANKS BYTES (mallinfo2). For any MPI, on glibc.
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int peer = 0; peer < ranks; ++peer) {
        int out = rank * ranks + peer, in = -1;
        if (peer == rank) continue;
        MPI_Sendrecv(&out, 1, MPI_INT, peer, 1, &in, 1, MPI_INT, peer, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (in != peer * ranks + rank) {
            printf("heap: rank %d: %d from %d\n", rank, in, peer);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const struct mallinfo2 info = mallinfo2();
    if (rank == 0) printf("heap %d %zu\n", ranks, info.uordblks + info.hblkhd);
    MPI_Finalize();
    return 0;
}
