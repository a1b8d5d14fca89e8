// SPDX-License-Identifier: BSD-2-Clause
// Names by number, as fi_av_insert gives them: in order of insertion, duplicates kept, so that a
// program's ranks are the numbers. By one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/common/endpoint_address.h"

namespace heddle::protocol {

class AddressVector {
public:
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};

    std::uint64_t insert(const EndpointAddress& name) {
        names_.emplace_back(name);
        const std::uint64_t address = names_.size() - 1;
        first_.try_emplace(name, address);
        return address;
    }
    // nullptr: nothing (any more) has that number.
    const EndpointAddress* find(std::uint64_t address) const noexcept {
        return address < names_.size() && names_[address] ? &*names_[address] : nullptr;
    }
    // The lowest number of that name, or kNone.
    std::uint64_t find(const EndpointAddress& name) const noexcept {
        const auto at = first_.find(name);
        return at == first_.end() ? kNone : at->second;
    }
    bool remove(std::uint64_t address) {
        if (find(address) == nullptr) return false;
        const EndpointAddress name = *names_[address];
        HEDDLE_ASSERT(find(name) <= address, "a name that is there has a lowest number");
        names_[address].reset();
        ++removals_;
        if (first_[name] != address) return true;
        first_.erase(name);
        for (std::uint64_t later = address + 1; later < names_.size(); ++later)
            if (names_[later] == name) {
                first_.emplace(name, later);
                break;
            }
        return true;
    }
    std::uint64_t size() const noexcept { return names_.size(); }
    // Changes whenever a number may have lost its name: a caller that keeps numbers looks again.
    std::uint64_t removals() const noexcept { return removals_; }

private:
    std::vector<std::optional<EndpointAddress>> names_;
    std::unordered_map<EndpointAddress, std::uint64_t, EndpointAddressHash> first_;
    std::uint64_t removals_ = 0;
};

}  // namespace heddle::protocol
