// SPDX-License-Identifier: BSD-2-Clause
// What this process registers with libibverbs, by the functions of registrations.cc that stand
// before those of the library.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace heddle::test {

struct Registration {
    std::uintptr_t begin = 0, end = 0;
    unsigned access = 0;  // IBV_ACCESS_...
};

// Since the last clear, by calls of ibv_reg_mr() whose access the compiler does not know. Any
// thread.
std::vector<Registration> registrations();
void clear_registrations();

extern std::atomic<unsigned> deregistrations;
extern std::atomic<unsigned> registrations_to_refuse;  // with ENOMEM

}  // namespace heddle::test
