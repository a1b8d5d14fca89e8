// SPDX-License-Identifier: BSD-2-Clause
// The collectives that move data: blocking and nonblocking, each root, several sizes, on the world,
// on a communicator in reverse order and on halves; in place; with derived datatypes; many at
// once. Each byte is looked at. Neighbours are in neighbors.c, reductions in reductions.c.
#include <stdlib.h>
#include <string.h>

#include "collective.h"

static const size_t kSizes[] = {0, 1, 8, 100, 1000, 5000, 20000, 100000, 600000};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0] };

// For each size; the larger ones have fewer roots.
static void each_root(void (*body)(size_t size, int root)) {
    for (int s = 0; s < kSizeCount; ++s)
        for (int root = 0; root < g_size; root += (kSizes[s] > 10000) ? 3 : 1)
            body(kSizes[s], root);
}

// A buffer with a block of `size` bytes for each process. Block i holds my message to process i.
static unsigned char* pieces_out(size_t size) {
    unsigned char* all = buffer_make(size * (size_t)g_size, 0);
    for (int to = 0; to < g_size; ++to)
        fill(all + (size_t)to * size, size, g_me, to, 0);
    return all;
}

static void check_pieces(const unsigned char* all, size_t size, const char* what) {
    for (int from = 0; from < g_size; ++from)
        check_filled(all + (size_t)from * size, size, from, g_me, 0, what);
    buffer_check_guards(all, what);
}

static void barrier_body(void) {
    // Nobody leaves before the last has come.
    for (int last = 0; last < g_size; ++last) {
        int flag = -1;
        if (g_me == last) {
            for (int i = 0; i < g_size; ++i)
                if (i != g_me) MPI_Send(&last, 1, MPI_INT, i, 1, g_comm);
        }
        if (g_nonblocking) {
            MPI_Request request;
            MPI_Ibarrier(g_comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Barrier(g_comm);
        }
        if (g_me != last) {
            MPI_Recv(&flag, 1, MPI_INT, last, 1, g_comm, MPI_STATUS_IGNORE);
            CHECK(flag == last, "after a barrier: %d from %d", flag, last);
        }
    }
}

static void bcast_of(size_t size, int root) {
    unsigned char* data = buffer_make(size, 0);
    if (g_me == root) fill(data, size, root, root, 1);
    COLLECTIVE(Bcast, bcast, data, (int)size, MPI_BYTE, root, g_comm);
    check_filled(data, size, root, root, 1, "bcast");
    buffer_check_guards(data, "bcast");
    buffer_free(data);
}

static void gather_of(size_t size, int root) {
    unsigned char* out = buffer_make(size, 0);
    unsigned char* in = buffer_make(g_me == root ? size * (size_t)g_size : 0, 0);
    const int n = (int)size;
    fill(out, size, g_me, root, 0);
    COLLECTIVE(Gather, gather, out, n, MPI_BYTE, in, n, MPI_BYTE, root, g_comm);
    if (g_me == root) check_pieces(in, size, "gather");
    if (g_me == root) {
        buffer_clear(in);
        fill(in + (size_t)root * size, size, root, root, 0);
        COLLECTIVE(Gather, gather, MPI_IN_PLACE, n, MPI_BYTE, in, n, MPI_BYTE, root, g_comm);
        check_pieces(in, size, "gather in place");
    } else {
        COLLECTIVE(Gather, gather, out, n, MPI_BYTE, in, n, MPI_BYTE, root, g_comm);
    }
    buffer_free(out);
    buffer_free(in);
}

static void scatter_of(size_t size, int root) {
    unsigned char* out = g_me == root ? pieces_out(size) : buffer_make(0, 0);
    unsigned char* in = buffer_make(size, 0);
    const int n = (int)size;
    COLLECTIVE(Scatter, scatter, out, n, MPI_BYTE, in, n, MPI_BYTE, root, g_comm);
    check_filled(in, size, root, g_me, 0, "scatter");
    buffer_check_guards(in, "scatter");
    buffer_clear(in);
    COLLECTIVE(Scatter, scatter, out, n, MPI_BYTE, g_me == root ? MPI_IN_PLACE : in, n, MPI_BYTE,
               root, g_comm);
    if (g_me != root) check_filled(in, size, root, g_me, 0, "scatter, root in place");
    buffer_free(out);
    buffer_free(in);
}

// Lengths that differ from process to process (`alike`: the large ones by little), with gaps
// between the blocks.
struct uneven {
    int *counts, *places, total;
};

static struct uneven uneven_of(size_t size, int about, bool alike) {
    struct uneven u = {malloc((size_t)g_size * sizeof(int)), malloc((size_t)g_size * sizeof(int)),
                       3};
    for (int i = 0; i < g_size; ++i) {
        u.counts[i] = (int)size * ((i + about) % 3) / 2;
        // Intel MPI 2021.18's Iallgatherv hangs when much is sent by some and little by others.
        if (alike && size > 10000) u.counts[i] = (int)size - i;
        u.places[i] = u.total;
        u.total += u.counts[i] + 5;
    }
    return u;
}

static void uneven_free(struct uneven* u) {
    free(u->counts);
    free(u->places);
}

static void check_uneven(const unsigned char* in, const struct uneven* u, const char* what) {
    for (int from = 0; from < g_size; ++from) {
        check_filled(in + u->places[from], (size_t)u->counts[from], from, g_me, 0, what);
        for (int i = 0; i < 5; ++i)
            if (in[u->places[from] + u->counts[from] + i] != 0xee)
                fail("%s: the gap after piece %d was written", what, from);
    }
}

static void gatherv_of(size_t size, int root) {
    struct uneven u = uneven_of(size, root, false);
    unsigned char* out = buffer_make((size_t)u.counts[g_me], 0);
    unsigned char* in = buffer_make((size_t)u.total, 0);
    fill(out, (size_t)u.counts[g_me], g_me, root, 0);
    COLLECTIVE(Gatherv, gatherv, out, u.counts[g_me], MPI_BYTE, in, u.counts, u.places, MPI_BYTE,
               root, g_comm);
    if (g_me == root) check_uneven(in, &u, "gatherv");
    buffer_free(out);
    buffer_free(in);
    uneven_free(&u);
}

static void scatterv_of(size_t size, int root) {
    struct uneven u = uneven_of(size, root, false);
    unsigned char *out = buffer_make((size_t)u.total, 0),
                  *in = buffer_make((size_t)u.counts[g_me], 0);
    if (g_me == root)
        for (int to = 0; to < g_size; ++to)
            fill(out + u.places[to], (size_t)u.counts[to], root, to, 0);
    COLLECTIVE(Scatterv, scatterv, out, u.counts, u.places, MPI_BYTE, in, u.counts[g_me], MPI_BYTE,
               root, g_comm);
    check_filled(in, (size_t)u.counts[g_me], root, g_me, 0, "scatterv");
    buffer_check_guards(in, "scatterv");
    buffer_free(out);
    buffer_free(in);
    uneven_free(&u);
}

static void bcast_body(void) { each_root(bcast_of); }
static void gather_body(void) {
    each_root(gather_of);
    each_root(gatherv_of);
}
static void scatter_body(void) {
    each_root(scatter_of);
    each_root(scatterv_of);
}

static void allgather_body(void) {
    for (int s = 0; s < kSizeCount; ++s) {
        const size_t size = kSizes[s];
        const int n = (int)size;
        unsigned char *out = buffer_make(size, 0), *in = buffer_make(size * (size_t)g_size, 0);
        fill(out, size, g_me, 0, 0);
        COLLECTIVE(Allgather, allgather, out, n, MPI_BYTE, in, n, MPI_BYTE, g_comm);
        for (int from = 0; from < g_size; ++from)
            check_filled(in + (size_t)from * size, size, from, 0, 0, "allgather");
        buffer_clear(in);
        fill(in + (size_t)g_me * size, size, g_me, 0, 1);
        COLLECTIVE(Allgather, allgather, MPI_IN_PLACE, n, MPI_BYTE, in, n, MPI_BYTE, g_comm);
        for (int from = 0; from < g_size; ++from)
            check_filled(in + (size_t)from * size, size, from, 0, 1, "allgather in place");
        buffer_check_guards(in, "allgather");
        buffer_free(out);
        buffer_free(in);

        struct uneven u = uneven_of(size, s, g_nonblocking);
        out = buffer_make((size_t)u.counts[g_me], 0);
        in = buffer_make((size_t)u.total, 0);
        fill(out, (size_t)u.counts[g_me], g_me, 0, 2);
        COLLECTIVE(Allgatherv, allgatherv, out, u.counts[g_me], MPI_BYTE, in, u.counts, u.places,
                   MPI_BYTE, g_comm);
        for (int from = 0; from < g_size; ++from)
            check_filled(in + u.places[from], (size_t)u.counts[from], from, 0, 2, "allgatherv");
        buffer_check_guards(in, "allgatherv");
        buffer_free(out);
        buffer_free(in);
        uneven_free(&u);
    }
}

static void alltoall_body(void) {
    for (int s = 0; s < kSizeCount; ++s) {
        const size_t size = kSizes[s];
        const int n = (int)size;
        unsigned char *out = pieces_out(size), *in = buffer_make(size * (size_t)g_size, 0);
        COLLECTIVE(Alltoall, alltoall, out, n, MPI_BYTE, in, n, MPI_BYTE, g_comm);
        check_pieces(in, size, "alltoall");
        COLLECTIVE(Alltoall, alltoall, MPI_IN_PLACE, n, MPI_BYTE, out, n, MPI_BYTE, g_comm);
        check_pieces(out, size, "alltoall in place");
        buffer_free(out);
        buffer_free(in);
    }
}

// How much i sends to j depends on i + j, so both know it.
static void alltoallv_body(void) {
    MPI_Datatype* bytes = malloc((size_t)g_size * sizeof *bytes);
    for (int i = 0; i < g_size; ++i)
        bytes[i] = MPI_BYTE;
    for (int s = 0; s < kSizeCount; ++s)
        for (int w = 0; w < 2; ++w) {
            struct uneven u = uneven_of(kSizes[s], g_me, false);
            unsigned char *out = buffer_make((size_t)u.total, 0),
                          *in = buffer_make((size_t)u.total, 0);
            for (int to = 0; to < g_size; ++to)
                fill(out + u.places[to], (size_t)u.counts[to], g_me, to, 0);
            if (w)
                COLLECTIVE(Alltoallw, alltoallw, out, u.counts, u.places, bytes, in, u.counts,
                           u.places, bytes, g_comm);
            else
                COLLECTIVE(Alltoallv, alltoallv, out, u.counts, u.places, MPI_BYTE, in, u.counts,
                           u.places, MPI_BYTE, g_comm);
            check_uneven(in, &u, w ? "alltoallw" : "alltoallv");
            buffer_check_guards(in, "alltoallv");
            buffer_free(out);
            buffer_free(in);
            uneven_free(&u);
        }
    free(bytes);
}

// Every other integer of the sender into every third of the receiver.
static void typed_body(void) {
    static const int counts[] = {1, 100, 5000, 100000};
    for (int s = 0; s < 4; ++s) {
        const int count = counts[s];
        MPI_Datatype second, third;
        MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &second);
        MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &third);
        MPI_Type_commit(&second);
        MPI_Type_commit(&third);
        const size_t all = (size_t)count * (size_t)g_size;
        int *out = malloc(all * 2 * sizeof *out), *in = malloc(all * 3 * sizeof *in);
        for (size_t i = 0; i < all; ++i) {
            out[2 * i] = (int)i + 1000000 * g_me;
            out[2 * i + 1] = -1;
            in[3 * i] = in[3 * i + 1] = in[3 * i + 2] = -2;
        }
        COLLECTIVE(Alltoall, alltoall, out, count, second, in, count, third, g_comm);
        for (size_t i = 0; i < all; ++i) {
            const int from = (int)(i / (size_t)count);
            const int expected = 1000000 * from + g_me * count + (int)(i % (size_t)count);
            if (in[3 * i] != expected || in[3 * i + 1] != -2 || in[3 * i + 2] != -2)
                fail("alltoall of derived types, count %d: element %zu is %d, expected %d", count,
                     i, in[3 * i], expected);
        }
        if (g_me != 0)
            for (size_t i = 0; i < all; ++i)
                out[2 * i] = out[2 * i + 1] = -3;
        COLLECTIVE(Bcast, bcast, out, count, second, 0, g_comm);
        for (int i = 0; i < count; ++i)
            CHECK(out[2 * i] == i && out[2 * i + 1] == (g_me ? -3 : -1),
                  "bcast of a derived type: element %d is %d, after it %d", i, out[2 * i],
                  out[2 * i + 1]);
        free(out);
        free(in);
        MPI_Type_free(&second);
        MPI_Type_free(&third);
    }
}

static void barrier(void) { everywhere(barrier_body); }
static void bcast(void) { everywhere(bcast_body); }
static void gather(void) { everywhere(gather_body); }
static void scatter(void) { everywhere(scatter_body); }
static void allgather(void) { everywhere(allgather_body); }
static void alltoall(void) { everywhere(alltoall_body); }
static void alltoallv(void) { everywhere(alltoallv_body); }
static void typed(void) { everywhere(typed_body); }

// Collectives of several kinds begin together, with messages between them. The waits for them come
// in another order.
static void many_at_once(void) {
    enum { kKinds = 4, kEach = 12, kAll = kKinds * kEach, kSize = 3000 };
    MPI_Request requests[kAll + 2];
    unsigned char *out[kAll], *in[kAll];
    for (int i = 0; i < kAll; ++i) {
        const size_t all = kSize * (size_t)g_ranks;
        const int root = i / kKinds % g_ranks;
        out[i] = buffer_make(all, 0);
        in[i] = buffer_make(all, 0);
        for (int to = 0; to < g_ranks; ++to)
            fill(out[i] + to * kSize, kSize, g_rank, to, i);
        if (i % kKinds == 0)
            MPI_Ialltoall(out[i], kSize, MPI_BYTE, in[i], kSize, MPI_BYTE, MPI_COMM_WORLD,
                          &requests[i]);
        else if (i % kKinds == 1)
            MPI_Ibcast(out[i], kSize, MPI_BYTE, root, MPI_COMM_WORLD, &requests[i]);
        else if (i % kKinds == 2)
            MPI_Iscatter(out[i], kSize, MPI_BYTE, in[i], kSize, MPI_BYTE, root, MPI_COMM_WORLD,
                         &requests[i]);
        else
            MPI_Ibarrier(MPI_COMM_WORLD, &requests[i]);
    }
    int token = g_rank, got = -1;
    MPI_Irecv(&got, 1, MPI_INT, (g_rank + 1) % g_ranks, 1, MPI_COMM_WORLD, &requests[kAll]);
    MPI_Isend(&token, 1, MPI_INT, (g_rank + g_ranks - 1) % g_ranks, 1, MPI_COMM_WORLD,
              &requests[kAll + 1]);
    for (int i = kAll + 1; i >= 0; --i)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    CHECK(got == (g_rank + 1) % g_ranks, "the token is %d", got);
    for (int i = 0; i < kAll; ++i) {
        const int root = i / kKinds % g_ranks;
        for (int from = 0; from < g_ranks && i % kKinds == 0; ++from)
            check_filled(in[i] + from * kSize, kSize, from, g_rank, i, "ialltoall among others");
        if (i % kKinds == 1) check_filled(out[i], kSize, root, 0, i, "ibcast among others");
        if (i % kKinds == 2) check_filled(in[i], kSize, root, g_rank, i, "iscatter among others");
        buffer_free(out[i]);
        buffer_free(in[i]);
    }
}

int main(int argc, char** argv) {
    static const struct step steps[] = {
        {"barrier", barrier},     {"bcast", bcast},         {"gather", gather},
        {"scatter", scatter},     {"allgather", allgather}, {"alltoall", alltoall},
        {"alltoallv", alltoallv}, {"typed", typed},         {"many_at_once", many_at_once}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
