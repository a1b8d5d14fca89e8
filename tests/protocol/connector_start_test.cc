// SPDX-License-Identifier: BSD-2-Clause
// The start of a job: connectors that all ask for connections to all endpoints of all others at
// once. tests/unit/protocol_storm_test.cc has the bounds; this prints what it costs by softhca.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/protocol/connector_support.h"

namespace heddle::protocol::test {
namespace {

// Processes, and endpoints of each. `make test-long` sets 16.
std::size_t start_scale() {
    const char* const wanted = std::getenv("HEDDLE_TEST_SCALE");
    return wanted != nullptr ? static_cast<std::size_t>(std::max(std::atoi(wanted), 2)) : 5;
}

class ConnectorStart : public testing::TestWithParam<bool> {};

// RC: one queue pair for each remote endpoint. XRC: as many queue pairs, each in a request of its
// own, to the contexts of the endpoints.
TEST_P(ConnectorStart, AllAskAllEndpoints) {
    const std::size_t n = start_scale();
    std::vector<std::unique_ptr<Peer>> peers;
    for (std::size_t p = 0; p < n; ++p) {
        peers.push_back(std::make_unique<Peer>(GetParam()));
        for (std::uint16_t e = 1; e < n; ++e)
            peers.back()->add(e);
    }
    std::vector<std::unique_ptr<Peer::Channel>> channels;
    for (const auto& from : peers)
        for (const auto& to : peers)
            for (std::size_t e = 0; from != to && e < n; ++e)
                channels.push_back(from->channel(to->name(e)));
    ASSERT_EQ(channels.size(), n * (n - 1) * n);
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& channel : channels)
        channel->peer->connector->connect(channel->request);
    for (const auto& channel : channels)
        ASSERT_TRUE(channel->peer->wait(*channel));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    Connector::Counts all;
    for (const auto& peer : peers) {
        EXPECT_TRUE(peer->soon(
            [&](const Connector::Counts& counts) { return counts.targets == (n - 1) * n; }));
        const Connector::Counts counts = peer->connector->counts();
        all.requests_sent += counts.requests_sent;
        all.repeated += counts.repeated;
        all.replies_sent += counts.replies_sent;
        all.unsent += counts.unsent;
        all.refused += counts.refused;
        all.malformed += counts.malformed;
    }
    EXPECT_EQ(all.requests_sent, channels.size());
    EXPECT_EQ(all.unsent, 0u) << "no datagram finds all slots in use";
    EXPECT_EQ(all.refused, 0u);
    EXPECT_EQ(all.malformed, 0u);
    std::printf("%zu connections at once in %.0f ms: %.2f datagrams each, %zu repeats\n",
                channels.size(), took.count(),
                static_cast<double>(all.requests_sent + all.repeated + all.replies_sent) /
                    static_cast<double>(channels.size()),
                static_cast<std::size_t>(all.repeated));
    channels.clear();
}

INSTANTIATE_TEST_SUITE_P(By, ConnectorStart, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "xrc" : "rc"; });

}  // namespace
}  // namespace heddle::protocol::test
