// SPDX-License-Identifier: BSD-2-Clause
// The system of equations of lu, and a rank's part of it: five unknowns at each point of a cube,
// whose neighbours flow and diffuse into it. The solution is known; the right hand side is made
// from it.
#pragma once

#include <stddef.h>

enum { kValues = 5, kHalo = 2 };
static const double kCoupling = 0.04;

// A rank's columns: `width` x `height` of them from (`x`, `y`), with a halo all around. Neighbours:
// west and east have other x, north and south other y.
struct grid {
    int n, x, y, width, height, west, east, north, south;
    double *u, *f, *v, *out, *in;  // solution, right hand side, change; messages
};

static inline double* at(const struct grid* g, double* field, int i, int j, int k) {
    const long plane = (long)(k + kHalo) * (g->height + 2 * kHalo) + j + kHalo;
    return field + (plane * (g->width + 2 * kHalo) + i + kHalo) * kValues;
}

// What a neighbour before (`side` 1) or behind (-1) adds.
static inline void add_neighbor(const double* from, double side, double factor, double* to) {
    for (int m = 0; m < kValues; ++m)
        to[m] +=
            factor * ((1 + 0.06 * side * (m + 1)) * from[m] + kCoupling * from[(m + 1) % kValues]);
}

void solution(const struct grid* g, int i, int j, int k, double* values);
// The block of five unknowns at a point with themselves.
void block(const struct grid* g, int i, int j, int k, double b[kValues][kValues]);
// The system's left hand side at a point: the block, six neighbours, and a damping of fourth order
// for which the halo has two layers.
void apply(const struct grid* g, double* field, int i, int j, int k, double* to);
// v = b^-1 * v, by elimination; the blocks are far from singular.
void divide(double b[kValues][kValues], double* v);
// A box of columns, from or to a message. The number of doubles.
int copy_box(const struct grid* g, double* field, const int from[3], const int to[3],
             double* message, int unpacks);
// Beyond the cube there is the solution, of which the right hand side is made; within, ones.
struct grid make_grid(int n, const int dims[2], int rank);
void free_grid(struct grid* g);
