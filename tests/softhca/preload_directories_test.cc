// SPDX-License-Identifier: BSD-2-Clause
// Directories: ours, those of the host that show ours, and libc's own walkers (scandir, ftw, glob).
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload_doors.h"

namespace softhca::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<std::string> names_in(DIR* stream) {
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(stream)) {
        names.emplace_back(entry->d_name);
    }
    return names;
}

std::vector<std::string> names_in(const char* path) {
    DIR* stream = ::opendir(path);
    if (stream == nullptr) {
        return {std::string("cannot open: ") + std::strerror(errno)};
    }
    auto names = names_in(stream);
    ::closedir(stream);
    return names;
}

TEST(PreloadDirectories, Ours) {
    EXPECT_THAT(names_in("/sys/class/infiniband"), UnorderedElementsAre(".", "..", "mlx5_0"));
    EXPECT_THAT(names_in("/dev/infiniband"), UnorderedElementsAre(".", "..", "uverbs0", "rdma_cm"));
    EXPECT_THAT(names_in("/sys/bus/pci/devices/5afc:00:00.0"),
                IsSupersetOf({"vendor", "infiniband", "infiniband_verbs", "driver"}));

    DIR* stream = ::opendir("/dev/infiniband");
    ASSERT_NE(stream, nullptr);
    bool seen = false;
    while (const dirent* entry = ::readdir(stream)) {
        if (std::strcmp(entry->d_name, "uverbs0") == 0) {
            seen = true;
            EXPECT_EQ(entry->d_type, DT_CHR);
        }
    }
    EXPECT_TRUE(seen);
    ::closedir(stream);
}

TEST(PreloadDirectories, ParentsShowOurs) {
    for (const auto& [parent, name] :
         std::vector<std::pair<const char*, const char*>>{{"/sys/class", "infiniband"},
                                                          {"/sys/class", "infiniband_verbs"},
                                                          {"/sys/bus/pci/devices", "5afc:00:00.0"},
                                                          {"/sys/devices", "pci5afc:00"},
                                                          {"/dev", "infiniband"},
                                                          {"/sys/dev/char", "231:192"}}) {
        DIR* stream = ::opendir(parent);
        if (stream == nullptr) {
            continue;  // a container may lack it
        }
        for (int round = 0; round < 2; ++round) {
            const auto names = names_in(stream);
            EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << parent << " " << name;
            errno = 0;
            EXPECT_EQ(::readdir(stream), nullptr);
            EXPECT_EQ(errno, 0);
            ::rewinddir(stream);
        }
        ::closedir(stream);
    }
    // As hwloc opens them.
    const int root = ::open("/", O_RDONLY | O_DIRECTORY);
    DIR* stream = ::fdopendir(::openat(root, "sys/class", O_RDONLY | O_DIRECTORY));
    ASSERT_NE(stream, nullptr);
    EXPECT_THAT(names_in(stream), Contains("infiniband"));
    ::closedir(stream);
    ::close(root);
    EXPECT_THAT(names_in("/sys/class/net"), Not(Contains("infiniband")));
}

TEST(PreloadDirectories, ManyStreamsAtOnce) {
    std::vector<DIR*> streams;
    for (int i = 0; i < 200; ++i) {
        DIR* stream = ::opendir("/sys/class");
        ASSERT_NE(stream, nullptr);
        streams.push_back(stream);
    }
    for (DIR* stream : streams) {
        EXPECT_THAT(names_in(stream), Contains("net"));
        ::closedir(stream);
    }
    EXPECT_THAT(names_in("/sys/class"), Contains("infiniband"))
        << "closed streams free their place";
}

int only_mlx5(const dirent* entry) { return std::strncmp(entry->d_name, "mlx5", 4) == 0; }

TEST(PreloadDirectories, Scandir) {
    dirent** list = nullptr;
    ASSERT_EQ(::scandir("/sys/class/infiniband", &list, only_mlx5, ::alphasort), 1);
    EXPECT_STREQ(list[0]->d_name, "mlx5_0");
    std::free(list[0]);
    std::free(list);

    const int count = ::scandir("/sys/class", &list, nullptr, ::alphasort);
    ASSERT_GT(count, 4);
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
        names.emplace_back(list[i]->d_name);
        std::free(list[i]);
    }
    std::free(list);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end(), [](const auto& a, const auto& b) {
        return std::strcoll(a.c_str(), b.c_str()) < 0;
    }));
    EXPECT_THAT(names, IsSupersetOf({".", "..", "infiniband", "net"}));

    const int root = ::open("/", O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(::scandirat(root, "sys/class/infiniband", &list, only_mlx5, nullptr), 1);
    std::free(list[0]);
    std::free(list);
    EXPECT_EQ(::scandirat(root, "sys/class/infiniband_mad", &list, nullptr, nullptr), -1);
    EXPECT_EQ(errno, ENOENT);
    ::close(root);
    EXPECT_EQ(::scandir("/sys/class/infiniband_mad", &list, nullptr, nullptr), -1);
    EXPECT_EQ(errno, ENOENT);
}

std::set<std::string> walked;
bool walk_consistent = true;
int on_entry(const char* path, const struct stat* status, int kind, FTW* info) {
    walked.insert(path);
    const char* slash = std::strrchr(path, '/');
    walk_consistent = walk_consistent && slash != nullptr && path + info->base == slash + 1;
    if (std::strcmp(path, kDevice) == 0) {
        walk_consistent = walk_consistent && kind == FTW_F && S_ISCHR(status->st_mode);
    }
    return 0;
}
int on_plain_entry(const char* path, const struct stat*, int) {
    walked.insert(path);
    return std::strcmp(path, "/sys/class/infiniband_verbs/abi_version") == 0 ? 42 : 0;
}

TEST(PreloadDirectories, Walks) {
    walked.clear();
    walk_consistent = true;
    EXPECT_EQ(::nftw("/sys/devices/pci5afc:00", on_entry, 16, FTW_PHYS), 0);
    EXPECT_EQ(::nftw("/dev/infiniband", on_entry, 16, FTW_PHYS), 0);
    EXPECT_THAT(walked, IsSupersetOf({std::string(kPci), at(kPci, "infiniband/mlx5_0/ports/1/lid"),
                                      std::string(kDevice)}));
    EXPECT_TRUE(walk_consistent);
    for (const std::string& path : walked) {
        EXPECT_TRUE(path.starts_with("/sys/devices/pci5afc:00") ||
                    path.starts_with("/dev/infiniband"))
            << path;
    }
    walked.clear();
    EXPECT_EQ(::ftw("/sys/class/infiniband_verbs", on_plain_entry, 16), 42);
    EXPECT_TRUE(walked.count("/sys/class/infiniband_verbs/abi_version"));
}

TEST(PreloadDirectories, Glob) {
    const auto matches = [](const char* pattern, int flags = 0) {
        glob_t found{};
        std::vector<std::string> names;
        if (::glob(pattern, flags, nullptr, &found) == 0) {
            names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
        }
        ::globfree(&found);
        return names;
    };
    EXPECT_THAT(matches("/sys/class/infiniband/*/ports/*/lid"),
                ElementsAre("/sys/class/infiniband/mlx5_0/ports/1/lid"));
    EXPECT_THAT(matches("/sys/class/infini*"),
                ElementsAre("/sys/class/infiniband", "/sys/class/infiniband_verbs"));
    EXPECT_THAT(matches("/sys/*/infiniband/mlx5_?"), ElementsAre(kClass));
    EXPECT_THAT(matches("/dev/{infiniband,none}/uverbs*", GLOB_BRACE), ElementsAre(kDevice));
    EXPECT_THAT(matches("/sys/class/infiniband/*", GLOB_MARK),
                ElementsAre("/sys/class/infiniband/mlx5_0/"));
    EXPECT_THAT(matches("/sys/class/infiniband/x*"), ElementsAre());
    EXPECT_THAT(matches("/sys/class/net/lo"), ElementsAre("/sys/class/net/lo"));

    glob_t both{};
    EXPECT_EQ(::glob("/sys/class/infiniband/mlx*", 0, nullptr, &both), 0);
    EXPECT_EQ(::glob("/tm[p]", GLOB_APPEND, nullptr, &both), 0);
    EXPECT_EQ(both.gl_pathc, 2U);
    ::globfree(&both);
}

}  // namespace
}  // namespace softhca::test
