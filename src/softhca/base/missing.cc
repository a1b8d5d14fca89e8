// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/base/missing.h"

#include <atomic>

namespace softhca {
namespace {

constexpr unsigned kMost = 64;  // strings; there are fewer in the sources
std::atomic<const char*> g_said[kMost];

// Whether this is the first time. The same text at two places in the sources may count as two.
bool is_new(const char* what) noexcept {
    for (std::atomic<const char*>& place : g_said) {
        const char* said = place.load(std::memory_order_relaxed);
        if (said == nullptr && place.compare_exchange_strong(said, what, std::memory_order_relaxed))
            return true;
        if (said == what) return false;
    }
    return false;
}

}  // namespace

int missing(int error, const char* what, LogLevel level) noexcept {
    if (log_enabled(level) && is_new(what))
        log_line(level, "the program asks for %s, which this device does not have", what);
    return error;
}

}  // namespace softhca
