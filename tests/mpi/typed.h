// SPDX-License-Identifier: BSD-2-Clause
// Arrays of any of MPI's arithmetic types whose elements are small integers, so that every
// reduction of them is exact and can be computed apart. For collectives.c and one_sided.c.
#pragma once

#include "support.h"

struct type {
    const char* name;
    MPI_Datatype mpi;  // set by types()
    size_t size;
    bool integer;
    void (*store)(void* array, size_t index, int64_t value);
    int64_t (*load)(const void* array, size_t index);
};

struct operation {
    const char* name;
    MPI_Op mpi;
    bool integers_only;
    int64_t (*apply)(int64_t a, int64_t b);
};

// All types and operations; the number of them in *count. After start().
const struct type* types(size_t* count);
const struct operation* operations(size_t* count);

// The element of this rank: from 0 to 10, or 1 to 2 for products: sums and products fit 8 bits.
int64_t element(const struct operation* operation, int rank, size_t index);
