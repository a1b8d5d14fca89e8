// SPDX-License-Identifier: BSD-2-Clause
#include "adi_cells.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static const double kCoupling = 0.05;

static int begin_of(int n, int part, int parts) { return (int)((long)n * part / parts); }

static void* allocate(size_t count, size_t size) {
    void* memory = calloc(count, size);
    if (!memory) MPI_Abort(MPI_COMM_WORLD, 2);
    return memory;
}

void solution(int n, double i, double j, double k, double* values) {
    const double x = (i + 1) / (n + 1), y = (j + 1) / (n + 1), z = (k + 1) / (n + 1);
    for (int m = 0; m < kValues; ++m)
        values[m] = 0.5 + 0.3 * m + x * (2 - y) * (1 + m) - z * z * (1 + y) + m * x * y * z;
}

void apply(const struct cell* c, long p, double* to) {
    const double* here = c->u + p * kValues;
    for (int m = 0; m < kValues; ++m)
        to[m] = kCoupling * (here[m] - here[(m + 1) % kValues]);
    for (int axis = 0; axis < kAxes; ++axis) {
        const long s = c->strides[axis] * kValues;
        const double fast = speed(here, axis);
        for (int m = 0; m < kValues; ++m)
            to[m] += fast * (kRow[0] * here[m - 2 * s] + kRow[1] * here[m - s] + kRow[2] * here[m] +
                             kRow[3] * here[m + s] + kRow[4] * here[m + 2 * s]);
    }
}

// A box of a field with so many values a point, from or to a message; where the message goes on.
static double* copy_box(const struct cell* c, double* field, int values, const int from[kAxes],
                        const int to[kAxes], double* message, int unpacks) {
    const size_t run = (size_t)(to[0] - from[0]) * (size_t)values;
    for (int k = from[2]; k < to[2]; ++k)
        for (int j = from[1]; j < to[1]; ++j, message += run) {
            double* place = field + point(c, from[0], j, k) * values;
            memcpy(unpacks ? place : message, unpacks ? message : place, run * sizeof(double));
        }
    return message;
}

double* copy_layers(const struct cell* c, double* field, int values, int axis, int at_end,
                    double* message, int unpacks) {
    int from[kAxes] = {0}, to[kAxes] = {c->size[0], c->size[1], c->size[2]};
    from[axis] = at_end ? c->size[axis] - (unpacks ? 0 : kHalo) : (unpacks ? -kHalo : 0);
    to[axis] = from[axis] + kHalo;
    return copy_box(c, field, values, from, to, message, unpacks);
}

int copy_faces(struct grid* g, int axis, int at_end, double* message, int unpacks) {
    double* end = message;
    for (int i = 0; i < g->q; ++i) {
        const struct cell* c = g->order[(axis + 1) % kAxes][i];
        if (c->place[axis] != (at_end ? g->q - 1 : 0))
            end = copy_layers(c, c->u, kValues, axis, at_end, end, unpacks);
    }
    return (int)(end - message);
}

// Beyond the cube there is the solution, of which the right hand side is made; within, ones.
static void make_cell(struct cell* c, int n, int q) {
    c->points = 1;
    for (int axis = 0; axis < kAxes; ++axis) {
        c->begin[axis] = begin_of(n, c->place[axis], q);
        c->size[axis] = begin_of(n, c->place[axis] + 1, q) - c->begin[axis];
        c->strides[axis] = c->points;
        c->points *= c->size[axis] + 2 * kHalo;
    }
    c->u = allocate((size_t)c->points, kValues * sizeof(double));
    c->f = allocate((size_t)c->points, kValues * sizeof(double));
    c->r = allocate((size_t)c->points, kValues * sizeof(double));
    c->upper = allocate((size_t)c->points, kUpper * sizeof(double));
    c->speed = allocate((size_t)c->points, sizeof(double));
    const int *b = c->begin, *s = c->size;
    for (int k = -kHalo; k < s[2] + kHalo; ++k)
        for (int j = -kHalo; j < s[1] + kHalo; ++j)
            for (int i = -kHalo; i < s[0] + kHalo; ++i)
                solution(n, b[0] + i, b[1] + j, b[2] + k, c->u + point(c, i, j, k) * kValues);
    for (int pass = 0; pass < 2; ++pass)
        for (int k = 0; k < s[2]; ++k)
            for (int j = 0; j < s[1]; ++j)
                for (int i = 0; i < s[0]; ++i) {
                    const long p = point(c, i, j, k);
                    if (pass == 0) apply(c, p, c->f + p * kValues);
                    for (int m = 0; pass == 1 && m < kValues; ++m)
                        c->u[p * kValues + m] = 1;
                }
}

struct grid make_grid(int n, int q, int rank) {
    struct grid g = {.n = n, .q = q, .cells = allocate((size_t)q, sizeof *g.cells)};
    const int a = rank % q, b = rank / q;
    for (int axis = 0; axis < kAxes; ++axis) {  // along z a and b fall
        const int more_a = axis == 0   ? 1
                           : axis == 2 ? q - 1
                                       : 0,
                  more_b = axis == 1   ? 1
                           : axis == 2 ? q - 1
                                       : 0;
        g.next[axis] = q > 1 ? (b + more_b) % q * q + (a + more_a) % q : MPI_PROC_NULL;
        g.before[axis] = q > 1 ? (b + q - more_b) % q * q + (a + q - more_a) % q : MPI_PROC_NULL;
        g.order[axis] = allocate((size_t)q, sizeof *g.order[axis]);
    }
    for (int z = 0; z < q; ++z) {
        struct cell* c = &g.cells[z];
        const int place[kAxes] = {(a + z) % q, (b + z) % q, z};
        memcpy(c->place, place, sizeof place);
        make_cell(c, n, q);
        for (int axis = 0; axis < kAxes; ++axis)
            g.order[axis][place[axis]] = c;
    }
    const size_t wide = (size_t)(n / q + 1), most = kHalo * wide * wide * (size_t)(q + 1) * kValues;
    for (int i = 0; i < 4 * kAxes; ++i)
        g.faces[i] = allocate(most, sizeof(double));
    return g;
}

void free_grid(struct grid* g) {
    for (int i = 0; i < g->q; ++i) {
        double* all[] = {g->cells[i].u, g->cells[i].f, g->cells[i].r, g->cells[i].upper,
                         g->cells[i].speed};
        for (size_t j = 0; j < sizeof all / sizeof *all; ++j)
            free(all[j]);
    }
    for (int axis = 0; axis < kAxes; ++axis)
        free(g->order[axis]);
    for (int i = 0; i < 4 * kAxes; ++i)
        free(g->faces[i]);
    free(g->cells);
}
