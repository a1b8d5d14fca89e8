// SPDX-License-Identifier: BSD-2-Clause
// Calls by which softhca learns of stores to its registers, since it cannot see them
// (docs/reference/softhca.md "The engine"). On hardware the pointers are null.
#pragma once

#include <dlfcn.h>

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

}  // namespace heddle::post::detail
