// SPDX-License-Identifier: BSD-2-Clause
#include "heddle/post/uuar.h"

#include <map>
#include <mutex>
#include <set>

#include "heddle/detail/assert.h"

namespace heddle::post::detail {
namespace {

std::mutex registers_mutex;
// Under registers_mutex, and never destroyed: they outlive every queue.
auto& registers = *new std::map<void*, std::weak_ptr<Uuar>>;  // by address
auto& present = *new std::set<Uuar*>;
std::uint64_t locks_of_gone = 0;  // under registers_mutex

}  // namespace

// No queue rings the register any more.
Uuar::~Uuar() {
    const std::lock_guard<std::mutex> guard(registers_mutex);
    [[maybe_unused]] const std::size_t gone = present.erase(this);
    HEDDLE_ASSERT(gone == 1, "uuar_at() made the object");
    locks_of_gone += locks_taken;
}

std::uint64_t register_locks_taken() {
    const std::lock_guard<std::mutex> guard(registers_mutex);
    std::uint64_t sum = locks_of_gone;
    for (Uuar* const each : present) {
        const std::lock_guard<SpinLock> ringing(each->lock);
        sum += each->locks_taken;
    }
    return sum;
}

std::shared_ptr<Uuar> uuar_at(void* address, std::uint32_t half_bytes, bool shared) {
    HEDDLE_ASSERT(address != nullptr && (half_bytes & (half_bytes - 1)) == 0);
    const std::lock_guard<std::mutex> guard(registers_mutex);
    std::weak_ptr<Uuar>& slot = registers[address];
    if (auto there = slot.lock()) {
        HEDDLE_ASSERT(there->half_bytes == half_bytes, "one register with two layouts");
        there->shared = there->shared || shared;
        return there;
    }
    auto fresh = std::make_shared<Uuar>();
    fresh->address = static_cast<std::byte*>(address);
    fresh->half_bytes = half_bytes;
    fresh->shared = shared;
    present.insert(fresh.get());
    slot = fresh;
    return fresh;
}

}  // namespace heddle::post::detail
