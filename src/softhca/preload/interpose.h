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
// Some libraries find a libc function by dlsym and patch its code, to learn of calls to it: the
// memory hooks of registration caches (UCX, Open MPI, libfabric). If they patched ours, it would
// not run any more. SOFTHCA_INTERPOSE_VERSIONED gives a function the version of libc's that all
// programs refer to, but not as the default: the loader binds calls to it, and dlsym does not find
// it.
#pragma once

#define SOFTHCA_EXPORT __attribute__((visibility("default")))

#define SOFTHCA_INTERPOSE(symbol, result, function, parameters) \
    extern "C" SOFTHCA_EXPORT result function parameters __asm__(#symbol)

// The versioned symbols are made by a directive of the assembler. Sanitizers find libc's functions
// by dlsym, too, and would go past ours. So below a sanitizer these are functions like all others.
//
//   SOFTHCA_INTERPOSE_VERSIONED(mmap, void*, interpose_mmap, (void*, ...) noexcept);
//   SOFTHCA_VERSIONED_NAME(mmap, interpose_mmap);
//   SOFTHCA_VERSIONED_ALSO(mmap64, mmap, interpose_mmap);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SOFTHCA_INTERPOSE_VERSIONED SOFTHCA_INTERPOSE
#define SOFTHCA_VERSIONED_NAME(symbol, function) static_assert(true)
#define SOFTHCA_VERSIONED_ALSO SOFTHCA_ALSO
#else
#define SOFTHCA_INTERPOSE_VERSIONED(symbol, result, function, parameters) \
    extern "C" SOFTHCA_EXPORT result function parameters __asm__("interposed_" #symbol)
#define SOFTHCA_VERSIONED_NAME(symbol, function) SOFTHCA_VERSIONED_ALSO(symbol, symbol, function)
#if defined(__clang__)
#define SOFTHCA_VERSIONED_ALSO(name, symbol, function) \
    __asm__(".symver interposed_" #symbol ", " #name "@" SOFTHCA_LIBC_VERSION)
#else  // as an attribute, because link-time optimisation loses asm statements
#define SOFTHCA_VERSIONED_ALSO(name, symbol, function) \
    extern "C" decltype(function) function __attribute__((symver(#name "@" SOFTHCA_LIBC_VERSION)))
#endif
#endif

// A second name of a function defined above.
#define SOFTHCA_ALSO(symbol, of, function)                                               \
    extern "C" SOFTHCA_EXPORT decltype(function) function##_as_##symbol __asm__(#symbol) \
        __attribute__((alias(#of)))
