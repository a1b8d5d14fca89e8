// SPDX-License-Identifier: BSD-2-Clause
// What sending a small buffer costs on this host and device, with a copy and from where it stands,
// and so how often a buffer must be used until registering it has paid: n = R / (C - V) of
// "Exploiting application buffer reuse", section 3.3 (its Table 2), for each size and each way that
// messages go. R: to register and deregister it. C: what the copy adds to an operation from its
// post to its completion, which is what a blocking send waits for; so a gather that costs the
// device more than the copy costs the processor shows as less than nothing, and the copy stays. V:
// the look-up.
//
// Measured once, in some milliseconds, and kept in a file for this host, device and version.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "heddle/device.h"

namespace heddle::protocol {

struct ReuseCosts {
    enum Way : std::uint8_t {
        kSend,      // header and data to a receive queue
        kRing,      // header, data and tail to a ring
        kOneSided,  // data alone
        kWays,
    };
    static constexpr std::size_t kSmallest = 128, kSizes = 14;  // 128 B to 1 MiB, by factors of 2
    static constexpr std::uint32_t kFewestUses = 4;             // however cheap it is
    static constexpr double kLeastShare = 0.05;                 // of the operation with the copy
    static constexpr std::uint32_t kNever = ~std::uint32_t{0};

    // Nanoseconds; medians. 0: not measured.
    struct Cost {
        double registration = 0, copy = 0, lookup = 0;  // copy: the memcpy alone
        std::array<double, kWays> copied{}, gathered{};
        // The share of the break-even, registration / saved.
        double saved(Way way) const noexcept { return copied[way] - gathered[way] - lookup; }
        // What is saved is worth looking for: buffers that are not used again pay for the look-up,
        // and less than this is what a clock of steps of 10 ns makes of nothing.
        bool pays(Way way) const noexcept {
            return registration > 0 && saved(way) >= kLeastShare * copied[way] && saved(way) > 0;
        }
        double uses(Way way) const noexcept { return pays(way) ? registration / saved(way) : 0; }
    };
    std::array<Cost, kSizes> costs{};

    static std::size_t size_of(std::size_t index) noexcept { return kSmallest << index; }
    // The size that is at most so many bytes: what is larger gains more.
    static std::size_t index_of(std::size_t bytes) noexcept;

    // How often a buffer is used before it is registered: so much of the break-even, as what was
    // used that often will be used as often again (section 3.4). kNever: the copy costs less.
    std::uint32_t uses_for(std::size_t bytes, Way way, unsigned percent) const noexcept;

    // For any size, by any way.
    std::uint32_t fewest_uses(unsigned percent) const noexcept;

    // The smallest that pays; all ones: none does.
    std::size_t smallest(Way way) const noexcept;

    // Sizes up to `largest`. Some milliseconds. Throws VerbsError.
    static ReuseCosts measure(ibv_context* context, ibv_pd* pd, std::size_t largest);

    // The file for that device on this host, or an empty path: there is no home for it.
    static std::filesystem::path file(const DeviceInfo& device);
    // nullopt: there is none, or it is not what save() writes.
    static std::optional<ReuseCosts> load(const std::filesystem::path& file);
    bool save(const std::filesystem::path& file) const noexcept;  // errno
    std::string text() const;
    static std::optional<ReuseCosts> parse(const std::string& text);
};

}  // namespace heddle::protocol
