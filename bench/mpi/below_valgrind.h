// SPDX-License-Identifier: BSD-2-Clause
// With these functions of the program, which come before those of the C library, heddle does below
// Valgrind what it does elsewhere:
//
// - Valgrind 3.19 has no userfaultfd(2), and without it no memory stays registered. The program's
//   buffers stay where they are until its end. So heddle gets a file on which no event ever comes.
// - Heddle writes its counters by the clock into a memfd, for `heddle top`. Below callgrind nearly
//   every message would be charged for that. Without the file heddle does not.
#pragma once

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE first: RTLD_NEXT"
#endif
#include <dlfcn.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static char g_is_userfaultfd[1024];

long syscall(long number, ...) {
    static long (*real)(long, ...);
    long argument[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; ++i)
        argument[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_userfaultfd) {
        const int file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (file >= (int)sizeof g_is_userfaultfd) abort();
        if (file >= 0) g_is_userfaultfd[file] = 1;
        return file;
    }
    if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                argument[5]);
}

static int answer(unsigned long request, void* argument) {
    if (request == UFFDIO_API) {
        struct uffdio_api* const api = argument;
        api->features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
                        UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP;
        api->ioctls = ~0ull;
    }
    if (request == UFFDIO_API || request == UFFDIO_REGISTER || request == UFFDIO_UNREGISTER)
        return 0;
    errno = EINVAL;  // also of UFFDIO_WRITEPROTECT of no pages, while nothing is unmapped
    return -1;
}

int ioctl(int file, unsigned long request, ...) {
    static int (*real)(int, unsigned long, void*);
    va_list arguments;
    va_start(arguments, request);
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    // Other files have the number once that one is closed, and other requests.
    if (file >= 0 && file < (int)sizeof g_is_userfaultfd && g_is_userfaultfd[file] &&
        _IOC_TYPE(request) == UFFDIO)
        return answer(request, argument);
    if (real == NULL) real = (int (*)(int, unsigned long, void*))dlsym(RTLD_NEXT, "ioctl");
    return real(file, request, argument);
}

int memfd_create(const char* name, unsigned flags) {
    if (strncmp(name, "heddle", 6) != 0) return (int)syscall(SYS_memfd_create, name, flags);
    errno = ENOSYS;
    return -1;
}
