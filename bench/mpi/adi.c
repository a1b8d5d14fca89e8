// SPDX-License-Identifier: BSD-2-Clause
// adi [N [ITERATIONS]]: a steady state of five quantities at each of N x N x N points (48), by an
// alternating direction implicit method (80 iterations): a system with five diagonals along every
// line of the cube, in x, in y, in z. In the manner of the NAS benchmark SP: a square number of
// ranks, q x q, has q cells each, placed so that every slab of cells has one of each rank: in each
// step along a line all ranks have work. The outer layers of all cells travel to six neighbours
// while the right hand side is computed inside; what a cell's lines end with travels to the next
// while its receive is already posted; all of it nonblocking, and some 10 KB. The solution is
// known, as the right hand side is made from it; in the end rank 0 compares every value with what
// it computes alone: the same additions in the same order, so they must be equal.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "adi_cells.h"

enum { kForward = 6, kBackward = 9, kWhole = 12 };
static const double kMostDifference = 1e-9;
// Lengths of the time steps, in turn: each is good for errors of other wavelengths.
static const double kSteps[] = {0.5, 2, 8, 32};

// Direction 2 * axis goes back along it, the next one forward; a message comes in the way it went.
static void start_faces(struct grid* g, MPI_Request* requests) {
    const int most = kHalo * kValues * g->q * (g->n / g->q + 1) * (g->n / g->q + 1);
    for (int d = 0; d < 2 * kAxes; ++d)
        MPI_Irecv(g->faces[2 * kAxes + d], g->q > 1 ? most : 0, MPI_DOUBLE,
                  d % 2 ? g->before[d / 2] : g->next[d / 2], d, MPI_COMM_WORLD, &requests[d]);
    for (int d = 0; d < 2 * kAxes; ++d) {
        const int count = copy_faces(g, d / 2, d % 2, g->faces[d], 0);
        MPI_Isend(g->faces[d], count, MPI_DOUBLE, d % 2 ? g->next[d / 2] : g->before[d / 2], d,
                  MPI_COMM_WORLD, &requests[2 * kAxes + d]);
    }
}

static void finish_faces(struct grid* g, MPI_Request* requests) {
    MPI_Waitall(4 * kAxes, requests, MPI_STATUSES_IGNORE);
    for (int d = 0; d < 2 * kAxes; ++d)
        copy_faces(g, d / 2, d % 2 == 0, g->faces[2 * kAxes + d], 1);
}

// What is missing, at the points that need no halo or at the others; the sum of its squares.
static double missing(struct cell* c, double step, int inside) {
    double sum = 0;
    for (int k = 0; k < c->size[2]; ++k)
        for (int j = 0; j < c->size[1]; ++j)
            for (int i = 0; i < c->size[0]; ++i) {
                const int needs_none = i >= kHalo && i < c->size[0] - kHalo && j >= kHalo &&
                                       j < c->size[1] - kHalo && k >= kHalo &&
                                       k < c->size[2] - kHalo;
                if (needs_none != inside) continue;
                const long p = point(c, i, j, k);
                double left[kValues];
                apply(c, p, left);
                for (int m = 0; m < kValues; ++m) {
                    const double rest = c->f[p * kValues + m] - left[m];
                    sum += rest * rest;
                    c->r[p * kValues + m] = step * rest;
                }
            }
    return sum;
}

static void find_speeds(struct cell* c, int axis) {
    for (int k = 0; k < c->size[2]; ++k)
        for (int j = 0; j < c->size[1]; ++j)
            for (long i = 0, p = point(c, 0, j, k); i < c->size[0]; ++i, ++p)
                c->speed[p] = speed(c->u + p * kValues, axis);
}

// One row, with the two before it, which are eliminated: what is left of it has a diagonal of ones.
static void eliminate(struct cell* c, long p, long s, double step) {
    const double scale = step * c->speed[p], *one = c->upper + (p - s) * kUpper,
                 *two = c->upper + (p - 2 * s) * kUpper;
    const double lower = scale * kRow[1] - scale * kRow[0] * two[0];
    const double diagonal = 1 + scale * kRow[2] - scale * kRow[0] * two[1] - lower * one[0];
    double* r = c->r + p * kValues;
    c->upper[p * kUpper] = (scale * kRow[3] - lower * one[1]) / diagonal;
    c->upper[p * kUpper + 1] = scale * kRow[4] / diagonal;
    for (int m = 0; m < kValues; ++m)
        r[m] = (r[m] - scale * kRow[0] * r[m - 2 * s * kValues] - lower * r[m - s * kValues]) /
               diagonal;
}

static void substitute(struct cell* c, long p, long s) {
    double* r = c->r + p * kValues;
    const double* upper = c->upper + p * kUpper;
    for (int m = 0; m < kValues; ++m)
        r[m] -= upper[0] * r[m + s * kValues] + upper[1] * r[m + 2 * s * kValues];
}

// All lines of a cell along an axis, forward (eliminating) or back (substituting).
static void go_along(struct cell* c, int axis, double step, int forward) {
    const int b = axis == 0 ? 1 : 0, a = axis == 2 ? 1 : 2, size = c->size[axis];
    const long s = c->strides[axis];
    for (int k = 0; k < c->size[a]; ++k)
        for (int l = 0; l < size; ++l)
            for (int j = 0; j < c->size[b]; ++j) {
                const long p = point(c, 0, 0, 0) + k * c->strides[a] + j * c->strides[b] +
                               (forward ? l : size - 1 - l) * s;
                if (forward)
                    eliminate(c, p, s, step);
                else
                    substitute(c, p, s);
            }
}

// The lines along an axis through all cells, one after the other. A receive is posted while the
// cell before is computed; a buffer is written again when what it had is away.
static void sweep(struct grid* g, int axis, double step, int forward) {
    const int from = forward ? g->before[axis] : g->next[axis],
              to = forward ? g->next[axis] : g->before[axis],
              tag = (forward ? kForward : kBackward) + axis, wide = g->n / g->q + 1,
              most = kHalo * wide * wide * (kValues + kUpper);
    MPI_Request receives[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL},
                sends[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    for (int stage = 0; stage < g->q; ++stage) {
        struct cell* c = g->order[axis][forward ? stage : g->q - 1 - stage];
        const int now = stage % 2, then = 1 - now;
        if (stage + 1 < g->q)
            MPI_Irecv(g->faces[2 * kAxes + then], most, MPI_DOUBLE, from, tag, MPI_COMM_WORLD,
                      &receives[then]);
        if (forward) find_speeds(c, axis);
        MPI_Wait(&receives[now], MPI_STATUS_IGNORE);
        double *in = g->faces[2 * kAxes + now], *out = g->faces[now], *end = out;
        if (stage > 0) {
            in = copy_layers(c, c->r, kValues, axis, !forward, in, 1);
            if (forward) copy_layers(c, c->upper, kUpper, axis, 0, in, 1);
        }
        go_along(c, axis, step, forward);
        if (stage + 1 == g->q) break;
        MPI_Wait(&sends[now], MPI_STATUS_IGNORE);
        end = copy_layers(c, c->r, kValues, axis, forward, out, 0);
        if (forward) end = copy_layers(c, c->upper, kUpper, axis, 1, end, 0);
        MPI_Isend(out, (int)(end - out), MPI_DOUBLE, to, tag, MPI_COMM_WORLD, &sends[now]);
    }
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
}

static double iterate(struct grid* g, int number) {
    const double step = kSteps[number % (int)(sizeof kSteps / sizeof *kSteps)];
    MPI_Request requests[4 * kAxes];
    double sum = 0;
    start_faces(g, requests);
    for (int i = 0; i < g->q; ++i)
        sum += missing(&g->cells[i], step, 1);
    finish_faces(g, requests);
    for (int i = 0; i < g->q; ++i)
        sum += missing(&g->cells[i], step, 0);
    for (int axis = 0; axis < kAxes; ++axis) {
        sweep(g, axis, step, 1);
        sweep(g, axis, step, 0);
    }
    for (int i = 0; i < g->q; ++i) {
        struct cell* c = &g->cells[i];
        for (int k = 0; k < c->size[2]; ++k)
            for (int j = 0; j < c->size[1]; ++j)
                for (long p = point(c, 0, j, k) * kValues, end = p + c->size[0] * kValues; p < end;
                     ++p)
                    c->u[p] += c->r[p];
    }
    return sum;
}

// How many values of a cell are not those computed alone; and the largest error.
static int compare_cell(const struct cell* c, const struct cell* alone, int n, double* error) {
    int different = 0;
    for (int k = 0; k < c->size[2]; ++k)
        for (int j = 0; j < c->size[1]; ++j)
            for (int i = 0; i < c->size[0]; ++i) {
                const int x = c->begin[0] + i, y = c->begin[1] + j, z = c->begin[2] + k;
                const double *ours = c->u + point(c, i, j, k) * kValues,
                             *theirs = alone->u + point(alone, x, y, z) * kValues;
                double right[kValues];
                solution(n, x, y, z, right);
                for (int m = 0; m < kValues; ++m) {
                    different += ours[m] != theirs[m];
                    *error = fmax(*error, fabs(ours[m] - right[m]));
                }
            }
    return different;
}

// All cells go to rank 0, with their halos. What was missing in each iteration is compared, too, as
// a wrong message in one of the first ones may be healed by the last; that sum differs only by
// rounding.
static int compare(struct grid* g, int rank, int iterations, const double* sums, int* off,
                   double* error) {
    if (rank != 0) {
        for (int z = 0; z < g->q; ++z)
            MPI_Send(g->cells[z].u, (int)g->cells[z].points * kValues, MPI_DOUBLE, 0, kWhole,
                     MPI_COMM_WORLD);
        return 0;
    }
    struct grid alone = make_grid(g->n, 1, 0);
    for (int i = 0; i < iterations; ++i) {
        const double sum = iterate(&alone, i);
        *off += !(fabs(sums[i] - sum) <= kMostDifference * sum);
    }
    int different = 0;
    for (int r = 0; r < g->q * g->q; ++r) {
        struct grid theirs = make_grid(g->n, g->q, r);
        for (int z = 0; z < g->q; ++z) {
            struct cell* c = &theirs.cells[z];
            if (r != 0)
                MPI_Recv(c->u, (int)c->points * kValues, MPI_DOUBLE, r, kWhole, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            different += compare_cell(r == 0 ? &g->cells[z] : c, &alone.cells[0], g->n, error);
        }
        free_grid(&theirs);
    }
    free_grid(&alone);
    return different;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, q = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while ((q + 1) * (q + 1) <= ranks)
        ++q;
    const int n = argc > 1 ? atoi(argv[1]) : 48, iterations = argc > 2 ? atoi(argv[2]) : 80;
    if (q * q != ranks || n < kHalo * q || n > 500 || iterations < 1) {
        if (rank == 0)
            fprintf(stderr,
                    "adi: needs a square number of ranks (1, 4, 9, ...), two to 500 points a "
                    "side for each cell, and an iteration\n");
        MPI_Finalize();
        return 2;
    }
    struct grid g = make_grid(n, q, rank);
    double* sums = calloc((size_t)iterations, sizeof *sums);
    if (!sums) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < iterations; ++i)
        sums[i] = iterate(&g, i);
    const double seconds = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, sums, iterations, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double error = 0;
    int off = 0, wrong = compare(&g, rank, iterations, sums, &off, &error);
    if (rank == 0) {
        printf(
            "adi: %d^3 points on %d x %d ranks: residual from %.3g to %.3g, error %.3g, %d values "
            "and "
            "%d iterations differ from one process's\n",
            n, q, q, sqrt(sums[0]), sqrt(sums[iterations - 1]), error, wrong, off);
        wrong = wrong != 0 || off != 0 || !(iterations == 1 || sums[iterations - 1] < sums[0]);
        printf("adi: %.3f s, %.3f ms an iteration: %s\n", seconds, 1e3 * seconds / iterations,
               wrong ? "WRONG" : "correct");
    }
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(sums);
    free_grid(&g);
    MPI_Finalize();
    return wrong;
}
