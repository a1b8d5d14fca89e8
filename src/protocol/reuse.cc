// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/reuse.h"

#include <new>

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
    for (const Buffer& buffer : buffers_)
        if (buffer.region != nullptr) cache_.release(buffer.region);
}

Reuse::Buffer* Reuse::frequent(memory::ReuseTable::Entry& entry, const void* address,
                               std::size_t bytes) noexcept {
    if (table_.epoch() != swept_) [[unlikely]] {
        sweep();
        if (entry.value == 0) return nullptr;
    }
    Buffer& buffer = buffers_[entry.value - 1];
    if (buffer.address != address || buffer.bytes != bytes) return nullptr;
    // In this order: what had gone before the application called us has either been marked, or is
    // being (address_monitor.h).
    if (cache_.monitor().changing()) return nullptr;
    if (buffer.region->gone()) {
        if (buffer.in_flight == 0) {
            ++counts_.gone;
            end(entry.value - 1);
        }
        return nullptr;
    }
    buffer.last_epoch = table_.epoch();
    ++counts_.frequent;
    return &buffer;
}

Reuse::Buffer* Reuse::promote(memory::ReuseTable::Entry& entry, const void* address,
                              std::size_t bytes) noexcept {
    if (table_.epoch() != swept_) sweep();
    std::uint32_t index = free_;
    if (index == 0) {
        if (buffers_.size() == kMostFrequent) return nullptr;
        try {
            // Their users keep pointers to them while a work is under way.
            if (buffers_.capacity() == 0) buffers_.reserve(kMostFrequent);
            buffers_.emplace_back();
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
        index = static_cast<std::uint32_t>(buffers_.size());
    } else {
        free_ = buffers_[index - 1].next_free;
    }
    Buffer& buffer = buffers_[index - 1];
    buffer = {};
    buffer.region = cache_.hold(address, bytes, access_);
    if (buffer.region == nullptr) {
        ++counts_.refused;
        buffer.next_free = free_;
        free_ = index;
        // It is not asked for again before its entry has made room.
        entry.forget();
        return nullptr;
    }
    ++counts_.promoted;
    buffer.address = address;
    buffer.bytes = bytes;
    buffer.last_epoch = table_.epoch();
    entry.value = index;
    return nullptr;  // this once by a copy: it may have gone while it was registered
}

void Reuse::end(std::uint32_t index) noexcept {
    Buffer& buffer = buffers_[index];
    table_.forget(buffer.address, buffer.bytes);
    cache_.release(buffer.region);
    buffer = {};
    buffer.next_free = free_;
    free_ = index + 1;
}

void Reuse::sweep() noexcept {
    swept_ = table_.epoch();
    for (std::uint32_t i = 0; i < buffers_.size(); ++i) {
        Buffer& buffer = buffers_[i];
        if (buffer.region == nullptr || buffer.in_flight != 0) continue;
        if (buffer.region->gone())
            ++counts_.gone;
        else if (((swept_ - buffer.last_epoch) & 0xffff) > kKeptEpochs)
            ++counts_.aged;
        else
            continue;
        end(i);
    }
}

ReuseCounts Reuse::counts() const noexcept {
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
