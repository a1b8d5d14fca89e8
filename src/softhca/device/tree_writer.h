// SPDX-License-Identifier: BSD-2-Clause
// Creates the entries of the discovery tree (tree.h).
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/device/identity.h"

namespace softhca::device {

// Creates the entries of one tree, or changes those of a tree that programs read. It keeps the
// first error and does nothing after it.
class TreeWriter {
public:
    enum class Mode : std::uint8_t { kCreate, kChange };
    explicit TreeWriter(int root, Mode mode = Mode::kCreate) noexcept : root_(root), mode_(mode) {
        SOFTHCA_ASSERT(root >= 0);
    }

    int error() const noexcept { return error_; }

    // Creates the directory and its ancestors.
    void directory(const std::string& path) {
        SOFTHCA_ASSERT(!path.empty() && path.front() != '/');
        for (std::size_t slash = path.find('/');; slash = path.find('/', slash + 1)) {
            const std::string part = path.substr(0, slash);
            if (error_ == 0 && libc::mkdirat(root_, part.c_str(), 0700) == 0) {
                if (fchmodat(root_, part.c_str(), 0700, 0) != 0) fail(part);  // despite the umask
            } else if (error_ == 0 && errno != EEXIST) {
                fail(part);
            }
            if (slash == std::string::npos) {
                return;
            }
        }
    }

    void content(const std::string& path, std::string_view bytes) {
        if (error_ != 0) {
            return;
        }
        // A file that programs may be reading is replaced as a whole.
        const bool changes = mode_ == Mode::kChange;
        if (changes) libc::unlinkat(root_, kFresh, 0);
        const int fd = libc::openat(root_, changes ? kFresh : path.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) {
            fail(path);
            return;
        }
        libc::fchmod(fd, 0600);  // despite the umask
        while (!bytes.empty()) {
            const ssize_t written = libc::write(fd, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written <= 0) {
                fail(path);
                break;
            }
            SOFTHCA_ASSERT(static_cast<std::size_t>(written) <= bytes.size());
            bytes.remove_prefix(static_cast<std::size_t>(written));
        }
        libc::close(fd);
        if (changes && error_ == 0 && libc::renameat2(root_, kFresh, root_, path.c_str(), 0) != 0) {
            fail(path);
        }
    }

    // An attribute that a program cannot read.
    void absent(const std::string& path) {
        if (error_ == 0 && libc::unlinkat(root_, path.c_str(), 0) != 0 && errno != ENOENT) {
            fail(path);
        }
    }

    // One line of text, which is the form of nearly every attribute.
    __attribute__((format(printf, 3, 4))) void line(const std::string& path, const char* format,
                                                    ...) {
        char text[1024];
        va_list arguments;
        va_start(arguments, format);
        const int length = std::vsnprintf(text, sizeof text - 1, format, arguments);
        va_end(arguments);
        if (length < 0 || static_cast<std::size_t>(length) >= sizeof text - 1) {
            errno = EOVERFLOW;
            fail(path);
            return;
        }
        text[length] = '\n';
        content(path, {text, static_cast<std::size_t>(length) + 1});
    }

    void link(const std::string& path, const std::string& target) {
        if (error_ == 0 && libc::symlinkat(target.c_str(), root_, path.c_str()) != 0) {
            fail(path);
        }
    }

private:
    void fail(const std::string& path) {
        if (error_ == 0) {
            error_ = errno != 0 ? errno : EIO;
            LOG_ERROR("cannot write %s of the discovery tree: %s", path.c_str(),
                      std::strerror(error_));
        }
    }

    static constexpr const char* kFresh = "fresh";  // in the root, where no program looks

    int root_;
    Mode mode_;
    int error_ = 0;
};

inline constexpr int kTreeDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The folder of a device's PCI function in the tree.
inline std::string pci_path(unsigned device) {
    return std::string("sys/devices/") + kPciDomainBus + "/" + pci_address(device).c_str();
}

inline std::string tree_number(unsigned value) { return std::to_string(value); }

// The eight groups of a GID.
inline std::string gid_groups(std::uint64_t high, std::uint64_t low) {
    char text[64];
    const auto group = [](std::uint64_t half, int index) {
        return static_cast<unsigned>(half >> (48 - 16 * index)) & 0xffffU;
    };
    std::snprintf(text, sizeof text, "%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x", group(high, 0),
                  group(high, 1), group(high, 2), group(high, 3), group(low, 0), group(low, 1),
                  group(low, 2), group(low, 3));
    return text;
}

inline std::string guid_groups(std::uint64_t value) { return gid_groups(0, value).substr(20); }

}  // namespace softhca::device
