// SPDX-License-Identifier: BSD-2-Clause
// A peer that reads memory which it knows from a message, or guesses. It gets what it may read, and
// no more.
#include <gtest/gtest.h>

#include <vector>

#include "tests/protocol/hostile.h"

namespace heddle::protocol::test {
namespace {

// A peer that keeps the key of a message's memory, or guesses one.
class Reader : public Hostile {
protected:
    using Hostile::Hostile;
    // The remote key of the memory that the victim's only message is sent from.
    std::uint32_t key() {
        std::uint32_t found = 0;
        victim.impl().requests.for_each(
            [&](const SendRequest& transfer) { found = transfer.bulk.local.remote_keys[0]; });
        return found;
    }
    // 0, or the error that the read ends with.
    int read(std::uint32_t key) { return read(large.data(), key); }
    int read(const void* at, std::uint32_t key) {
        iovec into{room.data(), 8};
        const RmaSegment from{reinterpret_cast<std::uintptr_t>(at), 8, key};
        RmaArguments a;
        a.iov = &into;
        a.iov_count = 1;
        a.remote = &from;
        a.remote_count = 1;
        a.to = to_victim;
        a.flags = FI_READ | FI_COMPLETION;
        EXPECT_EQ(hostile->endpoint->rma(a), 0);
        EXPECT_TRUE(until([&] { return !hostile->transmit.empty(); }, true));
        const int error = hostile->transmit.front().error;
        hostile->transmit.pop();
        return error;
    }

    std::vector<char> room = std::vector<char>(kLarge);
};

// By RGET it is the receiver's to read, until the message has ended, if no memory stays registered.
class ReaderWithoutCache : public Reader {
protected:
    ReaderWithoutCache() : Reader(none_stays()) {}
    static Options none_stays() {
        Options none = options_of_both();
        none.mr_cache_bytes = 0;
        return none;
    }
};

TEST_F(ReaderWithoutCache, ReadsWithTheKeyOfAMessageThatHasEnded) {
    ASSERT_NO_FATAL_FAILURE(meet());
    begin_rendezvous();
    ASSERT_TRUE(until([&] { return hostile->endpoint->counts().unexpected == 2; }));
    const std::uint32_t known = key();
    EXPECT_EQ(read(known), 0);
    std::vector<char> first(8);
    hostile->post(to_victim, first, nullptr);
    hostile->post(to_victim, room, nullptr);
    ASSERT_TRUE(until([&] { return !victim.transmit.empty(); }));
    EXPECT_EQ(victim.transmit.front().error, 0);
    EXPECT_EQ(room, large);
    EXPECT_NE(read(known), 0);
}

// By RPUT the sender writes: there is nothing to read.
class ReaderOfRput : public Reader {
protected:
    ReaderOfRput() : Reader(by_put()) {}
    static Options by_put() {
        Options put = options_of_both();
        put.rendezvous = Rendezvous::kPut;
        return put;
    }
};

TEST_F(ReaderOfRput, ReadsAMessage) {
    ASSERT_NO_FATAL_FAILURE(meet());
    begin_rendezvous();
    ASSERT_TRUE(until([&] { return hostile->endpoint->counts().unexpected == 2; }));
    EXPECT_NE(read(key()), 0);
}

TEST_F(ReaderOfRput, ReadsMemoryRegisteredForSending) {
    ASSERT_NO_FATAL_FAILURE(meet());
    const auto readable =
        victim.domain->register_memory(&value, sizeof value, FI_SEND | FI_REMOTE_READ);
    EXPECT_EQ(read(&value, static_cast<std::uint32_t>(readable->key())), 0);
    const auto sent = victim.domain->register_memory(&value, sizeof value, FI_SEND);
    EXPECT_NE(read(&value, static_cast<std::uint32_t>(sent->key())), 0);
}

}  // namespace
}  // namespace heddle::protocol::test
