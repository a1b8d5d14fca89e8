// SPDX-License-Identifier: BSD-2-Clause
// The cells of adi: where in the cube they are, which rank has which, what is at their points and
// how their layers go to messages. The solution is known; the right hand side is made from it.
#pragma once

#include <stddef.h>

enum { kValues = 5, kUpper = 2, kHalo = 2, kAxes = 3 };
// A row's five diagonals along an axis, before they are multiplied by the speed there: diffusion 1,
// flow 0.4, damping 0.02.
static const double kRow[] = {0.02, -1.28, 2.12, -0.88, 0.02};

// Per point, with a halo: the solution, its right hand side, what is missing and then the change;
// and of the eliminated rows what is above the diagonal. `speed` has a line's coefficients.
struct cell {
    int place[kAxes], begin[kAxes], size[kAxes];
    long strides[kAxes], points;
    double *u, *f, *r, *upper, *speed;
};

// Cells of a rank by their z; in order[axis] they are by their place along that axis.
struct grid {
    int n, q, next[kAxes], before[kAxes];
    struct cell *cells, **order[kAxes];
    double* faces[4 * kAxes];  // out for each direction, then in
};

static inline long point(const struct cell* c, int i, int j, int k) {
    return (i + kHalo) + (j + kHalo) * c->strides[1] + (k + kHalo) * c->strides[2];
}

// One of the first three quantities is how fast things are in x, y or z.
static inline double speed(const double* u, int axis) {
    return 1 + 0.2 * u[axis] * u[axis] / (1 + u[axis] * u[axis]);
}

void solution(int n, double i, double j, double k, double* values);
// What the system's left hand side is at a point.
void apply(const struct cell* c, long p, double* to);
// The two layers at an end of the cell's lines, or of the halo there.
double* copy_layers(const struct cell* c, double* field, int values, int axis, int at_end,
                    double* message, int unpacks);
// The outer layers of all cells that have a neighbour there. Both sides take the cells by their
// place on the next axis, which is the same for both.
int copy_faces(struct grid* g, int axis, int at_end, double* message, int unpacks);
// All cells of a rank of q x q. Beyond the cube there is the solution; within it begins with ones.
struct grid make_grid(int n, int q, int rank);
void free_grid(struct grid* g);
