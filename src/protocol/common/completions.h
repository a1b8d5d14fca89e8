// SPDX-License-Identifier: BSD-2-Clause
// Where finished operations wait to be read: what stands behind an fi_cq and an fi_cntr. A ring
// that grows, so that nothing is lost however late it is read. By one thread at a time.
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

// The report of an operation without an error, in the order of fi_cq_tagged_entry.
struct PlainEntry {
    void* context = nullptr;
    std::uint64_t flags = 0;  // FI_SEND | FI_TAGGED ...: as fi_cq_read gives them
    std::size_t bytes = 0;
    void* buffer = nullptr;
    std::uint64_t data = 0;
    std::uint64_t tag = 0;
    void add_data(std::uint64_t remote) noexcept {
        flags |= FI_REMOTE_CQ_DATA;
        data = remote;
    }
};

struct CompletionEntry : PlainEntry {
    std::uint64_t source = ~std::uint64_t{0};  // fi_addr_t, or FI_ADDR_NOTAVAIL
    // If there is an error: an FI_E... number, else 0; what the device said; bytes that did not
    // fit.
    int error = 0;
    int device_error = 0;
    std::size_t overlong = 0;
};

class Completions {
public:
    bool empty() const noexcept { return head_ == tail_; }
    std::size_t size() const noexcept { return tail_ - head_; }
    const CompletionEntry& front() const noexcept {
        HEDDLE_DEBUG_ASSERT(!empty(), "the caller has looked for an entry");
        return ring_[head_ & (capacity_ - 1)];
    }
    void pop() noexcept {
        HEDDLE_DEBUG_ASSERT(!empty(), "an entry was read twice");
        ++head_;
    }
    // Is there memory for one more? After make_room() there is.
    bool has_room() const noexcept { return tail_ - head_ != capacity_; }
    void make_room() {
        if (!has_room()) [[unlikely]]
            grow();
    }
    // The caller fills it in.
    CompletionEntry& push() {
        CompletionEntry& entry = push_unset();
        entry = {};
        return entry;
    }
    // The caller fills all of it in.
    CompletionEntry& push_unset() {
        reader_room_ = 0;  // what comes later is read later
        make_room();
        return ring_[tail_++ & (capacity_ - 1)];
    }

    // A reader that has found nothing says where it wants up to `count` plain entries, and makes
    // progress: they are put there instead of into the ring, until one comes that is not plain.
    // How many there are.
    template <class Progress>
    std::size_t read_while(PlainEntry* to, std::size_t count, const Progress& progress) {
        struct Reading {
            Completions& self;
            ~Reading() {
                self.reader_room_ = 0;
                self.reader_ = self.reader_begin_ = nullptr;
            }
        } const reading{*this};
        HEDDLE_DEBUG_ASSERT(empty() && reader_room_ == 0,
                            "one reader at a time, who found nothing");
        reader_ = reader_begin_ = to;
        reader_room_ = count;
        progress();
        HEDDLE_DEBUG_ASSERT(reader_ >= to && reader_ <= to + count,
                            "more entries than there is room");
        return static_cast<std::size_t>(reader_ - to);
    }
    // An entry waits to be read, here or in the reader's array.
    bool has_entry() const noexcept { return !empty() || reader_ != reader_begin_; }
    // The next entry of the reader's array, or nullptr if it has no room: then call push().
    PlainEntry* plain() noexcept {
        if (reader_room_ == 0) return nullptr;
        --reader_room_;
        return reader_++;
    }

private:
    void grow() {
        HEDDLE_ASSERT(tail_ - head_ == capacity_, "a ring grows when it is full");
        const std::size_t larger = capacity_ == 0 ? 256 : 2 * capacity_;
        auto ring = std::make_unique<CompletionEntry[]>(larger);
        for (std::size_t at = head_; at != tail_; ++at)
            ring[at & (larger - 1)] = ring_[at & (capacity_ - 1)];
        ring_ = std::move(ring);
        capacity_ = larger;
    }
    std::unique_ptr<CompletionEntry[]> ring_;
    std::size_t capacity_ = 0, head_ = 0, tail_ = 0;  // free-running
    PlainEntry *reader_ = nullptr, *reader_begin_ = nullptr;
    std::size_t reader_room_ = 0;
};

// Read by any thread, changed by one at a time.
struct Counter {
    std::atomic<std::uint64_t> done{0}, failed{0};
    void add(bool ok) noexcept {
        std::atomic<std::uint64_t>& which = ok ? done : failed;
        which.store(which.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
};

}  // namespace heddle::protocol
