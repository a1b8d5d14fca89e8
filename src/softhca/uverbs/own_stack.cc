// SPDX-License-Identifier: BSD-2-Clause
// Finds where a thread's stack begins: see own_stack.h.
#include "softhca/uverbs/own_stack.h"

#include <pthread.h>
#include <unistd.h>

#include "softhca/base/assert.h"

extern "C" void* __libc_stack_end;  // defined by ld.so: where the main stack began

namespace softhca::uverbs {
namespace {

constexpr std::uintptr_t kNotKnown = 1;

// A program that switches stacks itself has its frames elsewhere, and is not affected: only
// addresses between a frame of ours and this one count.
thread_local constinit std::uintptr_t t_begin __attribute__((tls_model("initial-exec"))) = 0;

std::uintptr_t find() noexcept {
    // AddressSanitizer knows where each object on the stack ends, and reports a read past it. A
    // command of a wrong length makes us do that.
#ifdef __SANITIZE_ADDRESS__
    return kNotKnown;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return kNotKnown;
#endif
#endif
    if (gettid() == getpid()) return reinterpret_cast<std::uintptr_t>(__libc_stack_end);
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return kNotKnown;
    void* lowest = nullptr;
    std::size_t bytes = 0;
    const int error = pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    return error ? kNotKnown : reinterpret_cast<std::uintptr_t>(lowest) + bytes;
}

}  // namespace

std::uintptr_t stack_begin() noexcept {
    if (t_begin == 0) t_begin = find();
    SOFTHCA_DEBUG_ASSERT(t_begin != 0);
    return t_begin;
}

}  // namespace softhca::uverbs
