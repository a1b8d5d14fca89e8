// SPDX-License-Identifier: BSD-2-Clause
// Maps the path of an interposed call to the path for the kernel. foreign() is the fast path of
// every call with a path. Resolved handles the few that remain.
#pragma once

#include "softhca/preload/path.h"
#include "softhca/preload/root.h"

namespace softhca::preload {

// True if the path has nothing to do with softhca, so the call goes to the kernel unchanged. It
// makes no system call, no allocation, and takes no lock.
inline bool foreign(const char* path) noexcept {
    if (path == nullptr) {
        return true;
    }
    if (path[0] == '/') {
        return foreign_absolute(path);
    }
    // A path relative to an ancestor of ours contains our name. For a path relative to a directory
    // inside the tree the kernel finds everything except the device, which the path names too, and
    // the way out of the tree.
    return !mentions_device(path) && !(has_parent_segment(path) && tree_may_be_near());
}

enum class Follow { kYes, kNo };  // whether a symbolic link at the end of the path is followed

class Resolved {
public:
    enum class Kind {
        kHost,     // the host's; directory() and path() may have been changed
        kTree,     // ours; path() is the file in the tree
        kDevice,   // a character device; path() is the file that represents it in the tree
        kManager,  // that of rdma_cm; as kDevice
        kError,    // the call fails with error()
    };

    Resolved(int directory, const char* path, Follow follow) noexcept;
    explicit Resolved(const char* path, Follow follow = Follow::kYes) noexcept;
    Resolved(const Resolved&) = delete;  // path() may point into the object
    Resolved& operator=(const Resolved&) = delete;

    Kind kind() const noexcept { return kind_; }
    bool ours() const noexcept { return kind_ == Kind::kTree || device(); }
    bool failed() const noexcept { return kind_ == Kind::kError; }
    bool device() const noexcept { return kind_ == Kind::kDevice || kind_ == Kind::kManager; }
    int error() const noexcept { return error_; }
    unsigned number() const noexcept { return number_; }  // which device; 0 of that of rdma_cm
    int fail() const noexcept;                            // sets errno, returns -1

    int directory() const noexcept { return directory_; }
    const char* path() const noexcept { return path_; }
    const TreeRoot* root() const noexcept { return root_; }

private:
    void resolve(Follow follow) noexcept;

    Kind kind_ = Kind::kHost;
    int error_ = 0;
    unsigned number_ = 0;
    int directory_;
    const char* path_;
    const TreeRoot* root_ = nullptr;
    PathBuffer text_;
};

}  // namespace softhca::preload
