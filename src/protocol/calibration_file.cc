// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/calibration_file.h"

#include <unistd.h>
#include <algorithm>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>

namespace heddle::protocol {
namespace {

constexpr std::size_t kMostBytes = 1 << 14;

std::string harmless(const std::string& text) {
    std::string name;
    for (const char c : text)
        name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ? c : '_';
    return name;
}

}  // namespace

std::filesystem::path calibration_file(const std::string& kind, const DeviceInfo& device) {
    std::filesystem::path folder;
    if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
        folder = cache;
    else if (const char* const home = std::getenv("HOME"); home != nullptr && *home == '/')
        folder = std::filesystem::path(home) / ".cache";
    else
        return {};
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    return folder / "heddle" /
           harmless(kind + "-" + host + "-" + device.name + "-" + device.board + "-" +
                    device.firmware + "-" + HEDDLE_VERSION);
}

std::string read_calibration(const std::filesystem::path& file) {
    if (file.empty()) return {};
    std::ifstream in(file);
    std::string text(kMostBytes, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    return text;
}

// Beside it, and then in its place: other processes see the one or the other.
bool write_calibration(const std::filesystem::path& file, const std::string& text) noexcept {
    try {
        std::error_code error;
        std::filesystem::create_directories(file.parent_path(), error);
        std::filesystem::path fresh = file;
        fresh += "." + std::to_string(::getpid());
        {
            std::ofstream out(fresh);
            out << text;
            if (!out.flush()) {
                std::filesystem::remove(fresh, error);
                errno = EIO;
                return false;
            }
        }
        std::filesystem::rename(fresh, file, error);
        if (error) std::filesystem::remove(fresh, error);
        return !error;
    } catch (const std::exception&) {
        errno = ENOMEM;
        return false;
    }
}

std::string exact(double value) {
    char digits[64];
    return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

double median(std::vector<double>& times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

}  // namespace heddle::protocol
