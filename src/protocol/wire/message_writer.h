// SPDX-License-Identifier: BSD-2-Clause
// Writes a message as it travels: a header, and behind it, without gaps, whatever its kind has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "heddle/detail/assert.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// The longest message but eager ones, atomics and their replies: an RTS with all that it may have.
inline constexpr std::size_t kMostControlBytes = sizeof(Header) + sizeof(std::uint64_t) +
                                                 sizeof(PlaceBody) + sizeof(RtsBody) +
                                                 kMaxSegments * sizeof(Segment);
static_assert(sizeof(Segment) == sizeof(SegmentBody) + sizeof(RailKeys));

// Writes into memory of the caller, which must have room for all that is added.
class MessageWriter {
public:
    MessageWriter(std::span<std::byte> room, const Header& header) noexcept : room_(room) {
        add(header);
    }
    template <class Field>
        requires std::is_trivially_copyable_v<Field>
    MessageWriter& add(const Field& field) noexcept {
        HEDDLE_DEBUG_ASSERT(sizeof field <= room_.size() - used_, "a message longer than its room");
        std::memcpy(room_.data() + used_, &field, sizeof field);
        used_ += sizeof field;
        return *this;
    }
    MessageWriter& add_bytes(std::span<const std::byte> bytes) noexcept {
        HEDDLE_DEBUG_ASSERT(bytes.size() <= room_.size() - used_, "a message longer than its room");
        std::copy(bytes.begin(), bytes.end(), room_.begin() + static_cast<std::ptrdiff_t>(used_));
        used_ += bytes.size();
        return *this;
    }
    std::span<const std::byte> written() const noexcept { return room_.first(used_); }

private:
    std::span<std::byte> room_;
    std::size_t used_ = 0;
};

}  // namespace heddle::protocol
