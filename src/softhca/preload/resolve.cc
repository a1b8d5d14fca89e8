// SPDX-License-Identifier: BSD-2-Clause
// Resolves the paths that mention us: see resolve.h.
#include "softhca/preload/resolve.h"

#include <cerrno>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"

namespace softhca::preload {

namespace {

// Removes the tree's directory from a path. Returns whether it was there.
bool make_visible(PathBuffer* path) noexcept {
    const TreeRoot* root = root_for(path->view());
    if (root == nullptr || root_prefix(*root, path->view()) == 0) {
        return false;
    }
    path->set_length(strip_root(*root, path->data(), path->length()));
    return true;
}

bool visible_working_directory(PathBuffer* out, bool* in_tree) noexcept {
    const ssize_t length = libc::getcwd(out->data(), PATH_MAX);
    if (length <= 0 || out->c_str()[0] != '/') {
        return false;  // "(unreachable)..."
    }
    SOFTHCA_ASSERT(length < PATH_MAX);
    out->set_length(static_cast<std::size_t>(length));
    *in_tree = make_visible(out);
    return true;
}

// The kernel's path of the file that `fd` refers to, as the application knows it.
bool visible_path(int fd, PathBuffer* out, bool* in_tree) noexcept {
    if (!descriptor_path(fd, out) || out->c_str()[0] != '/') {
        return false;  // a socket, a deleted directory, ...
    }
    *in_tree = make_visible(out);
    return true;
}

// Called by walk(): replaces symbolic links in front of "..".
bool replace_links(PathBuffer* path) noexcept {
    SOFTHCA_ASSERT(path->length() > 0);
    PathBuffer where;
    const TreeRoot* root = claim_of(path->view()) == Claim::kNone ? nullptr : join_root();
    if ((root != nullptr && !where.assign(root->given.view())) || !where.append(path->view())) {
        return false;
    }
    char ignored[1];
    if (libc::readlink(where.c_str(), ignored, sizeof ignored) < 0) {
        return errno == EINVAL;  // it exists and is not a symbolic link
    }
    const int fd = libc::open(where.c_str(), O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool in_tree = false;
    const bool found = visible_path(fd, path, &in_tree);
    libc::close(fd);
    return found;
}

}  // namespace

Resolved::Resolved(int directory, const char* path, Follow follow) noexcept
    : directory_(directory), path_(path) {
    const int saved_errno = errno;
    resolve(follow);
    errno = saved_errno;
}

Resolved::Resolved(const char* path, Follow follow) noexcept : Resolved(AT_FDCWD, path, follow) {}

int Resolved::fail() const noexcept {
    SOFTHCA_ASSERT(kind_ == Kind::kError && error_ > 0);
    errno = error_;
    return -1;
}

void Resolved::resolve(Follow follow) noexcept {
    SOFTHCA_ASSERT(kind_ == Kind::kHost && path_ != nullptr);
    PathBuffer base;
    bool base_in_tree = false;
    if (path_[0] != '/') {
        const bool known = directory_ == AT_FDCWD ? visible_working_directory(&base, &base_in_tree)
                                                  : visible_path(directory_, &base, &base_in_tree);
        if (!known) {
            return;  // the kernel reports the right error
        }
    }

    Walk steps{};
    if (walk(base.view(), path_, replace_links, &text_, &steps) != 0) {
        return;
    }
    Claim claim = claim_of(text_.view(), &number_);
    // A name of ours that this fabric does not use: outside of the tree it is the host's.
    if (number_ != 0 && join_root() != nullptr && number_ >= known_devices())
        claim = claim == Claim::kDevice ? Claim::kTree : Claim::kNone;
    if (claim == Claim::kNone) {
        if (base_in_tree || steps.crossed_ours) {
            // The path leads out of the tree: the kernel would stay inside, or not find the way.
            if (text_.length() == 0 || steps.trailing_slash) {
                text_.append("/");
            }
            directory_ = AT_FDCWD;
            path_ = text_.c_str();
        }
        return;
    }

    root_ = join_root();
    if (root_ == nullptr) {
        kind_ = Kind::kError;
        error_ = ENOENT;
        return;
    }
    if (claim == Claim::kDeviceLink && (follow == Follow::kYes || steps.trailing_slash)) {
        claim = Claim::kDevice;
    }
    if ((claim == Claim::kDevice || claim == Claim::kManager) && steps.trailing_slash) {
        kind_ = Kind::kError;
        error_ = ENOTDIR;
        return;
    }
    PathBuffer wanted;
    wanted.assign(text_.view());
    const bool fits = text_.assign(root_->given.view()) && text_.append(wanted.view()) &&
                      (!steps.trailing_slash || text_.append("/"));
    if (!fits) {
        kind_ = Kind::kError;
        error_ = ENAMETOOLONG;
        return;
    }
    SOFTHCA_ASSERT(text_.c_str()[0] == '/' && root_ != nullptr);
    kind_ = claim == Claim::kDevice    ? Kind::kDevice
            : claim == Claim::kManager ? Kind::kManager
                                       : Kind::kTree;
    directory_ = AT_FDCWD;
    path_ = text_.c_str();
}

}  // namespace softhca::preload
