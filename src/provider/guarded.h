// SPDX-License-Identifier: BSD-2-Clause
// The border between C++ and libfabric's C: nothing throws across it. What was thrown becomes a
// negative errno and one line in the log.
#pragma once

#include <utility>

namespace heddle::provider {

// In a handler: what the exception means to libfabric's caller. `what` was tried.
[[gnu::cold]] int caught(const char* what) noexcept;

template <class Call>
auto guarded(const char* what, Call&& call) noexcept -> decltype(call()) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        return caught(what);
    }
}

}  // namespace heddle::provider
