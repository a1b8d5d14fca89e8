// SPDX-License-Identifier: BSD-2-Clause
// Which paths are softhca's: text only, no file system. A path is looked at in three steps, each
// dearer than the one before and each enough for all but a few:
//   1. foreign_text(): a scan of the text as it was given. Every path of ours contains one of a few
//      names, whatever it is relative to, so nearly all paths of a program end here;
//   2. walk(): the absolute path that the text means, "//", "." and ".." taken out of it;
//   3. claim_of(): whether that is a path of ours.
#pragma once

#include <cstddef>
#include <string_view>

#include <limits.h>

namespace softhca::preload {

enum class Claim {
    kNone,        // the host's
    kTree,        // in the discovery tree
    kDevice,      // the character device
    kDeviceLink,  // a symbolic link to it: the device for calls that follow links
};

// A path of at most PATH_MAX - 1 bytes, always terminated. Not initialised beyond its first byte:
// interposed calls keep it on the stack.
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
    bool append(std::string_view text) noexcept;   // false and unchanged: too long
    bool push(std::string_view segment) noexcept;  // appends "/segment"
    void pop() noexcept;                           // removes the last "/segment", if any
    void set_length(std::size_t length) noexcept;  // after data() was written

private:
    std::size_t length_;
    char text_[PATH_MAX];
};

// Whether the text contains a name that every path of ours contains.
bool mentions_device(const char* path) noexcept;

// Whether it has a ".." segment.
bool has_parent_segment(const char* path) noexcept;

// Step 1 for absolute paths: true if the path is certainly none of ours.
inline bool foreign_absolute(const char* path) noexcept {
    // "/sys", "/dev", and what normalisation may turn into them.
    const char first = path[1];
    if (first != 's' && first != 'd' && first != '/' && first != '.' && !has_parent_segment(path)) {
        return true;
    }
    return !mentions_device(path);
}

// What claims an absolute path without ".", ".." or empty segments ("" is the root).
Claim claim_of(std::string_view path) noexcept;

// Resolves `path` against `base` (absolute, normalised; ignored if `path` is absolute) into `out`,
// segment by segment. Symbolic links are left alone except where ".." follows: there `real` is
// asked to replace the path so far by what it stands for (true: done, or nothing to do).
// Returns 0, or ENAMETOOLONG, ENOENT (path is ""), or EAGAIN if `real` could not tell.
using RealPath = bool (*)(PathBuffer* path);
struct Walk {
    bool crossed_ours;    // ".." was applied inside softhca's part of the name space
    bool trailing_slash;  // the path demands a directory
};
int walk(std::string_view base, const char* path, RealPath real, PathBuffer* out,
         Walk* walk) noexcept;

}  // namespace softhca::preload
