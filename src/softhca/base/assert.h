// SPDX-License-Identifier: BSD-2-Clause
// Assertions of softhca. heddle has the same two in heddle/detail/assert.h, as neither product
// includes a file of the other.
//
//     SOFTHCA_ASSERT(users > 0);
//     SOFTHCA_DEBUG_ASSERT(index < count, "the index was taken modulo the ring's size");
//
// SOFTHCA_ASSERT is always on: for cold paths, state machines, and data of another process after it
// was validated. SOFTHCA_DEBUG_ASSERT is for hot paths. It is on where SOFTHCA_DEBUG_ASSERTIONS is
// 1: in debug builds and under AddressSanitizer and ThreadSanitizer. Elsewhere the compiler checks
// the condition but never evaluates it, so it costs no instruction.
//
// A failed assertion prints "FILE:LINE: assertion failed: CONDITION: MESSAGE" to stderr and aborts.
// The optional message is a string literal. A condition with a comma outside of parentheses needs
// parentheses around it.
#pragma once

#if !defined(SOFTHCA_DEBUG_ASSERTIONS)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SOFTHCA_DEBUG_ASSERTIONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SOFTHCA_DEBUG_ASSERTIONS 1
#endif
#endif
#endif
#if !defined(SOFTHCA_DEBUG_ASSERTIONS)
#define SOFTHCA_DEBUG_ASSERTIONS 0
#endif

namespace softhca::detail {

// Prints `text` and aborts. Async-signal-safe: it calls nothing but write(), beneath the interposed
// functions, and abort(). The text is one literal, so that a call site has one argument to load.
[[noreturn, gnu::cold, gnu::noinline]] void assertion_failed(const char* text) noexcept;

}  // namespace softhca::detail

#define SOFTHCA_DETAIL_TEXT_OF(value) #value
#define SOFTHCA_DETAIL_PLACE(line) __FILE__ ":" SOFTHCA_DETAIL_TEXT_OF(line) ": assertion failed: "

#define SOFTHCA_ASSERT(condition, ...)                                                        \
    (static_cast<bool>(condition) ? static_cast<void>(0)                                      \
                                  : ::softhca::detail::assertion_failed(SOFTHCA_DETAIL_PLACE( \
                                        __LINE__) #condition __VA_OPT__(": ") __VA_ARGS__ "\n"))

#if SOFTHCA_DEBUG_ASSERTIONS
#define SOFTHCA_DEBUG_ASSERT(condition, ...) SOFTHCA_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)
#else
// The operand of noexcept() is compiled and never evaluated.
#define SOFTHCA_DEBUG_ASSERT(condition, ...) \
    static_cast<void>(noexcept(SOFTHCA_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)))
#endif
