// SPDX-License-Identifier: BSD-2-Clause
// Decides which paths are softhca's, by their text and without the file system. There are three
// steps. Each costs more than the one before, and each decides for all but a few paths:
// 1. foreign() scans the text as given. Every path of ours contains one of a few names, whatever it
//    is relative to. So nearly all paths of a program end here.
// 2. walk() computes the absolute path, without "//", "." and "..".
// 3. claim_of() says whether that is a path of ours.
#pragma once

#include <cstddef>
#include <string_view>

#include <limits.h>

namespace softhca::preload {

enum class Claim {
    kNone,        // the host's
    kTree,        // in the discovery tree
    kDevice,      // the character device
    kManager,     // that of rdma_cm
    kDeviceLink,  // a symbolic link to it; the device, for calls that follow links
};

// A path of at most PATH_MAX - 1 bytes, always terminated. Only its first byte is initialised,
// because interposed calls keep it on the stack.
class PathBuffer {
public:
    PathBuffer() noexcept { clear(); }
    void clear() noexcept {
        length_ = 0;
        text_[0] = '\0';
    }
    const char* c_str() const noexcept { return text_; }
    char* data() noexcept { return text_; }
    std::size_t length() const noexcept { return length_; }
    std::string_view view() const noexcept { return {text_, length_}; }

    bool assign(std::string_view text) noexcept;
    bool append(std::string_view text) noexcept;   // false, and unchanged, if it is too long
    bool push(std::string_view segment) noexcept;  // appends "/segment"
    void pop() noexcept;                           // removes the last "/segment", if any
    void set_length(std::size_t length) noexcept;  // call it after writing to data()

private:
    std::size_t length_;
    char text_[PATH_MAX];
};

// Whether the text contains one of the names that every path of ours contains.
bool mentions_device(const char* path) noexcept;

// Whether the text has a ".." segment.
bool has_parent_segment(const char* path) noexcept;

// Step 1 for absolute paths: true if the path is certainly not ours.
inline bool foreign_absolute(const char* path) noexcept {
    // Paths begin with "/sys", "/dev", or text that normalisation may turn into them.
    const char first = path[1];
    if (first != 's' && first != 'd' && first != '/' && first != '.' && !has_parent_segment(path)) {
        return true;
    }
    return !mentions_device(path);
}

// The claim on an absolute path without ".", ".." or empty segments. "" is the root. If the path
// names one of several devices, *device is set to its number.
Claim claim_of(std::string_view path, unsigned* device) noexcept;
inline Claim claim_of(std::string_view path) noexcept {
    unsigned ignored = 0;
    return claim_of(path, &ignored);
}

// Resolves `path` against `base` into `out`, segment by segment. `base` is absolute and normalised,
// and ignored if `path` is absolute. Symbolic links stay, except in front of "..": there `real` is
// called to replace the path so far by its target. `real` returns true if that is done or not
// necessary.
// Returns 0 or an errno: ENAMETOOLONG, ENOENT if `path` is "", or EAGAIN if `real` fails.
using RealPath = bool (*)(PathBuffer* path);
struct Walk {
    bool crossed_ours;    // ".." was applied inside softhca's part of the name space
    bool trailing_slash;  // the path demands a directory
};
int walk(std::string_view base, const char* path, RealPath real, PathBuffer* out,
         Walk* walk) noexcept;

}  // namespace softhca::preload
