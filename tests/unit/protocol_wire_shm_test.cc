// SPDX-License-Identifier: BSD-2-Clause
// What parse accepts of the messages that concern shared memory.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/wire/shm_layout.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {
namespace {

bool parses(Kind kind, std::uint8_t flags, const std::vector<std::byte>& body,
            bool has_immediate = false) {
    const Header header{kind, flags, 1, 2, 3, 4};
    std::vector<std::byte> bytes(sizeof header + body.size());
    std::memcpy(bytes.data(), &header, sizeof header);
    if (!body.empty()) std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
    Message message;
    return parse(bytes, has_immediate, 5, message);
}
template <class Body>
std::vector<std::byte> bytes_of(const Body& body) {
    std::vector<std::byte> bytes(sizeof body);
    std::memcpy(bytes.data(), &body, sizeof body);
    return bytes;
}
ShmOpenBody open_of(std::uint32_t slots, std::uint32_t area_bytes) {
    return {1, 2, 3, 4, 5, slots, area_bytes};
}

TEST(WireShm, OpensHaveAPossibleShape) {
    const auto good = bytes_of(open_of(kLeastShmSlots, kMostShmArea));
    EXPECT_TRUE(parses(Kind::kShmOpen, 0, good));
    for (std::size_t size = 0; size < good.size(); ++size)
        EXPECT_FALSE(
            parses(Kind::kShmOpen, 0, {good.begin(), good.begin() + static_cast<int>(size)}))
            << size << " bytes";
    std::vector<std::byte> longer = good;
    longer.push_back({});
    EXPECT_FALSE(parses(Kind::kShmOpen, 0, longer));
    EXPECT_FALSE(parses(Kind::kShmOpen, Header::kTagged, good));
    EXPECT_FALSE(parses(Kind::kShmOpen, 0, good, true)) << "remote data";
    EXPECT_FALSE(parses(Kind::kShmOpen, 0, bytes_of(open_of(0, kLeastShmArea))));
    EXPECT_FALSE(parses(Kind::kShmOpen, 0, bytes_of(open_of(kLeastShmSlots + 1, kLeastShmArea))));
    EXPECT_FALSE(parses(Kind::kShmOpen, 0, bytes_of(open_of(2 * kMostShmSlots, kLeastShmArea))));
    EXPECT_FALSE(parses(Kind::kShmOpen, 0, bytes_of(open_of(kLeastShmSlots, 0))));
    EXPECT_FALSE(parses(Kind::kShmOpen, 0, bytes_of(open_of(kLeastShmSlots, 2 * kMostShmArea))));
}

TEST(WireShm, BeginAndWakeHaveNoBody) {
    for (const Kind kind : {Kind::kShmBegin, Kind::kShmWake}) {
        EXPECT_TRUE(parses(kind, 0, {}));
        EXPECT_FALSE(parses(kind, 0, {std::byte{}}));
        EXPECT_FALSE(parses(kind, Header::kTagged, {}));
        EXPECT_FALSE(parses(kind, 0, {}, true));
    }
}

TEST(WireShm, TheReceiverReadsWhatHasSegments) {
    RtsBody rts{7, 0, 0, RtsBody::kByProcess};
    EXPECT_TRUE(parses(Kind::kRts, 0, bytes_of(rts)));
    EXPECT_FALSE(parses(Kind::kRts, Header::kPut, bytes_of(rts))) << "the sender writes this one";
    rts.flags = RtsBody::kRailKeys << 1;
    EXPECT_FALSE(parses(Kind::kRts, 0, bytes_of(rts))) << "an unknown flag";
}

}  // namespace
}  // namespace heddle::protocol
