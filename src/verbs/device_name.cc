// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/device_name.h"

#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::verbs {

DeviceChoice::DeviceChoice(const std::string& text) {
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string entry = text.substr(begin, end - begin);
        begin = end + 1;
        if (entry.empty()) continue;
        const std::size_t colon = entry.find(':');
        unsigned port = 0;
        if (colon != std::string::npos) {
            const char* const last = entry.data() + entry.size();
            const auto [rest, error] = std::from_chars(entry.data() + colon + 1, last, port);
            if (colon == 0 || error != std::errc{} || rest != last || port == 0 || port > 255)
                throw VerbsError("the device \"" + entry + "\"", EINVAL,
                                 "possible are names and patterns, with a port or without: "
                                 "mlx5_0, mlx5_0:2, mlx5_[01]:1");
        }
        entries_.push_back({entry.substr(0, colon), static_cast<std::uint8_t>(port)});
    }
}

bool DeviceChoice::allows_device(const std::string& name) const noexcept {
    return entries_.empty() || std::ranges::any_of(entries_, [&](const Entry& entry) {
               return ::fnmatch(entry.pattern.c_str(), name.c_str(), 0) == 0;
           });
}

bool DeviceChoice::allows(const std::string& name, std::uint8_t port) const noexcept {
    HEDDLE_ASSERT(port != 0, "ports are numbered from 1");
    return entries_.empty() || std::ranges::any_of(entries_, [&](const Entry& entry) {
               return (entry.port == 0 || entry.port == port) &&
                      ::fnmatch(entry.pattern.c_str(), name.c_str(), 0) == 0;
           });
}

std::string name_of_port(const std::string& device, std::uint8_t port) {
    return port == 1 ? device : device + ":" + std::to_string(port);
}

}  // namespace heddle::verbs
