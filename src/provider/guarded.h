// SPDX-License-Identifier: BSD-2-Clause
// The border between C++ and libfabric's C, which no exception crosses. An exception becomes a
// negative errno and one line in the log.
#pragma once

#include <utility>

namespace heddle::provider {

// Called in an exception handler: logs the exception and returns the negative errno for libfabric's
// caller. `what` names the failed call.
[[gnu::cold]] int caught(const char* what) noexcept;

// Calls `call` and returns its result, or a negative errno if it throws.
template <class Call>
auto guarded(const char* what, Call&& call) noexcept -> decltype(call()) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        return caught(what);
    }
}

}  // namespace heddle::provider
