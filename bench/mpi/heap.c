// SPDX-License-Identifier: BSD-2-Clause
// heap: every rank exchanges a message with every other, and all run collectives; then rank 0 says
// what malloc has given out in it (mallinfo2), and what of its memory is no file's
// (/proc/self/status): heap RANKS BYTES BYTES. It waits for a byte of its standard input, or the
// end of it, to be looked at. For any MPI, on glibc.
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

// Anonymous and shared, in bytes.
static unsigned long in_memory(void) {
    unsigned long sum = 0, value;
    char line[256];
    FILE* const status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "RssAnon: %lu", &value) == 1 || sscanf(line, "RssShmem: %lu", &value) == 1)
            sum += value * 1024;
    if (status != NULL) fclose(status);
    return sum;
}

// As the paper's benchmarks of collectives do: each algorithm talks to peers of its own. Buffers
// are static, so that none is on the heap.
static void run_collectives(int rank, int ranks) {
    enum { kMostRanks = 256, kInts = 1024 };  // 4 KiB of each rank
    static int out[kMostRanks * kInts], in[kMostRanks * kInts];
    const int count = ranks <= kMostRanks ? kInts : kInts * kMostRanks / ranks;
    for (int i = 0; i < ranks * count; ++i)
        out[i] = rank;
    MPI_Allgather(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; ++i)
        if (in[i * count] != i) {
            printf("heap: rank %d: alltoall brought %d from %d\n", rank, in[i * count], i);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    MPI_Scatter(out, count, MPI_INT, in, count, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(out, count, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (in[0] != 0) {
        printf("heap: rank %d: the sum of zeros is %d\n", rank, in[0]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

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
    run_collectives(rank, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    const struct mallinfo2 info = mallinfo2();
    if (rank == 0) {
        char byte;
        printf("heap %d %zu %lu\n", ranks, info.uordblks + info.hblkhd, in_memory());
        fflush(stdout);
        // A byte, or the end: Open MPI's mpiexec does not pass the end on.
        if (read(STDIN_FILENO, &byte, 1) < 0) perror("heap: reading");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
