// SPDX-License-Identifier: BSD-2-Clause
// ThreadSanitizer cannot see the synchronisation inside libmlx5. These functions tell it two
// orders. A thread that polled a completion sees what the engine's thread wrote before it. A thread
// that executes a message sees what happened before the message and its receive were posted. Other
// builds compile nothing.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_release(void* at);
extern "C" void __tsan_acquire(void* at);
#endif

namespace softhca {

// `queue`: an address that stands for the queue, or for a receive's memory; nullptr does nothing.
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
