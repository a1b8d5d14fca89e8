// SPDX-License-Identifier: BSD-2-Clause
// Requests of write commands (rdma/ib_user_verbs.h, rdma/mlx5-abi.h) that are mostly as libmlx5
// would send them: the input decides where they are not.
#pragma once

#include "uverbs_session.h"

namespace softhca::fuzz {

// Core and driver buffers of one command; `kind` is what its answer makes.
struct Request {
    alignas(16) std::byte core[256] = {};
    alignas(16) std::byte driver[128] = {};
    std::size_t core_length = 0, driver_length = 0;
    bool extended = false;
    bool creates = false;
    Kind kind = Kind::kPd;
    std::uint8_t type = 0;  // of queue pairs

    template <class T>
    T& core_as(Input& input) {
        static_assert(sizeof(T) <= sizeof core);
        core_length = sizeof(T);
        if (input.one_in(8)) input.bytes(core, sizeof(T));
        return *reinterpret_cast<T*>(core);
    }
    template <class T>
    T& driver_as(Input& input) {
        static_assert(sizeof(T) <= sizeof driver);
        driver_length = sizeof(T);
        if (input.one_in(8)) input.bytes(driver, sizeof(T));
        return *reinterpret_cast<T*>(driver);
    }
    void makes(Kind what) {
        creates = true;
        kind = what;
    }
};

void build_plain(Session& s, Request& request, std::uint32_t number);
void build_extended(Session& s, Request& request, std::uint32_t number);

// What each transition takes (IBTA 11.2.5.2), for a queue pair of that type.
std::uint32_t attributes_for(std::uint32_t state, std::uint8_t type);

}  // namespace softhca::fuzz
