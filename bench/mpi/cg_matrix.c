// SPDX-License-Identifier: BSD-2-Clause
#include "cg_matrix.h"

#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const double kShift = 0.05;  // what the diagonal has beyond what makes it dominant

void* allocate(size_t count, size_t size) {
    void* memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "cg: no memory for %zu elements of %zu bytes\n", count, size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memory;
}

// The same number on all ranks for row and draw.
static uint64_t mix(uint64_t row, uint64_t draw) {
    uint64_t x = (row << 24 ^ draw) + 0x9e3779b97f4a7c15u * (row + 1);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// The draw's column and value; it counts for (row, column) and (column, row).
static int draw(int n, int row, int k, double* value) {
    const uint64_t bits = mix((uint64_t)row, (uint64_t)k);
    *value = (double)(bits >> 44) / (1 << 20) - 0.5;
    return (int)((bits & 0xffffffff) % (uint64_t)n);
}

static void put(struct part* a, long* ends, int row, int column, double value) {
    const int i = row - a->first_row, j = column - a->first_column;
    if (i < 0 || i >= a->rows || j < 0 || j >= a->columns) return;
    if (a->values) {
        a->places[ends[i]] = j;
        a->values[ends[i]] = value;
    }
    ++ends[i];
}

// All nonzeros, of which put() keeps those of the block: counted first, then stored.
static void put_all(struct part* a, long* ends, int nonzeros, const double* diagonal) {
    for (int i = 0; i < a->n; ++i) {
        put(a, ends, i, i, diagonal[i]);
        for (int k = 0; k < nonzeros; ++k) {
            double value;
            const int j = draw(a->n, i, k, &value);
            if (j == i) continue;
            put(a, ends, i, j, value);
            put(a, ends, j, i, value);
        }
    }
}

static void make_matrix(struct part* a, int nonzeros) {
    double* diagonal = allocate((size_t)a->n, sizeof *diagonal);
    for (int i = 0; i < a->n; ++i) {
        diagonal[i] += kShift;
        for (int k = 0; k < nonzeros; ++k) {
            double value;
            const int j = draw(a->n, i, k, &value);
            if (j == i) continue;
            diagonal[i] += fabs(value);
            diagonal[j] += fabs(value);
        }
    }
    long* ends = allocate((size_t)a->rows, sizeof *ends);
    put_all(a, ends, nonzeros, diagonal);
    a->begins = allocate((size_t)a->rows + 1, sizeof *a->begins);
    for (int i = 0; i < a->rows; ++i) {
        a->begins[i + 1] = a->begins[i] + ends[i];
        ends[i] = a->begins[i];
    }
    a->places = allocate((size_t)a->begins[a->rows], sizeof *a->places);
    a->values = allocate((size_t)a->begins[a->rows], sizeof *a->values);
    put_all(a, ends, nonzeros, diagonal);
    free(ends);
    free(diagonal);
}

struct part make_part(int n, int nonzeros, int rank, int ranks) {
    struct part a = {.n = n, .grid_rows = 1};
    while (4 * a.grid_rows * a.grid_rows <= ranks)
        a.grid_rows *= 2;
    a.grid_columns = ranks / a.grid_rows;
    a.halves = a.grid_columns / a.grid_rows;
    a.row = rank / a.grid_columns;
    a.column = rank % a.grid_columns;
    a.rows = n / a.grid_rows;
    a.columns = n / a.grid_columns;
    a.first_row = a.row * a.rows;
    a.first_column = a.column * a.columns;
    a.sum_count = a.columns;
    a.sum_begin = a.column % a.halves * a.sum_count;
    for (int bit = 1; bit < a.grid_columns; bit *= 2)
        a.partners[a.stages++] = a.row * a.grid_columns + (a.column ^ bit);
    a.transpose = a.column / a.halves * a.grid_columns + a.row * a.halves + a.column % a.halves;
    double** vectors[] = {&a.x, &a.z, &a.p, &a.q, &a.r, &a.w, &a.came};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; ++i)
        *vectors[i] = allocate((size_t)a.rows, sizeof(double));
    make_matrix(&a, nonzeros);
    return a;
}

void free_part(struct part* a) {
    void* all[] = {a->x, a->z, a->p, a->q, a->r, a->w, a->came, a->begins, a->places, a->values};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(all[i]);
}
