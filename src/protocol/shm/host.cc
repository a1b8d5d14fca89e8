// SPDX-License-Identifier: BSD-2-Clause
// Processes that may share memory: see host.h.
#include "protocol/shm/host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>

namespace heddle::protocol {
namespace {

std::uint64_t mixed(std::uint64_t hash, const void* bytes, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i)  // FNV-1a
        hash = (hash ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100'0000'01b3u;
    return hash;
}

std::uint64_t find() noexcept {
    constexpr std::size_t kBootIdBytes = 36;
    char boot[kBootIdBytes];
    const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t got = ::read(fd, boot, sizeof boot);
    ::close(fd);
    struct stat processes {};
    if (got != static_cast<ssize_t>(sizeof boot) || ::stat("/proc/self/ns/pid", &processes) != 0)
        return 0;
    const uid_t user = ::geteuid();
    std::uint64_t hash = mixed(0xcbf2'9ce4'8422'2325u, boot, sizeof boot);
    hash = mixed(hash, &user, sizeof user);
    hash = mixed(hash, &processes.st_dev, sizeof processes.st_dev);
    hash = mixed(hash, &processes.st_ino, sizeof processes.st_ino);
    hash = (hash ^ hash >> 48) & kMostHostNumber;
    return hash != 0 ? hash : 1;
}

}  // namespace

std::uint64_t host_number() noexcept {
    static const std::uint64_t number = find();
    return number;
}

}  // namespace heddle::protocol
