// SPDX-License-Identifier: BSD-2-Clause
// Interposed libc functions that read directories: opendir and its stream, scandir. libc's scandir
// opens its directory inside libc, where nothing is interposed. Ours implements its manual page by
// our own functions.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/preload/interpose.h"
#include "softhca/preload/listing.h"
#include "softhca/preload/next.h"
#include "softhca/preload/resolve.h"

namespace softhca::preload {

namespace {

static_assert(sizeof(dirent) == sizeof(dirent64), "64-bit architectures only");

using Filter = int(const dirent*);
using Compare = int(const dirent**, const dirent**);

DIR* tracked(DIR* stream) noexcept {
    if (stream != nullptr) {
        track_listing(stream);
    }
    return stream;
}

__attribute__((noinline)) DIR* opendir_named(const char* path) noexcept {
    const Resolved target(path);
    if (target.failed()) {
        target.fail();
        return nullptr;
    }
    return next<DIR*(const char*)>(Next::kOpendir)(target.path());
}

dirent* read_entry(DIR* stream) noexcept {
    dirent* entry = next<dirent*(DIR*)>(Next::kReaddir)(stream);
    return show_listing(stream, entry);
}

// A growing array of copied directory entries.
class Entries {
public:
    Entries() = default;
    Entries(const Entries&) = delete;
    Entries& operator=(const Entries&) = delete;
    ~Entries() {
        for (std::size_t i = 0; i < count_; ++i) {
            std::free(list_[i]);
        }
        std::free(list_);
    }

    bool add(const dirent* entry) noexcept {
        if (count_ == capacity_) {
            const std::size_t capacity = capacity_ == 0 ? 16 : 2 * capacity_;
            auto** list = static_cast<dirent**>(std::realloc(list_, capacity * sizeof(dirent*)));
            if (list == nullptr) {
                return false;
            }
            list_ = list;
            capacity_ = capacity;
        }
        auto* copy = static_cast<dirent*>(std::malloc(entry->d_reclen));
        if (copy == nullptr) {
            return false;
        }
        std::memcpy(copy, entry, entry->d_reclen);
        SOFTHCA_ASSERT(count_ < capacity_);
        list_[count_++] = copy;
        return true;
    }

    int give(dirent*** out, Compare* compare) {
        SOFTHCA_ASSERT(count_ <= capacity_);
        if (compare != nullptr && count_ > 0) {
            std::qsort(list_, count_, sizeof(dirent*),
                       reinterpret_cast<int (*)(const void*, const void*)>(compare));
        }
        const auto count = static_cast<int>(count_);
        *out = list_;
        list_ = nullptr;
        count_ = capacity_ = 0;
        return count;
    }

private:
    dirent** list_ = nullptr;
    std::size_t count_ = 0;
    std::size_t capacity_ = 0;
};

// It may throw what the caller's functions throw. The stream is closed in that case, too.
int scan(DIR* stream, dirent*** out, Filter* filter, Compare* compare) {
    if (stream == nullptr) {
        return -1;
    }
    struct Closer {
        DIR* stream;
        ~Closer() {
            const int error = errno;
            ::closedir(stream);
            errno = error;
        }
    } closer{stream};

    const int saved_errno = errno;
    Entries entries;
    for (;;) {
        errno = 0;
        const dirent* entry = read_entry(stream);
        if (entry == nullptr) {
            break;
        }
        if (filter != nullptr) {
            errno = 0;  // the filter's errno must not end the loop as an error
            if (filter(entry) == 0) {
                continue;
            }
        }
        if (!entries.add(entry)) {
            errno = ENOMEM;
            return -1;
        }
    }
    if (errno != 0) {
        return -1;
    }
    errno = saved_errno;
    return entries.give(out, compare);
}

}  // namespace

SOFTHCA_INTERPOSE(opendir, DIR*, interpose_opendir, (const char* path) noexcept);
DIR* interpose_opendir(const char* path) noexcept {
    if (foreign(path)) [[likely]] {
        return tracked(next<DIR*(const char*)>(Next::kOpendir)(path));
    }
    return tracked(opendir_named(path));
}

SOFTHCA_INTERPOSE(fdopendir, DIR*, interpose_fdopendir, (int fd) noexcept);
DIR* interpose_fdopendir(int fd) noexcept { return tracked(next<DIR*(int)>(Next::kFdopendir)(fd)); }

SOFTHCA_INTERPOSE(readdir, dirent*, interpose_readdir, (DIR * stream) noexcept);
dirent* interpose_readdir(DIR* stream) noexcept { return read_entry(stream); }
SOFTHCA_ALSO(readdir64, readdir, interpose_readdir);

SOFTHCA_INTERPOSE(rewinddir, void, interpose_rewinddir, (DIR * stream) noexcept);
void interpose_rewinddir(DIR* stream) noexcept {
    rewind_listing(stream);
    next<void(DIR*)>(Next::kRewinddir)(stream);
}

SOFTHCA_INTERPOSE(closedir, int, interpose_closedir, (DIR * stream) noexcept);
int interpose_closedir(DIR* stream) noexcept {
    forget_listing(stream);
    return next<int(DIR*)>(Next::kClosedir)(stream);
}

SOFTHCA_INTERPOSE(scandir, int, interpose_scandir,
                  (const char* path, dirent*** out, Filter* filter, Compare* compare));
int interpose_scandir(const char* path, dirent*** out, Filter* filter, Compare* compare) {
    return scan(interpose_opendir(path), out, filter, compare);
}
SOFTHCA_ALSO(scandir64, scandir, interpose_scandir);

SOFTHCA_INTERPOSE(scandirat, int, interpose_scandirat,
                  (int directory, const char* path, dirent*** out, Filter* filter,
                   Compare* compare));
int interpose_scandirat(int directory, const char* path, dirent*** out, Filter* filter,
                        Compare* compare) {
    const int fd = ::openat(directory, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    DIR* stream = interpose_fdopendir(fd);
    if (stream == nullptr) {
        const int error = errno;
        ::close(fd);
        errno = error;
    }
    return scan(stream, out, filter, compare);
}
SOFTHCA_ALSO(scandirat64, scandirat, interpose_scandirat);

}  // namespace softhca::preload
