// SPDX-License-Identifier: BSD-2-Clause
// The collectives that compute: reduce, allreduce, reduce-scatter, scan, exscan, blocking and
// nonblocking, with every operation on every arithmetic type, against values computed here; in
// place; with an operation of our own that does not commute; places of extremes.
#include <stdlib.h>
#include <string.h>

#include "collective.h"
#include "typed.h"

static const size_t kCounts[] = {0, 1, 3, 17, 1000, 30000};
enum { kCountCount = sizeof kCounts / sizeof kCounts[0] };

typedef void body_function(const struct type* type, const struct operation* operation,
                           size_t count);

// Every operation on every type with few elements, two pairs of them with many.
static void everything(body_function* body) {
    size_t type_count, operation_count;
    const struct type* type = types(&type_count);
    const struct operation* operation = operations(&operation_count);
    for (int way = 0; way < 2; ++way) {
        g_nonblocking = way;
        for (size_t t = 0; t < type_count; ++t)
            for (size_t o = 0; o < operation_count; ++o) {
                if (operation[o].integers_only && !type[t].integer) continue;
                body(&type[t], &operation[o], 17);
            }
        for (int c = 0; c < kCountCount; ++c) {
            body(&type[0], &operation[0], kCounts[c]);
            body(&type[1], &operation[2], kCounts[c]);
        }
    }
}

static void* make_elements(const struct type* type, const struct operation* operation, int rank,
                           size_t count) {
    unsigned char* array = buffer_make(type->size * count, 0);
    for (size_t i = 0; i < count; ++i)
        type->store(array, i, element(operation, rank, i));
    return array;
}

// Element `index` over the ranks from 0 to `last`.
static int64_t reduced(const struct operation* operation, int last, size_t index) {
    int64_t value = element(operation, 0, index);
    for (int rank = 1; rank <= last; ++rank)
        value = operation->apply(value, element(operation, rank, index));
    return value;
}

static void check_elements(const struct type* type, const struct operation* operation,
                           const void* array, size_t count, int last, size_t first,
                           const char* what) {
    for (size_t i = 0; i < count; ++i) {
        const int64_t seen = type->load(array, i), expected = reduced(operation, last, first + i);
        if (seen != expected)
            fail("%s, %s of %zu %s: element %zu is %lld, expected %lld", what, operation->name,
                 count, type->name, i, (long long)seen, (long long)expected);
    }
    buffer_check_guards(array, what);
}

static void reduce_of(const struct type* type, const struct operation* operation, size_t count) {
    for (int root = 0; root < g_ranks; root += (count > 100) ? 3 : 1) {
        void* out = make_elements(type, operation, g_rank, count);
        void* in = buffer_make(type->size * count, 0);
        const int n = (int)count;
        COLLECTIVE(Reduce, reduce, out, in, n, type->mpi, operation->mpi, root, MPI_COMM_WORLD);
        if (g_rank == root) check_elements(type, operation, in, count, g_ranks - 1, 0, "reduce");
        COLLECTIVE(Reduce, reduce, g_rank == root ? MPI_IN_PLACE : out, out, n, type->mpi,
                   operation->mpi, root, MPI_COMM_WORLD);
        if (g_rank == root)
            check_elements(type, operation, out, count, g_ranks - 1, 0, "reduce in place");
        buffer_free(out);
        buffer_free(in);
    }
}

static void allreduce_of(const struct type* type, const struct operation* operation, size_t count) {
    void* out = make_elements(type, operation, g_rank, count);
    void* in = buffer_make(type->size * count, 0);
    const int n = (int)count;
    COLLECTIVE(Allreduce, allreduce, out, in, n, type->mpi, operation->mpi, MPI_COMM_WORLD);
    check_elements(type, operation, in, count, g_ranks - 1, 0, "allreduce");
    COLLECTIVE(Allreduce, allreduce, MPI_IN_PLACE, out, n, type->mpi, operation->mpi,
               MPI_COMM_WORLD);
    check_elements(type, operation, out, count, g_ranks - 1, 0, "allreduce in place");
    buffer_free(out);
    buffer_free(in);
}

static void reduce_scatter_of(const struct type* type, const struct operation* operation,
                              size_t count) {
    const size_t all = count * (size_t)g_ranks;
    void* out = make_elements(type, operation, g_rank, all);
    void* in = buffer_make(type->size * count, 0);
    COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, out, in, (int)count, type->mpi,
               operation->mpi, MPI_COMM_WORLD);
    check_elements(type, operation, in, count, g_ranks - 1, (size_t)g_rank * count,
                   "reduce_scatter_block");
    buffer_free(in);

    // Rank r gets r % 3 halves of what it would get.
    int* counts = malloc((size_t)g_ranks * sizeof *counts);
    size_t first = 0;
    for (int i = 0; i < g_ranks; ++i) {
        counts[i] = (int)count * (i % 3) / 2;
        if (i < g_rank) first += (size_t)counts[i];
    }
    in = buffer_make(type->size * (size_t)counts[g_rank], 0);
    COLLECTIVE(Reduce_scatter, reduce_scatter, out, in, counts, type->mpi, operation->mpi,
               MPI_COMM_WORLD);
    check_elements(type, operation, in, (size_t)counts[g_rank], g_ranks - 1, first,
                   "reduce_scatter");
    buffer_free(out);
    buffer_free(in);
    free(counts);
}

static void scan_of(const struct type* type, const struct operation* operation, size_t count) {
    void* out = make_elements(type, operation, g_rank, count);
    void* in = buffer_make(type->size * count, 0);
    const int n = (int)count;
    COLLECTIVE(Scan, scan, out, in, n, type->mpi, operation->mpi, MPI_COMM_WORLD);
    check_elements(type, operation, in, count, g_rank, 0, "scan");
    buffer_clear(in);
    COLLECTIVE(Exscan, exscan, out, in, n, type->mpi, operation->mpi, MPI_COMM_WORLD);
    if (g_rank > 0) check_elements(type, operation, in, count, g_rank - 1, 0, "exscan");
    COLLECTIVE(Scan, scan, MPI_IN_PLACE, out, n, type->mpi, operation->mpi, MPI_COMM_WORLD);
    check_elements(type, operation, out, count, g_rank, 0, "scan in place");
    buffer_free(out);
    buffer_free(in);
}

static void reduce(void) { everything(reduce_of); }
static void allreduce(void) { everything(allreduce_of); }
static void reduce_scatter(void) { everything(reduce_scatter_of); }
static void scan(void) { everything(scan_of); }

struct extreme {
    double value;
    int place;
};

static void places(void) {
    enum { kCount = 2000 };
    static struct extreme out[kCount], in[kCount];
    for (int way = 0; way < 4; ++way) {
        const bool largest = way % 2;
        g_nonblocking = way / 2;
        for (int i = 0; i < kCount; ++i)
            out[i] = (struct extreme){(g_rank * 5 + i) % (g_ranks + 1), g_rank};
        COLLECTIVE(Allreduce, allreduce, out, in, kCount, MPI_DOUBLE_INT,
                   largest ? MPI_MAXLOC : MPI_MINLOC, MPI_COMM_WORLD);
        for (int i = 0; i < kCount; ++i) {
            struct extreme best = {i % (g_ranks + 1), 0};
            for (int rank = 1; rank < g_ranks; ++rank) {
                const double value = (rank * 5 + i) % (g_ranks + 1);
                if (largest ? value > best.value : value < best.value)
                    best = (struct extreme){value, rank};
            }
            CHECK(in[i].value == best.value && in[i].place == best.place,
                  "%s: element %d is %g at %d, expected %g at %d", largest ? "maxloc" : "minloc", i,
                  in[i].value, in[i].place, best.value, best.place);
        }
    }
}

// 2 x 2 matrices modulo a prime: associative, but not commutative.
enum { kPrime = 9973 };

static void multiply(void* left, void* right, int* count, MPI_Datatype* type) {
    (void)type;
    const int64_t(*a)[4] = left;
    int64_t(*b)[4] = right;
    for (int i = 0; i < *count; ++i) {
        const int64_t product[4] = {(a[i][0] * b[i][0] + a[i][1] * b[i][2]) % kPrime,
                                    (a[i][0] * b[i][1] + a[i][1] * b[i][3]) % kPrime,
                                    (a[i][2] * b[i][0] + a[i][3] * b[i][2]) % kPrime,
                                    (a[i][2] * b[i][1] + a[i][3] * b[i][3]) % kPrime};
        memcpy(b[i], product, sizeof product);
    }
}

static void matrix_of(int rank, int index, int64_t matrix[4]) {
    for (int i = 0; i < 4; ++i)
        matrix[i] = (rank * 31 + index * 17 + i * i * 7 + 1) % kPrime;
}

static void own_operation(void) {
    static const int counts[] = {1, 10, 5000};
    MPI_Datatype type;
    MPI_Op operation;
    MPI_Type_contiguous(4, MPI_INT64_T, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(multiply, 0, &operation);
    for (int way = 0; way < 6; ++way) {
        const int count = counts[way % 3];
        g_nonblocking = way / 3;
        int64_t(*out)[4] = malloc((size_t)count * sizeof *out);
        int64_t(*in)[4] = malloc((size_t)count * sizeof *in);
        int64_t(*expected)[4] = malloc((size_t)count * sizeof *in);
        int64_t(*factor)[4] = malloc((size_t)count * sizeof *in);
        for (int i = 0; i < count; ++i)
            matrix_of(g_rank, i, out[i]);
        // From the right: multiply() puts left times right into right.
        for (int i = 0; i < count; ++i)
            matrix_of(g_ranks - 1, i, expected[i]);
        for (int rank = g_ranks - 2; rank >= 0; --rank) {
            int n = count;
            for (int i = 0; i < count; ++i)
                matrix_of(rank, i, factor[i]);
            multiply(factor, expected, &n, &type);
        }
        COLLECTIVE(Allreduce, allreduce, out, in, count, type, operation, MPI_COMM_WORLD);
        CHECK(memcmp(in, expected, (size_t)count * sizeof *in) == 0,
              "allreduce of %d matrices: another product", count);
        COLLECTIVE(Reduce, reduce, out, in, count, type, operation, g_ranks - 1, MPI_COMM_WORLD);
        CHECK(g_rank != g_ranks - 1 || memcmp(in, expected, (size_t)count * sizeof *in) == 0,
              "reduce of %d matrices: another product", count);
        free(out);
        free(in);
        free(expected);
        free(factor);
    }
    MPI_Op_free(&operation);
    MPI_Type_free(&type);
}

int main(int argc, char** argv) {
    static const struct step steps[] = {
        {"reduce", reduce}, {"allreduce", allreduce}, {"reduce_scatter", reduce_scatter},
        {"scan", scan},     {"places", places},       {"own_operation", own_operation}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
