// SPDX-License-Identifier: BSD-2-Clause
// The resources of the adapter that endpoints use, as the driver and the kernel report them. No
// number here is computed from a formula.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "heddle/detail/assert.h"

namespace heddle {

/// Counts of the verbs objects and doorbell registers behind a set of endpoints. The columns of the
/// resource tables in "Scalable Communication Endpoints for MPI+Threads Applications" (ICPADS'18,
/// section VI).
///
///     const heddle::Usage& usage = set.usage();
///     std::printf("%u QPs, %zu bytes", usage.qps, usage.bytes);
///     if (usage.uuars) std::printf(", %u of %u uUARs rung", *usage.uuars_used, *usage.uuars);
///
/// The four optional counts have values on mlx5 devices only: other drivers show no UARs.
struct Usage {
    std::uint32_t contexts = 0;        ///< device contexts
    std::uint32_t pds = 0;             ///< protection domains
    std::uint32_t mrs = 0;             ///< memory regions
    std::uint32_t qps = 0;             ///< queue pairs, those that stay idle included
    std::uint32_t cqs = 0;             ///< completion queues, those that stay idle included
    std::uint32_t thread_domains = 0;  ///< thread domains, those that stay idle included
    /// UAR pages mapped for the doorbells and BlueFlame writes of QPs. The pages that the kernel
    /// maps when a context is opened are included.
    std::optional<std::uint32_t> uars;
    /// UAR pages that hold doorbells of CQs alone. Kernels with dynamic UARs give each context such
    /// a page.
    std::optional<std::uint32_t> cq_uars;
    /// Doorbell registers for data on the pages of `uars`: two on each page.
    std::optional<std::uint32_t> uuars;
    /// Distinct registers that at least one QP rings.
    std::optional<std::uint32_t> uuars_used;
    /// Bytes by which the heap grew while the objects were created: the driver's objects and
    /// queues.
    std::size_t bytes = 0;

    /// Returns the registers that no QP rings; nullopt if the device is not an mlx5. Any thread.
    std::optional<std::uint32_t> uuars_wasted() const noexcept {
        if (!uuars || !uuars_used) return std::nullopt;
        HEDDLE_DEBUG_ASSERT(*uuars_used <= *uuars, "QPs ring registers of mapped pages only");
        return *uuars - *uuars_used;
    }
};

/// What a kernel gives a new context before the context requests anything.
enum class UarKernel : std::uint8_t {
    kStatic,   ///< pages with 16 uUARs, as in the ICPADS'18 paper (2018)
    kDynamic,  ///< no pages; they are allocated on demand (Linux 5.9 and libmlx5 31, or later)
};

/// Finds out what the kernel gives to contexts that this process opens.
///
/// It opens a context, looks at its mappings in /proc/self/maps, and closes it.
///
///     if (heddle::uar_kernel("") == heddle::UarKernel::kStatic) std::puts("16 uUARs a context");
///
/// @param device the device's name; empty: the first device with an active port
/// @return nullopt if the device is not an mlx5
/// @throw VerbsError ENODEV: no such device. Any other errno: the device cannot be opened
/// Thread safety: only while no other thread opens or closes a context.
std::optional<UarKernel> uar_kernel(const std::string& device);

}  // namespace heddle
