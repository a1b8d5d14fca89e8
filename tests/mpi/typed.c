// SPDX-License-Identifier: BSD-2-Clause
#include "typed.h"

#define ACCESS(name, c_type)                                             \
    static void store_##name(void* array, size_t index, int64_t value) { \
        ((c_type*)array)[index] = (c_type)value;                         \
    }                                                                    \
    static int64_t load_##name(const void* array, size_t index) {        \
        return (int64_t)((const c_type*)array)[index];                   \
    }
ACCESS(int8, int8_t)
ACCESS(uint16, uint16_t)
ACCESS(int32, int32_t)
ACCESS(uint32, uint32_t)
ACCESS(int64, int64_t)
ACCESS(uint64, uint64_t)
ACCESS(float, float)
ACCESS(double, double)

static int64_t sum(int64_t a, int64_t b) { return a + b; }
static int64_t product(int64_t a, int64_t b) { return a * b; }
static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smallest(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t bits_and(int64_t a, int64_t b) { return a & b; }
static int64_t bits_or(int64_t a, int64_t b) { return a | b; }
static int64_t bits_xor(int64_t a, int64_t b) { return a ^ b; }
static int64_t both(int64_t a, int64_t b) { return a && b; }
static int64_t either(int64_t a, int64_t b) { return a || b; }

const struct type* types(size_t* count) {
    static struct type all[8];
    const struct type table[] = {{"int", MPI_INT, 4, true, store_int32, load_int32},
                                 {"double", MPI_DOUBLE, 8, false, store_double, load_double},
                                 {"int64", MPI_INT64_T, 8, true, store_int64, load_int64},
                                 {"float", MPI_FLOAT, 4, false, store_float, load_float},
                                 {"int8", MPI_INT8_T, 1, true, store_int8, load_int8},
                                 {"uint16", MPI_UINT16_T, 2, true, store_uint16, load_uint16},
                                 {"uint32", MPI_UINT32_T, 4, true, store_uint32, load_uint32},
                                 {"uint64", MPI_UINT64_T, 8, true, store_uint64, load_uint64}};
    *count = sizeof table / sizeof table[0];
    for (size_t i = 0; i < *count; ++i)
        all[i] = table[i];
    return all;
}

const struct operation* operations(size_t* count) {
    static struct operation all[9];
    const struct operation table[] = {
        {"sum", MPI_SUM, false, sum},           {"product", MPI_PROD, false, product},
        {"max", MPI_MAX, false, largest},       {"min", MPI_MIN, false, smallest},
        {"bits and", MPI_BAND, true, bits_and}, {"bits or", MPI_BOR, true, bits_or},
        {"bits xor", MPI_BXOR, true, bits_xor}, {"and", MPI_LAND, true, both},
        {"or", MPI_LOR, true, either}};
    *count = sizeof table / sizeof table[0];
    for (size_t i = 0; i < *count; ++i)
        all[i] = table[i];
    return all;
}

int64_t element(const struct operation* operation, int rank, size_t index) {
    // Products of int8 stay below 128 with up to 6 factors of 2.
    if (operation->mpi == MPI_PROD) return rank < 6 && (index + (size_t)rank) % 2 ? 2 : 1;
    return (int64_t)((index * 7 + (size_t)rank * 3) % 11);
}
