// SPDX-License-Identifier: BSD-2-Clause
// What cg has of its matrix: which rank has which block of it, and the block itself, random but the
// same for any number of ranks.
#pragma once

#include <stddef.h>

enum { kMostStages = 32 };

// The block of the matrix that a rank of the grid has, and with whom it exchanges. The product's
// rows are `rows`, of which it has the sum of `sum_begin` up to `sum_count` in the end; vectors are
// distributed by columns, the same in each row of the grid.
struct part {
    int n, grid_rows, grid_columns, row, column;
    int first_row, rows, first_column, columns;
    long* begins;
    int* places;  // of the nonzeros, within the columns
    double* values;
    int partners[kMostStages], stages;
    int halves, sum_begin, sum_count, transpose;
    double *x, *z, *p, *q, *r, *w, *came;
};

// Zeros; ends the job if there is no memory.
void* allocate(size_t count, size_t size);
// Where the grid has twice as many columns as rows, a row's sum goes to two columns: the first
// exchange halves it, and the others are among the ranks that have the same half.
struct part make_part(int n, int nonzeros, int rank, int ranks);
void free_part(struct part* a);
