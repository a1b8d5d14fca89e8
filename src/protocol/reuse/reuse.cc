// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/reuse/reuse.h"

#include <new>

#include "heddle/detail/assert.h"

namespace heddle::protocol {
namespace {

constexpr std::uint32_t kKeptEpochs = 4;  // without use

}  // namespace

ReuseCounts& ReuseCounts::operator+=(const ReuseCounts& other) noexcept {
    uses += other.uses;
    frequent += other.frequent;
    promoted += other.promoted;
    refused += other.refused;
    gone += other.gone;
    aged += other.aged;
    entries += other.entries;
    used += other.used;
    rests += other.rests;
    for (std::size_t i = 0; i < by_uses.size(); ++i)
        by_uses[i] += other.by_uses[i];
    return *this;
}

Reuse::~Reuse() {
    std::uint32_t released = 0;
    buffers_.for_each_in_use([&](Buffer& buffer) {
        cache_.release(buffer.region);
        ++released;
    });
    HEDDLE_ASSERT(released == live_, "each registered buffer was counted once");
}

Reuse::Buffer* Reuse::frequent(memory::ReuseTable::Entry& entry, const void* address,
                               std::size_t bytes) noexcept {
    if (table_.epoch() != swept_) [[unlikely]] {
        sweep();
        if (entry.value == 0) return nullptr;
    }
    Buffer& buffer = buffers_.at(entry.value - 1);
    HEDDLE_DEBUG_ASSERT(buffer.in_use && buffer.region != nullptr,
                        "an entry is forgotten before its buffer ends");
    if (buffer.address != address || buffer.bytes != bytes) return nullptr;
    // In this order: all that had gone before the application called us has been marked.
    if (!cache_.monitor().settled()) return nullptr;
    if (buffer.region->gone()) {
        if (buffer.in_flight == 0) {
            ++counts_.gone;
            end(buffer);
        }
        return nullptr;
    }
    buffer.last_epoch = table_.epoch();
    ++counts_.frequent;
    return &buffer;
}

Reuse::Buffer* Reuse::promote(memory::ReuseTable::Entry& entry, const void* address,
                              std::size_t bytes) noexcept {
    HEDDLE_ASSERT(entry.value == 0, "a buffer is registered once");
    if (table_.epoch() != swept_) sweep();
    HEDDLE_ASSERT(live_ <= kMostFrequent, "a buffer beyond the limit was registered");
    if (live_ == kMostFrequent) return nullptr;
    memory::RegistrationCache::Region* const region = cache_.hold(address, bytes, access_);
    if (region == nullptr) {
        ++counts_.refused;
        // It is not asked for again before its entry has made room.
        entry.forget();
        return nullptr;
    }
    try {
        Buffer& buffer = buffers_.take();
        HEDDLE_ASSERT(buffer.index < kMostFrequent, "the pool grows only when no buffer is free");
        buffer.region = region;
        buffer.address = address;
        buffer.bytes = bytes;
        buffer.last_epoch = table_.epoch();
        entry.value = buffer.index + 1;
    } catch (const std::bad_alloc&) {
        cache_.release(region);
        return nullptr;
    }
    ++live_;
    ++counts_.promoted;
    return nullptr;  // this once by a copy: it may have gone while it was registered
}

// The buffer must have nothing in flight.
void Reuse::end(Buffer& buffer) noexcept {
    HEDDLE_ASSERT(buffer.in_flight == 0, "the device may still use the registration");
    HEDDLE_ASSERT(live_ != 0, "a buffer ended twice");
    table_.forget(buffer.address, buffer.bytes);
    cache_.release(buffer.region);
    buffers_.give_back(buffer);
    --live_;
}

void Reuse::sweep() noexcept {
    swept_ = table_.epoch();
    buffers_.for_each_in_use([this](Buffer& buffer) {
        if (buffer.in_flight != 0) return;
        if (buffer.region->gone())
            ++counts_.gone;
        else if (((swept_ - buffer.last_epoch) & 0xffff) > kKeptEpochs)
            ++counts_.aged;
        else
            return;
        end(buffer);
    });
}

ReuseCounts Reuse::counts() const noexcept {
    HEDDLE_ASSERT(counts_.promoted == counts_.gone + counts_.aged + live_,
                  "each buffer that was registered is live or has ended once");
    ReuseCounts counts = counts_;
    const memory::ReuseTable::State state = table_.state();
    counts.uses = state.uses;
    counts.entries = state.entries;
    counts.used = state.used;
    counts.rests = state.rests;
    counts.by_uses = state.by_uses;
    return counts;
}

}  // namespace heddle::protocol
