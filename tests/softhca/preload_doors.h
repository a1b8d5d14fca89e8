// SPDX-License-Identifier: BSD-2-Clause
// Shared by the tests of the interposed libc functions: the device's names, and short calls of
// libc.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace softhca::test {

inline constexpr const char* kBoard = "SFT0000000001\n";
inline constexpr const char* kClass = "/sys/class/infiniband/mlx5_0";
inline constexpr const char* kPci = "/sys/devices/pci5afc:00/5afc:00:00.0";
inline constexpr const char* kDevice = "/dev/infiniband/uverbs0";

inline std::string at(const char* directory, const char* name) {
    return std::string(directory) + "/" + name;
}

inline std::string drain(int fd) {
    if (fd < 0) {
        return std::string("cannot open: ") + std::strerror(errno);
    }
    char text[4096];
    const ssize_t size = ::read(fd, text, sizeof text);
    ::close(fd);
    return size < 0 ? "cannot read" : std::string(text, static_cast<std::size_t>(size));
}

// A libc function by the name a program was linked to, whatever the headers make of it today.
template <typename Function>
Function* door(const char* name) {
    auto* address = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
    EXPECT_NE(address, nullptr) << name;
    return address;
}

inline bool is_device(const struct stat& status) {
    return status.st_mode == (S_IFCHR | 0666) && status.st_rdev == makedev(231, 192);
}

}  // namespace softhca::test
