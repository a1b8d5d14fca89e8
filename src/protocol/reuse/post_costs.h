// SPDX-License-Identifier: BSD-2-Clause
// What an operation takes from its post to its completion, by libibverbs and written into an mlx5
// device's queues directly: what FI_HEDDLE_POST=auto goes by. A queue pair has one owner that
// posts, and endpoints have messages of all sizes, so the choice is one for the device. Scale does
// not change it: queue pairs are libmlx5's on both paths, and so is what each takes.
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
    static constexpr std::array<std::size_t, 5> kSizes{8, 64, 512, 4096, 8192};
    struct Cost {
        double verbs = 0, direct = 0;  // nanoseconds, medians
    };
    std::array<Cost, kSizes.size()> costs{};

    // The direct path takes no more than the other, as the mean of all sizes' ratios.
    bool direct_pays() const noexcept;

    // RDMA writes of an endpoint to itself, by both paths in turns; some milliseconds. Throws
    // VerbsError, also where the device is no mlx5.
    static PostCosts measure(const std::string& device);

    static std::filesystem::path file(const DeviceInfo& device);
    static std::optional<PostCosts> load(const std::filesystem::path& file);
    bool save(const std::filesystem::path& file) const noexcept;  // errno
    std::string text() const;
    static std::optional<PostCosts> parse(const std::string& text);
};

}  // namespace heddle::protocol
