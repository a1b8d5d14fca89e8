// SPDX-License-Identifier: BSD-2-Clause
// The lock on a directory of fabrics. Joining, leaving, removing and changing fabrics exclude each
// other by it (softhca/device/fabric.h).
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "cli/softhca/commands.h"
#include "softhca/base/assert.h"

namespace softhca::cli {

class DirectoryLock {
public:
    explicit DirectoryLock(const std::string& directory, int how = LOCK_EX)
        : fd_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) {
        SOFTHCA_ASSERT((how & LOCK_EX) != 0, "no two processes change a directory at once");
        if (fd_ < 0) fail("cannot open " + directory);
        while (::flock(fd_, how) != 0)
            if (errno != EINTR) {
                const int error = errno;
                ::close(fd_);
                errno = error;
                fail("cannot lock " + directory);
            }
    }
    ~DirectoryLock() { ::close(fd_); }
    DirectoryLock(const DirectoryLock&) = delete;
    DirectoryLock& operator=(const DirectoryLock&) = delete;

private:
    [[noreturn]] static void fail(const std::string& what) {
        throw CommandError(what + ": " + std::strerror(errno));
    }

    int fd_;
};

}  // namespace softhca::cli
