// SPDX-License-Identifier: BSD-2-Clause
// What users write for a device and its port: "mlx5_0", "mlx5_0:2", "mlx5_[01]", "mlx5_1:1,rxe*".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::verbs {

class DeviceChoice {
public:
    // A list with commas: names or patterns of fnmatch(3), each with a port behind a colon or
    // without one, which stands for every port. Empty: everything. Throws VerbsError (EINVAL).
    explicit DeviceChoice(const std::string& text);

    bool allows_all() const noexcept { return entries_.empty(); }
    bool allows_device(const std::string& name) const noexcept;
    bool allows(const std::string& name, std::uint8_t port) const noexcept;

private:
    struct Entry {
        std::string pattern;
        std::uint8_t port;  // 0: all
    };
    std::vector<Entry> entries_;
};

// Returns "mlx5_0" for port 1, "mlx5_0:2" for port 2.
std::string name_of_port(const std::string& device, std::uint8_t port);

}  // namespace heddle::verbs
