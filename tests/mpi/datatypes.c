// SPDX-License-Identifier: BSD-2-Clause
// Messages that are not contiguous: vectors, indexed blocks, structures, subarrays, at both sides
// or at one, small enough to be copied and too large for it.
#include <stdlib.h>
#include <string.h>

#include "support.h"

static int next(void) { return (g_rank + 1) % g_ranks; }
static int previous(void) { return (g_rank + g_ranks - 1) % g_ranks; }

// Fills the places of `type` in `out` with a pattern, by unpacking it.
static void fill_typed(unsigned char* out, int count, MPI_Datatype type, int to, long number) {
    int size, position = 0;
    MPI_Type_size(type, &size);
    const size_t total = (size_t)size * (size_t)count;
    unsigned char* packed = buffer_make(total, 0);
    fill(packed, total, g_rank, to, number);
    MPI_Unpack(packed, (int)total, &position, out, count, type, MPI_COMM_SELF);
    buffer_free(packed);
}

// The places of `type` have the pattern, and no other byte was written.
static void check_typed(const unsigned char* in, size_t extent, int count, MPI_Datatype type,
                        int from, long number, const char* what) {
    int size, position = 0;
    MPI_Type_size(type, &size);
    const size_t total = (size_t)size * (size_t)count;
    unsigned char *packed = buffer_make(total, 0), *expected = buffer_make(extent, 0);
    MPI_Pack(in, count, type, packed, (int)total, &position, MPI_COMM_SELF);
    check_filled(packed, total, from, g_rank, number, what);
    position = 0;
    MPI_Unpack(packed, (int)total, &position, expected, count, type, MPI_COMM_SELF);
    for (size_t i = 0; i < extent; ++i)
        if (in[i] != expected[i]) fail("%s: byte %zu of a gap is 0x%02x", what, i, in[i]);
    count_check();
    buffer_free(packed);
    buffer_free(expected);
}

// Typed to typed, typed to bytes, bytes to typed; with the receive first and with it late.
static void exchange(MPI_Datatype type, int count, const char* what) {
    MPI_Aint lower, extent, true_lower, true_extent;
    int size;
    MPI_Type_commit(&type);
    MPI_Type_size(type, &size);
    MPI_Type_get_extent(type, &lower, &extent);
    MPI_Type_get_true_extent(type, &true_lower, &true_extent);
    const size_t span = (size_t)(extent * (count - 1) + true_lower + true_extent);
    const size_t total = (size_t)size * (size_t)count;
    for (int way = 0; way < 6; ++way) {
        const bool typed_out = way % 3 != 2, typed_in = way % 3 != 1, late = way / 3;
        unsigned char* out = buffer_make(typed_out ? span : total, 0);
        unsigned char* in = buffer_make(typed_in ? span : total, 0);
        MPI_Request requests[2];
        MPI_Status status;
        if (typed_out)
            fill_typed(out, count, type, next(), way);
        else
            fill(out, total, g_rank, next(), way);
        MPI_Datatype in_type = typed_in ? type : MPI_BYTE;
        const int in_count = typed_in ? count : (int)total;
        if (!late) {
            MPI_Irecv(in, in_count, in_type, previous(), 1, MPI_COMM_WORLD, &requests[0]);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        MPI_Isend(out, typed_out ? count : (int)total, typed_out ? type : MPI_BYTE, next(), 1,
                  MPI_COMM_WORLD, &requests[1]);
        if (late) {
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Irecv(in, in_count, in_type, previous(), 1, MPI_COMM_WORLD, &requests[0]);
        }
        MPI_Wait(&requests[0], &status);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        check_status(&status, previous(), 1, total, what);
        if (typed_in)
            check_typed(in, span, count, type, previous(), way, what);
        else
            check_filled(in, total, previous(), g_rank, way, what);
        buffer_check_guards(in, what);
        buffer_free(out);
        buffer_free(in);
    }
    MPI_Type_free(&type);
}

static void vectors(void) {
    static const int shapes[][3] = {{4, 1, 2},       {10, 3, 7},        {100, 1, 2},
                                    {64, 16, 20},    {1000, 2, 3},      {2000, 10, 11},
                                    {500, 300, 400}, {3, 40000, 50000}, {20000, 1, 17}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        MPI_Datatype type;
        MPI_Type_vector(shapes[i][0], shapes[i][1], shapes[i][2], MPI_INT, &type);
        exchange(type, 1, "vector");
        MPI_Type_vector(shapes[i][0], shapes[i][1], shapes[i][2], MPI_INT, &type);
        exchange(type, 5, "five vectors");
    }
}

static void indexed(void) {
    enum { kBlocks = 300 };
    int lengths[kBlocks], places[kBlocks];
    uint64_t state = 5;
    for (int scale = 1; scale <= 256; scale *= 16) {
        int at = 0;
        for (int i = 0; i < kBlocks; ++i) {
            lengths[i] = (int)(next_random(&state) % 4) * scale;
            places[i] = at;
            at += lengths[i] + (int)(next_random(&state) % 5);
        }
        MPI_Datatype type;
        MPI_Type_indexed(kBlocks, lengths, places, MPI_SHORT, &type);
        exchange(type, 1, "indexed");
    }
}

struct particle {
    char kind;
    double place[3];
    short charge;
    int64_t number;
};

static void structures(void) {
    const int lengths[] = {1, 3, 1, 1};
    const MPI_Aint places[] = {offsetof(struct particle, kind), offsetof(struct particle, place),
                               offsetof(struct particle, charge),
                               offsetof(struct particle, number)};
    const MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT64_T};
    static const int counts[] = {1, 10, 300, 20000};
    for (int i = 0; i < 4; ++i) {
        MPI_Datatype packed, type;
        MPI_Type_create_struct(4, lengths, places, types, &packed);
        MPI_Type_create_resized(packed, 0, sizeof(struct particle), &type);
        exchange(type, counts[i], "structure");
        MPI_Type_free(&packed);
    }
}

static void subarrays(void) {
    const int whole[] = {40, 50, 60};
    const int parts[][3] = {{2, 3, 4}, {40, 50, 1}, {1, 50, 60}, {38, 48, 58}};
    for (int i = 0; i < 4; ++i) {
        const int start[] = {(40 - parts[i][0]) / 2, (50 - parts[i][1]) / 2,
                             (60 - parts[i][2]) / 2};
        MPI_Datatype type;
        MPI_Type_create_subarray(3, whole, parts[i], start, MPI_ORDER_C, MPI_DOUBLE, &type);
        exchange(type, 1, "subarray");
    }
}

// Half of what the receive expects: the count says so, in elements.
static void partial(void) {
    MPI_Datatype type;
    MPI_Status status;
    int count = -1, elements = -1;
    unsigned char *out = buffer_make(4000, 0), *in = buffer_make(8000, 0);
    MPI_Type_contiguous(10, MPI_INT, &type);
    MPI_Type_commit(&type);
    fill(out, 4000, g_rank, next(), 0);
    MPI_Sendrecv(out, 25, MPI_INT, next(), 1, in, 100, type, previous(), 1, MPI_COMM_WORLD,
                 &status);
    MPI_Get_count(&status, type, &count);
    MPI_Get_elements(&status, type, &elements);
    CHECK(count == MPI_UNDEFINED, "25 integers are %d times 10", count);
    CHECK(elements == 25, "25 integers are %d elements", elements);
    check_filled(in, 100, previous(), g_rank, 0, "partial");
    MPI_Type_free(&type);
    buffer_free(out);
    buffer_free(in);
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"vectors", vectors},
                                        {"indexed", indexed},
                                        {"structures", structures},
                                        {"subarrays", subarrays},
                                        {"partial", partial}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
