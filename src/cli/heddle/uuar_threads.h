// SPDX-License-Identifier: BSD-2-Clause
// Which threads share doorbell registers: the threads of a set, grouped by the uUARs that their QPs
// ring, and by the UAR pages of these uUARs. The driver tells which these are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/endpoint.h"

namespace heddle::cli {

using ThreadGroups = std::vector<std::vector<std::uint32_t>>;

struct UuarThreads {
    ThreadGroups uuars, pages;  // threads of each, in the order of their first
};

// nullopt: the driver does not show the registers.
std::optional<UuarThreads> uuar_threads(const EndpointSet& set);

// The groups of two threads or more, "{4, 15} {5-7}"; the first few if there are many. Empty if no
// thread shares.
std::string text_of(const ThreadGroups& groups);

}  // namespace heddle::cli
