// SPDX-License-Identifier: BSD-2-Clause
// Who shares doorbell registers with whom: threads of a set by the uUARs that their QPs ring, and
// by the UAR pages these are on, as the driver tells.
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

// nullopt: the device shows no registers.
std::optional<UuarThreads> uuar_threads(const EndpointSet& set);

// Of the groups of several: "{4, 15} {5-7}", the first few of many; empty if each thread is alone.
std::string text_of(const ThreadGroups& groups);

}  // namespace heddle::cli
