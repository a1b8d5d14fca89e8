// SPDX-License-Identifier: BSD-2-Clause
// The names of the categories and what each shares: see heddle/category.h.
#include "heddle/category.h"

#include <array>
#include <cstddef>

#include "heddle/detail/assert.h"
#include "heddle/device.h"

namespace heddle {
namespace {

constexpr std::array<std::string_view, std::size(kCategories)> kNames = {
    "mpi-everywhere", "2xdynamic", "dynamic", "shared-dynamic", "static", "mpi+threads"};

}  // namespace

std::string_view name(Category category) noexcept {
    HEDDLE_ASSERT(static_cast<std::size_t>(category) < kNames.size(), "no category");
    return kNames[static_cast<std::size_t>(category)];
}

std::optional<Category> category(std::string_view name) noexcept {
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (kNames[i] == name) return kCategories[i];
    return std::nullopt;
}

Sharing sharing_of(Category category, std::uint32_t threads) noexcept {
    // In all categories but MPI everywhere, the threads share one context, one PD and one MR.
    Sharing sharing;
    sharing.context = sharing.pd = sharing.mr = threads;
    switch (category) {
        case Category::kMpiEverywhere:
            return {};
        case Category::k2xDynamic:
            sharing.placement = Placement::kDoubled;
            break;
        case Category::kDynamic:
            sharing.placement = Placement::kIndependent;
            break;
        case Category::kSharedDynamic:
            sharing.placement = Placement::kPaired;
            break;
        case Category::kStatic:
            break;
        case Category::kMpiThreads:
            sharing.cq = sharing.qp = threads;
            break;
    }
    return sharing;
}

Category made_on(const DeviceInfo& device, Category wanted) noexcept {
    const bool can = device.thread_domains || sharing_of(wanted, 1).placement == Placement::kDriver;
    return can ? wanted : Category::kStatic;
}

}  // namespace heddle
