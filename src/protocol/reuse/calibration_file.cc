// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/reuse/calibration_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "heddle/detail/assert.h"

namespace heddle::protocol {
namespace {

constexpr std::size_t kMostBytes = 1 << 14;

std::string harmless(const std::string& text) {
    std::string name;
    for (const char c : text)
        name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ? c : '_';
    return name;
}

// False: errno says why.
bool write_whole(int fd, std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

}  // namespace

std::filesystem::path calibration_file(const std::string& kind, const DeviceInfo& device) {
    HEDDLE_ASSERT(!kind.empty(), "each kind of costs has files of its own");
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
    HEDDLE_ASSERT(!file.empty(), "the caller knows that there is a home for the file");
    HEDDLE_ASSERT(text.size() < kMostBytes, "read_calibration() reads the whole file");
    try {
        std::error_code error;
        std::filesystem::create_directories(file.parent_path(), error);
        // A new file (O_EXCL) of a name that nobody can know before: no link that somebody has put
        // there is followed.
        std::string fresh = file.string() + ".XXXXXX";
        const int fd = ::mkostemp(fresh.data(), O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) return false;
        int failed = write_whole(fd, text) ? 0 : errno;
        if (::close(fd) != 0 && failed == 0) failed = errno;
        if (failed == 0 && ::rename(fresh.c_str(), file.c_str()) != 0) failed = errno;
        if (failed != 0) ::unlink(fresh.c_str());
        errno = failed;
        return failed == 0;
    } catch (const std::exception&) {
        errno = ENOMEM;
        return false;
    }
}

std::string exact(double value) {
    char digits[64];
    const auto result = std::to_chars(digits, digits + sizeof digits, value);
    HEDDLE_ASSERT(result.ec == std::errc{}, "the shortest digits of any number have room");
    return std::string(digits, result.ptr);
}

double median(std::vector<double>& times) {
    HEDDLE_ASSERT(!times.empty(), "a median is of one time at least");
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

}  // namespace heddle::protocol
