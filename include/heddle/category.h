// SPDX-License-Identifier: BSD-2-Clause
// How much of the adapter threads share: the six categories of "Scalable Communication Endpoints
// for MPI+Threads Applications" (Zambre, Chandramowlishwaran, Balaji, ICPADS'18, section VI), and
// the x-way sharing of single resources (section V).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

/// The six categories, from most to least independent, in the order of the paper.
///
/// Which threads may post and poll depends on the category: docs/concepts/endpoints.md has the
/// table. In `k2xDynamic`, `kDynamic` and `kSharedDynamic` one thread at a time uses an endpoint.
/// In the others any thread may, since locks are kept.
///
///     heddle::EndpointSet fast("", heddle::Category::kDynamic, 16);      // 16 UAR pages
///     heddle::EndpointSet small("", heddle::Category::kMpiThreads, 16);  // one QP, one lock
enum class Category : std::uint8_t {
    kMpiEverywhere,  ///< each endpoint has a context of its own; its QP keeps the driver's lock
    k2xDynamic,      ///< one context, 2n independent thread domains, every other one used
    kDynamic,        ///< one context, n independent thread domains
    kSharedDynamic,  ///< one context, n thread domains, two on a UAR page
    kStatic,         ///< one context, n QPs where the driver puts them; locks on QP and uUAR
    kMpiThreads,     ///< one context and one QP that all threads share
};

/// All categories, in the order of their values.
inline constexpr Category kCategories[] = {Category::kMpiEverywhere, Category::k2xDynamic,
                                           Category::kDynamic,       Category::kSharedDynamic,
                                           Category::kStatic,        Category::kMpiThreads};

/// Returns a category's name: "mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static"
/// or "mpi+threads".
///
/// @param category one of kCategories
/// @return text with static storage duration
/// Thread safety: any thread.
std::string_view name(Category category) noexcept;

/// Finds the category with a name.
///
///     if (const auto category = heddle::category(argv[1])) run(*category);
///
/// @param name as the other name() returns it; case matters
/// @return nullopt if no category has that name
/// Thread safety: any thread.
std::optional<Category> category(std::string_view name) noexcept;

/// How the QPs of one shared context get their uUARs (ICPADS'18, section V and appendix B).
enum class Placement : std::uint8_t {
    kDriver,       ///< plain QPs: the driver chooses the uUAR and keeps the QP's lock
    kIndependent,  ///< a thread domain for each QP, alone on its UAR page
    kDoubled,      ///< kIndependent, with twice as many QPs as are used: none has a busy neighbour
    kPaired,       ///< a thread domain for each QP, two on a UAR page
};

/// How many threads share one object of each kind. 1: each thread has its own; x: thread t uses
/// object t / x.
///
/// Two rules hold, and EndpointSet refuses a Sharing that breaks one of them (EINVAL). An object is
/// shared by at least as many threads as each object that belongs to it. A QP in a thread domain is
/// not shared, since it has no lock.
///
///     heddle::Sharing sharing;                // everything of its own
///     sharing.context = sharing.pd = 4;       // four threads share a context and its PD
///     sharing.placement = heddle::Placement::kIndependent;
///     heddle::EndpointSet set("", sharing, 16);
struct Sharing {
    std::uint32_t context = 1;                 ///< threads for each device context
    std::uint32_t pd = 1;                      ///< threads for each protection domain
    std::uint32_t mr = 1;                      ///< threads for each memory region
    std::uint32_t cq = 1;                      ///< threads for each completion queue
    std::uint32_t qp = 1;                      ///< threads for each queue pair
    std::uint32_t buffer = 1;                  ///< threads for each payload buffer
    Placement placement = Placement::kDriver;  ///< how QPs get their uUARs
};

/// Returns the sharing of which a category consists.
///
/// @param category one of kCategories
/// @param threads the number of endpoints, at least 1: what all threads share has this value
/// Thread safety: any thread.
Sharing sharing_of(Category category, std::uint32_t threads) noexcept;

}  // namespace heddle
