// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/trusted_file.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace heddle::cli {
namespace {

// Debian gives each user a group of the same name, and /usr/local to a group without members.
bool has_other_members(gid_t group) {
    if (group == 0) return false;
    const ::group* const entry = ::getgrgid(group);
    if (entry == nullptr) return true;
    const std::string name = entry->gr_name;
    std::string member;
    for (char** each = entry->gr_mem; *each != nullptr; ++each)
        if (member.empty()) member = *each;
    const bool has_more = !member.empty() && entry->gr_mem[1] != nullptr;
    const ::passwd* const self = ::getpwuid(::getuid());
    if (self == nullptr) return true;
    if (has_more || (!member.empty() && member != self->pw_name)) return true;
    // As a main group it has members that are not listed: a group of all users, say.
    return self->pw_gid == group && name != self->pw_name;
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
    for (;; path = path.parent_path()) {
        if (std::string why = why_not(path); !why.empty()) return why;
        if (path == path.parent_path()) return {};
    }
}

}  // namespace heddle::cli
