// SPDX-License-Identifier: BSD-2-Clause
// What endpoints are made of, as the driver and the kernel report it; nothing is computed from
// formulas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace heddle {

struct Usage {
    std::uint32_t contexts = 0, pds = 0, mrs = 0, qps = 0, cqs = 0, thread_domains = 0;
    // On mlx5; nullopt elsewhere: other drivers show no UARs.
    // Pages mapped for doorbells and BlueFlame, those that the kernel maps at open included.
    std::optional<std::uint32_t> uars;
    // Pages for doorbells of CQs alone, which today's kernels give each context.
    std::optional<std::uint32_t> cq_uars;
    std::optional<std::uint32_t> uuars;       // registers on those pages: two each
    std::optional<std::uint32_t> uuars_used;  // distinct registers that QPs ring
    // Memory of the driver's objects and queues: growth of the heap while they were made.
    std::size_t bytes = 0;

    std::optional<std::uint32_t> uuars_wasted() const noexcept {
        if (!uuars || !uuars_used) return std::nullopt;
        return *uuars - *uuars_used;
    }
};

// What the kernel gives a context before it asks for anything: pages for 16 uUARs, as in 2018
// (static), or nothing, as today (dynamic).
enum class UarKernel : std::uint8_t { kStatic, kDynamic };

// Which it is, for contexts that this process opens on that device (empty: the first with an active
// port): one is opened and looked at. nullopt on other devices than mlx5. Throws VerbsError.
std::optional<UarKernel> uar_kernel(const std::string& device);

}  // namespace heddle
