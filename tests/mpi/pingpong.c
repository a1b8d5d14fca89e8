// SPDX-License-Identifier: BSD-2-Clause
// pingpong [BYTES]: pairs of ranks exchange messages of 0 bytes to BYTES (64 MiB): each power of
// two, one less and one more, in every way a message can be sent; each byte of each message is
// looked at.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

typedef void send_function(const unsigned char* data, size_t size, int peer, int tag);

static size_t g_largest = 64 << 20;
static int g_peer;
static long g_number;

static void send_blocking(const unsigned char* data, size_t size, int peer, int tag) {
    MPI_Send(data, (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
}

static void send_synchronous(const unsigned char* data, size_t size, int peer, int tag) {
    MPI_Ssend(data, (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
}

static void send_nonblocking(const unsigned char* data, size_t size, int peer, int tag) {
    MPI_Request request;
    MPI_Isend(data, (int)size, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request);
    for (int done = 0; !done;)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

static void receive(unsigned char* data, size_t size, bool any, bool nonblocking) {
    const int source = any ? MPI_ANY_SOURCE : g_peer, tag = any ? MPI_ANY_TAG : 7;
    MPI_Status status;
    MPI_Request request;
    if (nonblocking) {
        MPI_Irecv(data, (int)size, MPI_BYTE, source, tag, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
    } else {
        MPI_Recv(data, (int)size, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status);
    }
    check_status(&status, g_peer, 7, size, any ? "receive from any" : "receive");
}

// There and back. The buffers' alignment changes from message to message.
static void round_trip(size_t size, send_function* send, bool any, bool nonblocking,
                       const char* what) {
    const long number = ++g_number;
    unsigned char *out = buffer_make(size, (size_t)number % 9),
                  *in = buffer_make(size, (size_t)number % 5);
    fill(out, size, g_rank, g_peer, number);
    if (g_rank < g_peer) {
        send(out, size, g_peer, 7);
        receive(in, size, any, nonblocking);
    } else {
        receive(in, size, any, nonblocking);
        send(out, size, g_peer, 7);
    }
    check_filled(in, size, g_peer, g_rank, number, what);
    check_filled(out, size, g_rank, g_peer, number, "the sender's buffer");
    buffer_check_guards(in, what);
    buffer_free(out);
    buffer_free(in);
}

// Calls `run` for 0, 1 and 2^k - 1, 2^k, 2^k + 1 up to the largest.
static void each_size(void (*run)(size_t size)) {
    if (g_peer >= g_ranks) return;
    run(0);
    run(1);
    for (size_t power = 2; power <= g_largest; power *= 2) {
        run(power - 1);
        run(power);
        if (power < g_largest) run(power + 1);
    }
}

static int repetitions(size_t size) { return size <= 16384 ? 4 : 1; }

static void blocking_of(size_t size) {
    for (int i = 0; i < repetitions(size); ++i)
        round_trip(size, send_blocking, false, false, "blocking");
}

static void nonblocking_of(size_t size) {
    for (int i = 0; i < repetitions(size); ++i)
        round_trip(size, send_nonblocking, false, true, "nonblocking");
}

static void synchronous_of(size_t size) {
    round_trip(size, send_synchronous, false, false, "synchronous");
}

static void any_of(size_t size) {
    for (int i = 0; i < repetitions(size); ++i)
        round_trip(size, i % 2 ? send_synchronous : send_blocking, true, i % 2, "from any");
}

// Both directions at once; the receive is there first.
static void both_ways_of(size_t size) {
    const long number = ++g_number;
    unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 3);
    MPI_Request requests[2];
    MPI_Status status[2];
    fill(out, size, g_rank, g_peer, number);
    MPI_Irecv(in, (int)size, MPI_BYTE, g_peer, 8, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, (int)size, MPI_BYTE, g_peer, 8, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, status);
    check_status(&status[0], g_peer, 8, size, "both ways");
    check_filled(in, size, g_peer, g_rank, number, "both ways");
    buffer_check_guards(in, "both ways");
    buffer_free(out);
    buffer_free(in);
}

// The message, or its announcement, is there before its receive; a longer buffer takes it.
static void unexpected_of(size_t size) {
    const long number = ++g_number;
    unsigned char *out = buffer_make(size, 1), *in = buffer_make(size + 100, 0);
    MPI_Request request;
    MPI_Status status;
    fill(out, size, g_rank, g_peer, number);
    MPI_Isend(out, (int)size, MPI_BYTE, g_peer, 9, MPI_COMM_WORLD, &request);
    // What is sent after it has come, so it has.
    MPI_Sendrecv(NULL, 0, MPI_BYTE, g_peer, 10, NULL, 0, MPI_BYTE, g_peer, 10, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Recv(in, (int)size + 100, MPI_BYTE, g_peer, 9, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_status(&status, g_peer, 9, size, "unexpected");
    check_filled(in, size, g_peer, g_rank, number, "unexpected");
    for (size_t i = size; i < size + 100; ++i)
        if (in[i] != 0xee) fail("unexpected, %zu bytes: byte %zu was written", size, i);
    buffer_check_guards(in, "unexpected");
    buffer_free(out);
    buffer_free(in);
}

static void blocking(void) { each_size(blocking_of); }
static void nonblocking(void) { each_size(nonblocking_of); }
static void synchronous(void) { each_size(synchronous_of); }
static void from_any(void) { each_size(any_of); }
static void both_ways(void) { each_size(both_ways_of); }
static void unexpected(void) { each_size(unexpected_of); }

// The same buffers again and again with other contents: what a cache of registrations or of
// buffers would get wrong.
static void same_buffer(void) {
    static const size_t sizes[] = {8, 100, 1024, 4096, 8192, 65536, 1 << 20};
    if (g_peer >= g_ranks) return;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
        const size_t size = sizes[s];
        unsigned char *out = buffer_make(size, 0), *in = buffer_make(size, 0);
        for (int i = 0; i < 300; ++i) {
            const long number = ++g_number;
            fill(out, size, g_rank, g_peer, number);
            if (g_rank < g_peer) {
                send_blocking(out, size, g_peer, 7);
                memset(out, 0, size);  // the message is on its way or there: ours again
                receive(in, size, false, false);
            } else {
                receive(in, size, false, false);
                send_blocking(out, size, g_peer, 7);
                memset(out, 0, size);
            }
            check_filled(in, size, g_peer, g_rank, number, "the same buffer");
        }
        buffer_free(out);
        buffer_free(in);
    }
}

int main(int argc, char** argv) {
    static const struct step steps[] = {{"blocking", blocking},       {"nonblocking", nonblocking},
                                        {"synchronous", synchronous}, {"from_any", from_any},
                                        {"both_ways", both_ways},     {"unexpected", unexpected},
                                        {"same_buffer", same_buffer}};
    start(&argc, &argv, MPI_THREAD_SINGLE);
    char** names = argv + 1;
    if (*names != NULL && strtoull(*names, NULL, 10) > 0) g_largest = strtoull(*names++, NULL, 10);
    g_peer = g_rank ^ 1;  // the last of an odd number of ranks has none
    run_steps(steps, sizeof steps / sizeof steps[0], names);
    return finish();
}
