// SPDX-License-Identifier: BSD-2-Clause
// thread_stencil [THREADS [ROWS [COLUMNS [SWEEPS [TURNS]]]]]: a 5-point stencil with
// MPI_THREAD_MULTIPLE. The ranks stand side by side, each with COLUMNS (64) columns of the grid;
// its THREADS (2) threads have ROWS (64) rows each. A thread exchanges its part of both edges with
// the same thread of the neighbours, on a communicator of its own from MPI_Comm_dup, and computes
// its inner columns meanwhile. After SWEEPS (50) sweeps each rank compares its part, bit by bit,
// with what one thread computes of the whole grid. In turns with other jobs (turns.h) a line for
// each: turn stencil THREADS BYTES MESSAGES, and the seconds of a message. For any MPI; in MPICH
// set MPIR_CVAR_CH4_NUM_VCIS to THREADS.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "turns.h"

static int g_ranks, g_threads = 2, g_rows = 64, g_columns = 64, g_sweeps = 50, g_turns = 5;
static pthread_barrier_t g_barrier;
static double *g_now, *g_next;  // each with a border of a cell
static double g_seconds;

struct thread {
    pthread_t id;
    int index;
    MPI_Comm comm;
};

static int height(void) { return g_rows * g_threads; }
static size_t at(int row, int column, int columns) {
    return (size_t)row * (size_t)(columns + 2) + (size_t)column;
}
static size_t cells(int columns) { return at(height() + 2, 0, columns); }

// The value of a cell of the whole grid at first; the border around it stays zero.
static double first_value(int row, int column) {
    return (double)((row * 7919 + column * 104729) % 1009) / 1009;
}

// Sums of the same order everywhere, so that all bits are the same.
static void compute(const double* now, double* next, int columns, int first_row, int last_row,
                    int first, int last) {
    for (int row = first_row; row <= last_row; ++row)
        for (int column = first; column <= last; ++column) {
            const double* const cell = &now[at(row, column, columns)];
            next[at(row, column, columns)] =
                0.25 * (((cell[-(columns + 2)] + cell[columns + 2]) + cell[-1]) + cell[1]);
        }
}

static void begin_values(double* now, int columns, int first_column) {
    memset(now, 0, cells(columns) * sizeof *now);
    for (int row = 1; row <= height(); ++row)
        for (int column = 1; column <= columns; ++column)
            now[at(row, column, columns)] = first_value(row, first_column + column);
}

// One thread's part of a sweep. `edges`: room for what is sent and received, 4 x ROWS.
static void sweep(const struct thread* t, double* now, double* next, double* edges) {
    const int first = t->index * g_rows + 1, last = first + g_rows - 1;
    const int neighbour[2] = {g_rank > 0 ? g_rank - 1 : MPI_PROC_NULL,
                              g_rank < g_ranks - 1 ? g_rank + 1 : MPI_PROC_NULL};
    const int inner[2] = {1, g_columns}, outer[2] = {0, g_columns + 1};
    MPI_Request requests[4];
    for (int side = 0; side < 2; ++side) {
        double *const out = edges + side * g_rows, *const in = edges + (2 + side) * g_rows;
        MPI_Irecv(in, g_rows, MPI_DOUBLE, neighbour[side], 1, t->comm, &requests[side]);
        for (int row = 0; row < g_rows; ++row)
            out[row] = now[at(first + row, inner[side], g_columns)];
        MPI_Isend(out, g_rows, MPI_DOUBLE, neighbour[side], 1, t->comm, &requests[2 + side]);
    }
    compute(now, next, g_columns, first, last, 2, g_columns - 1);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (int side = 0; side < 2; ++side) {
        if (neighbour[side] == MPI_PROC_NULL) continue;
        for (int row = 0; row < g_rows; ++row)  // only this thread reads these cells
            now[at(first + row, outer[side], g_columns)] = edges[(2 + side) * g_rows + row];
    }
    compute(now, next, g_columns, first, last, 1, 1);
    compute(now, next, g_columns, first, last, g_columns, g_columns);
}

// By one thread, of the whole grid. Ends the job if a bit of this rank's part differs.
static void check(void) {
    const int columns = g_columns * g_ranks;
    double *now = malloc(cells(columns) * sizeof *now),
           *next = calloc(cells(columns), sizeof *next);
    begin_values(now, columns, 0);
    for (int i = 0; i < g_sweeps; ++i) {
        compute(now, next, columns, 1, height(), 1, columns);
        double* const before = now;
        now = next;
        next = before;
    }
    for (int row = 1; row <= height(); ++row)
        for (int column = 1; column <= g_columns; ++column) {
            const double* const ours = &g_now[at(row, column, g_columns)];
            const double* const right = &now[at(row, g_rank * g_columns + column, columns)];
            if (memcmp(ours, right, sizeof *ours) == 0) continue;
            printf("thread_stencil: rank %d: cell %d, %d is %.17g, not %.17g\n", g_rank, row,
                   column, *ours, *right);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    free(now);
    free(next);
}

static double messages(void) { return 2.0 * (g_ranks - 1) * g_threads * g_sweeps; }

static void* body(void* argument) {
    const struct thread* const t = argument;
    double* const edges = malloc(4 * (size_t)g_rows * sizeof *edges);
    for (int turn = 0; turn <= g_turns; ++turn) {  // connections are made in the first
        pthread_barrier_wait(&g_barrier);
        if (t->index == 0) {
            begin_turn();
            begin_values(g_now, g_columns, g_rank * g_columns);
            memset(g_next, 0, cells(g_columns) * sizeof *g_next);
            MPI_Barrier(MPI_COMM_WORLD);
            g_seconds = MPI_Wtime();
        }
        pthread_barrier_wait(&g_barrier);
        for (int i = 0; i < g_sweeps; ++i) {
            // Every thread has its own copy of which grid is which.
            sweep(t, i % 2 == 0 ? g_now : g_next, i % 2 == 0 ? g_next : g_now, edges);
            pthread_barrier_wait(&g_barrier);
        }
        if (t->index == 0) {
            g_seconds = MPI_Wtime() - g_seconds;
            if (g_rank == 0 && g_go >= 0 && turn > 0)
                printf("turn stencil %d %d %.0f %.9g\n", g_threads, g_rows * (int)sizeof(double),
                       messages(), g_seconds / messages());
            if (g_sweeps % 2 != 0) {
                double* const before = g_now;
                g_now = g_next;
                g_next = before;
            }
            check();
            // A message that has been sent may leave in a later call of MPI, so a rank sleeps only
            // once its neighbours have received everything.
            MPI_Barrier(MPI_COMM_WORLD);
            end_turn();
        }
    }
    free(edges);
    return NULL;
}

int main(int argc, char** argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    int* const numbers[] = {&g_threads, &g_rows, &g_columns, &g_sweeps, &g_turns};
    bool good = provided == MPI_THREAD_MULTIPLE;
    for (int i = 0; i < 5; ++i) {
        if (i + 1 < argc) *numbers[i] = atoi(argv[i + 1]);
        good = good && *numbers[i] > 0;
    }
    if (!good || g_ranks < 2 || g_columns < 2) {
        if (g_rank == 0)
            fprintf(stderr,
                    "thread_stencil: needs 2 ranks or more, MPI_THREAD_MULTIPLE, numbers "
                    "above 0, 2 columns or more\n");
        MPI_Finalize();
        return 2;
    }
    take_turns(g_threads == 1);
    g_now = malloc(cells(g_columns) * sizeof *g_now);
    g_next = malloc(cells(g_columns) * sizeof *g_next);
    struct thread* const threads = calloc((size_t)g_threads, sizeof *threads);
    pthread_barrier_init(&g_barrier, NULL, (unsigned)g_threads);
    for (int i = 0; i < g_threads; ++i) {
        threads[i].index = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
    }
    for (int i = 1; i < g_threads; ++i)
        if (pthread_create(&threads[i].id, NULL, body, &threads[i]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 2);
    body(&threads[0]);
    for (int i = 1; i < g_threads; ++i)
        pthread_join(threads[i].id, NULL);
    if (g_rank == 0)
        printf("thread_stencil: %d threads, %d ranks: %d x %d cells are right, %d times\n",
               g_threads, g_ranks, height(), g_columns * g_ranks, g_turns + 1);
    for (int i = 0; i < g_threads; ++i)
        MPI_Comm_free(&threads[i].comm);
    free(threads);
    free(g_now);
    free(g_next);
    leave_turns();
    MPI_Finalize();
    return 0;
}
