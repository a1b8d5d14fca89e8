// SPDX-License-Identifier: BSD-2-Clause
// Where what was measured on this host is kept, for the programs of a user: text files, one for
// each kind, host, device, firmware and version, in $XDG_CACHE_HOME or ~/.cache.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heddle/device.h"

namespace heddle::protocol {

// The file of that kind ("reuse") and device. An empty path: there is no home for it.
std::filesystem::path calibration_file(const std::string& kind, const DeviceInfo& device);
// Empty: there is none. At most 16 KiB.
std::string read_calibration(const std::filesystem::path& file);
// Other processes see all of it, or what was there. False: errno says why not.
bool write_calibration(const std::filesystem::path& file, const std::string& text) noexcept;
// Digits that are read back as exactly this, in any locale: a reader of a file then decides as its
// writer did.
std::string exact(double value);

// A longer time in a calibration file was not measured.
constexpr double kMostNanoseconds = 1e12;

// The middle one of `times`, which must not be empty; reorders them.
double median(std::vector<double>& times);

}  // namespace heddle::protocol
