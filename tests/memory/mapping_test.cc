// SPDX-License-Identifier: BSD-2-Clause
// Lines of /proc/PID/maps: which of them are private memory without a file.
#include "memory/mapping.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace heddle::memory {
namespace {

TEST(MapsLines, Kinds) {
    const auto read = [](const char* line) {
        detail::MapsLine read;
        EXPECT_TRUE(detail::read_maps_line(line, &read)) << line;
        return read.private_anonymous;
    };
    EXPECT_TRUE(read("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 "));
    EXPECT_TRUE(read("55d000000000-55d000021000 rw-p 00000000 00:00 0          [heap]"));
    EXPECT_TRUE(
        read("7f0000000000-7f0000001000 rw-s 00001000 00:01 77   "
             "/memfd:softhca-arena (deleted)"));
    EXPECT_FALSE(read("7f0000000000-7f0000001000 rw-s 00000000 00:01 2054 /dev/zero (deleted)"));
    EXPECT_FALSE(read("7f0000000000-7f0000001000 rw-s 00000000 00:01 5   /SYSV00000000 (deleted)"));
    EXPECT_FALSE(read("7f0000000000-7f0000001000 rw-p 00000000 00:01 9   /memfd:x (deleted)"));
    EXPECT_FALSE(
        read("7f0000000000-7f0000200000 rw-p 00000000 00:0f 8   /anon_hugepage (deleted)"));
    detail::MapsLine line;
    EXPECT_FALSE(detail::read_maps_line("VmFlags: rd wr", &line));
    EXPECT_FALSE(detail::read_maps_line("", &line));
}

// A program that has no descriptor left is not told that memory of a file may be kept.
TEST(MapsText, ThatCannotBeReadSaysNo) {
    const int here = 0;
    const auto page = reinterpret_cast<std::uintptr_t>(&here) & ~std::uintptr_t{4095};
    ASSERT_TRUE(detail::is_private_anonymous_by_text(page, page + 4096));
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{0, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool answer = detail::is_private_anonymous_by_text(page, page + 4096);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_FALSE(answer);
}

}  // namespace
}  // namespace heddle::memory
