// SPDX-License-Identifier: BSD-2-Clause
// Peers that wait for room, and others that must not wait with them. A channel has as many send
// buffers as a connection has work queue entries, so that several connections can ask for more than
// there are.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "protocol/transport/domain.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

constexpr unsigned kPeers = 3, kDepth = 16, kRounds = 40;

Options few_buffers() {
    Options options;
    options.endpoints = Category::kMpiEverywhere;  // a connection for each pair of endpoints
    options.send_depth = kDepth;
    options.reuse.after = 0;  // everything small is copied
    return options;
}

// An endpoint, and peers that it reaches by connections of their own.
class BlockedPeers : public testing::Test {
protected:
    explicit BlockedPeers(const Options& with = few_buffers()) : options(with), center(with) {
        for (unsigned k = 0; k < kPeers; ++k) {
            peers.push_back(std::make_unique<End>(options));
            all.push_back(peers.back().get());
            to_peer[k] = center.addresses.insert(peers[k]->endpoint->name());
            to_center[k] = peers[k]->addresses.insert(center.endpoint->name());
        }
    }
    // Takes the entries of an endpoint, which must not be errors, until there are `count` in all.
    static bool have_ended(Completions& entries, unsigned& ended, unsigned count) {
        for (; !entries.empty(); entries.pop(), ++ended)
            EXPECT_EQ(entries.front().error, 0);
        return ended == count;
    }
    const Options options;
    End center;
    std::vector<std::unique_ptr<End>> peers;
    std::vector<End*> all{&center};
    std::uint64_t to_peer[kPeers], to_center[kPeers];
};

// All endpoints of a process post to one queue there, so whoever polls makes room for all.
class BlockedThreads : public BlockedPeers {
protected:
    static Options one_queue() {
        Options options = few_buffers();
        options.endpoints = Category::kMpiThreads;
        return options;
    }
    BlockedThreads() : BlockedPeers(one_queue()) {}
};

TEST_F(BlockedThreads, AreServedByAnyOfThem) {
    std::vector<char> bytes(200, 'b'), room(200);
    const auto send = [&] { center.send(to_peer[0], bytes); };
    unsigned sent = 0, received = 0;
    peers[0]->post(FI_ADDR_UNSPEC, room, this);
    send();
    ASSERT_TRUE(until([&] { return have_ended(center.transmit, sent, 1); }, all)) << "connecting";
    for (unsigned i = 1; i < kRounds; ++i) {
        peers[0]->post(FI_ADDR_UNSPEC, room, this);
        send();
    }
    // The sender does not poll.
    const std::vector<End*> others(all.begin() + 1, all.end());
    EXPECT_TRUE(until([&] { return have_ended(peers[0]->receive, received, kRounds); }, others))
        << received << " of " << kRounds;
    EXPECT_TRUE(have_ended(center.transmit, sent, kRounds)) << sent;
}

// What is read comes into a buffer first, because the memory of the reader is not registered.
TEST_F(BlockedPeers, ReadsWaitForABuffer) {
    std::vector<std::uint64_t> there(kRounds);
    std::iota(there.begin(), there.end(), 1000);
    std::unique_ptr<Region> regions[kPeers];
    for (unsigned k = 0; k < kPeers; ++k)
        regions[k] =
            peers[k]->domain->register_memory(there.data(), there.size() * 8, FI_REMOTE_READ);
    std::vector<std::uint64_t> got(kPeers * kRounds);
    const auto read = [&](unsigned peer, unsigned i) {
        iovec into{&got[peer * kRounds + i], 8};
        const RmaSegment from{reinterpret_cast<std::uintptr_t>(&there[i]), 8, regions[peer]->key()};
        RmaArguments a;
        a.iov = &into;
        a.iov_count = 1;
        a.to = to_peer[peer];
        a.remote = &from;
        a.remote_count = 1;
        a.flags = FI_READ | FI_COMPLETION;
        return center.endpoint->rma(a);
    };
    unsigned ended = 0;
    const auto until_ended = [&](unsigned count) {
        return until([&] { return have_ended(center.transmit, ended, count); }, all);
    };
    for (unsigned k = 0; k < kPeers; ++k)
        ASSERT_EQ(read(k, 0), 0);
    ASSERT_TRUE(until_ended(kPeers)) << "connecting";
    // All without looking at completions in between.
    for (unsigned i = 1; i < kRounds; ++i)
        for (unsigned k = 0; k < kPeers; ++k)
            ASSERT_EQ(read(k, i), 0);
    EXPECT_TRUE(until_ended(kPeers * kRounds)) << ended << " of " << kPeers * kRounds;
    for (unsigned k = 0; k < kPeers; ++k)
        for (unsigned i = 0; i < kRounds; ++i)
            EXPECT_EQ(got[k * kRounds + i], there[i]) << k << ", " << i;
}

// Replies to atomics are control messages. These do not fit into a work queue entry, and more of
// them are due at once than there are buffers.
TEST_F(BlockedPeers, LongRepliesWaitForABuffer) {
    constexpr std::size_t kElements = 100;
    std::vector<std::uint64_t> there(kElements);
    std::iota(there.begin(), there.end(), 1000);
    const std::vector<std::uint64_t> zeros(kElements);
    const auto region = center.domain->register_memory(there.data(), there.size() * 8,
                                                       FI_REMOTE_READ | FI_REMOTE_WRITE);
    std::vector<std::vector<std::uint64_t>> got(kPeers * kRounds,
                                                std::vector<std::uint64_t>(kElements));
    const auto fetch = [&](unsigned peer, unsigned i) {
        iovec into{got[peer * kRounds + i].data(), kElements * 8};
        AtomicArguments a;
        a.operand = zeros.data();
        a.results = &into;
        a.result_count = 1;
        a.count = kElements;
        a.datatype = FI_UINT64;
        a.op = FI_SUM;
        a.to = to_center[peer];
        a.address = reinterpret_cast<std::uintptr_t>(there.data());
        a.key = region->key();
        a.flags = FI_COMPLETION;
        return peers[peer]->endpoint->atomic(a);
    };
    unsigned ended[kPeers] = {};
    const auto until_ended = [&](unsigned count) {
        return until(
            [&] {
                bool all_have = true;
                for (unsigned k = 0; k < kPeers; ++k)
                    all_have &= have_ended(peers[k]->transmit, ended[k], count);
                return all_have;
            },
            all);
    };
    for (unsigned k = 0; k < kPeers; ++k)
        ASSERT_EQ(fetch(k, 0), 0);
    ASSERT_TRUE(until_ended(1)) << "connecting";
    for (unsigned i = 1; i < kRounds; ++i)
        for (unsigned k = 0; k < kPeers; ++k)
            ASSERT_EQ(fetch(k, i), 0);
    ASSERT_TRUE(until_ended(kRounds)) << ended[0] << ", " << ended[1] << ", " << ended[2];
    for (const std::vector<std::uint64_t>& each : got)
        EXPECT_EQ(each, there);
}

// A peer that cannot be reached stays blocked for long. Those that are blocked behind it, because
// their connections have no room, go on meanwhile.
TEST_F(BlockedPeers, KeepNobodyElseWaiting) {
    std::uint64_t value = 7;
    unsigned ended = 0;
    const iovec piece{&value, sizeof value};
    const auto send = [&](std::uint64_t to) { return center.send(to, piece, FI_COMPLETION); };
    const auto until_ended = [&](unsigned count) {
        return until([&] { return have_ended(center.transmit, ended, count); }, all);
    };
    for (const std::uint64_t to : to_peer)
        ASSERT_EQ(send(to), 0);
    ASSERT_TRUE(until_ended(kPeers)) << "connecting";
    EndpointAddress nobody = center.endpoint->name();
    nobody.process.ud_qpn = 0xff'fff0;  // nobody listens there
    ++nobody.process.nonce;
    ASSERT_EQ(send(center.addresses.insert(nobody)), 0);
    for (unsigned i = 1; i < kRounds; ++i)
        for (const std::uint64_t to : to_peer)
            ASSERT_EQ(send(to), 0);
    // An error, or nothing until the time is over, if the others wait for the first one's failure.
    EXPECT_TRUE(until_ended(kPeers * kRounds)) << ended << " of " << kPeers * kRounds;
}

// A message from memory that stays registered needs a buffer for its header only.
class ReusedByBlockedPeers : public BlockedPeers {
protected:
    ReusedByBlockedPeers()
        : BlockedPeers([] {
              Options options = few_buffers();
              options.reuse.after = 1;
              return options;
          }()) {}
};

TEST_F(ReusedByBlockedPeers, MessagesWaitForABuffer) {
    std::vector<char> bytes(1000, 'r');
    unsigned ended = 0;
    const auto until_ended = [&](unsigned count) {
        return until([&] { return have_ended(center.transmit, ended, count); }, all);
    };
    for (unsigned round = 1; round <= 3; ++round) {
        for (const std::uint64_t to : to_peer)
            center.send(to, bytes);
        ASSERT_TRUE(until_ended(round * kPeers)) << "connecting, and counting uses";
    }
    const std::uint64_t before = center.endpoint->counts().gathered;
    for (unsigned i = 0; i < kRounds; ++i)
        for (const std::uint64_t to : to_peer)
            center.send(to, bytes);
    EXPECT_TRUE(until_ended((3 + kRounds) * kPeers)) << ended;
    const EndpointCounts counts = center.endpoint->counts();
    EXPECT_GE(counts.gathered - before, kDepth) << "until no buffer was left";
    EXPECT_EQ(counts.gathered_by_size[EndpointCounts::size_index(bytes.size())], counts.gathered);
}

}  // namespace
}  // namespace heddle::protocol::test
