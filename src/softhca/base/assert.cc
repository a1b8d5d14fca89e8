// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/base/assert.h"

#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "softhca/base/libc.h"

namespace softhca::detail {

void assertion_failed(const char* text) noexcept {
    std::size_t left = std::strlen(text);
    while (left > 0) {
        const ssize_t written = libc::write(STDERR_FILENO, text, left);
        if (written <= 0) break;
        text += written;
        left -= static_cast<std::size_t>(written);
    }
    std::abort();
}

}  // namespace softhca::detail
