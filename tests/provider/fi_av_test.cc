// SPDX-License-Identifier: BSD-2-Clause
// Address vectors: numbers in order, duplicates, damage, removal, texts, events.
#include <malloc.h>

#include <array>
#include <cstddef>
#include <fstream>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using NameBytes = std::array<std::byte, kNameBytes>;

NameBytes name_of(const Station& station) {
    NameBytes name;
    std::memcpy(name.data(), station.name, kNameBytes);
    return name;
}

class AddressVectors : public ::testing::TestWithParam<fi_av_type> {
protected:
    World world;
    Station station{world};
    Opened<fid_av> av = open_av(world.domain.get(), GetParam());
    void SetUp() override { station.enable(); }
    std::vector<NameBytes> names(std::size_t count) {
        return std::vector<NameBytes>(count, name_of(station));
    }
};
INSTANTIATE_TEST_SUITE_P(Types, AddressVectors, ::testing::Values(FI_AV_TABLE, FI_AV_MAP));

TEST_P(AddressVectors, NumbersAreInOrderAndDuplicatesAreKept) {
    std::vector<fi_addr_t> numbers(5, 99);
    ASSERT_EQ(fi_av_insert(av.get(), names(5).data(), 5, numbers.data(), 0, nullptr), 5);
    EXPECT_EQ(numbers, (std::vector<fi_addr_t>{0, 1, 2, 3, 4}));
    ASSERT_EQ(fi_av_insert(av.get(), names(1).data(), 1, numbers.data(), FI_MORE, nullptr), 1);
    EXPECT_EQ(numbers[0], 5u);
    ASSERT_EQ(fi_av_insert(av.get(), names(1).data(), 1, nullptr, 0, nullptr), 1);
    ASSERT_EQ(fi_av_insert(av.get(), names(1).data(), 1, numbers.data(), 0, nullptr), 1);
    EXPECT_EQ(numbers[0], 7u);
}

TEST_P(AddressVectors, LookUpGivesTheNameBack) {
    ASSERT_EQ(fi_av_insert(av.get(), names(1).data(), 1, nullptr, 0, nullptr), 1);
    NameBytes found{};
    std::size_t bytes = sizeof found;
    ASSERT_EQ(fi_av_lookup(av.get(), 0, found.data(), &bytes), 0);
    EXPECT_EQ(bytes, kNameBytes);
    EXPECT_EQ(found, name_of(station));
    NameBytes part{};
    bytes = 4;
    ASSERT_EQ(fi_av_lookup(av.get(), 0, part.data(), &bytes), 0);
    EXPECT_EQ(bytes, kNameBytes);
    EXPECT_EQ(part[3], found[3]);
    EXPECT_EQ(part[4], std::byte{0});
    EXPECT_EQ(fi_av_lookup(av.get(), 1, found.data(), &bytes), -FI_EINVAL);
}

TEST_P(AddressVectors, InvalidNamesAreSkippedAndReported) {
    std::vector<NameBytes> three = names(3);
    three[1][0] = std::byte{0xff};
    fi_addr_t numbers[3] = {};
    int errors[3] = {7, 7, 7};
    EXPECT_EQ(fi_av_insert(av.get(), three.data(), 3, numbers, FI_SYNC_ERR, errors), 2);
    EXPECT_EQ(errors[0], 0);
    EXPECT_EQ(errors[1], FI_EINVAL);
    EXPECT_EQ(errors[2], 0);
    EXPECT_EQ(numbers[0], 0u);
    EXPECT_EQ(numbers[1], FI_ADDR_NOTAVAIL);
    EXPECT_EQ(numbers[2], 1u);
}

TEST_P(AddressVectors, RemovedNumbersHaveNoName) {
    fi_addr_t numbers[2];
    ASSERT_EQ(fi_av_insert(av.get(), names(2).data(), 2, numbers, 0, nullptr), 2);
    ASSERT_EQ(fi_av_remove(av.get(), numbers, 1, 0), 0);
    NameBytes found;
    std::size_t bytes = sizeof found;
    EXPECT_EQ(fi_av_lookup(av.get(), numbers[0], found.data(), &bytes), -FI_EINVAL);
    EXPECT_EQ(fi_av_lookup(av.get(), numbers[1], found.data(), &bytes), 0);
    EXPECT_EQ(fi_av_remove(av.get(), numbers, 1, 0), -FI_EINVAL);
    EXPECT_EQ(fi_av_remove(av.get(), numbers, 1, FI_MORE), -FI_EBADFLAGS);
}

TEST_P(AddressVectors, Text) {
    const NameBytes name = name_of(station);
    char text[200];
    std::size_t bytes = sizeof text;
    EXPECT_EQ(fi_av_straddr(av.get(), name.data(), text, &bytes), text);
    EXPECT_EQ(std::string(text).substr(0, 10), "heddle://[") << text;
    EXPECT_EQ(bytes, std::strlen(text) + 1);
    char little[9];
    std::size_t room = sizeof little;
    fi_av_straddr(av.get(), name.data(), little, &room);
    EXPECT_STREQ(little, "heddle:/");
    EXPECT_EQ(room, bytes);
}

TEST_P(AddressVectors, HostsAreNotInserted) {
    fi_addr_t number;
    EXPECT_EQ(fi_av_insertsvc(av.get(), "localhost", "1", &number, 0, nullptr), -FI_ENOSYS);
    EXPECT_EQ(fi_av_insertsym(av.get(), "localhost", 1, "1", 1, &number, 0, nullptr), -FI_ENOSYS);
}

TEST(AddressVectorEvents, InsertionIsTold) {
    World world;
    Station station(world);
    station.enable();
    fi_eq_attr attributes{};
    const auto eq = opened<fid_eq>("fi_eq_open", [&](fid_eq** out) {
        return fi_eq_open(world.fabric.get(), &attributes, out, nullptr);
    });
    const auto av = open_av(world.domain.get(), FI_AV_TABLE, FI_EVENT);
    std::vector<NameBytes> three(3, name_of(station));
    three[2][2] = std::byte{9};  // a version of the future
    fi_addr_t numbers[3];
    int context = 0;
    EXPECT_EQ(fi_av_insert(av.get(), three.data(), 3, numbers, 0, &context), -FI_ENOEQ);
    ASSERT_EQ(fi_av_bind(av.get(), eq.handle(), 0), 0);
    ASSERT_EQ(fi_av_insert(av.get(), three.data(), 3, numbers, 0, &context), 0);

    std::uint32_t event = 0;
    fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0), -FI_EAVAIL);
    fi_eq_err_entry error{};
    ASSERT_EQ(fi_eq_readerr(eq.get(), &error, 0), static_cast<ssize_t>(sizeof error));
    EXPECT_EQ(error.fid, av.handle());
    EXPECT_EQ(error.data, 2u);
    EXPECT_EQ(error.err, FI_EINVAL);
    ASSERT_EQ(fi_eq_read(eq.get(), &event, &entry, sizeof entry, 0),
              static_cast<ssize_t>(sizeof entry));
    EXPECT_EQ(event, static_cast<std::uint32_t>(FI_AV_COMPLETE));
    EXPECT_EQ(entry.fid, av.handle());
    EXPECT_EQ(entry.context, &context);
    EXPECT_EQ(entry.data, 2u);
}

// Bytes of memory that is in use, and pages of the process that are there.
struct MemoryInUse {
    std::size_t allocated = 0, pages = 0;
};
MemoryInUse memory_in_use() {
    MemoryInUse memory;
    const auto info = mallinfo2();
    memory.allocated = info.uordblks + info.hblkhd;
    std::size_t size = 0;
    std::ifstream("/proc/self/statm") >> size >> memory.pages;
    return memory;
}

// docs/architecture/protocol.md, "What a peer costs". The last one is talked to, so that the
// endpoint's own table of addresses has all of them.
TEST(AddressVectorMemory, OfPeersThatAreNeverTalkedTo) {
    constexpr std::size_t kAddresses = 4096;
    World world;
    Station station(world);
    station.enable();
    std::vector<NameBytes> names(kAddresses, name_of(station));
    for (std::size_t i = 0; i + 1 < kAddresses; ++i) {
        constexpr std::size_t kNonce = 32, kQueuePair = 40;
        const std::uint64_t nonce = 0x9e37'79b9'7f4a'7c15 * (i + 1);
        const auto queue_pair = static_cast<std::uint32_t>(2 + i);
        std::memcpy(&names[i][kNonce], &nonce, sizeof nonce);
        std::memcpy(&names[i][kQueuePair], &queue_pair, sizeof queue_pair);
    }
    const MemoryInUse before = memory_in_use();
    for (const NameBytes& name : names)
        ASSERT_EQ(fi_av_insert(station.av.get(), name.data(), 1, nullptr, 0, nullptr), 1);
    std::uint64_t out = 7, in = 0;
    ASSERT_EQ(fi_trecv(station.ep.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr),
              0);
    ASSERT_EQ(
        insist(station.transmit.get(),
               [&] { return fi_tinject(station.ep.get(), &out, sizeof out, kAddresses - 1, 1); }),
        0);
    fi_cq_tagged_entry entry;
    ASSERT_EQ(next(station.receive.get(), entry, station.transmit.get()), 0);
    EXPECT_EQ(in, out);
    const MemoryInUse after = memory_in_use();
    const double bytes = static_cast<double>(after.allocated - before.allocated) / kAddresses;
    std::printf("%zu addresses: %.0f bytes each; %.0f of pages\n", kAddresses, bytes,
                static_cast<double>(after.pages - before.pages) * 4096 / kAddresses);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_GT(bytes, static_cast<double>(kNameBytes)) << "the names are somewhere";
    EXPECT_LE(bytes, 1024.0);
#endif
}

TEST(AddressVectorOpening, WhatIsNotPossible) {
    World world;
    fid_av* av = nullptr;
    fi_av_attr attributes{};
    attributes.type = FI_AV_TABLE;
    attributes.name = "shared";
    EXPECT_EQ(fi_av_open(world.domain.get(), &attributes, &av, nullptr), -FI_ENOSYS);
    attributes.name = nullptr;
    attributes.rx_ctx_bits = 3;
    EXPECT_EQ(fi_av_open(world.domain.get(), &attributes, &av, nullptr), -FI_EINVAL);
    attributes.rx_ctx_bits = 0;
    attributes.flags = FI_READ;
    EXPECT_EQ(fi_av_open(world.domain.get(), &attributes, &av, nullptr), -FI_EBADFLAGS);
}

}  // namespace
}  // namespace heddle::test
