// SPDX-License-Identifier: BSD-2-Clause
// Calls by which softhca learns of stores to its registers, since it cannot see them
// (docs/reference/softhca.md "The engine"). On hardware the pointers are null.
#pragma once

#include <dlfcn.h>

#include <cstdint>

namespace heddle::post::detail {

// Tells softhca the address of a register after a store to it. Any thread.
using Doorbell = void (*)(void*);
inline Doorbell doorbell_hook() noexcept {
    static const auto hook = reinterpret_cast<Doorbell>(dlsym(RTLD_DEFAULT, "softhca_doorbell"));
    return hook;
}

// Tells softhca that a CQ was found empty. Returns whether the caller should look again. Any
// thread.
using EmptyPoll = bool (*)();
inline EmptyPoll empty_poll_hook() noexcept {
    static const auto hook = reinterpret_cast<EmptyPoll>(dlsym(RTLD_DEFAULT, "softhca_empty_poll"));
    return hook;
}

// The run record of `softhca run --record` (docs/reference/run-record.md). Without one, the
// pointers are null, so that callers pay for a comparison only.
inline void* record_symbol(const char* name) noexcept {
    const auto recording = reinterpret_cast<bool (*)()>(dlsym(RTLD_DEFAULT, "softhca_recording"));
    return recording != nullptr && recording() ? dlsym(RTLD_DEFAULT, name) : nullptr;
}

// Reports completions that this thread has taken from the memory of the CQ of that number.
using Polled = void (*)(std::uint32_t cqn, std::uint32_t cqes);
inline Polled polled_hook() noexcept {
    static const auto hook = reinterpret_cast<Polled>(record_symbol("softhca_polled"));
    return hook;
}

// Reports that this thread has reached a barrier, which the address identifies. Calls of
// pthread_barrier_wait() are seen without it. Any thread.
using Barrier = void (*)(const void* barrier);
inline Barrier barrier_hook() noexcept {
    static const auto hook = reinterpret_cast<Barrier>(record_symbol("softhca_barrier"));
    return hook;
}

}  // namespace heddle::post::detail
