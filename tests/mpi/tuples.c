// SPDX-License-Identifier: BSD-2-Clause
// tuples [COUNT] [STEP...]: what goes wrong first where a device matches messages by queues for
// each sender, communicator and tag: sends that wait for receives in another order, rings and
// all-pairs of them, wildcards and probes between exact receives, synchronous sends, requests that
// are used again, COUNT (500) communicators made and freed, threads. Tags repeat, so that there are
// queues. Each byte is looked at.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { kSmall = 1000, kLarge = 40000, kWarm = 6 };

static int g_communicators = 500;

static int next(void) { return (g_rank + 1) % g_ranks; }
static int previous(void) { return (g_rank + g_ranks - 1) % g_ranks; }

static void send_filled(unsigned char* data, size_t size, int to, int tag, long number,
                        MPI_Comm comm) {
    fill(data, size, g_rank, to, number);
    MPI_Send(data, (int)size, MPI_BYTE, to, tag, comm);
}

static void receive_filled(unsigned char* data, size_t size, int from, int tag, long number,
                           MPI_Comm comm, const char* what) {
    MPI_Status status;
    MPI_Recv(data, kLarge, MPI_BYTE, from, tag, comm, &status);
    check_status(&status, from, tag, size, what);
    check_filled(data, size, from, g_rank, number, what);
}

// Messages around the ring, with receives that are there: the tag's queue is opened.
static void warm(int tag, MPI_Comm comm) {
    unsigned char *out = buffer_make(kLarge, 0), *in = buffer_make(kLarge, 0);
    for (int i = 0; i < kWarm; ++i) {
        MPI_Request receive;
        MPI_Irecv(in, kLarge, MPI_BYTE, previous(), tag, comm, &receive);
        send_filled(out, kLarge, next(), tag, i, comm);
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        check_filled(in, kLarge, previous(), g_rank, i, "the tag's first messages");
    }
    buffer_free(out);
    buffer_free(in);
}

// One message of each of many tags; the receiver takes the last tag first.
static void tags_reversed(void) {
    enum { kTags = 100 };
    unsigned char *out = buffer_make((size_t)kTags * kLarge, 0), *in = buffer_make(kLarge, 0);
    MPI_Request requests[kTags];
    for (int tag = 0; tag < kTags; ++tag)
        warm(tag, MPI_COMM_WORLD);
    for (int round = 0; round < 4; ++round) {
        const size_t size = round % 2 ? kLarge : kSmall;
        for (int tag = 0; tag < kTags; ++tag) {
            unsigned char* data = out + (size_t)tag * kLarge;
            fill(data, size, g_rank, next(), 1000 * round + tag);
            MPI_Isend(data, (int)size, MPI_BYTE, next(), tag, MPI_COMM_WORLD, &requests[tag]);
        }
        for (int tag = kTags - 1; tag >= 0; --tag)
            receive_filled(in, size, previous(), tag, 1000 * round + tag, MPI_COMM_WORLD,
                           "tags in the other order");
        MPI_Waitall(kTags, requests, MPI_STATUSES_IGNORE);
    }
    buffer_free(out);
    buffer_free(in);
}

static void sendrecv_ring(void) {
    unsigned char *out = buffer_make(kLarge, 0), *in = buffer_make(kLarge, 0);
    warm(1, MPI_COMM_WORLD);
    for (int i = 0; i < 300; ++i) {
        const size_t size = (size_t[]){0, 8, kSmall, kLarge}[i % 4];
        MPI_Status status;
        fill(out, size, g_rank, next(), i);
        MPI_Sendrecv(out, (int)size, MPI_BYTE, next(), 1, in, kLarge, MPI_BYTE, previous(), 1,
                     MPI_COMM_WORLD, &status);
        check_status(&status, previous(), 1, size, "ring");
        check_filled(in, size, previous(), g_rank, i, "ring");
    }
    buffer_free(out);
    buffer_free(in);
}

// All send before anybody receives: by MPI_Send what is small, which must not wait for a receive,
// and what is large by MPI_Isend.
static void head_to_head(void) {
    unsigned char *out = buffer_make(kLarge, 0), *in = buffer_make(kLarge, 0),
                  *small = buffer_make(kSmall, 0);
    warm(2, MPI_COMM_WORLD);
    for (int round = 0; round < 50; ++round) {
        MPI_Request large;
        for (int i = 0; i < 4; ++i)
            send_filled(small, kSmall, next(), 2, 10 * round + i, MPI_COMM_WORLD);
        fill(out, kLarge, g_rank, next(), 10 * round + 4);
        MPI_Isend(out, kLarge, MPI_BYTE, next(), 2, MPI_COMM_WORLD, &large);
        send_filled(small, kSmall, next(), 2, 10 * round + 5, MPI_COMM_WORLD);
        for (int i = 0; i < 6; ++i)
            receive_filled(in, i == 4 ? kLarge : kSmall, previous(), 2, 10 * round + i,
                           MPI_COMM_WORLD, "head to head");
        MPI_Wait(&large, MPI_STATUS_IGNORE);
    }
    buffer_free(out);
    buffer_free(in);
    buffer_free(small);
}

// Everybody to everybody, several tags, all sends before the first receive; these in some order.
static void all_pairs(void) {
    enum { kTags = 3, kEach = 2 };
    const int count = g_ranks * kTags;
    unsigned char* out = buffer_make((size_t)(count * kEach) * kLarge, 0);
    unsigned char* in = buffer_make(kLarge, 0);
    MPI_Request* requests = malloc((size_t)(count * kEach) * sizeof *requests);
    int* order = malloc((size_t)count * sizeof *order);
    uint64_t state = (uint64_t)g_rank;
    for (int round = 0; round < 12; ++round) {
        for (int i = 0; i < count * kEach; ++i) {
            const int to = i / kEach / kTags, tag = 10 + i / kEach % kTags;
            unsigned char* data = out + (size_t)i * kLarge;
            fill(data, kLarge, g_rank, to, 100 * round + 10 * tag + i % kEach);
            if (i % 5 == 0)
                MPI_Issend(data, kLarge, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Isend(data, kLarge, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[i]);
        }
        for (int i = 0; i < count; ++i) {
            const int j = (int)(next_random(&state) % (uint32_t)(i + 1));
            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < count; ++i)
            for (int e = 0; e < kEach; ++e) {
                const int from = order[i] / kTags, tag = 10 + order[i] % kTags;
                receive_filled(in, kLarge, from, tag, 100 * round + 10 * tag + e, MPI_COMM_WORLD,
                               "all pairs");
            }
        MPI_Waitall(count * kEach, requests, MPI_STATUSES_IGNORE);
    }
    buffer_free(out);
    buffer_free(in);
    free(requests);
    free(order);
}

// In turn by all modes of sending: a synchronous one has not ended before its receive.
static void synchronous(void) {
    enum { kCount = 200 };
    unsigned char *out = buffer_make((size_t)kCount * kLarge, 0), *in = buffer_make(kLarge, 0);
    MPI_Request requests[kCount];
    warm(3, MPI_COMM_WORLD);
    for (int late = 0; late < 2; ++late) {
        for (int i = 0; i < kCount; ++i) {
            const size_t size = i % 4 < 2 ? kSmall : kLarge;
            unsigned char* data = out + (size_t)i * kLarge;
            fill(data, size, g_rank, next(), i);
            if (i % 2)
                MPI_Issend(data, (int)size, MPI_BYTE, next(), 3, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Isend(data, (int)size, MPI_BYTE, next(), 3, MPI_COMM_WORLD, &requests[i]);
            if (!late) receive_filled(in, size, previous(), 3, i, MPI_COMM_WORLD, "in turn");
        }
        if (late) {
            int done = -1;
            MPI_Sendrecv(NULL, 0, MPI_BYTE, next(), 4, NULL, 0, MPI_BYTE, previous(), 4,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Request_get_status(requests[1], &done, MPI_STATUS_IGNORE);
            // Nobody receives before the barrier.
            CHECK(!done, "a synchronous send ended without a receive");
            MPI_Barrier(MPI_COMM_WORLD);
            for (int i = 0; i < kCount; ++i)
                receive_filled(in, i % 4 < 2 ? kSmall : kLarge, previous(), 3, i, MPI_COMM_WORLD,
                               "late");
        }
        MPI_Waitall(kCount, requests, MPI_STATUSES_IGNORE);
    }
    buffer_free(out);
    buffer_free(in);
}

static void persistent(void) {
    enum { kCount = 8 };
    unsigned char *out = buffer_make((size_t)kCount * kLarge, 0),
                  *in = buffer_make((size_t)kCount * kLarge, 0);
    MPI_Request requests[2 * kCount];
    for (int i = 0; i < kCount; ++i) {
        const int size = i % 2 ? kLarge : kSmall;
        MPI_Recv_init(in + (size_t)i * kLarge, size, MPI_BYTE, previous(), 20 + i % 4,
                      MPI_COMM_WORLD, &requests[i]);
        MPI_Send_init(out + (size_t)i * kLarge, size, MPI_BYTE, next(), 20 + i % 4, MPI_COMM_WORLD,
                      &requests[kCount + i]);
    }
    for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < kCount; ++i)
            fill(out + (size_t)i * kLarge, i % 2 ? kLarge : kSmall, g_rank, next(), 10 * round + i);
        // Sends first, receives first, all at once.
        if (round % 3 == 0) MPI_Startall(kCount, requests + kCount);
        if (round % 3 != 2) MPI_Startall(kCount, requests);
        if (round % 3 == 1) MPI_Startall(kCount, requests + kCount);
        if (round % 3 == 2) MPI_Startall(2 * kCount, requests);
        MPI_Waitall(2 * kCount, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < kCount; ++i)
            check_filled(in + (size_t)i * kLarge, i % 2 ? kLarge : kSmall, previous(), g_rank,
                         10 * round + i, "persistent");
    }
    for (int i = 0; i < 2 * kCount; ++i)
        MPI_Request_free(&requests[i]);
    buffer_free(out);
    buffer_free(in);
}

// Messages of one tag, each with a content of its own. Exact receives take them, receives with
// wildcards, and matched probes, in a random order that both sides know.
static void mixtures(void) {
    enum { kCount = 64 };
    unsigned char *out = buffer_make((size_t)kCount * kLarge, 0),
                  *in = buffer_make((size_t)kCount * kLarge, 0);
    MPI_Request sends[kCount], receives[kCount];
    uint64_t state = 1;
    for (int round = 0; round < 30; ++round) {
        const int tag = 30 + round % 3, wild = round % 5 == 0 ? 0 : 1 + round % 7;
        size_t sizes[kCount];
        if (round < 6) warm(tag, MPI_COMM_WORLD);
        for (int i = 0; i < kCount; ++i)
            sizes[i] = (size_t[]){8, kSmall, kLarge}[next_random(&state) % 3];
        const int early = (int)(next_random(&state) % kCount);
        int received = 0;
        const uint64_t mine = state;  // both sides the same from here on, too
        for (int i = 0; i < kCount; ++i) {
            unsigned char* data = out + (size_t)i * kLarge;
            fill(data, sizes[i], g_rank, next(), 100 * round + i);
            if (i == early)
                for (; received < early; ++received) {
                    const uint32_t r = next_random(&state);
                    const bool any = wild && (int)(r % 8) < wild;
                    MPI_Irecv(in + (size_t)received * kLarge, kLarge, MPI_BYTE,
                              any && r & 256 ? MPI_ANY_SOURCE : previous(),
                              any && r & 512 ? MPI_ANY_TAG : tag, MPI_COMM_WORLD,
                              &receives[received]);
                }
            MPI_Isend(data, (int)sizes[i], MPI_BYTE, next(), tag, MPI_COMM_WORLD, &sends[i]);
        }
        state = mine + 1;
        for (; received < kCount; ++received) {
            unsigned char* data = in + (size_t)received * kLarge;
            const uint32_t r = next_random(&state) % 16;
            MPI_Message message;
            MPI_Status status;
            if (wild && r < 2 && received == early) {
                // Those before it have been taken: the next one is what the probe finds.
                MPI_Waitall(received, receives, MPI_STATUSES_IGNORE);
                MPI_Mprobe(r ? MPI_ANY_SOURCE : previous(), tag, MPI_COMM_WORLD, &message, &status);
                check_status(&status, previous(), tag, sizes[received], "matched probe");
                MPI_Imrecv(data, kLarge, MPI_BYTE, &message, &receives[received]);
            } else {
                MPI_Irecv(data, kLarge, MPI_BYTE, wild && r == 3 ? MPI_ANY_SOURCE : previous(),
                          wild && r == 4 ? MPI_ANY_TAG : tag, MPI_COMM_WORLD, &receives[received]);
            }
        }
        MPI_Waitall(kCount, receives, MPI_STATUSES_IGNORE);
        MPI_Waitall(kCount, sends, MPI_STATUSES_IGNORE);
        for (int i = 0; i < kCount; ++i)
            check_filled(in + (size_t)i * kLarge, sizes[i], previous(), g_rank, 100 * round + i,
                         "mixture");
        // Nobody's receive of any tag takes a message of the next round.
        MPI_Barrier(MPI_COMM_WORLD);
    }
    buffer_free(out);
    buffer_free(in);
}

// A receive that is cancelled while its message is on its way, or will never come, ends once.
static void cancel(void) {
    unsigned char *out = buffer_make(kLarge, 0), *in[2];
    in[0] = buffer_make(kLarge, 0);
    in[1] = buffer_make(kLarge, 0);
    for (int round = 0; round < 60; ++round) {
        const int tag = 40 + round / 10;
        const size_t size = round % 2 ? kLarge : kSmall;
        MPI_Request receives[2], send;
        MPI_Status status;
        int cancelled = -1;
        if (round % 10 == 0) warm(tag, MPI_COMM_WORLD);
        for (int i = 0; i < 2; ++i)
            MPI_Irecv(in[i], kLarge, MPI_BYTE, previous(), tag, MPI_COMM_WORLD, &receives[i]);
        if (round % 3 == 0) MPI_Barrier(MPI_COMM_WORLD);
        fill(out, size, g_rank, next(), round);
        MPI_Isend(out, (int)size, MPI_BYTE, next(), tag, MPI_COMM_WORLD, &send);
        MPI_Cancel(&receives[0]);
        MPI_Wait(&receives[0], &status);
        MPI_Test_cancelled(&status, &cancelled);
        // Whichever has it; the other gets another, from a sender that knows.
        int other = cancelled ? 0 : 1, wanted = 0;
        MPI_Sendrecv(&other, 1, MPI_INT, previous(), 39, &wanted, 1, MPI_INT, next(), 39,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        if (wanted) send_filled(out, size, next(), tag, 1000 + round, MPI_COMM_WORLD);
        MPI_Wait(&receives[1], MPI_STATUS_IGNORE);
        if (!cancelled) check_filled(in[0], size, previous(), g_rank, round, "not cancelled");
        check_filled(in[1], size, previous(), g_rank, cancelled ? round : 1000 + round,
                     "behind the cancelled");
    }
    buffer_free(out);
    buffer_free(in[0]);
    buffer_free(in[1]);
}

// One of several is longer than its receive.
static void truncation(void) {
    enum { kCount = 12, kRoom = 300 };
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    unsigned char* out = buffer_make((size_t)kCount * kLarge, 0);
    unsigned char* in[kCount];
    MPI_Request sends[kCount], receives[kCount];
    for (int round = 0; round < 20; ++round) {
        const int bad = round % kCount;
        const size_t size = round % 3 ? kLarge : kSmall;
        if (round % 4 == 0) warm(50, comm);
        for (int i = 0; i < kCount; ++i)
            in[i] = buffer_make(i == bad ? kRoom : kLarge, 0);
        for (int late = 0; late < 2; ++late) {
            for (int i = 0; i < kCount && late == round % 2; ++i)
                MPI_Irecv(in[i], i == bad ? kRoom : kLarge, MPI_BYTE, previous(), 50, comm,
                          &receives[i]);
            for (int i = 0; i < kCount && late == 0; ++i) {
                unsigned char* data = out + (size_t)i * kLarge;
                fill(data, size, g_rank, next(), 100 * round + i);
                MPI_Isend(data, (int)size, MPI_BYTE, next(), 50, comm, &sends[i]);
            }
        }
        for (int i = 0; i < kCount; ++i) {
            int class = MPI_SUCCESS;
            const int error = MPI_Wait(&receives[i], MPI_STATUS_IGNORE);
            if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
            CHECK(class == (i == bad ? MPI_ERR_TRUNCATE : MPI_SUCCESS),
                  "receive %d, the short one is %d: error class %d", i, bad, class);
            if (i != bad)
                check_filled(in[i], size, previous(), g_rank, 100 * round + i, "beside a short");
            buffer_check_guards(in[i], "truncation");
            buffer_free(in[i]);
        }
        MPI_Waitall(kCount, sends, MPI_STATUSES_IGNORE);
    }
    buffer_free(out);
    MPI_Comm_free(&comm);
}

// Context ids come back: the same tags in communicators that are made and freed.
static void communicators(void) {
    unsigned char *out = buffer_make(kLarge, 0), *in = buffer_make(kLarge, 0);
    for (int i = 0; i < g_communicators; ++i) {
        const size_t size = i % 16 ? 64 : kLarge;
        MPI_Comm comm;
        MPI_Request receive;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        for (int n = 0; n < 4; ++n) {
            const long number = 10L * i + n;
            const bool late = (i + n) % 3 == 0;
            MPI_Request send;
            if (!late) MPI_Irecv(in, kLarge, MPI_BYTE, previous(), 7, comm, &receive);
            fill(out, size, g_rank, next(), number);
            MPI_Isend(out, (int)size, MPI_BYTE, next(), 7, comm, &send);
            if (late) MPI_Irecv(in, kLarge, MPI_BYTE, previous(), 7, comm, &receive);
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
            check_filled(in, size, previous(), g_rank, number, "a communicator of many");
            MPI_Wait(&send, MPI_STATUS_IGNORE);
        }
        MPI_Comm_free(&comm);
    }
    buffer_free(out);
    buffer_free(in);
}

// Each thread has a tag of its own; they send before they receive, and probe now and then.
static void* thread_body(void* argument) {
    enum { kCount = 10 };
    const int tag = (int)(intptr_t)argument;
    unsigned char *out = buffer_make((size_t)kCount * kLarge, 0), *in = buffer_make(kLarge, 0);
    MPI_Request requests[kCount];
    for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < kCount; ++i) {
            const size_t size = i % 2 ? kLarge : kSmall;
            unsigned char* data = out + (size_t)i * kLarge;
            fill(data, size, g_rank, next(), 100L * round + i);
            MPI_Isend(data, (int)size, MPI_BYTE, next(), tag, MPI_COMM_WORLD, &requests[i]);
        }
        for (int i = 0; i < kCount; ++i) {
            const size_t size = i % 2 ? kLarge : kSmall;
            if (tag % 2 && round % 7 == 3 && i == 5) {
                MPI_Status status;
                MPI_Probe(previous(), tag, MPI_COMM_WORLD, &status);
                check_status(&status, previous(), tag, size, "probe of a thread");
            }
            receive_filled(in, size, previous(), tag, 100L * round + i, MPI_COMM_WORLD, "threads");
        }
        MPI_Waitall(kCount, requests, MPI_STATUSES_IGNORE);
    }
    buffer_free(out);
    buffer_free(in);
    return NULL;
}

static void threads(void) {
    enum { kThreads = 4 };
    pthread_t ids[kThreads];
    for (intptr_t i = 0; i < kThreads; ++i)
        if (pthread_create(&ids[i], NULL, thread_body, (void*)(60 + i)) != 0)
            fail("thread %d could not be started", (int)i);
    for (int i = 0; i < kThreads; ++i)
        pthread_join(ids[i], NULL);
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"tags_reversed", tags_reversed},
                                        {"sendrecv_ring", sendrecv_ring},
                                        {"head_to_head", head_to_head},
                                        {"all_pairs", all_pairs},
                                        {"synchronous", synchronous},
                                        {"persistent", persistent},
                                        {"mixtures", mixtures},
                                        {"cancel", cancel},
                                        {"truncation", truncation},
                                        {"communicators", communicators},
                                        {"threads", threads}};
    start(&argc, &argv, MPI_THREAD_MULTIPLE);
    char** names = argv + 1;
    if (*names != NULL && atoi(*names) > 0) g_communicators = atoi(*names++);
    run_steps(steps, sizeof steps / sizeof steps[0], names);
    return finish();
}
