// SPDX-License-Identifier: BSD-2-Clause
// Which message meets which receive: order, tags, wildcards, probes, cancelled receives,
// truncation, floods of unexpected messages, several communicators, messages to oneself.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

// One of each kind of path a message can take: inline, copied, announced.
static const size_t kSizes[] = {0, 8, 200, 3000, 20000, 300000};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0] };

static int next(void) { return (g_rank + 1) % g_ranks; }
static int previous(void) { return (g_rank + g_ranks - 1) % g_ranks; }

static void send_pattern(size_t size, int to, int tag, long number, MPI_Comm comm) {
    unsigned char* data = buffer_make(size, 0);
    fill(data, size, g_rank, to, number);
    MPI_Send(data, (int)size, MPI_BYTE, to, tag, comm);
    buffer_free(data);
}

// Many on one tag, of sizes that change from message to message, in the order they were sent.
static void order(void) {
    enum { kCount = 300 };
    MPI_Request requests[kCount];
    unsigned char* out[kCount];
    for (int i = 0; i < kCount; ++i) {
        const size_t size = kSizes[(i * 7 + i / 6) % kSizeCount];
        out[i] = buffer_make(size, 0);
        fill(out[i], size, g_rank, next(), i);
        MPI_Isend(out[i], (int)size, MPI_BYTE, next(), 1, MPI_COMM_WORLD, &requests[i]);
    }
    unsigned char* in = buffer_make(300000, 0);
    for (int i = 0; i < kCount; ++i) {
        MPI_Status status;
        const size_t size = kSizes[(i * 7 + i / 6) % kSizeCount];
        MPI_Recv(in, 300000, MPI_BYTE, i % 2 ? previous() : MPI_ANY_SOURCE, i % 3 ? 1 : MPI_ANY_TAG,
                 MPI_COMM_WORLD, &status);
        check_status(&status, previous(), 1, size, "order");
        check_filled(in, size, previous(), g_rank, i, "order");
    }
    MPI_Waitall(kCount, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kCount; ++i)
        buffer_free(out[i]);
    buffer_free(in);
}

// 1000 of tag 1, then 1000 of tag 2; the receiver takes tag 2 first.
static void reversed_of(size_t size) {
    enum { kCount = 1000 };
    MPI_Request* requests = malloc(2 * kCount * sizeof *requests);
    unsigned char *out = buffer_make(2 * kCount * size, 0), *in = buffer_make(size, 0);
    for (int i = 0; i < 2 * kCount; ++i) {
        unsigned char* data = out + (size_t)i * size;
        fill(data, size, g_rank, next(), i);
        MPI_Isend(data, (int)size, MPI_BYTE, next(), 1 + i / kCount, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < 2 * kCount; ++i) {
        const int number = (i + kCount) % (2 * kCount), tag = 1 + number / kCount;
        MPI_Status status;
        MPI_Recv(in, (int)size, MPI_BYTE, previous(), tag, MPI_COMM_WORLD, &status);
        check_status(&status, previous(), tag, size, "tag 2 first");
        check_filled(in, size, previous(), g_rank, number, "tag 2 first");
    }
    MPI_Waitall(2 * kCount, requests, MPI_STATUSES_IGNORE);
    buffer_free(out);
    buffer_free(in);
    free(requests);
}

static void tags_reversed(void) {
    reversed_of(8);
    reversed_of(1000);
    reversed_of(12000);
}

// Rank 0 looks away while all others send to it; then it takes the last rank's messages first.
static void flood(void) {
    enum { kCount = 5000, kSize = 64 };
    unsigned char* data = buffer_make(kSize, 0);
    if (g_rank == 0) {
        usleep(300000);
        for (int from = g_ranks - 1; from > 0; --from)
            for (int i = 0; i < kCount; ++i) {
                MPI_Status status;
                MPI_Recv(data, kSize, MPI_BYTE, from, 3, MPI_COMM_WORLD, &status);
                check_status(&status, from, 3, (size_t)(i % kSize), "flood");
                check_filled(data, (size_t)(i % kSize), from, 0, i, "flood");
            }
    } else {
        for (int i = 0; i < kCount; ++i)
            send_pattern((size_t)(i % kSize), 0, 3, i, MPI_COMM_WORLD);
    }
    buffer_free(data);
}

// The same with nonblocking sends of more than fits into anybody's buffers.
static void flood_of_large(void) {
    enum { kCount = 400, kSize = 40000 };
    MPI_Request* requests = malloc(kCount * sizeof *requests);
    unsigned char* data = buffer_make(kCount * kSize, 0);
    if (g_rank != 0) {
        for (int i = 0; i < kCount; ++i) {
            fill(data + i * kSize, kSize, g_rank, 0, i);
            MPI_Isend(data + i * kSize, kSize, MPI_BYTE, 0, 4, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(kCount, requests, MPI_STATUSES_IGNORE);
    } else {
        usleep(200000);
        for (int from = g_ranks - 1; from > 0; --from) {
            for (int i = 0; i < kCount; ++i)
                MPI_Irecv(data + i * kSize, kSize, MPI_BYTE, from, 4, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall(kCount, requests, MPI_STATUSES_IGNORE);
            for (int i = 0; i < kCount; ++i)
                check_filled(data + i * kSize, kSize, from, 0, i, "flood of large");
        }
    }
    buffer_free(data);
    free(requests);
}

// Receives match in the order they were posted, whichever of them have wildcards.
static void wildcards(void) {
    enum { kCount = 60 };
    MPI_Request requests[kCount];
    MPI_Status status[kCount];
    unsigned char* in[kCount];
    for (int i = 0; i < kCount; ++i) {
        in[i] = buffer_make(20000, 0);
        const int source = i % 2 ? previous() : MPI_ANY_SOURCE;
        const int tag = i % 3 ? 5 : MPI_ANY_TAG;
        MPI_Irecv(in[i], 20000, MPI_BYTE, source, tag, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kCount; ++i)
        send_pattern(kSizes[i % 5], next(), 5, i, MPI_COMM_WORLD);
    MPI_Waitall(kCount, requests, status);
    for (int i = 0; i < kCount; ++i) {
        check_status(&status[i], previous(), 5, kSizes[i % 5], "wildcards");
        check_filled(in[i], kSizes[i % 5], previous(), g_rank, i, "wildcards");
        buffer_check_guards(in[i], "wildcards");
        buffer_free(in[i]);
    }
}

static void wait_iprobe(int source, int tag, MPI_Status* status) {
    for (int found = 0; !found;)
        MPI_Iprobe(source, tag, MPI_COMM_WORLD, &found, status);
}

static void probe(void) {
    for (int s = 0; s < kSizeCount; ++s) {
        const size_t size = kSizes[s];
        for (int way = 0; way < 4; ++way) {
            MPI_Request request;
            MPI_Status status;
            unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 0);
            const int source = way % 2 ? previous() : MPI_ANY_SOURCE;
            const int tag = way % 2 ? 20 + way : MPI_ANY_TAG;
            int found = 1;
            MPI_Iprobe(previous(), 99, MPI_COMM_WORLD, &found, &status);
            CHECK(!found, "iprobe finds tag 99, which nobody sends");
            MPI_Barrier(MPI_COMM_WORLD);
            fill(out, size, g_rank, next(), way);
            MPI_Isend(out, (int)size, MPI_BYTE, next(), 20 + way, MPI_COMM_WORLD, &request);
            if (way < 2)
                MPI_Probe(source, tag, MPI_COMM_WORLD, &status);
            else
                wait_iprobe(source, tag, &status);
            check_status(&status, previous(), 20 + way, size, way < 2 ? "probe" : "iprobe");
            MPI_Probe(source, tag, MPI_COMM_WORLD, &status);  // it is still there
            MPI_Recv(in, (int)size, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                     &status);
            check_filled(in, size, previous(), g_rank, way, "probed");
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Barrier(MPI_COMM_WORLD);
            buffer_free(out);
            buffer_free(in);
        }
    }
}

// A matched probe takes the message away from all other receives.
static void matched_probe(void) {
    for (int s = 0; s < kSizeCount; ++s) {
        const size_t size = kSizes[s];
        unsigned char *out = buffer_make(2 * size, 0), *in = buffer_make(2 * size, 0);
        MPI_Request requests[2], receive;
        MPI_Message message;
        MPI_Status status;
        for (int i = 0; i < 2; ++i) {
            fill(out + (size_t)i * size, size, g_rank, next(), i);
            MPI_Isend(out + (size_t)i * size, (int)size, MPI_BYTE, next(), 30, MPI_COMM_WORLD,
                      &requests[i]);
        }
        if (s % 2) {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
        } else {
            for (int found = 0; !found;)
                MPI_Improbe(previous(), 30, MPI_COMM_WORLD, &found, &message, &status);
        }
        check_status(&status, previous(), 30, size, "mprobe");
        MPI_Recv(in + size, (int)size, MPI_BYTE, previous(), 30, MPI_COMM_WORLD, &status);
        if (s % 3) {
            MPI_Mrecv(in, (int)size, MPI_BYTE, &message, &status);
        } else {
            MPI_Imrecv(in, (int)size, MPI_BYTE, &message, &receive);
            MPI_Wait(&receive, &status);
        }
        check_status(&status, previous(), 30, size, "mrecv");
        check_filled(in, size, previous(), g_rank, 0, "the first, by mrecv");
        check_filled(in + size, size, previous(), g_rank, 1, "the second, by recv");
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, &status);
        CHECK(message == MPI_MESSAGE_NO_PROC, "mprobe of no process gives a message");
        MPI_Mrecv(in, 0, MPI_BYTE, &message, &status);
        MPI_Barrier(MPI_COMM_WORLD);
        buffer_free(out);
        buffer_free(in);
    }
}

// A cancelled receive takes no message, and its neighbours keep their places.
static void cancel(void) {
    for (int s = 0; s < kSizeCount; ++s) {
        const size_t size = kSizes[s];
        MPI_Request requests[3];
        MPI_Status status;
        unsigned char* in[3];
        int cancelled = -1;
        for (int i = 0; i < 3; ++i) {
            in[i] = buffer_make(size, 0);
            MPI_Irecv(in[i], (int)size, MPI_BYTE, i == 1 && s % 2 ? MPI_ANY_SOURCE : previous(), 40,
                      MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Cancel(&requests[1]);
        MPI_Wait(&requests[1], &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(cancelled, "a receive without a message is not cancelled");
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < 2; ++i)
            send_pattern(size, next(), 40, i, MPI_COMM_WORLD);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[2], &status);
        check_filled(in[0], size, previous(), g_rank, 0, "before the cancelled");
        check_filled(in[2], size, previous(), g_rank, 1, "after the cancelled");
        MPI_Test_cancelled(&status, &cancelled);
        CHECK(!cancelled, "the neighbour of a cancelled receive says it is cancelled");
        for (size_t i = 0; i < size; ++i)
            if (in[1][i] != 0xee) fail("byte %zu of a cancelled receive was written", i);
        for (int i = 0; i < 3; ++i)
            buffer_free(in[i]);
    }
}

// A message longer than its receive: an error, nothing stored behind the buffer, and all goes on.
static void truncation(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int s = 1; s < kSizeCount; ++s)
        for (int late = 0; late < 2; ++late) {
            const size_t size = kSizes[s], room = size / 2;
            unsigned char *out = buffer_make(size, 0), *in = buffer_make(room, 0);
            MPI_Request receive, send;
            int class = -1;
            if (!late) MPI_Irecv(in, (int)room, MPI_BYTE, previous(), 50, comm, &receive);
            MPI_Barrier(comm);
            fill(out, size, g_rank, next(), s);
            MPI_Isend(out, (int)size, MPI_BYTE, next(), 50, comm, &send);
            MPI_Sendrecv(NULL, 0, MPI_BYTE, next(), 51, NULL, 0, MPI_BYTE, previous(), 51, comm,
                         MPI_STATUS_IGNORE);
            if (late) MPI_Irecv(in, (int)room, MPI_BYTE, previous(), 50, comm, &receive);
            const int error = MPI_Wait(&receive, MPI_STATUS_IGNORE);
            MPI_Error_class(error, &class);
            CHECK(class == MPI_ERR_TRUNCATE,
                  "%zu bytes into a buffer of %zu (%s): error class %d, expected %d", size, room,
                  late ? "unexpected" : "posted", class, MPI_ERR_TRUNCATE);
            buffer_check_guards(in, "truncation");
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            MPI_Irecv(in, (int)room, MPI_BYTE, previous(), 50, comm, &receive);
            send_pattern(room, next(), 50, 1000, comm);
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
            check_filled(in, room, previous(), g_rank, 1000, "after a truncated message");
            buffer_free(out);
            buffer_free(in);
        }
    MPI_Comm_free(&comm);
}

// The same source and tag in several communicators are different messages.
static void communicators(void) {
    enum { kComms = 12 };
    MPI_Comm comms[kComms];
    MPI_Request requests[kComms];
    int out[kComms];
    for (int i = 0; i < kComms; ++i) {
        MPI_Comm_dup(i ? comms[i - 1] : MPI_COMM_WORLD, &comms[i]);
        out[i] = 100 * g_rank + i;
    }
    for (int i = 0; i < kComms; ++i)
        MPI_Isend(&out[i], 1, MPI_INT, next(), 6, comms[i], &requests[i]);
    for (int i = kComms - 1; i >= 0; --i) {
        int in = -1;
        MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], MPI_STATUS_IGNORE);
        CHECK(in == 100 * previous() + i, "communicator %d: %d came", i, in);
    }
    MPI_Waitall(kComms, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kComms; ++i)
        MPI_Comm_free(&comms[i]);
}

static void to_oneself(void) {
    for (int s = 0; s < kSizeCount; ++s)
        for (int late = 0; late < 2; ++late) {
            const size_t size = kSizes[s];
            unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 0);
            MPI_Request send, receive;
            MPI_Status status;
            fill(out, size, g_rank, g_rank, s);
            if (!late) MPI_Irecv(in, (int)size, MPI_BYTE, g_rank, 60, MPI_COMM_WORLD, &receive);
            MPI_Isend(out, (int)size, MPI_BYTE, g_rank, 60, MPI_COMM_WORLD, &send);
            if (late)
                MPI_Irecv(in, (int)size, MPI_BYTE, MPI_ANY_SOURCE, 60, MPI_COMM_WORLD, &receive);
            MPI_Wait(&receive, &status);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            check_status(&status, g_rank, 60, size, "to oneself");
            check_filled(in, size, g_rank, g_rank, s, "to oneself");
            buffer_free(out);
            buffer_free(in);
        }
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"order", order},
                                        {"tags_reversed", tags_reversed},
                                        {"flood", flood},
                                        {"flood_of_large", flood_of_large},
                                        {"wildcards", wildcards},
                                        {"probe", probe},
                                        {"matched_probe", matched_probe},
                                        {"cancel", cancel},
                                        {"truncation", truncation},
                                        {"communicators", communicators},
                                        {"to_oneself", to_oneself}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    run_steps(steps, sizeof steps / sizeof steps[0], argv + 1);
    return finish();
}
