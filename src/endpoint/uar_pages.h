// SPDX-License-Identifier: BSD-2-Clause
// Which UAR pages this process has mapped, as the kernel tells it (/proc/self/maps): the only place
// where the pages that a context is given at its opening show.
#pragma once

#include <cstdint>
#include <map>

namespace heddle::endpoint {

// Address of the page, and its offset in the device file, which says what kind it is.
using UarPages = std::map<std::uintptr_t, std::uint64_t>;

UarPages mapped_uar_pages();

// Is this offset that of a UAR object, made on demand (kernels since 5.9 with libmlx5 since v31),
// or of a page that the kernel gives each context at open?
bool is_uar_object(std::uint64_t offset) noexcept;

}  // namespace heddle::endpoint
