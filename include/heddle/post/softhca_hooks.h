// SPDX-License-Identifier: BSD-2-Clause
// What a software HCA wants to be told, as it cannot see stores to its registers (softhca's docs:
// "The engine"). Null pointers on hardware.
#pragma once

#include <dlfcn.h>

namespace heddle::post {

// A register has been written to: its address.
using Doorbell = void (*)(void*);
inline Doorbell doorbell_hook() noexcept {
    static const auto hook = reinterpret_cast<Doorbell>(dlsym(RTLD_DEFAULT, "softhca_doorbell"));
    return hook;
}

// A CQ was found empty. True: look again.
using EmptyPoll = bool (*)();
inline EmptyPoll empty_poll_hook() noexcept {
    static const auto hook = reinterpret_cast<EmptyPoll>(dlsym(RTLD_DEFAULT, "softhca_empty_poll"));
    return hook;
}

}  // namespace heddle::post
