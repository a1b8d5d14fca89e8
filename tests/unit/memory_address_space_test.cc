// SPDX-License-Identifier: BSD-2-Clause
// What is mapped: by the ioctl and by the text, which must agree.

#include "softhca/device/memory/address_space.h"

#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

TEST(MemoryAddressSpace, ParsesLines) {
    Vma vma{};
    const std::string line =
        "7f1c2a000000-7f1c2a021000 rw-s 00a0b000 fd:12 1234567                    /memfd:x "
        "(deleted)";
    ASSERT_TRUE(parse_maps_line(line.data(), line.size(), &vma));
    EXPECT_EQ(vma.start, 0x7f1c2a000000u);
    EXPECT_EQ(vma.end, 0x7f1c2a021000u);
    EXPECT_EQ(vma.offset, 0xa0b000u);
    EXPECT_EQ(vma.device, makedev(0xfd, 0x12));
    EXPECT_EQ(vma.inode, 1234567u);
    EXPECT_TRUE(vma.readable && vma.writable && !vma.executable && vma.shared);
    EXPECT_EQ(vma.protection(), PROT_READ | PROT_WRITE);
    EXPECT_FALSE(vma.plain());
    for (const char* bad : {"", "x", "1000-2000", "1000-2000 rw-", "1000-2000 rw-p 0 0:0",
                            "2000-1000 rw-p 00000000 00:00 0", "1000-2000 rwzp 00000000 00:00 0"})
        EXPECT_FALSE(parse_maps_line(bad, strlen(bad), &vma)) << bad;
}

void list(AddressSpace* space, std::vector<Vma>* all) {
    Vma vma{};
    for (std::uint64_t at = 0; space->find(at, &vma); at = vma.end)
        all->push_back(vma);
}

TEST(MemoryAddressSpace, QueryAndTextAgree) {
    // More mappings than fit in one read of the file.
    Memory many(3000);
    for (std::size_t i = 0; i < many.pages(); i += 2)
        ASSERT_EQ(mprotect(many.page(i), page_bytes(), PROT_READ), 0);
    AddressSpace querying, reading;
    reading.use(AddressSpace::Source::kText);
    std::vector<Vma> by_query, by_text;
    by_query.reserve(20000);  // no new mappings while we look
    by_text.reserve(20000);
    Vma first{};
    ASSERT_TRUE(reading.find(0, &first));  // makes its table, a new mapping
    list(&querying, &by_query);
    reading.refresh();
    list(&reading, &by_text);
    EXPECT_GT(by_text.size(), 3000u);
    // The kernel's own mappings at the very end ([vsyscall]) are only in the text.
    ASSERT_GE(by_text.size(), by_query.size());
    ASSERT_LE(by_text.size(), by_query.size() + 1);
    unsigned different = 0;
    for (std::size_t i = 0; i < by_query.size(); ++i)
        different += !(by_query[i] == by_text[i]);
    EXPECT_EQ(different, 0u);
    querying.close();
    reading.close();
}

TEST(MemoryAddressSpace, FindsByAddress) {
    for (const auto source : {AddressSpace::Source::kQuery, AddressSpace::Source::kText}) {
        AddressSpace space;
        space.use(source);
        Memory memory(3);
        Vma vma{};
        ASSERT_TRUE(space.at(memory.address() + page_bytes() + 5, &vma));
        EXPECT_EQ(vma.start, memory.address());
        EXPECT_EQ(vma.end, memory.address() + memory.bytes());
        EXPECT_TRUE(vma.plain());
        ASSERT_EQ(munmap(memory.page(1), page_bytes()), 0);
        space.refresh();
        EXPECT_FALSE(space.at(address_of(memory.page(1)), &vma));
        ASSERT_TRUE(space.find(address_of(memory.page(1)), &vma));
        EXPECT_EQ(vma.start, address_of(memory.page(2)));

        Memory shared(1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
        space.refresh();
        ASSERT_TRUE(space.find_shared_file(shared.address(), &vma));
        EXPECT_EQ(vma.start, shared.address());
        EXPECT_TRUE(vma.shared);
        space.close();
    }
}

TEST(MemoryAddressSpace, KnowsTheMainStack) {
    const Vma frame = vma_at(address_of(__builtin_frame_address(0)));
    EXPECT_TRUE(main_stack(frame));
    const Memory memory(1);
    EXPECT_FALSE(main_stack(vma_at(memory.address())));
}

TEST(MemoryAddressSpace, SurvivesLosingItsDescriptor) {
    AddressSpace space;
    Vma vma{};
    Memory memory(1);
    ASSERT_TRUE(space.at(memory.address(), &vma));
    EXPECT_GE(space.fd(), 640);
    close(space.fd());
    space.refresh();
    EXPECT_TRUE(space.at(memory.address(), &vma));
    // Its number now names something else, which it must leave alone.
    const int number = space.fd();
    const int other = open("/dev/null", O_RDONLY);
    ASSERT_EQ(dup2(other, number), number);
    space.refresh();
    EXPECT_TRUE(space.at(memory.address(), &vma));
    EXPECT_NE(fcntl(number, F_GETFD), -1);
    close(number);
    close(other);
    space.close();
}

}  // namespace
}  // namespace softhca::device::memory::test
