// SPDX-License-Identifier: BSD-2-Clause
// Finds the UAR pages that this process has mapped, in /proc/self/maps. No other interface shows
// the pages that a context gets when it is opened.
#pragma once

#include <cstdint>
#include <map>

namespace heddle::endpoint {

// By address: the page's offset in the device file, which says what kind of page it is.
using UarPages = std::map<std::uintptr_t, std::uint64_t>;

UarPages mapped_uar_pages();

// Returns whether an offset is that of a UAR object, which libmlx5 allocates on demand (Linux 5.9
// and libmlx5 31, or later). All others are pages that the kernel gives each context at open.
bool is_uar_object(std::uint64_t offset) noexcept;

}  // namespace heddle::endpoint
