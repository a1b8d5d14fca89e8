// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions that walk directories: ftw, nftw and glob. They work inside libc, where
// nothing is interposed. So ftw and nftw start in the tree, and the names they report lose the
// tree's directory. glob gets our own directory functions.
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <sys/stat.h>

#include "softhca/base/assert.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/preload/resolve.h"
#include "softhca/preload/status.h"

namespace softhca::preload {

namespace {

using FtwCallback = int(const char*, const struct stat*, int);
using NftwCallback = int(const char*, const struct stat*, int, FTW*);

// The walk of this thread, because the callbacks carry no argument of their own. Walks may nest.
struct TreeWalk {
    const TreeRoot* root;
    FtwCallback* ftw;
    NftwCallback* nftw;
};
thread_local const TreeWalk* current_walk __attribute__((tls_model("initial-exec"))) = nullptr;

class WalkScope {
public:
    explicit WalkScope(const TreeWalk* walk) noexcept : outer_(current_walk) {
        current_walk = walk;
    }
    WalkScope(const WalkScope&) = delete;
    WalkScope& operator=(const WalkScope&) = delete;
    ~WalkScope() { current_walk = outer_; }

private:
    const TreeWalk* outer_;
};

struct Visible {
    const char* path;
    std::size_t cut;
    struct stat copy;
    const struct stat* status;
};

void make_visible(const TreeRoot& root, const char* path, const struct stat* status,
                  Visible* out) noexcept {
    out->cut = root_prefix(root, path);
    SOFTHCA_ASSERT(out->cut <= std::strlen(path));
    out->path = path + out->cut;
    out->status = status;
    unsigned number = 0;
    const Claim claim = claim_of(out->path, &number);
    if (status != nullptr && (claim == Claim::kDevice || claim == Claim::kManager)) {
        out->copy = *status;
        describe_device(claim, number, &out->copy);
        out->status = &out->copy;
    }
}

int on_ftw(const char* path, const struct stat* status, int kind) {
    const TreeWalk* walk = current_walk;
    SOFTHCA_ASSERT(walk != nullptr && walk->ftw != nullptr && walk->root != nullptr);
    Visible visible;
    make_visible(*walk->root, path, status, &visible);
    const WalkScope outside(nullptr);
    return walk->ftw(visible.path, visible.status, kind);
}

int on_nftw(const char* path, const struct stat* status, int kind, FTW* info) {
    const TreeWalk* walk = current_walk;
    SOFTHCA_ASSERT(walk != nullptr && walk->nftw != nullptr && walk->root != nullptr);
    Visible visible;
    make_visible(*walk->root, path, status, &visible);
    FTW cut = *info;
    SOFTHCA_ASSERT(static_cast<std::size_t>(cut.base) >= visible.cut);
    cut.base -= static_cast<int>(visible.cut);
    const WalkScope outside(nullptr);
    return walk->nftw(visible.path, visible.status, kind, &cut);
}

// --- glob ---------------------------------------------------------------------------------------

// Whether a pattern may lead to us. Relative patterns from inside the tree need no help.
bool may_reach_us(const char* pattern) noexcept {
    return std::strstr(pattern, "sys") != nullptr || std::strstr(pattern, "dev") != nullptr ||
           mentions_device(pattern);
}

void close_directory(void* stream) { ::closedir(static_cast<DIR*>(stream)); }
dirent* read_directory(void* stream) { return ::readdir(static_cast<DIR*>(stream)); }
void* open_directory(const char* path) { return ::opendir(path); }
int status_of_link(const char* path, struct stat* out) { return ::lstat(path, out); }
int status_of(const char* path, struct stat* out) { return ::stat(path, out); }

}  // namespace

SOFTHCA_INTERPOSE(ftw, int, interpose_ftw,
                  (const char* path, FtwCallback* callback, int descriptors));
int interpose_ftw(const char* path, FtwCallback* callback, int descriptors) {
    auto* real = next<int(const char*, FtwCallback*, int)>(Next::kFtw);
    if (foreign(path)) {
        return real(path, callback, descriptors);
    }
    const Resolved target(path);
    if (target.failed()) {
        return target.fail();
    }
    if (!target.ours()) {
        return real(target.path(), callback, descriptors);
    }
    SOFTHCA_ASSERT(target.root() != nullptr);
    const TreeWalk walk{target.root(), callback, nullptr};
    const WalkScope scope(&walk);
    return real(target.path(), on_ftw, descriptors);
}
SOFTHCA_ALSO(ftw64, ftw, interpose_ftw);

SOFTHCA_INTERPOSE(nftw, int, interpose_nftw,
                  (const char* path, NftwCallback* callback, int descriptors, int flags));
int interpose_nftw(const char* path, NftwCallback* callback, int descriptors, int flags) {
    auto* real = next<int(const char*, NftwCallback*, int, int)>(Next::kNftw);
    if (foreign(path)) {
        return real(path, callback, descriptors, flags);
    }
    const Resolved target(path, (flags & FTW_PHYS) != 0 ? Follow::kNo : Follow::kYes);
    if (target.failed()) {
        return target.fail();
    }
    if (!target.ours()) {
        return real(target.path(), callback, descriptors, flags);
    }
    SOFTHCA_ASSERT(target.root() != nullptr);
    const TreeWalk walk{target.root(), nullptr, callback};
    const WalkScope scope(&walk);
    return real(target.path(), on_nftw, descriptors, flags);
}
SOFTHCA_ALSO(nftw64, nftw, interpose_nftw);

SOFTHCA_INTERPOSE(glob, int, interpose_glob,
                  (const char* pattern, int flags, int (*on_error)(const char*, int), glob_t* out));
int interpose_glob(const char* pattern, int flags, int (*on_error)(const char*, int), glob_t* out) {
    auto* real = next<int(const char*, int, int (*)(const char*, int), glob_t*)>(Next::kGlob);
    if (pattern == nullptr || out == nullptr || (flags & GLOB_ALTDIRFUNC) != 0 ||
        !may_reach_us(pattern)) {
        return real(pattern, flags, on_error, out);
    }
    out->gl_closedir = close_directory;
    out->gl_readdir = read_directory;
    out->gl_opendir = open_directory;
    out->gl_lstat = status_of_link;
    out->gl_stat = status_of;
    const int result = real(pattern, flags | GLOB_ALTDIRFUNC, on_error, out);
    out->gl_flags &= ~GLOB_ALTDIRFUNC;
    return result;
}
SOFTHCA_ALSO(glob64, glob, interpose_glob);

}  // namespace softhca::preload
