// SPDX-License-Identifier: BSD-2-Clause
// Buffers that are sent from again and again, until the library below may keep them registered, and
// what programs do to such memory between two messages: what arrives is what was there when it was
// sent. Small messages, large ones, and one-sided.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum { kUses = 14, kPage = 4096, kMost = 200000 };
static const size_t kSizes[] = {200, 1000, 4000, 8000, 100000};
enum { kCountOfSizes = sizeof kSizes / sizeof *kSizes };
static const char kReadOnly[8000] = "what never changes";

static unsigned char* g_in;  // what comes
static long g_number;

static int next(void) { return (g_rank + 1) % g_ranks; }
static int previous(void) { return (g_rank + g_ranks - 1) % g_ranks; }

// From there to the next rank, and from the one before.
static void pass_on(const void* from, size_t size) {
    MPI_Status status;
    MPI_Sendrecv(from, (int)size, MPI_BYTE, next(), 5, g_in, kMost, MPI_BYTE, previous(), 5,
                 MPI_COMM_WORLD, &status);
    check_status(&status, previous(), 5, size, "a message");
}

static void pass_filled(unsigned char* at, size_t size, const char* what) {
    ++g_number;
    fill(at, size, g_rank, next(), g_number);
    pass_on(at, size);
    check_filled(g_in, size, previous(), g_rank, g_number, what);
}

static void use(unsigned char* at, size_t size, const char* what) {
    for (int i = 0; i < kUses; ++i)
        pass_filled(at, size, what);
}

// All ranks have the same.
static void pass_zeros(const unsigned char* at, size_t size, const char* what) {
    pass_on(at, size);
    for (size_t i = 0; i < size; ++i)
        if (g_in[i] != 0) fail("%s: byte %zu of %zu is 0x%02x, not 0", what, i, size, g_in[i]);
    count_check();
}

static size_t whole_pages(size_t size) { return (size + kPage - 1) / kPage * kPage; }

static unsigned char* map_at(void* at, size_t size) {
    void* memory = mmap(at, whole_pages(size), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);
    if (memory == MAP_FAILED) fail("no memory of %zu bytes", size);
    return memory;
}

// Other memory at the same address. Where nobody maps without being asked: far below the rest.
static void unmapped(void) {
    for (int i = 0; i < kCountOfSizes; ++i) {
        unsigned char* here = map_at(NULL, kMost);
        unsigned char* at = map_at(here - ((size_t)64 << 30), kSizes[i]);
        for (int round = 0; round < 3; ++round) {
            use(at, kSizes[i], "before munmap");
            munmap(at, whole_pages(kSizes[i]));
            map_at(at, kSizes[i]);
            pass_zeros(at, kSizes[i], "after munmap and mmap");
        }
        munmap(at, whole_pages(kSizes[i]));
        munmap(here, kMost);
    }
}

static void mapped_over(void) {
    for (int i = 0; i < kCountOfSizes; ++i) {
        unsigned char* at = map_at(NULL, kSizes[i]);
        use(at, kSizes[i], "before MAP_FIXED");
        map_at(at, kSizes[i]);
        pass_zeros(at, kSizes[i], "after MAP_FIXED");
        use(at, kSizes[i], "again");
        munmap(at, whole_pages(kSizes[i]));
    }
}

static void reallocated(void) {
    unsigned char* at = malloc(100);
    for (int i = 0; i < 3 * kCountOfSizes; ++i) {
        const size_t size = kSizes[i * 2 % kCountOfSizes];
        at = realloc(at, size);
        if (at == NULL) fail("no memory of %zu bytes", size);
        use(at, size, "after realloc");
    }
    free(at);
}

static void moved(void) {
    for (int i = 0; i < kCountOfSizes; ++i) {
        const size_t bytes = whole_pages(kSizes[i]);
        unsigned char* at = map_at(NULL, bytes);
        use(at, kSizes[i], "before mremap");
        unsigned char* to = map_at(NULL, bytes);
        if (mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) {
            memcpy(to, at, bytes);  // as realloc does where the range is more than one mapping
            munmap(at, bytes);
        }
        pass_on(to, kSizes[i]);
        check_filled(g_in, kSizes[i], previous(), g_rank, g_number, "after mremap");
        use(to, kSizes[i], "at another place");
        munmap(to, bytes);
    }
}

// Contents are either gone or there, but what is written afterwards counts.
static void thrown_away(void) {
    const int advices[] = {MADV_DONTNEED, MADV_FREE};
    for (int i = 0; i < kCountOfSizes; ++i)
        for (int j = 0; j < 2; ++j) {
            unsigned char* at = map_at(NULL, kSizes[i]);
            use(at, kSizes[i], "before madvise");
            madvise(at, whole_pages(kSizes[i]), advices[j]);
            use(at, kSizes[i], "after madvise");
            munmap(at, whole_pages(kSizes[i]));
        }
}

static void forked(void) {
    for (int i = 0; i < kCountOfSizes; ++i) {
        unsigned char* at = map_at(NULL, kSizes[i]);
        use(at, kSizes[i], "before fork");
        const pid_t child = fork();
        if (child == 0) {
            memset(at, 0x77, kSizes[i]);
            if (i % 2 != 0) execl("/bin/true", "true", (char*)NULL);
            _exit(0);
        }
        pass_on(at, kSizes[i]);
        check_filled(g_in, kSizes[i], previous(), g_rank, g_number, "beside a child that writes");
        int status = 0;
        waitpid(child, &status, 0);
        use(at, kSizes[i], "after a child");
        munmap(at, whole_pages(kSizes[i]));
    }
}

static void stack_and_constants(void) {
    unsigned char local[8000];
    use(local, sizeof local, "from the stack");
    for (int i = 0; i < kUses; ++i) {
        pass_on(kReadOnly, sizeof kReadOnly);
        CHECK(memcmp(g_in, kReadOnly, sizeof kReadOnly) == 0, "constants are others");
    }
}

static void many(void) {
    enum { kBuffers = 400, kSize = 600 };
    unsigned char* at = map_at(NULL, kBuffers * kPage);
    for (int round = 0; round < kUses; ++round)
        for (int i = 0; i < kBuffers; ++i)
            pass_filled(at + i * kPage + i % 7, kSize, "one of many");
    munmap(at, kBuffers * kPage);
}

// Put from, and got into, memory that is other memory in between.
static void one_sided(void) {
    unsigned char* window_memory = map_at(NULL, kMost);
    MPI_Win window;
    MPI_Win_create(window_memory, kMost, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int i = 0; i < kCountOfSizes; ++i) {
        unsigned char* at = map_at(NULL, kSizes[i]);
        for (int round = 0; round < 3 * kUses; ++round) {
            if (round == kUses) map_at(at, kSizes[i]);
            ++g_number;
            fill(at, kSizes[i], g_rank, next(), g_number);
            MPI_Win_fence(0, window);
            MPI_Put(at, (int)kSizes[i], MPI_BYTE, next(), 0, (int)kSizes[i], MPI_BYTE, window);
            MPI_Win_fence(0, window);
            check_filled(window_memory, kSizes[i], previous(), g_rank, g_number, "put");
            if (round == 2 * kUses) map_at(at, kSizes[i]);
            memset(at, 0, kSizes[i]);
            MPI_Win_fence(0, window);
            MPI_Get(at, (int)kSizes[i], MPI_BYTE, next(), 0, (int)kSizes[i], MPI_BYTE, window);
            MPI_Win_fence(0, window);
            check_filled(at, kSizes[i], g_rank, next(), g_number, "got");
        }
        munmap(at, whole_pages(kSizes[i]));
    }
    MPI_Win_free(&window);
    munmap(window_memory, kMost);
}

int main(int argc, char** argv) {
    // Soon enough for a test; without it, as measured.
    setenv("FI_HEDDLE_REUSE", "6", 0);
    start(&argc, &argv, MPI_THREAD_SINGLE);
    g_in = malloc(kMost);
    const struct step steps[] = {
        {"unmapped", unmapped},
        {"mapped_over", mapped_over},
        {"reallocated", reallocated},
        {"moved", moved},
        {"thrown_away", thrown_away},
        {"forked", forked},
        {"stack_and_constants", stack_and_constants},
        {"many", many},
        {"one_sided", one_sided},
    };
    run_steps(steps, sizeof steps / sizeof *steps, argv + 1);
    free(g_in);
    return finish();
}
