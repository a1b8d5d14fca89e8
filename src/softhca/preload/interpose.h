// SPDX-License-Identifier: BSD-2-Clause
// How an interposed function is written. It is declared under a C++ name of ours, with the
// assembler name of the libc function that it replaces. So glibc's own declarations (their
// exception specifications, large-file redirections and fortified inline bodies) never conflict
// with ours.
//
//   SOFTHCA_INTERPOSE(open, int, interpose_open, (const char* path, int flags, ...) noexcept);
//   int interpose_open(const char* path, int flags, ...) noexcept { ... }
//   SOFTHCA_ALSO(open64, open, interpose_open);
//
// Every name must also be in exports.map, or the program does not see it.
#pragma once

#define SOFTHCA_EXPORT __attribute__((visibility("default")))

#define SOFTHCA_INTERPOSE(symbol, result, function, parameters) \
    extern "C" SOFTHCA_EXPORT result function parameters __asm__(#symbol)

// A second name of a function defined above.
#define SOFTHCA_ALSO(symbol, of, function)                                               \
    extern "C" SOFTHCA_EXPORT decltype(function) function##_as_##symbol __asm__(#symbol) \
        __attribute__((alias(#of)))
