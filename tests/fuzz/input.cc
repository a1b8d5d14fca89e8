// SPDX-License-Identifier: BSD-2-Clause
#include "input.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace softhca::fuzz {

void fail(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::fputs("FOUND: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
    va_end(arguments);
    std::abort();
}

}  // namespace softhca::fuzz
