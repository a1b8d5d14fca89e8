// SPDX-License-Identifier: BSD-2-Clause
// What a random schedule (fi_schedules_test.cc) has done so far: the endpoints, the messages that
// they sent, the receives that they posted, and which message fits which receive.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/provider/fi_support.h"

namespace heddle::test {

inline constexpr std::size_t kStations = 3;
inline constexpr std::uint64_t kTags = 4;
// Ignored by all receives, as MPI libraries do with some bits: which message it is.
inline constexpr int kNumberShift = 8;
inline constexpr std::uint64_t kIgnored = 0x7f00, kAnyTag = kIgnored | 0xff;
inline constexpr std::uint32_t kMostOpen = 100;  // messages of one to another: fewer than numbers

inline std::byte content(std::size_t from, std::uint32_t number, std::size_t at) {
    return static_cast<std::byte>(from * 83 + number * 29 + at * 7 + (at >> 10));
}

struct Message {
    std::uint64_t tag = 0;
    std::size_t bytes = 0;
    std::vector<std::byte> buffer;
    int receive = -1;  // that took it: its number at the receiver
};

struct Posted {
    std::uint64_t tag = 0, ignore = 0;
    int from = -1;  // anybody
    std::vector<std::byte> buffer;
    bool done = false, cancelled = false;
    int source = -1;  // the sender of the message that it took, and the message's number
    std::uint32_t number = 0;
};

inline bool fits(const Posted& receive, std::size_t from, const Message& message) {
    return (receive.from < 0 || static_cast<std::size_t>(receive.from) == from) &&
           ((receive.tag ^ message.tag) & ~receive.ignore) == 0;
}

// An endpoint, what it sent and what it posted.
struct End {
    End() : station(world) { station.enable(); }
    World world;
    Station station;
    std::array<fi_addr_t, kStations> to{};
    std::array<std::deque<Message>, kStations> sent;  // to whom
    std::deque<Posted> posted;
    std::size_t sends_open = 0;
    std::array<std::uint32_t, kStations> taken{};  // from whom
};

}  // namespace heddle::test
