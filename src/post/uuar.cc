// SPDX-License-Identifier: BSD-2-Clause
#include "heddle/post/uuar.h"

#include <map>
#include <mutex>

#include "heddle/detail/assert.h"

namespace heddle::post::detail {

std::shared_ptr<Uuar> uuar_at(void* address, std::uint32_t half_bytes, bool shared) {
    HEDDLE_ASSERT(address != nullptr && (half_bytes & (half_bytes - 1)) == 0);
    static std::mutex mutex;
    static auto* const known = new std::map<void*, std::weak_ptr<Uuar>>;  // outlives every queue
    const std::lock_guard<std::mutex> guard(mutex);
    std::weak_ptr<Uuar>& slot = (*known)[address];
    if (auto there = slot.lock()) {
        HEDDLE_ASSERT(there->half_bytes == half_bytes, "one register with two layouts");
        there->shared = there->shared || shared;
        return there;
    }
    auto fresh = std::make_shared<Uuar>();
    fresh->address = static_cast<std::byte*>(address);
    fresh->half_bytes = half_bytes;
    fresh->shared = shared;
    slot = fresh;
    return fresh;
}

}  // namespace heddle::post::detail
