// SPDX-License-Identifier: BSD-2-Clause
// What the start of a job costs the connector: datagrams, requests on their way, time (which is
// counted, not taken). See protocol_storm_support.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>

#include "protocol/wireup/connector_wire.h"
#include "tests/unit/protocol_fake_verbs.h"
#include "tests/unit/protocol_storm_support.h"

namespace heddle::protocol::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMany = 1024;
constexpr std::size_t kMostAsked = Connector::Options{}.most_asked;
constexpr seconds kStormPatience{60};

// The first process and all others.
void ask_all(Storm& storm) {
    for (std::size_t i = 1; i <= kMany; ++i)
        storm.connect(0, i);
}
void all_ask(Storm& storm) {
    for (std::size_t i = 1; i <= kMany; ++i)
        storm.connect(i, 0);
}

double for_each_connection(const Storm& storm) {
    const Storm::Totals& totals = storm.totals();
    std::printf("%zu connections in %ld ms: %.2f datagrams each, %zu repeats, %zu lost\n",
                totals.connected, static_cast<long>(storm.took().count()),
                static_cast<double>(totals.datagrams()) / static_cast<double>(totals.connected),
                totals.repeats, totals.lost);
    return static_cast<double>(totals.datagrams()) / static_cast<double>(totals.connected);
}

TEST(StartStorm, OneThatAsksAllHasFewRequestsOnTheirWay) {
    Storm storm(kMany + 1, {});
    ask_all(storm);
    storm.run(kStormPatience);
    EXPECT_EQ(storm.totals().connected, kMany);
    EXPECT_EQ(storm.most_outstanding(), kMostAsked);
    EXPECT_LE(storm.most_at_once(), kMostAsked);
    EXPECT_EQ(storm.totals().lost, 0u);
    EXPECT_EQ(storm.totals().datagrams(), 2 * kMany);
    EXPECT_EQ(for_each_connection(storm), 2);
}

// Half of the requests find the receive queue full, and targets take longer than the first pause.
TEST(StartStorm, OneThatAllAskAtOnceServesThem) {
    Storm storm(kMany + 1, {});
    all_ask(storm);
    storm.run(kStormPatience);
    EXPECT_EQ(storm.totals().connected, kMany);
    EXPECT_GT(storm.totals().lost, 0u);
    EXPECT_LE(for_each_connection(storm), 3.5);
    EXPECT_LE(storm.took(), milliseconds(450));
}

TEST(StartStorm, OneAsksAllAndAllAskIt) {
    Storm storm(kMany + 1, {});
    ask_all(storm);
    all_ask(storm);
    storm.run(kStormPatience);
    EXPECT_EQ(storm.totals().connected, 2 * kMany);
    EXPECT_LE(storm.most_at_once(), kMostAsked);
    EXPECT_LE(for_each_connection(storm), 3);
    EXPECT_LE(storm.took(), milliseconds(450));
}

// A port that takes 20 datagrams in a millisecond, which is what 1024 connections need at least
// 100 ms for.
TEST(StartStorm, AllAreConnectedAlthoughAPortLosesDatagrams) {
    StormCosts costs;
    costs.most_in_ms = 20;
    Storm storm(kMany + 1, costs);
    ask_all(storm);
    all_ask(storm);
    storm.run(kStormPatience);
    EXPECT_EQ(storm.totals().connected, 2 * kMany);
    EXPECT_GT(storm.totals().lost, kMany);
    EXPECT_LE(for_each_connection(storm), 3.5);
    EXPECT_LE(storm.took(), milliseconds(1000));
}

// Each asks in the same order, as programs do.
TEST(StartStorm, AllAskAll) {
    constexpr std::size_t kProcesses = 192;
    Storm storm(kProcesses, {});
    for (std::size_t from = 0; from < kProcesses; ++from)
        for (std::size_t to = 0; to < kProcesses; ++to)
            if (from != to) storm.connect(from, to);
    storm.run(kStormPatience);
    EXPECT_EQ(storm.totals().connected, kProcesses * (kProcesses - 1));
    EXPECT_EQ(storm.totals().lost, 0u);
    EXPECT_LE(for_each_connection(storm), 2.2);
    EXPECT_LE(storm.took(), milliseconds(200));
}

TEST(StartStorm, PeersThatAreGoneDoNotKeepOthersWaiting) {
    Storm storm(kMany + 1, {});
    std::size_t gone = 0;
    for (std::size_t i = 1; i <= kMany; i += 4, ++gone)
        storm.kill(i);
    ask_all(storm);
    storm.run(seconds(2));
    for_each_connection(storm);
    EXPECT_EQ(storm.totals().connected, kMany - gone);
    EXPECT_EQ(storm.totals().failed, 0u);
    storm.run(kStormPatience);
    EXPECT_EQ(storm.totals().connected, kMany - gone);
    EXPECT_EQ(storm.totals().failed, gone);
    EXPECT_LE(storm.took(), seconds(35));
    EXPECT_LE(storm.most_at_once(), 2 * kMostAsked) << "the last BYEs are bounded, too";
}

// Nothing arrives at all, so each request is repeated until it fails.
TEST(StartStorm, RepeatsBackOffAndDoNotFallTogether) {
    StormCosts costs;
    costs.receive_queue = 0;
    Storm storm(kMany + 1, costs);
    all_ask(storm);
    storm.run(kStormPatience);
    EXPECT_EQ(storm.totals().failed, kMany);
    std::map<std::size_t, std::map<Storm::Clock::time_point, std::size_t>> in_millisecond;
    for (std::size_t i = 1; i <= kMany; ++i) {
        const auto& requests = storm.instants(i);
        ASSERT_EQ(requests.size(), 1u);
        const auto& sent = requests.begin()->second;
        EXPECT_LE(sent.size(), 50u);
        ASSERT_GE(sent.size(), 10u);
        milliseconds expected(50);
        for (std::size_t k = 1; k + 1 < sent.size(); ++k) {
            const auto pause = sent[k] - sent[k - 1];
            EXPECT_GE(pause, expected) << "repeat " << k;
            EXPECT_LE(pause, expected * 2) << "repeat " << k;
            expected = std::min(expected * 2, milliseconds(1000));
            ++in_millisecond[k][std::chrono::floor<milliseconds>(sent[k])];
        }
    }
    // The first repeats are spread over 50 ms, the second ones over 150 ms, and so on.
    const auto most = [&](std::size_t repeat) {
        std::size_t most = 0;
        for (const auto& [when, count] : in_millisecond[repeat])
            most = std::max(most, count);
        return most;
    };
    EXPECT_LE(most(1), kMany / 50 * 3);
    EXPECT_LE(most(2), kMany / 100 * 3);
    EXPECT_LE(most(3), kMany / 200 * 3);
}

TEST(StartStorm, IsTheSameForTheSameSeed) {
    const auto run = [](std::uint64_t seed) {
        Connector::Options options;
        options.seed = seed;
        Storm storm(65, {.receive_queue = 8}, options);
        for (std::size_t i = 1; i < 65; ++i)
            storm.connect(i, 0);
        storm.run(kStormPatience);
        EXPECT_EQ(storm.totals().connected, 64u);
        std::vector<Storm::Clock::time_point> last;
        for (std::size_t i = 1; i < 65; ++i)
            last.push_back(storm.instants(i).begin()->second.back());
        return last;
    };
    const auto first = run(1);
    EXPECT_EQ(run(1), first);
    EXPECT_NE(run(2), first);
}

TEST(StartStorm, ARequestThatIsCancelledLeavesItsTurnToAnother) {
    FakeDevice device;
    EndpointAddress self;
    self.flags = EndpointAddress::kXrc;
    self.process = {{}, 7, 2, 1, 0xffff};
    verbs::ConnectionAttributes own;
    own.mtu = IBV_MTU_4096;
    Connector::Options options;
    options.most_asked = 4;
    ConnectorRequests requests(self, own, options);
    std::list<ConnectionRequest> asked;
    std::vector<ConnectorRequests::Ended> ended;
    ConnectorRequests::Clock::time_point now{seconds(1)};
    for (std::uint32_t i = 0; i < 8; ++i) {
        ConnectionRequest& request = asked.emplace_back();
        request.qp = fake_verbs::make_queue_pair(device.context());
        request.from = request.to = self;
        request.to.process.ud_qpn = 10 + i;
        requests.start(request, now);
    }
    EXPECT_EQ(requests.turns(), 4u);
    const auto first = requests.due(now, ended);
    EXPECT_EQ(first.size(), 4u);
    EXPECT_EQ(requests.due(now, ended).size(), 0u);
    std::size_t byes = 0;
    for (const ConnectionRequest& request : asked)
        byes += requests.stop(request).has_value();
    EXPECT_EQ(byes, 4u) << "of the others nobody has heard";
    EXPECT_EQ(requests.turns(), 0u);
    EXPECT_FALSE(requests.next().has_value());
    // A reply to one of them finds nobody: its target must go.
    Datagram reply;
    reply.kind = DatagramKind::kReply;
    reply.id = first[0].datagram.id;
    reply.from = first[0].to;
    reply.qpn = 5;
    reply.mtu = IBV_MTU_4096;
    reply.reads = 1;
    const auto bye = requests.answered(reply, now, ended);
    ASSERT_TRUE(bye.has_value());
    EXPECT_EQ(bye->datagram.kind, DatagramKind::kBye);
    EXPECT_TRUE(ended.empty());
    for (const ConnectionRequest& request : asked)
        ibv_destroy_qp(request.qp);
}

}  // namespace
}  // namespace heddle::protocol::test
