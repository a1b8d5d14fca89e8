// SPDX-License-Identifier: BSD-2-Clause
// The order that goes through libmlx5, told to ThreadSanitizer, which cannot see it there: whoever
// polled a completion sees what the engine's thread wrote before it, and whoever executes a message
// sees what happened before it and its receive were posted. Nothing is compiled otherwise.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_release(void* at);
extern "C" void __tsan_acquire(void* at);
#endif

namespace softhca {

// `queue`: any address that stands for the queue, or for the memory of a receive; nullptr: nothing.
inline void tsan_release([[maybe_unused]] void* queue) noexcept {
#if defined(__SANITIZE_THREAD__)
    if (queue) __tsan_release(queue);
#endif
}

inline void tsan_acquire([[maybe_unused]] void* queue) noexcept {
#if defined(__SANITIZE_THREAD__)
    if (queue) __tsan_acquire(queue);
#endif
}

}  // namespace softhca
