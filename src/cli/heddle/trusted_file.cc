// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/trusted_file.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

std::string name_of(const ::passwd* user) { return user != nullptr ? user->pw_name : ""; }

// Debian gives each user a group of the same name, and /usr/local to a group without members.
bool has_other_members(gid_t group) {
    if (group == 0) return false;
    const std::string self = name_of(::getpwuid(::getuid()));
    const ::group* const entry = ::getgrgid(group);
    if (entry == nullptr || self.empty()) return true;
    const bool is_own = self == entry->gr_name;
    for (char** member = entry->gr_mem; *member != nullptr; ++member)
        if (self != *member) return true;
    if (is_own) return false;
    // Those whose main group it is are not listed.
    bool found = false;
    ::setpwent();
    while (const ::passwd* user = ::getpwent())
        found = found || (user->pw_gid == group && user->pw_uid != 0);
    ::endpwent();
    return found;
}

std::string why_not(const std::filesystem::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return path.string() + ": " + std::strerror(errno);
    if (status.st_uid != 0 && status.st_uid != ::getuid())
        return path.string() + " belongs to user " + std::to_string(status.st_uid);
    if (S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0) return {};
    if ((status.st_mode & S_IWOTH) != 0) return "everybody may write " + path.string();
    if ((status.st_mode & S_IWGRP) != 0 && has_other_members(status.st_gid))
        return "group " + std::to_string(status.st_gid) + " may write " + path.string();
    return {};
}

}  // namespace

std::string why_not_trusted(const std::filesystem::path& file) {
    std::error_code error;
    std::filesystem::path path = std::filesystem::canonical(file, error);
    if (error) return file.string() + ": " + error.message();
    HEDDLE_ASSERT(path.is_absolute(), "the root is above each file");
    for (;; path = path.parent_path()) {
        if (std::string why = why_not(path); !why.empty()) return why;
        if (path == path.parent_path()) return {};
    }
}

}  // namespace heddle::cli
