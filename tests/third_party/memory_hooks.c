// SPDX-License-Identifier: BSD-2-Clause
// Whether UCX hears of memory that the program unmaps, replaces or discards. UCX patches the code
// of libc's functions; its registration cache relies on it. The memory is registered with the
// device, and must then be what the kernel makes it, too. Prints "memory_hooks: N calls" and what
// is missing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kBytes = 1 << 20, kUnmapped = 1 << 17 };  // UCM_EVENT_VM_UNMAPPED

static int g_unmapped, g_calls, g_failures;

static void unmapped(int type, void* event, void* argument) {
    (void)type, (void)event, (void)argument;
    ++g_unmapped;
}

static void expect(int condition, const char* what) {
    ++g_calls;
    if (condition && g_unmapped > 0)
        printf("%s: %d events\n", what, g_unmapped);
    else
        printf("%s: %s\n", what, condition ? "no event" : "wrong memory"), ++g_failures;
    g_unmapped = 0;
}

static int all(const unsigned char* at, size_t bytes, int value) {
    for (size_t i = 0; i < bytes; ++i)
        if (at[i] != value) return 0;
    return 1;
}

int main(void) {
    void* const ucm = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);  // it brings libucm
    int (*const set_handler)(int, int, void (*)(int, void*, void*), void*) =
        ucm ? (int (*)(int, int, void (*)(int, void*, void*), void*))dlsym(ucm,
                                                                           "ucm_set_event_handler")
            : NULL;
    if (!set_handler || set_handler(kUnmapped, 1000, unmapped, NULL) != 0) {
        printf("no handler: %s\n", ucm ? "UCX cannot hear of the program's calls" : dlerror());
        return 1;
    }
    int count = 0;
    struct ibv_device** const devices = ibv_get_device_list(&count);
    struct ibv_context* const context = count > 0 ? ibv_open_device(devices[0]) : NULL;
    struct ibv_pd* const pd = context ? ibv_alloc_pd(context) : NULL;
    unsigned char* at =
        mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr* const region =
        pd ? ibv_reg_mr(pd, at, kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) : NULL;
    if (!region) return printf("no region\n"), 1;
    g_unmapped = 0;

    memset(at, 1, kBytes);
    madvise(at, kBytes / 2, MADV_DONTNEED);
    expect(all(at, kBytes / 2, 0) && all(at + kBytes / 2, kBytes / 2, 1), "MADV_DONTNEED");
    memset(at, 2, kBytes);
    expect(madvise(at, kBytes, MADV_FREE) == 0, "MADV_FREE");
    memset(at, 3, kBytes);
    unsigned char* const there = mremap(at, kBytes, 2 * kBytes, MREMAP_MAYMOVE);
    expect(there != MAP_FAILED && all(there, kBytes, 3) && all(there + kBytes, kBytes, 0),
           "mremap");
    memset(there, 4, 2 * kBytes);
    mmap(there, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    expect(all(there, kBytes, 0) && all(there + kBytes, kBytes, 4), "mmap");
    expect(munmap(there, 2 * kBytes) == 0, "munmap");
    unsigned char* block = malloc(kBytes);  // beyond the threshold of mmap
    g_unmapped = 0;
    block = realloc(block, 4 * kBytes);
    expect(block != NULL, "realloc");
    free(block);
    expect(1, "free");
    ibv_dereg_mr(region);
    printf("memory_hooks: %d calls, %d failed\n", g_calls, g_failures);
    return g_failures != 0;
}
