// SPDX-License-Identifier: BSD-2-Clause
// In RC mode small messages come in the completion queue entry (mlx5's scatter to CQE): up to 32
// bytes with the header, 64 where entries have 128. The shortest way to the reader takes them, too.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "protocol/receive_fast_path.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

Options rc_options() {
    Options options;
    options.endpoints = Category::kMpiEverywhere;
    options.post = PostPath::kDirect;
    options.transport = Transport::kRc;
    return options;
}

TEST(InlinedMessages, AreReadWithoutOtherProgress) {
    constexpr std::size_t kMost = 80;
    std::vector<char> room(kMost);  // longer than its endpoint
    End writer(rc_options()), reader(rc_options());
    ASSERT_FALSE(reader.impl().channel->xrc());
    const auto to_reader = writer.addresses.insert(reader.endpoint->name());
    const auto to_writer = reader.addresses.insert(writer.endpoint->name());
    const auto send = [&](std::size_t bytes, char content) {
        std::vector<char> out(bytes, content);
        room.assign(kMost, '-');
        reader.post(to_writer, room, &room);
        writer.send(to_reader, out);
        ASSERT_TRUE(until([&] { return !writer.transmit.empty(); }, {&writer}));
        writer.transmit.pop();
    };
    ASSERT_TRUE(grow(writer, to_reader, {&reader}));
    // This one makes the writer, by the QP that it has now, the last source.
    send(8, 'a');
    ASSERT_TRUE(until([&] { return !reader.receive.empty(); }, {&writer, &reader}));
    reader.receive.pop();
    for (std::size_t bytes = 0; bytes <= kMost; ++bytes) {
        SCOPED_TRACE(testing::Message() << bytes << " bytes");
        ASSERT_NO_FATAL_FAILURE(send(bytes, static_cast<char>(bytes + 1)));
        PlainEntry entry;
        ReadNext read = ReadNext::kNothing;
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (read == ReadNext::kNothing && std::chrono::steady_clock::now() < end) {
            read = reader.impl().read_next(entry, true);
            if (read == ReadNext::kNothing) read = reader.impl().read_next_inlined(entry, true);
        }
        ASSERT_EQ(read, ReadNext::kEntry);
        EXPECT_EQ(entry.bytes, bytes);
        EXPECT_EQ(entry.tag, kTag);
        EXPECT_EQ(std::vector<char>(room.begin(), room.begin() + static_cast<long>(bytes)),
                  std::vector<char>(bytes, static_cast<char>(bytes + 1)));
        for (std::size_t i = bytes; i < kMost; ++i)
            ASSERT_EQ(room[i], '-') << "byte " << i;
    }
    // By progress.
    for (std::size_t bytes = 0; bytes <= kMost; ++bytes) {
        ASSERT_NO_FATAL_FAILURE(send(bytes, static_cast<char>(bytes + 2)));
        ASSERT_TRUE(until([&] { return !reader.receive.empty(); }, {&reader}));
        EXPECT_EQ(reader.receive.front().bytes, bytes);
        reader.receive.pop();
        EXPECT_EQ(std::vector<char>(room.begin(), room.begin() + static_cast<long>(bytes)),
                  std::vector<char>(bytes, static_cast<char>(bytes + 2)));
    }
}

}  // namespace
}  // namespace heddle::protocol::test
