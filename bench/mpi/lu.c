// SPDX-License-Identifier: BSD-2-Clause
// lu [N [ITERATIONS]]: a system of five unknowns at each of N x N x N points (32), by symmetric
// successive over-relaxation (40 iterations). In the manner of the NAS benchmark LU: ranks have
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

enum { kValues = 5, kHalo = 2, kEast = 1, kWest, kSouth, kNorth, kWhole };
static const double kOmega = 1.2, kSink = 0.3, kDamping = 0.02, kCoupling = 0.04;

// A rank's columns: `width` x `height` of them from (`x`, `y`), with a halo all around. Neighbours:
// west and east have other x, north and south other y.
struct grid {
    int n, x, y, width, height, west, east, north, south;
    double *u, *f, *v, *out, *in;  // solution, right hand side, change; edges and faces
};

static size_t volume(const struct grid* g) {
    return (size_t)(g->width + 2 * kHalo) * (size_t)(g->height + 2 * kHalo) *
           (size_t)(g->n + 2 * kHalo) * kValues;
}

static double* at(const struct grid* g, double* field, int i, int j, int k) {
    const long plane = (long)(k + kHalo) * (g->height + 2 * kHalo) + j + kHalo;
    return field + (plane * (g->width + 2 * kHalo) + i + kHalo) * kValues;
}

static void solution(const struct grid* g, int i, int j, int k, double* values) {
    const double x = (g->x + i + 1.0) / (g->n + 1), y = (g->y + j + 1.0) / (g->n + 1),
                 z = (k + 1.0) / (g->n + 1);
    for (int m = 0; m < kValues; ++m)
        values[m] = 1 + 0.2 * m + x * (1 - y) * (2 + m) + z * z * (3 - x) - 0.5 * m * x * y * z;
}

// The block of five unknowns at a point with themselves.
static void block(const struct grid* g, int i, int j, int k, double b[kValues][kValues]) {
    const double here = 1 + ((g->x + i) * 3 + (g->y + j) * 5 + k * 7) % 11 / 44.0;
    for (int m = 0; m < kValues; ++m)
        for (int l = 0; l < kValues; ++l)
            b[m][l] = m == l ? 6 + 6 * 3 * kDamping + kSink * here : (m < l ? 0.4 : -0.4) * here;
}

// What a neighbour before (`side` 1) or behind (-1) adds.
static void add_neighbor(const double* from, double side, double factor, double* to) {
    for (int m = 0; m < kValues; ++m)
        to[m] +=
            factor * ((1 + 0.06 * side * (m + 1)) * from[m] + kCoupling * from[(m + 1) % kValues]);
}

// The system's left hand side at a point: the block, six neighbours, and a damping of fourth order
// for which the halo has two layers.
static void apply(const struct grid* g, double* field, int i, int j, int k, double* to) {
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

// v = b^-1 * v, by elimination; the blocks are far from singular.
static void divide(double b[kValues][kValues], double* v) {
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

// A box of columns, from or to a message. The number of doubles.
static int copy_box(const struct grid* g, double* field, const int from[3], const int to[3],
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

static int begin_of(int n, int part, int parts) { return (int)((long)n * part / parts); }

// Beyond the cube there is the solution, of which the right hand side is made; within, ones.
static struct grid make_grid(int n, const int dims[2], int rank) {
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

static void free_grid(struct grid* g) {
    double* all[] = {g->u, g->f, g->v, g->out, g->in};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(all[i]);
}

// At rank 0: how many values of all ranks are not those that it computes alone. And the largest
// difference from the solution.
static int compare(struct grid* g, const int dims[2], int iterations, double* error) {
    const int from[3] = {0, 0, 0}, to[3] = {g->width, g->height, g->n}, one[2] = {1, 1};
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int count = copy_box(g, g->u, from, to, g->out, 0);
    if (rank != 0) {
        MPI_Send(g->out, count, MPI_DOUBLE, 0, kWhole, MPI_COMM_WORLD);
        return 0;
    }
    struct grid alone = make_grid(g->n, one, 0);
    for (int i = 0; i < iterations; ++i)
        iterate(&alone);
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
    const int n = argc > 1 ? atoi(argv[1]) : 32, iterations = argc > 2 ? atoi(argv[2]) : 40;
    if (n < kHalo * dims[0] || n > 500 || iterations < 1) {
        if (rank == 0)
            fprintf(stderr,
                    "lu: needs %d to 500 points a side for %d x %d ranks, and an iteration\n",
                    kHalo * dims[0], dims[0], dims[1]);
        MPI_Finalize();
        return 2;
    }
    struct grid g = make_grid(n, dims, rank);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    double first = 0, missing = 0;
    for (int i = 0; i < iterations; ++i) {
        missing = iterate(&g);
        if (i % 10 == 0 || i == iterations - 1)
            MPI_Allreduce(MPI_IN_PLACE, &missing, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (i == 0) first = missing;
    }
    const double seconds = MPI_Wtime() - begin;
    double error = 0;
    int wrong = compare(&g, dims, iterations, &error);
    if (rank == 0) {
        printf(
            "lu: %d^3 points on %d x %d ranks: residual from %.3g to %.3g, error %.3g, %d values "
            "differ from one process's\n",
            n, dims[0], dims[1], sqrt(first), sqrt(missing), error, wrong);
        wrong = wrong != 0 || !(iterations == 1 || missing < first);
        printf("lu: %.3f s, %.3f ms an iteration: %s\n", seconds, 1e3 * seconds / iterations,
               wrong ? "WRONG" : "correct");
    }
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free_grid(&g);
    MPI_Finalize();
    return wrong;
}
