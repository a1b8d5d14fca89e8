// SPDX-License-Identifier: BSD-2-Clause
#define _GNU_SOURCE  // program_invocation_short_name
#include "support.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kGuard = 64, kEmpty = 0xee };

int g_rank, g_ranks;
static const char* g_step = "start";
static atomic_long g_checks;

struct header {  // in front of each buffer's first guard
    size_t size;
    void* memory;
};

void start(int* argc, char*** argv, int threading) {
    int provided = -1;
    if (MPI_Init_thread(argc, argv, threading, &provided) != MPI_SUCCESS) exit(2);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    if (provided < threading) fail("thread level %d asked for, %d provided", threading, provided);
}

static bool named(const char* name, char** names) {
    if (*names == NULL) return true;
    for (; *names != NULL; ++names)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

void run_steps(const struct step* steps, size_t count, char** names) {
    for (char** name = names; *name != NULL; ++name) {
        bool known = false;
        for (size_t i = 0; i < count; ++i)
            known = known || strcmp(steps[i].name, *name) == 0;
        if (!known) fail("there is no step '%s'", *name);
    }
    for (size_t i = 0; i < count; ++i) {
        if (!named(steps[i].name, names)) continue;
        g_step = steps[i].name;
        if (g_rank == 0) {
            printf("  %s ...\n", g_step);
            fflush(stdout);
        }
        const double begin = MPI_Wtime();
        steps[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
        if (g_rank == 0) printf("  %s: %.3f s\n", g_step, MPI_Wtime() - begin);
    }
    g_step = "finish";
}

int finish(void) {
    long mine = atomic_load(&g_checks), all = 0;
    MPI_Reduce(&mine, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (g_rank == 0) {
        printf("%s: %ld checks passed by %d ranks\n", program_invocation_short_name, all, g_ranks);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}

void fail(const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("%s: rank %d of %d: %s: %s\n", program_invocation_short_name, g_rank, g_ranks, g_step,
           text);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void count_check(void) { atomic_fetch_add_explicit(&g_checks, 1, memory_order_relaxed); }

static struct header* header_of(const unsigned char* buffer) {
    struct header* header;
    memcpy(&header, buffer - kGuard - sizeof header, sizeof header);
    return header;
}

unsigned char* buffer_make(size_t size, size_t offset) {
    const size_t front = sizeof(struct header) + sizeof(struct header*) + kGuard;
    const size_t start = (front + 63) / 64 * 64 + offset;
    const size_t total = (start + size + kGuard + 63) / 64 * 64;
    unsigned char* memory = aligned_alloc(64, total);
    if (memory == NULL) fail("no memory for a buffer of %zu bytes", size);
    unsigned char* buffer = memory + start;
    struct header* header = (struct header*)memory;
    header->size = size;
    header->memory = memory;
    memcpy(buffer - kGuard - sizeof header, &header, sizeof header);
    memset(buffer - kGuard, kEmpty, kGuard + size + kGuard);
    return buffer;
}

void buffer_check_guards(const unsigned char* buffer, const char* what) {
    const struct header* header = header_of(buffer);
    for (size_t i = 1; i <= kGuard; ++i)
        if (buffer[-(ptrdiff_t)i] != kEmpty)
            fail("%s: %zu bytes before the buffer there is 0x%02x", what, i, buffer[-(ptrdiff_t)i]);
    for (size_t i = 0; i < kGuard; ++i)
        if (buffer[header->size + i] != kEmpty)
            fail("%s: %zu bytes after the buffer of %zu there is 0x%02x", what, i, header->size,
                 buffer[header->size + i]);
    count_check();
}

void buffer_clear(unsigned char* buffer) { memset(buffer, kEmpty, header_of(buffer)->size); }

void buffer_free(unsigned char* buffer) { free(header_of(buffer)->memory); }

static uint64_t seed_of(int from, int to, long number) {
    return (uint64_t)(from + 1) * 0xd6e8feb86659fd93u ^ (uint64_t)(to + 1) * 0xa0761d6478bd642fu ^
           (uint64_t)(number + 1) * 0xe7037ed1a0b428dbu;
}

// Eight bytes at a time; each depends on its place and on the message.
static uint64_t word_of(uint64_t seed, size_t index) {
    const uint64_t mixed = (seed + index) * 0x9e3779b97f4a7c15u;
    return mixed ^ (mixed >> 29);
}

void fill(unsigned char* data, size_t size, int from, int to, long number) {
    const uint64_t seed = seed_of(from, to, number);
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        const uint64_t word = word_of(seed, i / 8);
        memcpy(data + i, &word, 8);
    }
    const uint64_t last = word_of(seed, i / 8);
    memcpy(data + i, &last, size - i);
}

void check_filled(const unsigned char* data, size_t size, int from, int to, long number,
                  const char* what) {
    const uint64_t seed = seed_of(from, to, number);
    size_t i = 0;
    for (; i < size; i += 8) {
        const uint64_t word = word_of(seed, i / 8);
        const size_t piece = size - i < 8 ? size - i : 8;
        if (memcmp(data + i, &word, piece) == 0) continue;
        size_t at = 0;
        while (data[i + at] == ((const unsigned char*)&word)[at])
            ++at;
        size_t wrong = 0;
        for (size_t j = i; j + 8 <= size; j += 8) {
            const uint64_t expected = word_of(seed, j / 8);
            wrong += memcmp(data + j, &expected, 8) != 0;
        }
        fail(
            "%s, %zu bytes from %d to %d, message %ld: byte %zu is 0x%02x, expected 0x%02x"
            " (%zu words of 8 bytes are wrong)",
            what, size, from, to, number, i + at, data[i + at], ((const unsigned char*)&word)[at],
            wrong);
    }
    count_check();
}

void check_status(const MPI_Status* status, int source, int tag, size_t size, const char* what) {
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || (size_t)count != size)
        fail("%s: status says source %d, tag %d, %d bytes; expected %d, %d, %zu", what,
             status->MPI_SOURCE, status->MPI_TAG, count, source, tag, size);
    count_check();
}

uint32_t next_random(uint64_t* state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}
