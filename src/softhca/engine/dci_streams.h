// SPDX-License-Identifier: BSD-2-Clause
// The streams of a DCI (mlx5dv_create_qp(3), mlx5dv_dci_stream_id_reset(3)). Each request names
// one. An error of a request fails its stream alone: what else is posted to it is flushed, until
// the program resets it. Too many failed streams at a time fail the QP.
#pragma once

#include <algorithm>
#include <cstdint>

#include "softhca/base/assert.h"
#include "softhca/device/limits.h"

namespace softhca::engine {

class DciStreams {
public:
    // `failures`: so many failed streams at a time fail the QP. 0: the QP has no streams.
    void begin(std::uint32_t failures) noexcept {
        SOFTHCA_ASSERT(failures <= std::size(failed_), "creating the QP checked the number");
        most_ = failures;
        count_ = 0;
    }
    void forget_failures() noexcept { count_ = 0; }
    bool in_use() const noexcept { return most_ != 0; }
    bool has_failed(std::uint16_t stream) const noexcept { return find(stream) < count_; }
    // False: the QP fails with it.
    bool fail(std::uint16_t stream) noexcept {
        SOFTHCA_DEBUG_ASSERT(in_use() && count_ < most_, "a QP that failed executes nothing");
        if (!has_failed(stream)) failed_[count_++] = stream;
        return count_ < most_;
    }
    // False: it has not failed.
    bool reset(std::uint16_t stream) noexcept {
        const std::uint32_t at = find(stream);
        if (at == count_) return false;
        failed_[at] = failed_[--count_];
        return true;
    }

private:
    std::uint32_t find(std::uint16_t stream) const noexcept {
        return static_cast<std::uint32_t>(std::find(failed_, failed_ + count_, stream) - failed_);
    }
    std::uint32_t most_ = 0, count_ = 0;
    std::uint16_t failed_[1u << device::kMaxLogFailedStreams] = {};
};

}  // namespace softhca::engine
