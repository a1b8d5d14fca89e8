// SPDX-License-Identifier: BSD-2-Clause
// What counts as memory of the calling frames: nothing else may be touched without asking.
#include "softhca/uverbs/own_stack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>

namespace softhca::uverbs::test {
namespace {

std::uint64_t address_of(const void* at) noexcept {
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(at));
}

[[gnu::noinline]] bool in_frames(const void* at, std::size_t bytes) {
    return in_callers_frames(address_of(at), bytes);
}

int of_the_program;

void check() {
    if (stack_begin() == 1) GTEST_SKIP() << "switched off under AddressSanitizer";
    char local[64] = {};
    EXPECT_TRUE(in_frames(local, sizeof local));
    EXPECT_FALSE(in_frames(&of_the_program, sizeof of_the_program));
    const auto heap = std::make_unique<char[]>(1 << 20);
    EXPECT_FALSE(in_frames(heap.get(), 1));
    EXPECT_FALSE(in_frames(nullptr, 0));
    // From a frame to where the stack began, and not one byte more; lengths may be anything.
    const std::uintptr_t room = stack_begin() - reinterpret_cast<std::uintptr_t>(local);
    EXPECT_TRUE(in_frames(local, room));
    EXPECT_FALSE(in_frames(local, room + 1));
    EXPECT_FALSE(in_frames(local, SIZE_MAX));
    EXPECT_FALSE(in_frames(reinterpret_cast<void*>(stack_begin()), 0));
    // Below the frames: there may be nothing mapped.
    EXPECT_FALSE(in_callers_frames(address_of(local) - (1 << 16), 1));
}

TEST(OwnStack, OfTheMainThread) { check(); }
TEST(OwnStack, OfAnotherThread) { std::thread(check).join(); }

}  // namespace
}  // namespace softhca::uverbs::test
