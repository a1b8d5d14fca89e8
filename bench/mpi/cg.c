// SPDX-License-Identifier: BSD-2-Clause
// cg [N [NONZEROS [ITERATIONS]]]: the smallest eigenvalue of a random sparse symmetric matrix of N
// rows (1400) by inverse iteration (60 steps, anew every 10), each of which solves a system by 16
// steps of conjugate gradients. NONZEROS (7) are drawn for each row, and as many come from the
// other rows. In the manner of the NAS benchmark CG: a power of two of ranks in a grid has blocks
// of the matrix; the ranks of a row of the grid add their parts of a product by point-to-point
// messages, and give the sum to the column that needs it; scalars are added the same way, so half
// of all messages have 8 bytes. In the end every rank compares its part of the vector, and all
// steps' eigenvalues and residuals, with what rank 0 computes alone. Rank 0 adds in another order,
// so they differ by rounding.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cg_matrix.h"

enum { kInnerSteps = 16, kOuterSteps = 10, kVector = 1, kTranspose, kScalar };
static const double kMostDifference = 1e-12;

static void exchange(const double* out, double* in, int count, int with, int tag) {
    MPI_Request request;
    MPI_Irecv(in, count, MPI_DOUBLE, with, tag, MPI_COMM_WORLD, &request);
    MPI_Send(out, count, MPI_DOUBLE, with, tag, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// All ranks add in the same order, except that one rank adds a + b where another adds b + a. So all
// sums have the same bits.
static double sum(const struct part* a, double value) {
    for (int i = 0; i < a->stages; ++i) {
        double came;
        exchange(&value, &came, 1, a->partners[i], kScalar);
        value += came;
    }
    return value;
}

static double dot(const struct part* a, const double* u, const double* v) {
    double value = 0;
    for (int i = 0; i < a->columns; ++i)
        value += u[i] * v[i];
    return sum(a, value);
}

// out = matrix * v, both distributed by columns.
static void multiply(struct part* a, const double* v, double* out) {
    for (int i = 0; i < a->rows; ++i) {
        double value = 0;
        for (long k = a->begins[i]; k < a->begins[i + 1]; ++k)
            value += a->values[k] * v[a->places[k]];
        a->w[i] = value;
    }
    double* mine = a->w + a->sum_begin;
    for (int i = 0; i < a->stages; ++i) {
        const int halves = i == 0 && a->halves == 2;
        const double* out_half = halves ? a->w + (a->sum_count - a->sum_begin) : mine;
        exchange(out_half, a->came, a->sum_count, a->partners[i], kVector);
        for (int j = 0; j < a->sum_count; ++j)
            mine[j] += a->came[j];
    }
    const int self = a->row * a->grid_columns + a->column;
    if (a->transpose == self)
        memcpy(out, mine, (size_t)a->sum_count * sizeof *out);
    else
        exchange(mine, out, a->sum_count, a->transpose, kTranspose);
}

// z = matrix^-1 * x, nearly; the norm of what is missing.
static double solve(struct part* a) {
    const size_t bytes = (size_t)a->columns * sizeof(double);
    memset(a->z, 0, bytes);
    memcpy(a->r, a->x, bytes);
    memcpy(a->p, a->x, bytes);
    double rho = dot(a, a->r, a->r);
    for (int step = 0; step < kInnerSteps; ++step) {
        multiply(a, a->p, a->q);
        const double alpha = rho / dot(a, a->p, a->q), before = rho;
        for (int i = 0; i < a->columns; ++i) {
            a->z[i] += alpha * a->p[i];
            a->r[i] -= alpha * a->q[i];
        }
        rho = dot(a, a->r, a->r);
        for (int i = 0; i < a->columns; ++i)
            a->p[i] = a->r[i] + rho / before * a->p[i];
    }
    multiply(a, a->z, a->q);
    for (int i = 0; i < a->columns; ++i)
        a->r[i] = a->x[i] - a->q[i];
    return sqrt(dot(a, a->r, a->r));
}

// What comes of an iteration; x is the eigenvector in the end.
struct answer {
    double zeta, residual;
};

// Another vector, from time to time: at one that has converged, messages have little but rounding
// in them, and a wrong one would not matter.
static void begin_anew(struct part* a, int number) {
    for (int i = 0; i < a->columns; ++i)
        a->x[i] = 1 + 0.5 * cos((number + 1.0) * (a->first_column + i));
    const double length = sqrt(dot(a, a->x, a->x));
    for (int i = 0; i < a->columns; ++i)
        a->x[i] /= length;
}

static void iterate(struct part* a, struct answer* found, int iterations, int prints) {
    for (int i = 0; i < iterations; ++i) {
        if (i % kOuterSteps == 0) begin_anew(a, i);
        found[i].residual = solve(a);
        const double length = sqrt(dot(a, a->z, a->z));
        found[i].zeta = 1 / dot(a, a->x, a->z);
        for (int j = 0; j < a->columns; ++j)
            a->x[j] = a->z[j] / length;
        if (prints)
            printf("cg: %3d  residual %.6e  zeta %.13f\n", i + 1, found[i].residual, found[i].zeta);
    }
}

// How many elements of this rank's vector differ from those that rank 0 computes alone. Rank 0's
// answers come into `alone`.
static int compare(const struct part* a, int nonzeros, int iterations, struct answer* alone) {
    double* whole = allocate((size_t)a->n, sizeof *whole);
    if (a->row == 0 && a->column == 0) {
        struct part b = make_part(a->n, nonzeros, 0, 1);
        iterate(&b, alone, iterations, 0);
        memcpy(whole, b.x, (size_t)a->n * sizeof *whole);
        free_part(&b);
    }
    MPI_Bcast(whole, a->n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Bcast(alone, 2 * iterations, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int different = 0;
    for (int i = 0; i < a->columns; ++i)
        different += !(fabs(a->x[i] - whole[a->first_column + i]) <= kMostDifference);
    free(whole);
    return different;
}

// Each iteration's answer is compared, as the next ones would heal what a wrong message did.
static int is_like(const struct answer* found, const struct answer* alone) {
    return fabs(found->residual - alone->residual) <= 1e-3 * alone->residual + kMostDifference &&
           fabs(found->zeta - alone->zeta) <= kMostDifference * fabs(alone->zeta);
}

static const char* refusal(int n, int nonzeros, int iterations, int ranks) {
    if ((ranks & (ranks - 1)) != 0) return "needs a power of two of ranks";
    // with less the system is solved exactly before the last step, which would divide by 0
    if (n < 100 || nonzeros < 2 || nonzeros >= 1 << 24 || iterations < 1)
        return "needs 100 rows, 2 nonzeros in each, and an iteration";
    int columns = 1;
    while (columns * columns < ranks)
        columns *= 2;
    return n % columns != 0 ? "needs so many rows that the columns of ranks have as many each"
                            : NULL;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int n = argc > 1 ? atoi(argv[1]) : 1400, nonzeros = argc > 2 ? atoi(argv[2]) : 7,
              iterations = argc > 3 ? atoi(argv[3]) : 60;
    const char* refused = refusal(n, nonzeros, iterations, ranks);
    if (refused) {
        if (rank == 0) fprintf(stderr, "cg: %s\n", refused);
        MPI_Finalize();
        return 2;
    }
    struct part a = make_part(n, nonzeros, rank, ranks);
    struct answer *found = allocate((size_t)iterations, sizeof *found),
                  *alone = allocate((size_t)iterations, sizeof *alone);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    iterate(&a, found, iterations, rank == 0);
    const double seconds = MPI_Wtime() - begin;
    int different = compare(&a, nonzeros, iterations, alone), wrong = different != 0;
    for (int i = 0; i < iterations; ++i)
        wrong = wrong || !is_like(&found[i], &alone[i]);
    MPI_Allreduce(MPI_IN_PLACE, &different, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) {
        printf(
            "cg: %d rows on %d x %d ranks: residual %.3g, zeta %.13f, one process's %.13f, %d "
            "elements differ\n",
            n, a.grid_rows, a.grid_columns, found[iterations - 1].residual,
            found[iterations - 1].zeta, alone[iterations - 1].zeta, different);
        printf("cg: %.3f s, %.3f ms an iteration: %s\n", seconds, 1e3 * seconds / iterations,
               wrong ? "WRONG" : "correct");
    }
    free(found);
    free(alone);
    free_part(&a);
    MPI_Finalize();
    return wrong;
}
