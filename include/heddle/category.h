// SPDX-License-Identifier: BSD-2-Clause
// The six categories of "Scalable Communication Endpoints for MPI+Threads Applications" (ICPADS'18,
// section VI) and the x-way sharing of single resources (section V).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

// In the order of the paper: from most to least independent. What threads may do is said in
// docs/endpoints.md; in short: an endpoint is posted to and polled by one thread at a time, except
// where `shared` below says otherwise.
enum class Category : std::uint8_t {
    kMpiEverywhere,  // a context each; QP lock kept
    k2xDynamic,      // one context, 2n maximally independent thread domains, every other one used
    kDynamic,        // one context, n maximally independent thread domains
    kSharedDynamic,  // one context, n thread domains, two on a UAR page
    kStatic,         // one context, n QPs where the driver puts them; QP lock, uUAR lock
    kMpiThreads,     // one context, one QP that all threads share
};
inline constexpr Category kCategories[] = {Category::kMpiEverywhere, Category::k2xDynamic,
                                           Category::kDynamic,       Category::kSharedDynamic,
                                           Category::kStatic,        Category::kMpiThreads};

// "mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads".
std::string_view name(Category category) noexcept;
std::optional<Category> category(std::string_view name) noexcept;

// How QPs of one shared context come by their uUARs.
enum class Placement : std::uint8_t {
    kDriver,       // plain QPs: where the driver puts them; the QP's lock is kept
    kIndependent,  // a thread domain each, alone on its UAR page
    kDoubled,      // the same, and twice as many QPs as are used: none has a neighbour in use
    kPaired,       // a thread domain each, two on a UAR page
};

// x threads share one of each resource: 1 is one each. A resource cannot be shared less than one it
// belongs to: a context shared 4-way with PDs shared 8-way is refused. Nor can a QP in a thread
// domain be shared, as it has no lock.
struct Sharing {
    std::uint32_t context = 1, pd = 1, mr = 1, cq = 1, qp = 1, buffer = 1;
    Placement placement = Placement::kDriver;
};

// The sharing that makes a category, for n threads.
Sharing sharing_of(Category category, std::uint32_t threads) noexcept;

}  // namespace heddle
