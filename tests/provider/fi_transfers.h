// SPDX-License-Identifier: BSD-2-Clause
// Two endpoints between which a test transfers by each call, and a region that one of them writes
// to and reads from.
#pragma once

#include <string>
#include <vector>

#include "tests/provider/fi_support.h"

namespace heddle::test {

class Transfers : public ::testing::Test {
protected:
    World world;
    Pair pair{world};
    fid_ep* a = pair.a.ep.get();
    fid_ep* b = pair.b.ep.get();
    fid_cq* sent = pair.a.transmit.get();
    fid_cq* received = pair.b.receive.get();
    fi_cq_tagged_entry entry{};
    int context = 0;

    template <class Call>
    void must(Call&& call) {
        ASSERT_EQ(insist(sent, call), 0);
    }
    // The message arrives. `reported`: its send completes with an entry (an injected one does not).
    void expect_message(const char* text, std::uint64_t data, bool reported) {
        entry = {};
        ASSERT_EQ(next(received, entry, sent), 0);
        EXPECT_EQ(std::string(buffer, entry.len), text);
        if (data != 0) {
            EXPECT_TRUE(entry.flags & FI_REMOTE_CQ_DATA);
            EXPECT_EQ(entry.data, data);
        } else {
            EXPECT_FALSE(entry.flags & FI_REMOTE_CQ_DATA);
        }
        if (reported) {
            ASSERT_EQ(next(sent, entry, received), 0);
            EXPECT_EQ(entry.op_context, &context);
        }
    }
    // For fi_sendmsg and fi_tsendmsg.
    template <class Message>
    Message two_buffers() {
        Message message{};
        message.msg_iov = buffers;
        message.iov_count = 2;
        message.addr = pair.to_b;
        message.context = &context;
        message.data = 11;
        return message;
    }
    iovec buffers[2] = {{const_cast<char*>("two "), 4}, {const_cast<char*>("buffers"), 7}};
    char buffer[256] = {};
};

class Memory : public Transfers {
protected:
    std::vector<std::uint64_t> target = std::vector<std::uint64_t>(128);
    Opened<fid_mr> region = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(world.domain.get(), target.data(), target.size() * 8,
                         FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, out, nullptr);
    });
    std::uint64_t key = fi_mr_key(region.get());
    std::uint64_t at(std::size_t index) {
        return reinterpret_cast<std::uintptr_t>(target.data() + index);
    }
    // For what is done by the peer's processor.
    void expect_done() {
        entry = {};
        ASSERT_EQ(next(sent, entry, received), 0);
        EXPECT_EQ(entry.op_context, &context);
    }
    void expect_value(std::size_t index, std::uint64_t value) {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        volatile std::uint64_t* there = target.data() + index;
        while (*there != value && std::chrono::steady_clock::now() < end)
            fi_cq_read(received, nullptr, 0);
        EXPECT_EQ(*there, value);
    }
};

}  // namespace heddle::test
