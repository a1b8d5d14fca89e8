// SPDX-License-Identifier: BSD-2-Clause
// What an operation takes from its post to its completion, by libibverbs and written into an mlx5
// device's queues directly: what FI_HEDDLE_POST=auto goes by, by the size of a message and the
// number of queue pairs that are used in turns.
//
// The choice is one for the device. It cannot be made for each message, because a send queue has
// one owner that knows where its next entry goes: libmlx5 keeps that to itself. Nor for each peer,
// because completions of all peers are in one queue, which has one owner that reads it.
//
// Measured by `heddle calibrate`, and kept as the other costs are; not known: directly.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "heddle/device.h"

namespace heddle::protocol {

struct PostCosts {
    static constexpr std::array<unsigned, 2> kQueuePairs{1, 64};
    static constexpr std::array<std::size_t, 5> kSizes{8, 64, 512, 4096, 8192};
    struct Cost {
        double verbs = 0, direct = 0;  // nanoseconds, medians
    };
    // All sizes with the first number of queue pairs, then with the next.
    std::array<Cost, kQueuePairs.size() * kSizes.size()> costs{};
    static constexpr unsigned queue_pairs_of(std::size_t cost) noexcept {
        return kQueuePairs[cost / kSizes.size()];
    }
    static constexpr std::size_t size_of(std::size_t cost) noexcept {
        return kSizes[cost % kSizes.size()];
    }

    // The direct path takes no more than the other, as the mean of all ratios.
    bool direct_pays() const noexcept;

    // RDMA writes of endpoints to themselves, by both paths in turns; some ten milliseconds. Throws
    // VerbsError, also where the device is no mlx5.
    static PostCosts measure(const std::string& device);

    static std::filesystem::path file(const DeviceInfo& device);
    static std::optional<PostCosts> load(const std::filesystem::path& file);
    bool save(const std::filesystem::path& file) const noexcept;  // errno
    std::string text() const;
    static std::optional<PostCosts> parse(const std::string& text);
};

}  // namespace heddle::protocol
