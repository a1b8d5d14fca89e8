// SPDX-License-Identifier: BSD-2-Clause
// lu [N [ITERATIONS]]: a system of five unknowns at each of N x N x N points (40), by symmetric
// successive over-relaxation (50 iterations). In the manner of the NAS benchmark LU: ranks have
// columns of the cube; a lower sweep goes from its first corner to its last as a wave, plane by
// plane, each rank waiting for the edges of its west and north neighbours before it sends its own
// on, and an upper sweep comes back: many small blocking messages, of five doubles a point. Before
// that the two outermost layers of the columns are exchanged, for the right hand side. The solution
// is known, as the right hand side is made from it; in the end rank 0 compares every point with
// what it computes alone: the same additions in the same order, so they must be equal.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lu_system.h"

enum { kEast = 1, kWest, kSouth, kNorth, kWhole };
static const double kOmega = 1.2, kMostDifference = 1e-9;

// Layers of `field` go one way, and come into the halo at the other side. Blocking, like the
// sweeps.
static void shift(struct grid* g, double* field, int direction) {
    const int w = g->width, h = g->height, n = g->n;
    const struct {
        int from[3], to[3], into[3], until[3], to_rank, from_rank;
    } ways[] =
        {
            [kEast] = {{w - 2, 0, 0}, {w, h, n}, {-2, 0, 0}, {0, h, n}, g->east, g->west},
            [kWest] = {{0, 0, 0}, {2, h, n}, {w, 0, 0}, {w + 2, h, n}, g->west, g->east},
            [kSouth] = {{0, h - 2, 0}, {w, h, n}, {0, -2, 0}, {w, 0, n}, g->south, g->north},
            [kNorth] = {{0, 0, 0}, {w, 2, n}, {0, h, 0}, {w, h + 2, n}, g->north, g->south},
        },
      *way = &ways[direction];
    const int count = kHalo * n * kValues * (direction == kEast || direction == kWest ? h : w);
    MPI_Request request;
    MPI_Irecv(g->in, count, MPI_DOUBLE, way->from_rank, direction, MPI_COMM_WORLD, &request);
    copy_box(g, field, way->from, way->to, g->out, 0);
    MPI_Send(g->out, count, MPI_DOUBLE, way->to_rank, direction, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (way->from_rank != MPI_PROC_NULL) copy_box(g, field, way->into, way->until, g->in, 1);
}

// The edge of plane k at the column or row `place`, to or from a neighbour.
static void edge(struct grid* g, int neighbor, int along_x, int place, int k, int receives) {
    if (neighbor == MPI_PROC_NULL) return;
    const int from[3] = {along_x ? 0 : place, along_x ? place : 0, k},
              to[3] = {along_x ? g->width : place + 1, along_x ? place + 1 : g->height, k + 1};
    const int count = kValues * (along_x ? g->width : g->height);
    if (receives) {
        MPI_Recv(g->in, count, MPI_DOUBLE, neighbor, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        copy_box(g, g->v, from, to, g->in, 1);
    } else {
        copy_box(g, g->v, from, to, g->out, 0);
        MPI_Send(g->out, count, MPI_DOUBLE, neighbor, k, MPI_COMM_WORLD);
    }
}

// v = (block + omega * lower)^-1 * v, in plane k.
static void lower(struct grid* g, int k) {
    edge(g, g->west, 0, -1, k, 1);
    edge(g, g->north, 1, -1, k, 1);
    for (int j = 0; j < g->height; ++j)
        for (int i = 0; i < g->width; ++i) {
            double b[kValues][kValues], *v = at(g, g->v, i, j, k);
            add_neighbor(at(g, g->v, i, j, k - 1), 1, kOmega, v);
            add_neighbor(at(g, g->v, i, j - 1, k), 1, kOmega, v);
            add_neighbor(at(g, g->v, i - 1, j, k), 1, kOmega, v);
            block(g, i, j, k, b);
            divide(b, v);
        }
    edge(g, g->east, 0, g->width - 1, k, 0);
    edge(g, g->south, 1, g->height - 1, k, 0);
}

// v = (1 + omega * block^-1 * upper)^-1 * v, in plane k.
static void upper(struct grid* g, int k) {
    edge(g, g->east, 0, g->width, k, 1);
    edge(g, g->south, 1, g->height, k, 1);
    for (int j = g->height - 1; j >= 0; --j)
        for (int i = g->width - 1; i >= 0; --i) {
            double b[kValues][kValues], more[kValues] = {0}, *v = at(g, g->v, i, j, k);
            add_neighbor(at(g, g->v, i, j, k + 1), -1, kOmega, more);
            add_neighbor(at(g, g->v, i, j + 1, k), -1, kOmega, more);
            add_neighbor(at(g, g->v, i + 1, j, k), -1, kOmega, more);
            block(g, i, j, k, b);
            divide(b, more);
            for (int m = 0; m < kValues; ++m)
                v[m] += more[m];
        }
    edge(g, g->west, 0, 0, k, 0);
    edge(g, g->north, 1, 0, k, 0);
}

// One iteration; the sum of the squares of what was missing before it, at this rank's points.
static double iterate(struct grid* g) {
    for (int direction = kEast; direction <= kNorth; ++direction)
        shift(g, g->u, direction);
    double missing = 0;
    for (int k = 0; k < g->n; ++k)
        for (int j = 0; j < g->height; ++j)
            for (int i = 0; i < g->width; ++i) {
                double left[kValues], *v = at(g, g->v, i, j, k);
                apply(g, g->u, i, j, k, left);
                for (int m = 0; m < kValues; ++m) {
                    v[m] = at(g, g->f, i, j, k)[m] - left[m];
                    missing += v[m] * v[m];
                }
            }
    for (int k = 0; k < g->n; ++k)
        lower(g, k);
    for (int k = g->n - 1; k >= 0; --k)
        upper(g, k);
    for (int k = 0; k < g->n; ++k)
        for (int j = 0; j < g->height; ++j)
            for (int i = 0; i < g->width; ++i)
                for (int m = 0; m < kValues; ++m)
                    at(g, g->u, i, j, k)[m] += kOmega * (2 - kOmega) * at(g, g->v, i, j, k)[m];
    return missing;
}

// At rank 0: how many values of all ranks are not those that it computes alone, and the largest
// difference from the solution. What was missing in each iteration is compared, too, as a wrong
// message in one of the first ones may be healed by the last; that sum differs only by rounding.
static int compare(struct grid* g, const int dims[2], int iterations, const double* sums, int* off,
                   double* error) {
    const int from[3] = {0, 0, 0}, to[3] = {g->width, g->height, g->n}, one[2] = {1, 1};
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int count = copy_box(g, g->u, from, to, g->out, 0);
    if (rank != 0) {
        MPI_Send(g->out, count, MPI_DOUBLE, 0, kWhole, MPI_COMM_WORLD);
        return 0;
    }
    struct grid alone = make_grid(g->n, one, 0);
    for (int i = 0; i < iterations; ++i) {
        const double sum = iterate(&alone);
        *off += !(fabs(sums[i] - sum) <= kMostDifference * sum);
    }
    int different = 0;
    for (int r = 0; r < dims[0] * dims[1]; ++r) {
        struct grid theirs = make_grid(g->n, dims, r);
        const int end[3] = {theirs.width, theirs.height, g->n};
        if (r == 0)
            memcpy(theirs.in, g->out, (size_t)count * sizeof(double));
        else
            MPI_Recv(theirs.in, end[0] * end[1] * end[2] * kValues, MPI_DOUBLE, r, kWhole,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const double* value = theirs.in;
        for (int k = 0; k < g->n; ++k)
            for (int j = 0; j < end[1]; ++j)
                for (int i = 0; i < end[0]; ++i) {
                    double right[kValues];
                    solution(&theirs, i, j, k, right);
                    for (int m = 0; m < kValues; ++m, ++value) {
                        different +=
                            *value != at(&alone, alone.u, theirs.x + i, theirs.y + j, k)[m];
                        *error = fmax(*error, fabs(*value - right[m]));
                    }
                }
        free_grid(&theirs);
    }
    free_grid(&alone);
    return different;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, dims[2] = {0, 0};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, dims);
    const int n = argc > 1 ? atoi(argv[1]) : 40, iterations = argc > 2 ? atoi(argv[2]) : 50;
    if (n < kHalo * dims[0] || n > 500 || iterations < 1) {
        if (rank == 0)
            fprintf(stderr,
                    "lu: needs %d to 500 points a side for %d x %d ranks, and an iteration\n",
                    kHalo * dims[0], dims[0], dims[1]);
        MPI_Finalize();
        return 2;
    }
    struct grid g = make_grid(n, dims, rank);
    double* sums = calloc((size_t)iterations, sizeof *sums);
    if (!sums) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < iterations; ++i)
        sums[i] = iterate(&g);
    const double seconds = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, sums, iterations, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double error = 0;
    int off = 0, wrong = compare(&g, dims, iterations, sums, &off, &error);
    if (rank == 0) {
        printf(
            "lu: %d^3 points on %d x %d ranks: residual from %.3g to %.3g, error %.3g, %d values "
            "and "
            "%d iterations differ from one process's\n",
            n, dims[0], dims[1], sqrt(sums[0]), sqrt(sums[iterations - 1]), error, wrong, off);
        wrong = wrong != 0 || off != 0 || !(iterations == 1 || sums[iterations - 1] < sums[0]);
        printf("lu: %.3f s, %.3f ms an iteration: %s\n", seconds, 1e3 * seconds / iterations,
               wrong ? "WRONG" : "correct");
    }
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(sums);
    free_grid(&g);
    MPI_Finalize();
    return wrong;
}
