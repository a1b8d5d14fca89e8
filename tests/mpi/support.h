// SPDX-License-Identifier: BSD-2-Clause
// What the MPI programs of this folder share: starting, named steps, buffers with guards whose
// contents follow a pattern, and failing with a text that says where and what. Only MPI-3.1, so
// that a program built with MPICH runs on Intel MPI, too. Not for use by several threads, but for
// fill(), check_filled(), buffers and fail().
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern int g_rank, g_ranks;  // in MPI_COMM_WORLD

struct step {
    const char* name;
    void (*run)(void);
};

// Starts MPI with this level of thread support and all errors fatal; ends with a message when the
// library does not give that level.
void start(int* argc, char*** argv, int threading);

// Runs the steps, or those named in `names`, in their order, with a barrier after each; rank 0
// prints each one's name and time. Names that are not there end the program.
void run_steps(const struct step* steps, size_t count, char** names);

// Sums the checks; rank 0 prints "PROGRAM: N checks passed by R ranks". Ends MPI.
int finish(void);

// Prints "PROGRAM: rank R of N: STEP: text" and ends the job with status 1.
_Noreturn void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// One more thing was looked at and found right, or not.
#define CHECK(condition, ...)                \
    do {                                     \
        if (!(condition)) fail(__VA_ARGS__); \
        count_check();                       \
    } while (0)
void count_check(void);

// A buffer of `size` bytes between guards, all bytes 0xee. It begins `offset` bytes after a
// boundary of 64. Never NULL.
unsigned char* buffer_make(size_t size, size_t offset);
// Fails, naming `what`, if a guard was written to.
void buffer_check_guards(const unsigned char* buffer, const char* what);
void buffer_clear(unsigned char* buffer);  // to 0xee
void buffer_free(unsigned char* buffer);

// The pattern of the message number `number` from one rank to another.
void fill(unsigned char* data, size_t size, int from, int to, long number);
// Fails at the first byte that is different.
void check_filled(const unsigned char* data, size_t size, int from, int to, long number,
                  const char* what);

// Source, tag and length in bytes of a status.
void check_status(const MPI_Status* status, int source, int tag, size_t size, const char* what);

// Pseudo-random, the same sequence for the same state on all ranks.
uint32_t next_random(uint64_t* state);
