// SPDX-License-Identifier: BSD-2-Clause
// Describing and naming: the stat family, access, links, real paths, the working directory. Names
// that come back are those the application may know.
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "preload_doors.h"

namespace softhca::test {
namespace {

TEST(PreloadStat, EveryDoorToTheDevice) {
    struct stat status {};
    for (const char* name : {"stat", "stat64", "lstat", "lstat64"}) {
        status = {};
        EXPECT_EQ(door<int(const char*, struct stat*)>(name)(kDevice, &status), 0) << name;
        EXPECT_TRUE(is_device(status)) << name;
    }
    for (const char* name : {"__xstat", "__xstat64", "__lxstat", "__lxstat64"}) {
        for (const int version : {0, 1}) {
            status = {};
            EXPECT_EQ(door<int(int, const char*, struct stat*)>(name)(version, kDevice, &status),
                      0);
            EXPECT_TRUE(is_device(status)) << name;
        }
        EXPECT_EQ(door<int(int, const char*, struct stat*)>(name)(7, kDevice, &status), -1);
        EXPECT_EQ(errno, EINVAL);
    }
    for (const char* name : {"fstatat", "fstatat64"}) {
        status = {};
        EXPECT_EQ(
            door<int(int, const char*, struct stat*, int)>(name)(AT_FDCWD, kDevice, &status, 0), 0);
        EXPECT_TRUE(is_device(status)) << name;
    }
    for (const char* name : {"__fxstatat", "__fxstatat64"}) {
        status = {};
        EXPECT_EQ(door<int(int, int, const char*, struct stat*, int)>(name)(1, AT_FDCWD, kDevice,
                                                                            &status, 0),
                  0);
        EXPECT_TRUE(is_device(status)) << name;
    }
    struct statx extended {};
    EXPECT_EQ(::statx(AT_FDCWD, kDevice, 0, STATX_BASIC_STATS, &extended), 0);
    EXPECT_EQ(extended.stx_mode, S_IFCHR | 0666);
    EXPECT_EQ(extended.stx_rdev_major, 231U);
    EXPECT_EQ(extended.stx_rdev_minor, 192U);

    const int directory = ::open("/dev/infiniband", O_RDONLY | O_DIRECTORY);
    EXPECT_EQ(::fstatat(directory, "uverbs0", &status, AT_SYMLINK_NOFOLLOW), 0);
    EXPECT_TRUE(is_device(status));
    ::close(directory);

    EXPECT_EQ(::lstat("/dev/char/231:192", &status), 0);
    EXPECT_TRUE(S_ISLNK(status.st_mode));
    EXPECT_EQ(::stat("/dev/char/231:192", &status), 0);
    EXPECT_TRUE(is_device(status));
}

TEST(PreloadStat, TheCommandDescriptor) {
    for (const char* path :
         {kDevice, "/dev/char/231:192", "/dev/infiniband/../infiniband/uverbs0"}) {
        const int fd = ::open(path, O_RDWR | O_CLOEXEC);
        ASSERT_GE(fd, 0) << path << ": " << std::strerror(errno);
        struct stat status {};
        EXPECT_EQ(::fstat(fd, &status), 0);
        EXPECT_TRUE(is_device(status));
        for (const char* name : {"__fxstat", "__fxstat64"}) {
            status = {};
            EXPECT_EQ(door<int(int, int, struct stat*)>(name)(1, fd, &status), 0);
            EXPECT_TRUE(is_device(status)) << name;
        }
        status = {};
        EXPECT_EQ(::fstatat(fd, "", &status, AT_EMPTY_PATH), 0);
        EXPECT_TRUE(is_device(status));
        struct statx extended {};
        EXPECT_EQ(::statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended), 0);
        EXPECT_EQ(extended.stx_rdev_major, 231U);
        EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
        ::close(fd);
        EXPECT_EQ(::fstat(fd, &status), -1);
        EXPECT_EQ(errno, EBADF);
    }
    EXPECT_EQ(::open(kDevice, O_RDWR | O_CREAT | O_EXCL, 0600), -1);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_EQ(::open(kDevice, O_RDONLY | O_DIRECTORY), -1);
    EXPECT_EQ(errno, ENOTDIR);

    // A descriptor number that was the device's is not when it comes back.
    const int fd = ::open(kDevice, O_RDWR);
    ASSERT_GE(fd, 0);
    const int null = ::open("/dev/null", O_RDWR);
    EXPECT_EQ(::dup2(null, fd), fd);
    struct stat status {};
    EXPECT_EQ(::fstat(fd, &status), 0);
    EXPECT_EQ(status.st_rdev, makedev(1, 3));
    ::close(fd);
    ::close(null);
}

TEST(PreloadStat, DuplicatesOfTheCommandDescriptor) {
    const int fd = ::open(kDevice, O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    const int first = ::dup(fd);
    const int second = ::fcntl(fd, F_DUPFD_CLOEXEC, 100);
    ::close(fd);  // the device stays open
    for (const int duplicate : {first, second}) {
        struct stat status {};
        EXPECT_EQ(::fstat(duplicate, &status), 0);
        EXPECT_TRUE(is_device(status));
        ::close(duplicate);
    }
    std::FILE* nameless = std::tmpfile();  // looks alike, but is none
    ASSERT_NE(nameless, nullptr);
    struct stat status {};
    EXPECT_EQ(::fstat(::fileno(nameless), &status), 0);
    EXPECT_TRUE(S_ISREG(status.st_mode));
    std::fclose(nameless);
}

TEST(PreloadStat, OtherQuestions) {
    struct statfs filesystem {};
    struct statvfs virtual_filesystem {};
    EXPECT_EQ(::statfs(kClass, &filesystem), 0);
    EXPECT_EQ(::statvfs(kClass, &virtual_filesystem), 0);
    EXPECT_GT(::pathconf(kClass, _PC_NAME_MAX), 0);
    EXPECT_EQ(::access(at(kClass, "board_id").c_str(), R_OK), 0);
    EXPECT_EQ(::access(at(kClass, "board_id").c_str(), W_OK), -1);
    EXPECT_EQ(errno, EACCES);
    EXPECT_EQ(::access(kDevice, R_OK | W_OK), 0);
    EXPECT_EQ(::eaccess(kDevice, R_OK | W_OK), 0);
    EXPECT_EQ(::faccessat(AT_FDCWD, kDevice, R_OK | W_OK, AT_EACCESS), 0);
}

TEST(PreloadNames, LinksAndRealPaths) {
    char text[PATH_MAX + 1] = "";
    const ssize_t length = ::readlink(kClass, text, PATH_MAX);
    ASSERT_GT(length, 0);
    EXPECT_EQ(std::string(text, static_cast<std::size_t>(length)),
              "../../devices/pci5afc:00/5afc:00:00.0/infiniband/mlx5_0");
    EXPECT_EQ(::readlink(kClass, text, 5), 5) << "cut, not refused";

    EXPECT_STREQ(::realpath(at(kClass, "device").c_str(), text), kPci);
    EXPECT_STREQ(::realpath("/sys/bus/pci/devices/5afc:00:00.0", text), kPci);
    EXPECT_STREQ(::realpath("/dev/char/231:192", text), kDevice);
    EXPECT_STREQ(::realpath(at(kClass, "device/../..").c_str(), text), "/sys/devices");
    EXPECT_STREQ(::realpath("/sys/class/infiniband", text), "/sys/class/infiniband");
    EXPECT_STREQ(door<char*(const char*, char*, std::size_t)>("__realpath_chk")(
                     at(kClass, "device").c_str(), text, PATH_MAX),
                 kPci);
    char* allocated = ::canonicalize_file_name(at(kClass, "device").c_str());
    EXPECT_STREQ(allocated, kPci);
    std::free(allocated);
    allocated = ::realpath("/usr/../bin/.", nullptr);
    EXPECT_EQ(std::string(allocated).find("softhca"), std::string::npos);
    std::free(allocated);

    const int fd = ::open(at(kClass, "board_id").c_str(), O_RDONLY);
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const std::string expected = at(kPci, "infiniband/mlx5_0/board_id");
    std::memset(text, '#', sizeof text);
    EXPECT_EQ(::readlink(link, text, PATH_MAX), static_cast<ssize_t>(expected.size()));
    EXPECT_EQ(std::string(text, expected.size()), expected);
    std::memset(text, '#', sizeof text);
    EXPECT_EQ(::readlink(link, text, 20), 20);
    EXPECT_EQ(std::string(text, 21), expected.substr(0, 20) + "#");
    ::close(fd);
}

TEST(PreloadNames, WorkingDirectory) {
    char before[PATH_MAX], text[PATH_MAX];
    ASSERT_NE(::getcwd(before, sizeof before), nullptr);
    ASSERT_EQ(::chdir("/sys/class/infiniband/mlx5_0/ports"), 0);
    const std::string ports = at(kPci, "infiniband/mlx5_0/ports");
    EXPECT_STREQ(::getcwd(text, sizeof text), ports.c_str());
    EXPECT_EQ(::getcwd(text, 8), nullptr);
    EXPECT_EQ(errno, ERANGE);
    char* allocated = ::getcwd(nullptr, 0);
    EXPECT_STREQ(allocated, ports.c_str());
    std::free(allocated);
    allocated = ::get_current_dir_name();
    EXPECT_STREQ(allocated, ports.c_str());
    std::free(allocated);
    EXPECT_EQ(drain(::open("../board_id", O_RDONLY)), kBoard);
    EXPECT_EQ(drain(::open("1/lid", O_RDONLY)), "0x1\n");
    EXPECT_STREQ(::realpath(".", text), ports.c_str());
    EXPECT_EQ(::chdir("../../../../../../class/net"), 0);
    EXPECT_STREQ(::getcwd(text, sizeof text), "/sys/class/net");
    EXPECT_EQ(::chdir("/dev/infiniband"), 0);
    struct stat status {};
    EXPECT_EQ(::stat("uverbs0", &status), 0);
    EXPECT_TRUE(is_device(status));
    ASSERT_EQ(::chdir(before), 0);
    EXPECT_STREQ(::getcwd(text, sizeof text), before);
}

}  // namespace
}  // namespace softhca::test
