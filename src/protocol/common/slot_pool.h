// SPDX-License-Identifier: BSD-2-Clause
// Objects that come and go, are used again, and stay where they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

// What SlotPool keeps in each object: base of T. Nobody else writes it.
template <class T>
struct PoolSlot {
    std::uint32_t index = 0, generation = 0;
    bool in_use = false;
    T* next_free = nullptr;
};

// Numbers for objects that a peer names in its replies: index and generation, so that a late or
// wrong reply never meets another object.
template <class T>
class SlotPool {
public:
    // All fields have their initial values: the last use may have been another kind of operation.
    // A T whose construction costs too much says itself how it becomes new: renew().
    T& take() {
        if (free_ == nullptr) {
            all_.push_back(std::make_unique<T>());
            free_ = all_.back().get();
            free_->index = static_cast<std::uint32_t>(all_.size() - 1);
            free_->generation = first_generation_;
        }
        T& object = *free_;
        HEDDLE_ASSERT(!object.in_use);
        HEDDLE_DEBUG_ASSERT(is_of_this(object), "the list of free objects leads elsewhere");
        free_ = object.next_free;
        if constexpr (requires { object.renew(); }) {
            object.renew();
        } else {
            const PoolSlot<T> slot = object;
            std::destroy_at(&object);
            std::construct_at(&object);
            static_cast<PoolSlot<T>&>(object) = slot;
        }
        object.in_use = true;
        return object;
    }
    void give_back(T& object) noexcept {
        HEDDLE_ASSERT(object.in_use);
        HEDDLE_DEBUG_ASSERT(is_of_this(object), "an object goes back to the pool it came from");
        object.in_use = false;
        ++object.generation;
        object.next_free = free_;
        free_ = &object;
    }
    // The object must have been made: index is below the number of all.
    T& at(std::uint32_t index) const noexcept {
        HEDDLE_DEBUG_ASSERT(index < all_.size(), "no object of that index was made");
        return *all_[index];
    }
    static std::uint64_t id(const T& object) noexcept {
        return std::uint64_t{object.generation} << 32 | object.index;
    }
    T* find(std::uint64_t id) const noexcept {
        const auto index = static_cast<std::uint32_t>(id);
        if (index >= all_.size()) return nullptr;
        T& object = *all_[index];
        return object.in_use && object.generation == id >> 32 ? &object : nullptr;
    }
    template <class Use>
    void for_each_in_use(Use&& use) const {
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (all_[i]->in_use) use(*all_[i]);
    }

    // Returns the memory of all objects above `kept`. None is in use. An object that is made again
    // in such a place has a number that none had there before.
    void trim(std::size_t kept) {
        if (all_.size() <= kept) return;
        for (std::size_t i = kept; i < all_.size(); ++i) {
            HEDDLE_ASSERT(!all_[i]->in_use, "an object that somebody has would go");
            first_generation_ = std::max(first_generation_, all_[i]->generation);
        }
        all_.resize(kept);
        all_.shrink_to_fit();
        free_ = nullptr;
        for (std::size_t i = kept; i-- != 0;) {
            HEDDLE_ASSERT(!all_[i]->in_use, "its place in the list of free objects would be lost");
            all_[i]->next_free = free_;
            free_ = all_[i].get();
        }
    }
    std::size_t size() const noexcept { return all_.size(); }

private:
    bool is_of_this(const T& object) const noexcept {
        return object.index < all_.size() && all_[object.index].get() == &object;
    }
    std::vector<std::unique_ptr<T>> all_;
    T* free_ = nullptr;                   // the first of those that are
    std::uint32_t first_generation_ = 0;  // of an object in a new place
};

}  // namespace heddle::protocol
