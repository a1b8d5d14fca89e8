// SPDX-License-Identifier: BSD-2-Clause
// One-sided operations that compute at the target: accumulate, get_accumulate, fetch_and_op,
// compare_and_swap, by all ranks on the same places at once, with every operation on every
// arithmetic type. Sums must be exact, and each value of a shared counter is drawn once.
#include <stdlib.h>
#include <string.h>

#include "typed.h"
#include "windows.h"

static void store_all(const struct type* type, void* array, size_t count, int64_t value) {
    for (size_t i = 0; i < count; ++i)
        type->store(array, i, value);
}

static int64_t neutral(const struct operation* operation) {
    if (operation->mpi == MPI_PROD || operation->mpi == MPI_LAND) return 1;
    if (operation->mpi == MPI_MIN) return 100;
    if (operation->mpi == MPI_BAND) return 0x7f;
    return 0;
}

// All ranks into all ranks' windows; results do not depend on the order.
static void accumulate_of(enum window_kind kind, const struct type* type,
                          const struct operation* operation, size_t count, bool fetch) {
    struct window w = window_make(kind, count * type->size);
    unsigned char* out = buffer_make(count * type->size, 0);
    unsigned char* old = buffer_make(count * type->size, 0);
    const int n = (int)count;
    store_all(type, w.base, count, neutral(operation));
    for (size_t i = 0; i < count; ++i)
        type->store(out, i, element(operation, g_rank, i));
    MPI_Win_fence(0, w.win);
    for (int i = 0; i < g_ranks; ++i) {
        const int to = (g_rank + i) % g_ranks;
        if (fetch)
            MPI_Get_accumulate(out, n, type->mpi, old, n, type->mpi, to, place_of(&w, to, 0), n,
                               type->mpi, operation->mpi, w.win);
        else
            MPI_Accumulate(out, n, type->mpi, to, place_of(&w, to, 0), n, type->mpi, operation->mpi,
                           w.win);
        if (fetch) MPI_Win_fence(0, w.win);
    }
    MPI_Win_fence(0, w.win);
    for (size_t i = 0; i < count; ++i) {
        int64_t expected = neutral(operation);
        for (int rank = 0; rank < g_ranks; ++rank)
            expected = operation->apply(expected, element(operation, rank, i));
        const int64_t seen = type->load(w.base, i);
        if (seen != expected)
            fail("%s window: %s, %s of %zu %s: element %zu is %lld, expected %lld",
                 kWindowNames[kind], fetch ? "get_accumulate" : "accumulate", operation->name,
                 count, type->name, i, (long long)seen, (long long)expected);
    }
    count_check();
    window_free(&w);
    buffer_free(out);
    buffer_free(old);
}

static void each_pair(bool fetch) {
    static const size_t counts[] = {1, 500, 20000};
    size_t type_count, operation_count;
    const struct type* type = types(&type_count);
    const struct operation* operation = operations(&operation_count);
    for (size_t t = 0; t < type_count; ++t)
        for (size_t o = 0; o < operation_count; ++o) {
            if (operation[o].integers_only && !type[t].integer) continue;
            accumulate_of((enum window_kind)((t + o) % kWindowKinds), &type[t], &operation[o], 10,
                          fetch);
        }
    for (int kind = 0; kind < kWindowKinds; ++kind)
        for (int c = 0; c < 3; ++c)
            accumulate_of((enum window_kind)kind, &type[c], &operation[0], counts[c], fetch);
}

static void accumulate(void) { each_pair(false); }
static void get_accumulate(void) { each_pair(true); }

// What get_accumulate brings back: sums before the addition, all different, none missing.
static void fetched_values(void) {
    enum { kCount = 100, kRounds = 20 };
    for (int kind = 0; kind < kWindowKinds; ++kind) {
        struct window w = window_make((enum window_kind)kind, kCount * 8);
        int64_t one[kCount], old[kCount], now[kCount];
        int64_t* here = (int64_t*)(void*)w.base;
        unsigned char* drawn = calloc((size_t)(g_ranks * kRounds) * kCount, 1);
        for (int i = 0; i < kCount; ++i) {
            one[i] = 1;
            here[i] = 0;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, w.win);
        MPI_Win_sync(w.win);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int round = 0; round < kRounds; ++round) {
            MPI_Get_accumulate(one, kCount, MPI_INT64_T, old, kCount, MPI_INT64_T, 0,
                               place_of(&w, 0, 0), kCount, MPI_INT64_T, MPI_SUM, w.win);
            MPI_Win_flush(0, w.win);
            for (int i = 0; i < kCount; ++i) {
                CHECK(old[i] >= 0 && old[i] < g_ranks * kRounds, "element %d was %lld", i,
                      (long long)old[i]);
                ++drawn[old[i] * kCount + i];
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        // NO_OP reads, REPLACE writes.
        MPI_Get_accumulate(NULL, 0, MPI_INT64_T, now, kCount, MPI_INT64_T, 0, place_of(&w, 0, 0),
                           kCount, MPI_INT64_T, MPI_NO_OP, w.win);
        MPI_Win_flush(0, w.win);
        for (int i = 0; i < kCount; ++i)
            CHECK(now[i] == g_ranks * kRounds, "element %d is %lld at the end", i,
                  (long long)now[i]);
        MPI_Win_unlock_all(w.win);
        MPI_Allreduce(MPI_IN_PLACE, drawn, g_ranks * kRounds * kCount, MPI_UNSIGNED_CHAR, MPI_SUM,
                      MPI_COMM_WORLD);
        for (int i = 0; i < g_ranks * kRounds * kCount; ++i)
            CHECK(drawn[i] == 1, "value %d was drawn %d times", i / kCount, drawn[i]);
        window_free(&w);
        free(drawn);
    }
}

// Every rank draws numbers from one counter at rank `home`: each once, and each rank's rise.
static void counter(void) {
    enum { kDraws = 80 };
    for (int kind = 0; kind < kWindowKinds; ++kind)
        for (int narrow = 0; narrow < 2; ++narrow) {
            const int home = (kind + narrow) % g_ranks;
            struct window w = window_make((enum window_kind)kind, 16);
            unsigned char* drawn = calloc((size_t)g_ranks * kDraws, 1);
            const int64_t one = 1;
            const int32_t one32 = 1;
            int64_t last = -1;
            memset(w.base, 0, 16);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_lock_all(0, w.win);
            MPI_Win_sync(w.win);
            MPI_Barrier(MPI_COMM_WORLD);
            for (int i = 0; i < kDraws; ++i) {
                int64_t mine = -1;
                int32_t mine32 = -1;
                if (narrow)
                    MPI_Fetch_and_op(&one32, &mine32, MPI_INT32_T, home, place_of(&w, home, 8),
                                     MPI_SUM, w.win);
                else
                    MPI_Fetch_and_op(&one, &mine, MPI_INT64_T, home, place_of(&w, home, 8), MPI_SUM,
                                     w.win);
                MPI_Win_flush(home, w.win);
                if (narrow) mine = mine32;
                CHECK(mine > last && mine < (int64_t)g_ranks * kDraws, "drew %lld after %lld",
                      (long long)mine, (long long)last);
                ++drawn[mine];
                last = mine;
            }
            MPI_Win_unlock_all(w.win);
            MPI_Allreduce(MPI_IN_PLACE, drawn, g_ranks * kDraws, MPI_UNSIGNED_CHAR, MPI_SUM,
                          MPI_COMM_WORLD);
            for (int i = 0; i < g_ranks * kDraws; ++i)
                CHECK(drawn[i] == 1, "%d was drawn %d times", i, drawn[i]);
            window_free(&w);
            free(drawn);
        }
}

// A counter that rises by compare_and_swap, on 8-, 32- and 64-bit integers.
static void compare_and_swap(void) {
    static const struct {
        const char* name;
        size_t size;
        int rises;
    } widths[] = {{"64", 8, 200}, {"32", 4, 200}, {"8", 1, 10}};
    for (int kind = 0; kind < kWindowKinds; ++kind)
        for (int v = 0; v < 3; ++v) {
            const MPI_Datatype type = v == 0 ? MPI_INT64_T : v == 1 ? MPI_INT32_T : MPI_INT8_T;
            struct window w = window_make((enum window_kind)kind, 16);
            int64_t guess = 0, want = 0,
                    seen = 0;  // little-endian: their first bytes are the value
            memset(w.base, 0, 16);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_lock_all(0, w.win);
            MPI_Win_sync(w.win);
            MPI_Barrier(MPI_COMM_WORLD);
            for (int risen = 0; risen < widths[v].rises;) {
                want = guess + 1;
                seen = 0;
                MPI_Compare_and_swap(&want, &guess, &seen, type, 0, place_of(&w, 0, 8), w.win);
                MPI_Win_flush(0, w.win);
                CHECK(seen >= guess, "the counter of %s bits fell from %lld to %lld",
                      widths[v].name, (long long)guess, (long long)seen);
                risen += seen == guess;
                guess = seen == guess ? want : seen;
            }
            MPI_Win_flush_all(w.win);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_unlock_all(w.win);
            MPI_Win_lock(MPI_LOCK_SHARED, g_rank, 0, w.win);
            int64_t here = 0;
            memcpy(&here, w.base + 8, widths[v].size);
            MPI_Win_unlock(g_rank, w.win);
            CHECK(g_rank != 0 || here == (int64_t)g_ranks * widths[v].rises,
                  "the counter of %s bits is %lld at the end, expected %d", widths[v].name,
                  (long long)here, g_ranks * widths[v].rises);
            window_free(&w);
        }
}

// Read, add, write under an exclusive lock: no addition is lost.
static void exclusive_lock(void) {
    enum { kRounds = 40 };
    for (int kind = 0; kind < kWindowKinds; ++kind) {
        struct window w = window_make((enum window_kind)kind, 8);
        memset(w.base, 0, 8);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < kRounds; ++i) {
            int64_t value = -1;
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win);
            MPI_Get(&value, 1, MPI_INT64_T, 0, place_of(&w, 0, 0), 1, MPI_INT64_T, w.win);
            MPI_Win_flush(0, w.win);
            ++value;
            MPI_Put(&value, 1, MPI_INT64_T, 0, place_of(&w, 0, 0), 1, MPI_INT64_T, w.win);
            MPI_Win_unlock(0, w.win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        int64_t value = -1;
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win);
        MPI_Get(&value, 1, MPI_INT64_T, 0, place_of(&w, 0, 0), 1, MPI_INT64_T, w.win);
        MPI_Win_unlock(0, w.win);
        CHECK(value == (int64_t)g_ranks * kRounds, "%lld additions of %d under an exclusive lock",
              (long long)value, g_ranks * kRounds);
        window_free(&w);
    }
}

// Accumulates of one origin to one place happen in the order they were called.
static void in_order(void) {
    enum { kCount = 300 };
    for (int kind = 0; kind < kWindowKinds; ++kind) {
        struct window w = window_make((enum window_kind)kind, 8 * (size_t)g_ranks);
        const int to = (g_rank + 1) % g_ranks, from = (g_rank + g_ranks - 1) % g_ranks;
        int64_t values[kCount], *here = (int64_t*)(void*)w.base;
        for (int round = 0; round < 5; ++round) {
            MPI_Win_fence(0, w.win);
            for (int i = 0; i < kCount; ++i) {
                values[i] = round * kCount + i;
                MPI_Accumulate(&values[i], 1, MPI_INT64_T, to, place_of(&w, to, 8 * (size_t)g_rank),
                               1, MPI_INT64_T, MPI_REPLACE, w.win);
            }
            MPI_Win_fence(0, w.win);
            CHECK(here[from] == round * kCount + kCount - 1, "the last of %d stores is %lld",
                  kCount, (long long)here[from]);
        }
        window_free(&w);
    }
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"accumulate", accumulate},
                                        {"get_accumulate", get_accumulate},
                                        {"fetched_values", fetched_values},
                                        {"counter", counter},
                                        {"compare_and_swap", compare_and_swap},
                                        {"exclusive_lock", exclusive_lock},
                                        {"in_order", in_order}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
