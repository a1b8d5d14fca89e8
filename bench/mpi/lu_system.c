// SPDX-License-Identifier: BSD-2-Clause
#include "lu_system.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static const double kSink = 0.3, kDamping = 0.02;

static size_t volume(const struct grid* g) {
    return (size_t)(g->width + 2 * kHalo) * (size_t)(g->height + 2 * kHalo) *
           (size_t)(g->n + 2 * kHalo) * kValues;
}

void solution(const struct grid* g, int i, int j, int k, double* values) {
    const double x = (g->x + i + 1.0) / (g->n + 1), y = (g->y + j + 1.0) / (g->n + 1),
                 z = (k + 1.0) / (g->n + 1);
    for (int m = 0; m < kValues; ++m)
        values[m] = 1 + 0.2 * m + x * (1 - y) * (2 + m) + z * z * (3 - x) - 0.5 * m * x * y * z;
}

void block(const struct grid* g, int i, int j, int k, double b[kValues][kValues]) {
    const double here = 1 + ((g->x + i) * 3 + (g->y + j) * 5 + k * 7) % 11 / 44.0;
    for (int m = 0; m < kValues; ++m)
        for (int l = 0; l < kValues; ++l)
            b[m][l] = m == l ? 6 + 6 * 3 * kDamping + kSink * here : (m < l ? 0.4 : -0.4) * here;
}

void apply(const struct grid* g, double* field, int i, int j, int k, double* to) {
    double b[kValues][kValues];
    block(g, i, j, k, b);
    const long steps[] = {kValues, at(g, field, 0, 1, 0) - at(g, field, 0, 0, 0),
                          at(g, field, 0, 0, 1) - at(g, field, 0, 0, 0)};
    const double* here = at(g, field, i, j, k);
    for (int m = 0; m < kValues; ++m) {
        to[m] = 0;
        for (int l = 0; l < kValues; ++l)
            to[m] += b[m][l] * here[l];
    }
    for (int axis = 0; axis < 3; ++axis) {
        const long s = steps[axis];
        add_neighbor(here - s, 1, -1, to);
        add_neighbor(here + s, -1, -1, to);
        for (int m = 0; m < kValues; ++m)
            to[m] += kDamping * (here[m - 2 * s] - 4 * here[m - s] + 3 * here[m] - 4 * here[m + s] +
                                 here[m + 2 * s]);
    }
}

void divide(double b[kValues][kValues], double* v) {
    for (int p = 0; p < kValues; ++p)
        for (int m = p + 1; m < kValues; ++m) {
            const double factor = b[m][p] / b[p][p];
            for (int l = p + 1; l < kValues; ++l)
                b[m][l] -= factor * b[p][l];
            v[m] -= factor * v[p];
        }
    for (int m = kValues - 1; m >= 0; --m) {
        for (int l = m + 1; l < kValues; ++l)
            v[m] -= b[m][l] * v[l];
        v[m] /= b[m][m];
    }
}

int copy_box(const struct grid* g, double* field, const int from[3], const int to[3],
             double* message, int unpacks) {
    const size_t run = (size_t)(to[0] - from[0]) * kValues;
    int count = 0;
    for (int k = from[2]; k < to[2]; ++k)
        for (int j = from[1]; j < to[1]; ++j, count += (int)run) {
            double* place = at(g, field, from[0], j, k);
            memcpy(unpacks ? place : message + count, unpacks ? message + count : place,
                   run * sizeof(double));
        }
    return count;
}

static int begin_of(int n, int part, int parts) { return (int)((long)n * part / parts); }

struct grid make_grid(int n, const int dims[2], int rank) {
    const int column = rank % dims[0], row = rank / dims[0];
    struct grid g = {.n = n, .x = begin_of(n, column, dims[0]), .y = begin_of(n, row, dims[1])};
    g.width = begin_of(n, column + 1, dims[0]) - g.x;
    g.height = begin_of(n, row + 1, dims[1]) - g.y;
    g.west = column > 0 ? rank - 1 : MPI_PROC_NULL;
    g.east = column < dims[0] - 1 ? rank + 1 : MPI_PROC_NULL;
    g.north = row > 0 ? rank - dims[0] : MPI_PROC_NULL;
    g.south = row < dims[1] - 1 ? rank + dims[0] : MPI_PROC_NULL;
    double** all[] = {&g.u, &g.f, &g.v, &g.out, &g.in};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        if (!(*all[i] = calloc(volume(&g), sizeof(double)))) MPI_Abort(MPI_COMM_WORLD, 2);
    for (int k = -kHalo; k < n + kHalo; ++k)
        for (int j = -kHalo; j < g.height + kHalo; ++j)
            for (int i = -kHalo; i < g.width + kHalo; ++i)
                solution(&g, i, j, k, at(&g, g.u, i, j, k));
    for (int pass = 0; pass < 2; ++pass)
        for (int k = 0; k < n; ++k)
            for (int j = 0; j < g.height; ++j)
                for (int i = 0; i < g.width; ++i)
                    if (pass == 0)
                        apply(&g, g.u, i, j, k, at(&g, g.f, i, j, k));
                    else
                        for (int m = 0; m < kValues; ++m)
                            at(&g, g.u, i, j, k)[m] = 1;
    return g;
}

void free_grid(struct grid* g) {
    double* all[] = {g->u, g->f, g->v, g->out, g->in};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(all[i]);
}
