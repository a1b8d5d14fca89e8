// SPDX-License-Identifier: BSD-2-Clause
// How an interposed function is written. Each is declared under a C++ name of ours with the
// assembler name of the libc function it stands for: glibc's own declarations (their exception
// specifications, large-file redirections and fortified inline bodies) then never meet ours.
//
//   SOFTHCA_FACE(open, int, open_face, (const char* path, int flags, ...) noexcept);
//   int open_face(const char* path, int flags, ...) noexcept { ... }
//   SOFTHCA_ALSO(open64, open, open_face);
//
// Every name has to stand in exports.map too, or it stays invisible to the program.
#pragma once

#define SOFTHCA_EXPORT __attribute__((visibility("default")))

#define SOFTHCA_FACE(symbol, result, face, parameters) \
    extern "C" SOFTHCA_EXPORT result face parameters __asm__(#symbol)

// A second name of a function defined above.
#define SOFTHCA_ALSO(symbol, of, face)                                           \
    extern "C" SOFTHCA_EXPORT decltype(face) face##_as_##symbol __asm__(#symbol) \
        __attribute__((alias(#of)))
