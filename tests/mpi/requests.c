// SPDX-License-Identifier: BSD-2-Clause
// Many operations at once, completed in every way MPI has: all, any, some, test; persistent,
// buffered, ready and synchronous sends; and a storm of random messages between all ranks.
#include <stdlib.h>
#include <string.h>

#include "support.h"

static int next(void) { return (g_rank + 1) % g_ranks; }
static int previous(void) { return (g_rank + g_ranks - 1) % g_ranks; }

enum { kCount = 1000, kSize = 500 };

struct traffic {  // kCount messages out and in, all begun
    unsigned char *out, *in;
    MPI_Request requests[2 * kCount];  // first the receives
};

static struct traffic* begin_traffic(int tag) {
    struct traffic* t = malloc(sizeof *t);
    t->out = buffer_make(kCount * kSize, 0);
    t->in = buffer_make(kCount * kSize, 0);
    for (int i = 0; i < kCount; ++i)
        MPI_Irecv(t->in + i * kSize, kSize, MPI_BYTE, previous(), tag, MPI_COMM_WORLD,
                  &t->requests[i]);
    for (int i = 0; i < kCount; ++i) {
        fill(t->out + i * kSize, kSize, g_rank, next(), i);
        MPI_Isend(t->out + i * kSize, kSize, MPI_BYTE, next(), tag, MPI_COMM_WORLD,
                  &t->requests[kCount + i]);
    }
    return t;
}

static void end_traffic(struct traffic* t, const char* what) {
    for (int i = 0; i < kCount; ++i)
        check_filled(t->in + i * kSize, kSize, previous(), g_rank, i, what);
    buffer_check_guards(t->in, what);
    buffer_free(t->out);
    buffer_free(t->in);
    free(t);
}

static void wait_all(void) {
    struct traffic* t = begin_traffic(1);
    MPI_Status* status = malloc(2 * kCount * sizeof *status);
    MPI_Waitall(2 * kCount, t->requests, status);
    for (int i = 0; i < kCount; ++i)
        check_status(&status[i], previous(), 1, kSize, "waitall");
    free(status);
    end_traffic(t, "waitall");
}

static void wait_any(void) {
    struct traffic* t = begin_traffic(2);
    bool* done = calloc(2 * kCount, sizeof *done);
    for (int i = 0; i < 2 * kCount; ++i) {
        int index = -1;
        MPI_Waitany(2 * kCount, t->requests, &index, MPI_STATUS_IGNORE);
        CHECK(index >= 0 && index < 2 * kCount && !done[index], "waitany gives %d", index);
        done[index] = true;
        if (index < kCount)
            check_filled(t->in + index * kSize, kSize, previous(), g_rank, index, "waitany");
    }
    int index = 0;
    MPI_Waitany(2 * kCount, t->requests, &index, MPI_STATUS_IGNORE);
    CHECK(index == MPI_UNDEFINED, "waitany of nothing gives %d", index);
    free(done);
    end_traffic(t, "waitany");
}

static void wait_some(void) {
    struct traffic* t = begin_traffic(3);
    int* indices = malloc(2 * kCount * sizeof *indices);
    for (int left = 2 * kCount; left > 0;) {
        int completed = 0;
        if (left % 2)
            MPI_Testsome(2 * kCount, t->requests, &completed, indices, MPI_STATUSES_IGNORE);
        else
            MPI_Waitsome(2 * kCount, t->requests, &completed, indices, MPI_STATUSES_IGNORE);
        for (int i = 0; i < completed; ++i)
            if (indices[i] < kCount)
                check_filled(t->in + indices[i] * kSize, kSize, previous(), g_rank, indices[i],
                             "waitsome");
        left -= completed;
    }
    free(indices);
    end_traffic(t, "waitsome");
}

static void test_all(void) {
    struct traffic* t = begin_traffic(4);
    for (int done = 0; !done;)
        MPI_Testall(2 * kCount, t->requests, &done, MPI_STATUSES_IGNORE);
    end_traffic(t, "testall");
}

static void wait_backwards(void) {
    struct traffic* t = begin_traffic(5);
    for (int i = 2 * kCount - 1; i >= 0; --i)
        MPI_Wait(&t->requests[i], MPI_STATUS_IGNORE);
    end_traffic(t, "wait, last first");
}

static void persistent(void) {
    static const int sizes[] = {0, 8, 1000, 50000};
    for (int s = 0; s < 4; ++s) {
        unsigned char *out = buffer_make((size_t)sizes[s], 0),
                      *in = buffer_make((size_t)sizes[s], 0);
        MPI_Request requests[2];
        MPI_Recv_init(in, sizes[s], MPI_BYTE, previous(), 6, MPI_COMM_WORLD, &requests[0]);
        if (s % 2)
            MPI_Send_init(out, sizes[s], MPI_BYTE, next(), 6, MPI_COMM_WORLD, &requests[1]);
        else
            MPI_Ssend_init(out, sizes[s], MPI_BYTE, next(), 6, MPI_COMM_WORLD, &requests[1]);
        for (int i = 0; i < 50; ++i) {
            fill(out, (size_t)sizes[s], g_rank, next(), i);
            MPI_Startall(2, requests);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            check_filled(in, (size_t)sizes[s], previous(), g_rank, i, "persistent");
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        buffer_free(out);
        buffer_free(in);
    }
}

static void buffered(void) {
    static const int sizes[] = {0, 8, 1000, 50000};
    enum { kEach = 10, kRoom = kEach * (50000 + MPI_BSEND_OVERHEAD) };
    void* room = malloc(kRoom);
    int size;
    MPI_Buffer_attach(room, kRoom);
    for (int s = 0; s < 4; ++s) {
        unsigned char *out = buffer_make((size_t)sizes[s], 0),
                      *in = buffer_make((size_t)sizes[s], 0);
        for (int i = 0; i < kEach; ++i) {
            fill(out, (size_t)sizes[s], g_rank, next(), i);
            MPI_Bsend(out, sizes[s], MPI_BYTE, next(), 7, MPI_COMM_WORLD);
        }
        for (int i = 0; i < kEach; ++i) {
            MPI_Recv(in, sizes[s], MPI_BYTE, previous(), 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_filled(in, (size_t)sizes[s], previous(), g_rank, i, "buffered");
        }
        MPI_Buffer_detach(&room, &size);  // all that is in it has gone
        MPI_Buffer_attach(room, kRoom);
        buffer_free(out);
        buffer_free(in);
    }
    MPI_Buffer_detach(&room, &size);
    free(room);
}

static void ready(void) {
    static const int sizes[] = {0, 8, 1000, 50000};
    for (int s = 0; s < 4; ++s) {
        unsigned char *out = buffer_make((size_t)sizes[s], 0),
                      *in = buffer_make((size_t)sizes[s], 0);
        MPI_Request request;
        MPI_Irecv(in, sizes[s], MPI_BYTE, previous(), 8, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        fill(out, (size_t)sizes[s], g_rank, next(), s);
        MPI_Rsend(out, sizes[s], MPI_BYTE, next(), 8, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_filled(in, (size_t)sizes[s], previous(), g_rank, s, "ready");
        buffer_free(out);
        buffer_free(in);
    }
}

// A synchronous send is not complete before its receive has begun.
static void synchronous(void) {
    static const int sizes[] = {0, 8, 1000, 50000};
    for (int s = 0; s < 4; ++s) {
        unsigned char *out = buffer_make((size_t)sizes[s], 0),
                      *in = buffer_make((size_t)sizes[s], 0);
        MPI_Request request;
        int done = 0;
        fill(out, (size_t)sizes[s], g_rank, next(), s);
        MPI_Issend(out, sizes[s], MPI_BYTE, next(), 9, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < 200; ++i) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            CHECK(!done, "a synchronous send of %d bytes is complete before its receive", sizes[s]);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Recv(in, sizes[s], MPI_BYTE, previous(), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_filled(in, (size_t)sizes[s], previous(), g_rank, s, "synchronous");
        buffer_free(out);
        buffer_free(in);
    }
}

static void send_receive(void) {
    static const int sizes[] = {0, 8, 1000, 50000, 1000000};
    for (int s = 0; s < 5; ++s) {
        const size_t size = (size_t)sizes[s];
        unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 0);
        MPI_Status status;
        fill(out, size, g_rank, next(), s);
        MPI_Sendrecv(out, sizes[s], MPI_BYTE, next(), 10, in, sizes[s], MPI_BYTE, MPI_ANY_SOURCE,
                     MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        check_status(&status, previous(), 10, size, "sendrecv");
        check_filled(in, size, previous(), g_rank, s, "sendrecv");
        MPI_Barrier(MPI_COMM_WORLD);
        fill(out, size, g_rank, next(), s + 100);
        MPI_Sendrecv_replace(out, sizes[s], MPI_BYTE, next(), 11, previous(), 11, MPI_COMM_WORLD,
                             &status);
        check_status(&status, previous(), 11, size, "sendrecv_replace");
        check_filled(out, size, previous(), g_rank, s + 100, "sendrecv_replace");
        MPI_Sendrecv(out, sizes[s], MPI_BYTE, MPI_PROC_NULL, 12, in, sizes[s], MPI_BYTE,
                     MPI_PROC_NULL, 12, MPI_COMM_WORLD, &status);
        check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0, "sendrecv with no process");
        buffer_free(out);
        buffer_free(in);
    }
}

static size_t random_size(uint64_t* state) {
    const uint32_t bits = next_random(state) % 18;
    return next_random(state) & ((1u << bits) - 1);
}

// Everybody sends to everybody, at random sizes and tags; for each (source, tag) in order. Both
// sides draw the same numbers, so each knows what it has to get.
static void storm(void) {
    enum { kMessages = 150, kTags = 5 };
    const int count = kMessages * g_ranks;
    MPI_Request* requests = malloc(2 * (size_t)count * sizeof *requests);
    unsigned char** buffers = malloc(2 * (size_t)count * sizeof *buffers);
    size_t* sizes = malloc((size_t)count * sizeof *sizes);
    for (int round = 0; round < 3; ++round) {
        uint64_t order = 99 + (uint64_t)g_rank;
        for (int peer = 0; peer < g_ranks; ++peer) {
            uint64_t state = (uint64_t)(1000 * peer + g_rank + 1000000 * round);
            for (int i = 0; i < kMessages; ++i) {
                const int at = peer * kMessages + i, tag = (int)(next_random(&state) % kTags);
                sizes[at] = random_size(&state);
                buffers[at] = buffer_make(sizes[at], i % 7);
                MPI_Irecv(buffers[at], (int)sizes[at], MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                          &requests[at]);
            }
        }
        if (round == 1) MPI_Barrier(MPI_COMM_WORLD);
        uint64_t* states = malloc((size_t)g_ranks * sizeof *states);
        int* sent = calloc((size_t)g_ranks, sizeof *sent);
        for (int peer = 0; peer < g_ranks; ++peer)
            states[peer] = (uint64_t)(1000 * g_rank + peer + 1000000 * round);
        for (int left = count; left > 0;) {
            const int peer = (int)(next_random(&order) % (uint32_t)g_ranks);
            if (sent[peer] == kMessages) continue;
            const int i = sent[peer]++, at = count + peer * kMessages + i;
            const int tag = (int)(next_random(&states[peer]) % kTags);
            const size_t size = random_size(&states[peer]);
            buffers[at] = buffer_make(size, i % 3);
            fill(buffers[at], size, g_rank, peer, i);
            if (i % 10 == 0)
                MPI_Issend(buffers[at], (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                           &requests[at]);
            else
                MPI_Isend(buffers[at], (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                          &requests[at]);
            --left;
        }
        MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
        for (int at = 0; at < count; ++at) {
            check_filled(buffers[at], sizes[at], at / kMessages, g_rank, at % kMessages, "storm");
            buffer_check_guards(buffers[at], "storm");
        }
        for (int at = 0; at < 2 * count; ++at)
            buffer_free(buffers[at]);
        free(states);
        free(sent);
    }
    free(sizes);
    free(buffers);
    free(requests);
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"wait_all", wait_all},
                                        {"wait_any", wait_any},
                                        {"wait_some", wait_some},
                                        {"test_all", test_all},
                                        {"wait_backwards", wait_backwards},
                                        {"persistent", persistent},
                                        {"buffered", buffered},
                                        {"ready", ready},
                                        {"synchronous", synchronous},
                                        {"send_receive", send_receive},
                                        {"storm", storm}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
