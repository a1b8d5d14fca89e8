// SPDX-License-Identifier: BSD-2-Clause
// jacobi [N [ITERATIONS]]: heat in a square of N x N points (512), hot at one side, by Jacobi's
// iteration (500). Ranks have bands of rows and exchange the outermost ones after each step; the
// largest change is reduced every 50 steps. In the end rank 0 collects the square and compares each
// point with what it computes alone: the same additions in the same order, so they must be equal.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int g_rank, g_ranks;

// Rows `first` to `first + count` of the square, with one row more at each end.
struct band {
    int n, first, count;
    double *now, *next;
};

static double* row(const struct band* b, double* values, int i) {
    return values + (size_t)(i + 1) * (size_t)b->n;
}

static struct band make_band(int n, int rank, int ranks) {
    struct band b = {.n = n};
    b.first = (int)((long)n * rank / ranks);
    b.count = (int)((long)n * (rank + 1) / ranks) - b.first;
    const size_t points = (size_t)(b.count + 2) * (size_t)n;
    b.now = calloc(points, sizeof *b.now);
    b.next = calloc(points, sizeof *b.next);
    if (!b.now || !b.next) MPI_Abort(MPI_COMM_WORLD, 2);
    if (b.first == 0)
        for (int j = 0; j < n; ++j)
            row(&b, b.now, 0)[j] = row(&b, b.next, 0)[j] = 100.0 + j % 7;
    return b;
}

static void free_band(struct band* b) {
    free(b->now);
    free(b->next);
}

// One step on the rows from `from` to `to`; the square's edge stays as it is. The largest change.
static double step(struct band* b, int from, int to) {
    double largest = 0;
    for (int i = from; i < to; ++i) {
        if (b->first + i == 0 || b->first + i == b->n - 1) continue;
        const double *above = row(b, b->now, i - 1), *here = row(b, b->now, i),
                     *below = row(b, b->now, i + 1);
        double* next = row(b, b->next, i);
        for (int j = 1; j < b->n - 1; ++j) {
            next[j] = 0.25 * (above[j] + below[j] + here[j - 1] + here[j + 1]);
            const double change = fabs(next[j] - here[j]);
            if (change > largest) largest = change;
        }
    }
    return largest;
}

static void swap(struct band* b) {
    double* now = b->now;
    b->now = b->next;
    b->next = now;
}

// The inner rows are computed while the outermost ones travel.
static double step_with_neighbors(struct band* b) {
    const int above = g_rank > 0 ? g_rank - 1 : MPI_PROC_NULL;
    const int below = g_rank < g_ranks - 1 ? g_rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Irecv(row(b, b->now, -1), b->n, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(row(b, b->now, b->count), b->n, MPI_DOUBLE, below, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(row(b, b->now, 0), b->n, MPI_DOUBLE, above, 2, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(row(b, b->now, b->count - 1), b->n, MPI_DOUBLE, below, 1, MPI_COMM_WORLD,
              &requests[3]);
    double largest = step(b, 1, b->count - 1);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    largest = fmax(largest, step(b, 0, 1));
    if (b->count > 1) largest = fmax(largest, step(b, b->count - 1, b->count));
    swap(b);
    return largest;
}

// Collects all bands at rank 0.
static double* collect(const struct band* b) {
    double* whole = NULL;
    int *counts = malloc((size_t)g_ranks * sizeof *counts),
        *places = malloc((size_t)g_ranks * sizeof *places);
    for (int i = 0; i < g_ranks; ++i) {
        places[i] = (int)((long)b->n * i / g_ranks) * b->n;
        counts[i] = (int)((long)b->n * (i + 1) / g_ranks) * b->n - places[i];
    }
    if (g_rank == 0) whole = malloc((size_t)b->n * (size_t)b->n * sizeof *whole);
    MPI_Gatherv(row(b, b->now, 0), b->count * b->n, MPI_DOUBLE, whole, counts, places, MPI_DOUBLE,
                0, MPI_COMM_WORLD);
    free(counts);
    free(places);
    return whole;
}

static int compare(const double* whole, int n, int iterations) {
    struct band alone = make_band(n, 0, 1);
    for (int i = 0; i < iterations; ++i) {
        step(&alone, 0, n);
        swap(&alone);
    }
    int different = 0;
    double sum = 0;
    for (long i = 0; i < (long)n * n; ++i) {
        different += whole[i] != row(&alone, alone.now, 0)[i];
        sum += whole[i];
    }
    free_band(&alone);
    printf(
        "jacobi: %d x %d, %d steps on %d ranks: mean %.6f, %d points differ from one process's\n",
        n, n, iterations, g_ranks, sum / n / n, different);
    return different != 0;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    const int n = argc > 1 ? atoi(argv[1]) : 512, iterations = argc > 2 ? atoi(argv[2]) : 500;
    if (n < 3 || n < g_ranks || iterations < 1) {
        if (g_rank == 0)
            fprintf(stderr, "jacobi: needs at least a row for each rank, and a step\n");
        MPI_Finalize();
        return 2;
    }
    struct band b = make_band(n, g_rank, g_ranks);
    const double begin = MPI_Wtime();
    double change = 0;
    for (int i = 0; i < iterations; ++i) {
        change = step_with_neighbors(&b);
        if (i % 50 == 49 || i == iterations - 1)
            MPI_Allreduce(MPI_IN_PLACE, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    const double seconds = MPI_Wtime() - begin;
    double* whole = collect(&b);
    int wrong = 0;
    if (g_rank == 0) {
        wrong = compare(whole, n, iterations);
        printf("jacobi: %.3f s, last largest change %.3g: %s\n", seconds, change,
               wrong ? "WRONG" : "correct");
    }
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(whole);
    free_band(&b);
    MPI_Finalize();
    return wrong;
}
