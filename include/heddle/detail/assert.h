// SPDX-License-Identifier: BSD-2-Clause
// Assertions of heddle and of the post path's templates, which users compile.
//
//     HEDDLE_ASSERT(peer.outstanding > 0);
//     HEDDLE_DEBUG_ASSERT(index < size_, "the index was taken modulo the ring's size");
//
// HEDDLE_ASSERT is always on: for cold paths, state machines, and data of another process after it
// was validated. HEDDLE_DEBUG_ASSERT is for hot paths. It is on where HEDDLE_DEBUG_ASSERTIONS is 1:
// in debug builds and under AddressSanitizer and ThreadSanitizer. Elsewhere the compiler checks the
// condition but never evaluates it, so it costs no instruction.
//
// A failed assertion prints "FILE:LINE: assertion failed: CONDITION: MESSAGE" to stderr and aborts.
// The optional message is a string literal. A condition with a comma outside of parentheses needs
// parentheses around it.
#pragma once

#include <cstdlib>
#include <cstring>

#include <unistd.h>

#if !defined(HEDDLE_DEBUG_ASSERTIONS)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEDDLE_DEBUG_ASSERTIONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HEDDLE_DEBUG_ASSERTIONS 1
#endif
#endif
#endif
#if !defined(HEDDLE_DEBUG_ASSERTIONS)
#define HEDDLE_DEBUG_ASSERTIONS 0
#endif

namespace heddle::detail {

// Prints `text` and aborts. Async-signal-safe: it calls nothing but write() and abort(). The text
// is one literal, so that a call site has one argument to load.
[[noreturn, gnu::cold, gnu::noinline]] inline void assertion_failed(const char* text) noexcept {
    std::size_t left = std::strlen(text);
    while (left > 0) {
        const ssize_t written = ::write(STDERR_FILENO, text, left);
        if (written <= 0) break;
        text += written;
        left -= static_cast<std::size_t>(written);
    }
    std::abort();
}

}  // namespace heddle::detail

#define HEDDLE_DETAIL_TEXT_OF(value) #value
#define HEDDLE_DETAIL_PLACE(line) __FILE__ ":" HEDDLE_DETAIL_TEXT_OF(line) ": assertion failed: "

#define HEDDLE_ASSERT(condition, ...)                                                       \
    (static_cast<bool>(condition) ? static_cast<void>(0)                                    \
                                  : ::heddle::detail::assertion_failed(HEDDLE_DETAIL_PLACE( \
                                        __LINE__) #condition __VA_OPT__(": ") __VA_ARGS__ "\n"))

#if HEDDLE_DEBUG_ASSERTIONS
#define HEDDLE_DEBUG_ASSERT(condition, ...) HEDDLE_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)
#else
// The operand of noexcept() is compiled and never evaluated.
#define HEDDLE_DEBUG_ASSERT(condition, ...) \
    static_cast<void>(noexcept(HEDDLE_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)))
#endif
