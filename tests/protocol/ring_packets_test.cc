// SPDX-License-Identifier: BSD-2-Clause
// Rings whose buffers are longer than a packet. The variant protocol.reorder.RingPackets runs this
// on a device that places the last packet of a message first.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

constexpr auto kTime = std::chrono::seconds(100);  // mostly it takes four

Options ring_options() {
    Options options;
    options.endpoints = Category::kMpiEverywhere;
    options.rings.peers = 1;
    options.eager_bytes = options.rings.message_bytes = 8000;
    return options;
}

std::size_t size_of(unsigned number) { return number % 2 == 0 ? 7000 : 300; }
char content(unsigned number, std::size_t at) { return static_cast<char>(number * 37 + at * 11); }

// The reader looks at its ring while the message is written. Until so many came by it: the writer
// ends the test, as it may have sent another message before it sees that there were enough.
TEST(RingPackets, AreWholeWhenTheyAreRead) {
    constexpr std::uint64_t kByRing = 100;
    std::vector<char> room(8000);  // the last receive is there until its endpoint has gone
    End writer(ring_options()), reader(ring_options());
    const auto to_reader = writer.addresses.insert(reader.endpoint->name());
    const auto to_writer = reader.addresses.insert(writer.endpoint->name());
    std::atomic<unsigned> read{0};
    std::atomic<bool> enough{false}, failed{false}, ended{false};
    const auto end = std::chrono::steady_clock::now() + kTime;
    std::thread reading([&] {
        for (unsigned number = 0; !failed; ++number) {
            reader.post(to_writer, room, &room);
            while (reader.receive.empty()) {
                reader.endpoint->progress();
                if (failed || ended) return;
            }
            const CompletionEntry entry = reader.receive.front();
            reader.receive.pop();
            bool good = entry.error == 0 && entry.bytes == size_of(number);
            for (std::size_t i = 0; good && i < entry.bytes; ++i)
                good = room[i] == content(number, i);
            if (!good) failed = true;
            read = number + 1;
            if (reader.endpoint->counts().from_rings >= kByRing) enough = true;
        }
    });
    unsigned number = 0;
    for (; !enough && !failed && std::chrono::steady_clock::now() < end; ++number) {
        std::vector<char> bytes(size_of(number));
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = content(number, i);
        writer.send(to_reader, bytes);
        while ((writer.transmit.empty() || read <= number) && !failed &&
               std::chrono::steady_clock::now() < end)
            writer.endpoint->progress();
        if (!writer.transmit.empty()) writer.transmit.pop();
    }
    ended = true;
    reading.join();
    EXPECT_FALSE(failed) << "message " << read << " of " << number;
    EXPECT_GE(reader.endpoint->counts().from_rings, kByRing);
    EXPECT_EQ(reader.endpoint->counts().protocol_errors, 0);
}

}  // namespace
}  // namespace heddle::protocol::test
