// SPDX-License-Identifier: BSD-2-Clause
// Lines of /proc/PID/maps: which of them are private memory without a file.
#include "memory/mapping.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace heddle::memory
