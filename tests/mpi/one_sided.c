// SPDX-License-Identifier: BSD-2-Clause
// Put and get under every kind of synchronization (fence, lock, lock_all with flush, post-start-
// complete-wait), on every kind of window, from nothing to a mebibyte; requests; derived datatypes.
// Each byte is looked at. What computes at the target is in atomics.c.
#include <stdlib.h>
#include <string.h>

#include "windows.h"

static const size_t kSizes[] = {0, 1, 8, 100, 4000, 8192, 65536, 1000003};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0] };

static int next(void) { return (g_rank + 1) % g_ranks; }
static int previous(void) { return (g_rank + g_ranks - 1) % g_ranks; }

static void each_window(void (*body)(struct window* w, size_t size)) {
    for (int kind = 0; kind < kWindowKinds; ++kind)
        for (int s = 0; s < kSizeCount; ++s) {
            struct window w = window_make(kind, kSizes[s] * (size_t)g_ranks + 16);
            body(&w, kSizes[s]);
            window_free(&w);
        }
}

static void check_end(const struct window* w, size_t size) {
    for (size_t i = 0; i < 16; ++i)
        if (w->base[size * (size_t)g_ranks + i] != 0xee)
            fail("%s window: byte %zu after the last piece was written", kWindowNames[w->kind], i);
}

// All to all by puts, then back by gets.
static void fence_body(struct window* w, size_t size) {
    const int n = (int)size;
    const size_t all = size * (size_t)g_ranks;
    unsigned char *out = buffer_make(all, 0), *in = buffer_make(all, 0);
    for (int round = 0; round < 3; ++round) {
        MPI_Win_fence(round == 0 ? MPI_MODE_NOPRECEDE : 0, w->win);
        for (int i = 0; i < g_ranks; ++i) {
            const int to = (g_rank + i) % g_ranks;
            fill(out + (size_t)to * size, size, g_rank, to, round);
            MPI_Put(out + (size_t)to * size, n, MPI_BYTE, to,
                    place_of(w, to, (size_t)g_rank * size), n, MPI_BYTE, w->win);
        }
        MPI_Win_fence(0, w->win);
        for (int from = 0; from < g_ranks; ++from)
            check_filled(w->base + (size_t)from * size, size, from, g_rank, round, "put, fence");
        MPI_Win_fence(0, w->win);
        for (int i = 0; i < g_ranks; ++i) {
            const int to = (g_rank + i) % g_ranks;
            MPI_Get(in + (size_t)to * size, n, MPI_BYTE, to, place_of(w, to, (size_t)g_rank * size),
                    n, MPI_BYTE, w->win);
        }
        MPI_Win_fence(round == 2 ? MPI_MODE_NOSUCCEED : 0, w->win);
        for (int to = 0; to < g_ranks; ++to)
            check_filled(in + (size_t)to * size, size, g_rank, to, round, "get, fence");
        buffer_check_guards(in, "get, fence");
        buffer_clear(in);
    }
    check_end(w, size);
    buffer_free(out);
    buffer_free(in);
}

static void lock_body(struct window* w, size_t size) {
    const int n = (int)size;
    unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 0);
    for (int to = 0; to < g_ranks; ++to) {
        fill(out, size, g_rank, to, 1);
        MPI_Win_lock(to % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, to, 0, w->win);
        MPI_Put(out, n, MPI_BYTE, to, place_of(w, to, (size_t)g_rank * size), n, MPI_BYTE, w->win);
        MPI_Win_flush(to, w->win);
        MPI_Get(in, n, MPI_BYTE, to, place_of(w, to, (size_t)g_rank * size), n, MPI_BYTE, w->win);
        MPI_Win_unlock(to, w->win);
        check_filled(in, size, g_rank, to, 1, "put, flush, get in one lock");
        buffer_check_guards(in, "lock");
        buffer_clear(in);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, g_rank, 0, w->win);
    for (int from = 0; from < g_ranks; ++from)
        check_filled(w->base + (size_t)from * size, size, from, g_rank, 1, "put, lock");
    MPI_Win_unlock(g_rank, w->win);
    check_end(w, size);
    buffer_free(out);
    buffer_free(in);
}

static void lock_all_body(struct window* w, size_t size) {
    const int n = (int)size;
    const size_t all = size * (size_t)g_ranks;
    unsigned char *out = buffer_make(all, 0), *in = buffer_make(all, 0);
    MPI_Request* requests = malloc((size_t)g_ranks * sizeof *requests);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, w->win);
    for (int round = 0; round < 4; ++round) {
        for (int to = 0; to < g_ranks; ++to) {
            unsigned char* data = out + (size_t)to * size;
            const MPI_Aint place = place_of(w, to, (size_t)g_rank * size);
            fill(data, size, g_rank, to, round);
            if (round % 2)
                MPI_Rput(data, n, MPI_BYTE, to, place, n, MPI_BYTE, w->win, &requests[to]);
            else
                MPI_Put(data, n, MPI_BYTE, to, place, n, MPI_BYTE, w->win);
            if (round == 2) MPI_Win_flush(to, w->win);
        }
        if (round % 2) MPI_Waitall(g_ranks, requests, MPI_STATUSES_IGNORE);
        if (round == 0) MPI_Win_flush_local_all(w->win);
        if (round == 0) memset(out, 0, all);  // ours again
        MPI_Win_flush_all(w->win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(w->win);
        for (int from = 0; from < g_ranks; ++from)
            check_filled(w->base + (size_t)from * size, size, from, g_rank, round, "put, flush");
        for (int to = 0; to < g_ranks; ++to)
            MPI_Rget(in + (size_t)to * size, n, MPI_BYTE, to,
                     place_of(w, to, (size_t)g_rank * size), n, MPI_BYTE, w->win, &requests[to]);
        for (int to = g_ranks - 1; to >= 0; --to) {
            MPI_Wait(&requests[to], MPI_STATUS_IGNORE);
            check_filled(in + (size_t)to * size, size, g_rank, to, round, "rget");
        }
        buffer_check_guards(in, "rget");
        buffer_clear(in);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_unlock_all(w->win);
    check_end(w, size);
    free(requests);
    buffer_free(out);
    buffer_free(in);
}

// Each puts to the next and gets from it.
static void pscw_body(struct window* w, size_t size) {
    const int n = (int)size;
    const int to = next(), from = previous();
    unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 0);
    MPI_Group world, targets, origins;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &to, &targets);
    MPI_Group_incl(world, 1, &from, &origins);
    for (int round = 0; round < 4; ++round) {
        fill(out, size, g_rank, to, round);
        fill(w->base + (g_ranks > 1 ? size : 0), g_ranks > 1 ? size : 0, g_rank, g_rank, round);
        MPI_Win_post(origins, 0, w->win);
        MPI_Win_start(targets, 0, w->win);
        MPI_Put(out, n, MPI_BYTE, to, place_of(w, to, 0), n, MPI_BYTE, w->win);
        if (g_ranks > 1) MPI_Get(in, n, MPI_BYTE, to, place_of(w, to, size), n, MPI_BYTE, w->win);
        MPI_Win_complete(w->win);
        if (round % 2) {
            MPI_Win_wait(w->win);
        } else {
            for (int done = 0; !done;)
                MPI_Win_test(w->win, &done);
        }
        check_filled(w->base, size, from, g_rank, round, "put, post-start-complete-wait");
        if (g_ranks > 1) check_filled(in, size, to, to, round, "get, post-start-complete-wait");
        buffer_clear(in);
    }
    check_end(w, size);
    MPI_Group_free(&world);
    MPI_Group_free(&targets);
    MPI_Group_free(&origins);
    buffer_free(out);
    buffer_free(in);
}

static void fence(void) { each_window(fence_body); }
static void lock(void) { each_window(lock_body); }
static void lock_all(void) { each_window(lock_all_body); }
static void pscw(void) { each_window(pscw_body); }

// Many small puts of one epoch, each to a place of its own, in an order that jumps.
static void many_puts(void) {
    enum { kCount = 5000 };
    for (int kind = 0; kind < kWindowKinds; ++kind) {
        struct window w = window_make(kind, kCount * 8);
        int64_t* values = malloc(kCount * sizeof *values);
        int64_t* here = (int64_t*)(void*)w.base;
        MPI_Win_lock_all(0, w.win);
        for (int i = 0; i < kCount; ++i) {
            const int at = (int)((long)i * 7919 % kCount);
            values[i] = (int64_t)g_rank * kCount + at;
            MPI_Put(&values[i], 1, MPI_INT64_T, next(), place_of(&w, next(), (size_t)at * 8), 1,
                    MPI_INT64_T, w.win);
        }
        MPI_Win_flush_all(w.win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(w.win);
        for (int i = 0; i < kCount; ++i)
            CHECK(here[i] == (int64_t)previous() * kCount + i, "put %d of many is %lld", i,
                  (long long)here[i]);
        MPI_Win_unlock_all(w.win);
        window_free(&w);
        free(values);
    }
}

// Every third integer of the target is put from, and got into, every second of the origin.
static void derived(void) {
    static const int counts[] = {1, 10, 1000, 30000};
    for (int c = 0; c < 4; ++c) {
        const int count = counts[c];
        MPI_Datatype second, third;
        MPI_Type_vector(count, 1, 2, MPI_INT, &second);
        MPI_Type_vector(count, 1, 3, MPI_INT, &third);
        MPI_Type_commit(&second);
        MPI_Type_commit(&third);
        for (int kind = 0; kind < kWindowKinds; ++kind) {
            struct window w = window_make(kind, (size_t)count * 3 * sizeof(int));
            int *out = malloc((size_t)count * 2 * sizeof(int)),
                *in = malloc((size_t)count * 2 * sizeof(int));
            int* here = (int*)(void*)w.base;
            for (int i = 0; i < 3 * count; ++i)
                here[i] = -1;
            for (int i = 0; i < 2 * count; ++i) {
                out[i] = g_rank * 1000000 + i;
                in[i] = -2;
            }
            MPI_Win_fence(0, w.win);
            MPI_Put(out, 1, second, next(), place_of(&w, next(), 0), 1, third, w.win);
            MPI_Win_fence(0, w.win);
            MPI_Get(in, 1, second, next(), place_of(&w, next(), 0), 1, third, w.win);
            MPI_Win_fence(0, w.win);
            for (int i = 0; i < count; ++i) {
                CHECK(here[3 * i] == previous() * 1000000 + 2 * i && here[3 * i + 1] == -1,
                      "put of a vector of %d: element %d is %d, after it %d", count, i, here[3 * i],
                      here[3 * i + 1]);
                CHECK(in[2 * i] == out[2 * i] && in[2 * i + 1] == -2,
                      "get of a vector of %d: element %d is %d, after it %d", count, i, in[2 * i],
                      in[2 * i + 1]);
            }
            window_free(&w);
            free(out);
            free(in);
        }
        MPI_Type_free(&second);
        MPI_Type_free(&third);
    }
}

// Memory that comes and goes while the window stays.
static void attach_detach(void) {
    MPI_Win win;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int round = 0; round < 20; ++round) {
        const size_t size = 1000 * (size_t)(round + 1);
        unsigned char *memory = buffer_make(size, 0), *out = buffer_make(size, 0);
        MPI_Aint mine, other;
        MPI_Win_attach(win, memory, (MPI_Aint)size);
        MPI_Get_address(memory, &mine);
        MPI_Sendrecv(&mine, 1, MPI_AINT, previous(), 1, &other, 1, MPI_AINT, next(), 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        fill(out, size, g_rank, next(), round);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next(), 0, win);
        MPI_Put(out, (int)size, MPI_BYTE, next(), other, (int)size, MPI_BYTE, win);
        MPI_Win_unlock(next(), win);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, g_rank, 0, win);
        check_filled(memory, size, previous(), g_rank, round, "attached memory");
        MPI_Win_unlock(g_rank, win);
        MPI_Win_detach(win, memory);
        buffer_free(memory);
        buffer_free(out);
    }
    MPI_Win_free(&win);
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"fence", fence},
                                        {"lock", lock},
                                        {"lock_all", lock_all},
                                        {"pscw", pscw},
                                        {"many_puts", many_puts},
                                        {"derived", derived},
                                        {"attach_detach", attach_detach}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
