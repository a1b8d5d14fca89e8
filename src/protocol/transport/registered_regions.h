// SPDX-License-Identifier: BSD-2-Clause
// The registrations of a domain that peers may name, by key. An atomic is done by software, so
// here is checked what the device checks for RDMA: key, bounds and access.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

struct RegisteredMemory {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    std::uint64_t access = 0;  // as of fi_mr_reg
};

class RegisteredRegions {
public:
    RegisteredRegions() = default;
    RegisteredRegions(const RegisteredRegions&) = delete;
    RegisteredRegions& operator=(const RegisteredRegions&) = delete;
    ~RegisteredRegions() {
        HEDDLE_ASSERT(by_key_.empty(), "registrations end before their domain");
    }

    void add(std::uint32_t key, const RegisteredMemory& memory) {
        const std::lock_guard guard(mutex_);
        [[maybe_unused]] const bool is_new = by_key_.emplace(key, memory).second;
        HEDDLE_ASSERT(is_new, "no two registrations have one key");
    }
    void remove(std::uint32_t key) {
        const std::lock_guard guard(mutex_);
        [[maybe_unused]] const std::size_t gone = by_key_.erase(key);
        HEDDLE_ASSERT(gone == 1, "a registration ends once");
    }
    // Calls `use` if that registration has these bytes and all of that access. The memory stays
    // registered meanwhile, since remove() waits. False: `use` was not called.
    template <class Use>
    bool with(std::uint32_t key, std::uint64_t address, std::size_t bytes, std::uint64_t access,
              const Use& use) {
        const std::lock_guard guard(mutex_);
        const auto found = by_key_.find(key);
        if (found == by_key_.end()) return false;
        const RegisteredMemory& memory = found->second;
        if (address < memory.address || bytes > memory.bytes ||
            address - memory.address > memory.bytes - bytes || (memory.access & access) != access)
            return false;
        use();
        return true;
    }

private:
    std::mutex mutex_;
    std::unordered_map<std::uint32_t, RegisteredMemory> by_key_;  // under mutex_
};

}  // namespace heddle::protocol
