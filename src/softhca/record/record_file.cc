// SPDX-License-Identifier: BSD-2-Clause
// The file of a run record: see record_file.h.
#include "softhca/record/record_file.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"

namespace softhca::record {
namespace {

constexpr unsigned kPatience = 1000;  // attempts of try_append()

// A limit of the file's size (ulimit -f) ends a process by a signal, unless that is held back.
class WithoutSizeSignal {
public:
    WithoutSizeSignal() noexcept {
        sigemptyset(&size_);
        sigaddset(&size_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &size_, &before_);
    }
    ~WithoutSizeSignal() {
        if (sigismember(&before_, SIGXFSZ)) return;
        const timespec now{};
        while (raised && sigtimedwait(&size_, nullptr, &now) < 0 && errno == EINTR) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    WithoutSizeSignal(const WithoutSizeSignal&) = delete;
    WithoutSizeSignal& operator=(const WithoutSizeSignal&) = delete;
    bool raised = false;

private:
    sigset_t size_, before_;
};

// Returns 0 or an errno.
int write_whole(int fd, const char* text, std::size_t size) noexcept {
    SOFTHCA_ASSERT(fd >= 0 && text != nullptr);
    WithoutSizeSignal guard;
    while (size != 0) {
        const ssize_t written = libc::write(fd, text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            guard.raised = errno == EFBIG;
            return errno;
        }
        if (written == 0) return ENOSPC;
        text += written;
        size -= static_cast<std::size_t>(written);
    }
    return 0;
}

}  // namespace

void RecordFile::name(const char* path) noexcept {
    device::Guard<device::SpinLock> guard(lock_);
    SOFTHCA_ASSERT(!begun_ && strlen(path) < sizeof path_);
    memcpy(path_, path, strlen(path) + 1);
}

bool RecordFile::append(const char* text, std::size_t size) noexcept {
    device::Guard<device::SpinLock> guard(lock_);
    return append_locked(text, size);
}

bool RecordFile::try_append(const char* text, std::size_t size) noexcept {
    for (unsigned attempt = 0; attempt < kPatience; ++attempt) {
        if (lock_.try_lock()) {
            const bool done = append_locked(text, size);
            lock_.unlock();
            return done;
        }
        device::cpu_relax();
    }
    return false;
}

bool RecordFile::append_locked(const char* text, std::size_t size) noexcept {
    SOFTHCA_ASSERT(lock_.is_locked() && path_[0] != '\0', "the file has a name");
    SOFTHCA_ASSERT(size == 0 || text[size - 1] == '\n', "only whole lines are appended");
    if (failed_) return false;
    const int saved_errno = errno;
    const int how = begun_ ? O_APPEND : O_CREAT | O_TRUNC;
    const int fd = libc::open(path_, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | how, 0666);
    const int error = fd < 0 ? errno : write_whole(fd, text, size);
    if (fd >= 0) libc::close(fd);
    begun_ = true;
    failed_ = error != 0;
    errno = error;  // for %m
    if (failed_) LOG_WARN("the run record %s cannot be written (%m): it ends here", path_);
    errno = saved_errno;
    return !failed_;
}

void RecordFile::forget_after_fork() noexcept {
    lock_.unlock();  // a thread that is not in the child may have held it
    begun_ = failed_ = false;
    path_[0] = '\0';
}

}  // namespace softhca::record
