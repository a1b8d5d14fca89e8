// SPDX-License-Identifier: BSD-2-Clause
// Finds and creates the directories of fabrics: see fabric_directory.h.
#include "softhca/device/fabric_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/limits.h"
#include "softhca/device/liveness.h"

namespace softhca::device {
namespace {

constexpr mode_t kMode = 0700;

// As the XDG Base Directory Specification requires it: no other user may write there.
bool is_own_base(const std::string& base) noexcept {
    struct stat st {};
    return !base.empty() && base[0] == '/' && libc::stat(base.c_str(), &st) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

bool exists(const std::string& path) noexcept {
    struct stat st {};
    return libc::lstat(path.c_str(), &st) == 0;
}

std::string describe(const struct stat& st) {
    if (S_ISLNK(st.st_mode)) return "is a symbolic link";
    if (!S_ISDIR(st.st_mode)) return "is not a directory";
    if (st.st_uid != geteuid()) return "belongs to user " + std::to_string(st.st_uid);
    char mode[16];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
    return std::string("has mode ") + mode + " instead of 0700";
}

// Creates the directory, or takes an existing one. Results as of inspect_fabric_directory().
int make_fabric_directory(const std::string& directory, std::string* reason) {
    if (mkdir(directory.c_str(), kMode) == 0) {
        chmod(directory.c_str(), kMode);  // whatever the umask is
    } else if (errno != EEXIST) {
        const int error = errno;
        *reason = directory + " cannot be created (" + strerror(error) + ")";
        return error;
    }
    struct stat st {};
    // If its owner lacks permissions, a process was interrupted while it created the directory. No
    // other user has ever had access to it, so it is safe to use.
    if (libc::lstat(directory.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
        (st.st_mode & 0077) == 0 && (st.st_mode & 07777) != kMode)
        chmod(directory.c_str(), kMode);
    return inspect_fabric_directory(directory, reason);
}

}  // namespace

std::vector<std::string> fabric_directories() {
    std::vector<std::string> bases;
    if (options().directory[0] != '\0') {
        bases.emplace_back(options().directory);
    } else {
        bases.emplace_back("/dev/shm");
        const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
        for (const std::string& base :
             {std::string(runtime ? runtime : ""), "/run/user/" + std::to_string(geteuid())})
            if (is_own_base(base) && std::find(bases.begin(), bases.end(), base) == bases.end())
                bases.push_back(base);
    }
    for (std::string& base : bases)
        base += "/softhca-" + std::to_string(geteuid());
    return bases;
}

int inspect_fabric_directory(const std::string& directory, std::string* reason) {
    SOFTHCA_ASSERT(reason != nullptr);
    struct stat st {};
    if (libc::lstat(directory.c_str(), &st) != 0) {
        const int error = errno;
        *reason = directory + " cannot be used (" + strerror(error) + ")";
        return error;
    }
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 07777) == kMode) return 0;
    *reason = directory + " " + describe(st);
    return EPERM;
}

SegmentUse segment_use(const std::string& segment) noexcept {
    const int fd = libc::open(segment.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? SegmentUse::kNoFile : SegmentUse::kUnknown;
    struct flock lock = liveness_lock(0, kMaxProcesses);
    const bool known = libc::fcntl(fd, F_OFD_GETLK, reinterpret_cast<long>(&lock)) == 0;
    libc::close(fd);
    if (!known) return SegmentUse::kUnknown;
    return lock.l_type == F_UNLCK ? SegmentUse::kUnused : SegmentUse::kUsed;
}

std::vector<std::string> fabrics_in(const std::string& directory) {
    std::vector<std::string> names;
    DIR* listing = opendir(directory.c_str());
    if (!listing) return names;
    while (const dirent* entry = readdir(listing)) {
        const std::string_view file = entry->d_name;
        for (const std::string_view suffix : {".fabric", ".tree"})
            if (file.size() > suffix.size() && file.ends_with(suffix))
                names.emplace_back(file.substr(0, file.size() - suffix.size()));
    }
    closedir(listing);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::string find_fabric(const std::string& name) {
    std::string with_files, reason;
    for (const std::string& directory : fabric_directories()) {
        if (inspect_fabric_directory(directory, &reason) != 0) continue;
        const std::string segment = fabric_segment_path(directory, name);
        if (segment_use(segment) == SegmentUse::kUsed) return directory;
        if (with_files.empty() && (exists(segment) || exists(fabric_tree_path(directory, name))))
            with_files = directory;
    }
    return with_files;
}

std::string choose_fabric_directory(const std::string& name) {
    const std::vector<std::string> directories = fabric_directories();
    std::string reasons, reason;
    for (const std::string& directory : directories)
        if (inspect_fabric_directory(directory, &reason) == 0 &&
            segment_use(fabric_segment_path(directory, name)) == SegmentUse::kUsed)
            return directory;
    for (const std::string& directory : directories) {
        if (make_fabric_directory(directory, &reason) == 0) return directory;
        reasons += (reasons.empty() ? "" : "; ") + reason;
    }
    LOG_ERROR(
        "there is no directory for the fabric: %s. Remove it if you can, or name a directory of "
        "your own: SOFTHCA_DIRECTORY=DIRECTORY, or softhca run --directory DIRECTORY",
        reasons.c_str());
    return {};
}

std::string fabric_segment_path(const std::string& directory, const std::string& name) {
    SOFTHCA_ASSERT(!directory.empty() && !name.empty());
    return directory + "/" + name + ".fabric";
}

std::string fabric_tree_path(const std::string& directory, const std::string& name) {
    SOFTHCA_ASSERT(!directory.empty() && !name.empty());
    return directory + "/" + name + ".tree";
}

}  // namespace softhca::device
