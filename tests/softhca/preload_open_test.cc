// SPDX-License-Identifier: BSD-2-Clause
// Opening through every door of libc: the device's files are found under every spelling and cannot
// be written; what is not ours is left alone.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload_doors.h"

namespace softhca::test {
namespace {

TEST(PreloadOpen, EveryDoor) {
    const std::string board = at(kClass, "board_id");
    const char* path = board.c_str();
    for (const char* name : {"open", "open64", "__open", "__open64"}) {
        EXPECT_EQ(drain(door<int(const char*, int, ...)>(name)(path, O_RDONLY)), kBoard) << name;
    }
    for (const char* name : {"openat", "openat64"}) {
        auto* function = door<int(int, const char*, int, ...)>(name);
        EXPECT_EQ(drain(function(AT_FDCWD, path, O_RDONLY)), kBoard) << name;
        EXPECT_EQ(drain(function(-5, path, O_RDONLY)), kBoard) << name << ", directory ignored";
    }
    for (const char* name : {"__open_2", "__open64_2"}) {
        EXPECT_EQ(drain(door<int(const char*, int)>(name)(path, O_RDONLY)), kBoard) << name;
    }
    for (const char* name : {"__openat_2", "__openat64_2"}) {
        auto* function = door<int(int, const char*, int)>(name);
        EXPECT_EQ(drain(function(AT_FDCWD, path, O_RDONLY)), kBoard) << name;
    }
    for (const char* name : {"fopen", "fopen64"}) {
        std::FILE* file = door<std::FILE*(const char*, const char*)>(name)(path, "re");
        ASSERT_NE(file, nullptr) << name;
        char line[64] = "";
        EXPECT_NE(std::fgets(line, sizeof line, file), nullptr);
        EXPECT_STREQ(line, kBoard) << name;
        EXPECT_EQ(::fcntl(::fileno(file), F_GETFD), FD_CLOEXEC) << name;
        std::fclose(file);
    }
    std::FILE* file = std::fopen("/dev/null", "r");
    file = std::freopen(path, "r", file);
    ASSERT_NE(file, nullptr);
    char line[64] = "";
    EXPECT_NE(std::fgets(line, sizeof line, file), nullptr);
    EXPECT_STREQ(line, kBoard);
    std::fclose(file);

    std::ifstream stream(path);
    std::string word;
    stream >> word;
    EXPECT_EQ(word + "\n", kBoard);
}

TEST(PreloadOpen, EverySpelling) {
    for (const char* path :
         {"//sys//class/infiniband///mlx5_0/board_id", "/sys/./class/infiniband/mlx5_0/./board_id",
          "/sys/class/net/../infiniband/mlx5_0/board_id",
          "/tmp/../sys/class/infiniband/mlx5_0/board_id",
          "/sys/class/infiniband/mlx5_0/ports/../board_id",
          "/sys/class/infiniband/mlx5_0/../mlx5_0/board_id",
          "/sys/class/infiniband/mlx5_0/../../infiniband/mlx5_0/board_id",
          "/sys/class/infiniband/mlx5_0/device/infiniband/mlx5_0/board_id",
          "/sys/class/infiniband_verbs/uverbs0/device/infiniband/mlx5_0/board_id",
          "/sys/bus/pci/devices/5afc:00:00.0/infiniband/mlx5_0/board_id",
          "/sys/dev/char/231:192/device/infiniband/mlx5_0/board_id",
          "/sys/devices/pci5afc:00/5afc:00:00.0/infiniband/mlx5_0/board_id"}) {
        EXPECT_EQ(drain(::open(path, O_RDONLY)), kBoard) << path;
    }
}

TEST(PreloadOpen, RelativeToDirectories) {
    const int root = ::open("/", O_PATH | O_DIRECTORY);
    EXPECT_EQ(drain(::openat(root, "sys/class/infiniband/mlx5_0/board_id", O_RDONLY)), kBoard);
    const int sys_class = ::openat(root, "sys/class", O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(drain(::openat(sys_class, "infiniband/mlx5_0/board_id", O_RDONLY)), kBoard);
    const int ours = ::openat(sys_class, "infiniband/mlx5_0", O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(drain(::openat(ours, "board_id", O_RDONLY)), kBoard);
    EXPECT_EQ(drain(::openat(ours, "../mlx5_0/board_id", O_RDONLY)), kBoard);
    EXPECT_EQ(drain(::openat(ours, "../../vendor", O_RDONLY)), "0x15b3\n");
    // The way out leads to the host.
    const int net = ::openat(ours, "../../../../../class/net", O_RDONLY | O_DIRECTORY);
    ASSERT_GE(net, 0) << std::strerror(errno);
    struct stat by_fd {
    }, by_path{};
    EXPECT_EQ(::fstat(net, &by_fd), 0);
    EXPECT_EQ(::stat("/sys/class/net", &by_path), 0);
    EXPECT_EQ(by_fd.st_ino, by_path.st_ino);
    EXPECT_EQ(by_fd.st_dev, by_path.st_dev);
    for (const int fd : {root, sys_class, ours, net}) {
        ::close(fd);
    }
}

TEST(PreloadOpen, TheWayOutIsTheHosts) {
    struct stat ours {
    }, host{};
    ASSERT_EQ(::stat("/sys/class/infiniband/../net", &ours), 0);
    ASSERT_EQ(::stat("/sys/class/net", &host), 0);
    EXPECT_EQ(ours.st_ino, host.st_ino);
    ASSERT_EQ(::stat("/sys/devices/pci5afc:00/..", &ours), 0);
    ASSERT_EQ(::stat("/sys/devices", &host), 0);
    EXPECT_EQ(ours.st_ino, host.st_ino);
}

TEST(PreloadOpen, NothingIsWritten) {
    const std::string description = at(kClass, "node_desc");
    const std::string before = drain(::open(description.c_str(), O_RDONLY));
    for (const int flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_WRONLY | O_CREAT | O_TRUNC}) {
        EXPECT_EQ(::open(description.c_str(), flags, 0600), -1) << flags;
        EXPECT_EQ(errno, EACCES) << flags;
    }
    EXPECT_EQ(::open(description.c_str(), O_RDONLY | O_CREAT | O_EXCL, 0600), -1);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_EQ(drain(::open(description.c_str(), O_RDONLY | O_CREAT, 0600)), before);
    EXPECT_EQ(::creat(at(kClass, "new").c_str(), 0600), -1);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(::open(at(kClass, "new").c_str(), O_WRONLY), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(::open(kClass, O_WRONLY), -1);
    EXPECT_EQ(errno, EISDIR);
    EXPECT_EQ(::open(kClass, O_TMPFILE | O_WRONLY, 0600), -1);
    for (const char* mode : {"w", "a", "r+", "w+"}) {
        EXPECT_EQ(std::fopen(description.c_str(), mode), nullptr) << mode;
        EXPECT_EQ(errno, EACCES) << mode;
    }
    EXPECT_EQ(drain(::open(description.c_str(), O_RDONLY)), before);
}

TEST(PreloadOpen, TheDeviceHoldsNoData) { EXPECT_EQ(drain(::open(kDevice, O_RDWR)), ""); }

TEST(PreloadOpen, WhatIsAbsentIsAbsent) {
    for (const char* path :
         {"/sys/class/infiniband_mad", "/sys/class/infiniband_cm/x", "/dev/infiniband/issm0",
          "/dev/infiniband/umad0", "/sys/class/infiniband/mlx5_1",
          "/sys/bus/pci/devices/5afc:00:00.0/x"}) {
        EXPECT_EQ(::open(path, O_RDONLY), -1) << path;
        EXPECT_EQ(errno, ENOENT) << path;
        struct stat status {};
        EXPECT_EQ(::stat(path, &status), -1) << path;
        EXPECT_EQ(errno, ENOENT) << path;
        EXPECT_EQ(::access(path, F_OK), -1) << path;
        EXPECT_EQ(errno, ENOENT) << path;
        EXPECT_EQ(std::fopen(path, "r"), nullptr) << path;
        EXPECT_EQ(::opendir(path), nullptr) << path;
        EXPECT_EQ(::realpath(path, nullptr), nullptr) << path;
    }
    EXPECT_EQ(::open(at(kClass, "board_id/").c_str(), O_RDONLY), -1);
    EXPECT_EQ(errno, ENOTDIR);
    EXPECT_EQ(::open(at(kDevice, "").c_str(), O_RDWR), -1);
    EXPECT_EQ(errno, ENOTDIR);
}

TEST(PreloadOpen, HostFilesWorkAsEver) {
    char name[] = "/tmp/softhca-infiniband-XXXXXX";  // a name that only looks like ours
    ASSERT_NE(::mkdtemp(name), nullptr);
    const std::string path = at(name, "infiniband_uverbs0");
    const mode_t old = ::umask(0);
    const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_EXCL, 0641);
    ::umask(old);
    ASSERT_GE(fd, 0);
    struct stat status {};
    EXPECT_EQ(::fstat(fd, &status), 0);
    EXPECT_EQ(status.st_mode, S_IFREG | 0641U) << "the mode argument got lost";
    ::close(fd);
    const int directory = ::open(name, O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(::faccessat(directory, "infiniband_uverbs0", R_OK, 0), 0);
    EXPECT_EQ(::faccessat(directory, "infiniband_uverbs0", R_OK, AT_EACCESS), 0);
    EXPECT_EQ(::unlinkat(directory, "infiniband_uverbs0", 0), 0);
    ::close(directory);
    const char* volatile no_path = nullptr;
    EXPECT_EQ(::open(no_path, O_RDONLY), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(::open("", O_RDONLY), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(::openat(-7, "infiniband", O_RDONLY), -1);
    EXPECT_EQ(errno, EBADF);
    EXPECT_EQ(::rmdir(name), 0);
}

}  // namespace
}  // namespace softhca::test
