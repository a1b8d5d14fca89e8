// SPDX-License-Identifier: BSD-2-Clause
// A message that is read over several rails: its parts end in any order, some fail, and the peer
// does. The endpoint has no device and no rails, and the test ends transfers and stripes.
#include "protocol/rndv/stripes.h"

#include <gtest/gtest.h>
#include <rdma/fi_endpoint.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "protocol/rndv/rendezvous.h"
#include "protocol/tag/receive.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kMessage = 100, kOwn = 40, kStripe = 30;

// Two rails besides, with 30 bytes each.
class TwoStripes final : public StripeReader {
public:
    std::unique_ptr<RailMemory> register_memory(const Peer&, std::span<const iovec> memory,
                                                std::size_t) override {
        auto registered = std::make_unique<RailMemory>();
        for (std::uint32_t rail = 0; rail < 2; ++rail) {
            registered->at[rail].count = memory.size();
            registered->at[rail].remote_keys[0] = 70 + rail;
        }
        return registered;
    }
    std::size_t read(const Peer&, const StripedMemory& memory, std::size_t bytes,
                     StripeOwner& owner, Stripes& stripes) override {
        EXPECT_EQ(bytes, kMessage);
        EXPECT_EQ(memory.local.size(), 1u);
        EXPECT_EQ(memory.remote.size(), 1u);
        EXPECT_EQ(memory.remote[0].rail_keys.at[1], 61u);
        for (std::size_t i = 0; i < 2; ++i) {
            stripes[i] = {&owner, {kOwn + i * kStripe, kStripe}, true};
            under_way.push_back(&stripes[i]);
        }
        stripes[2] = {};
        return kOwn;
    }
    void end(std::size_t which, int error = 0) {
        under_way.at(which)->owner->on_stripe(*under_way.at(which), error);
    }
    std::vector<Stripe*> under_way;
};

class StripesTest : public ::testing::Test, public RendezvousUser {
protected:
    StripesTest() {
        core_.connect(peer_);
        rendezvous_.set_stripes(stripes_);
    }
    ~StripesTest() override {
        EXPECT_EQ(fake_verbs::regions(), regions_before_) << "memory is still registered";
    }
    void on_fetched(Receive& receive, Peer&, const AnnouncedMessage&, std::size_t taken, int error,
                    int) override {
        EXPECT_EQ(&receive, &receive_);
        EXPECT_FALSE(end_.has_value()) << "it has ended twice";
        end_ = {taken, error};
    }
    void fetch(bool has_rail_keys = true) {
        AnnouncedMessage message{{7, 0, false}, 5, false, kMessage};
        message.has_rail_keys = has_rail_keys;
        const iovec buffer{room_, sizeof room_};
        Segment segment{{8192, kMessage, 5, 0}};
        segment.rail_keys = {{60, 61, 62}, 0};
        rendezvous_.fetch(receive_, {&buffer, 1}, kMessage, peer_, message, {&segment, 1});
    }
    void expect_end(std::size_t taken, int error) {
        ASSERT_TRUE(end_.has_value());
        EXPECT_EQ(end_->taken, taken);
        EXPECT_EQ(end_->error, error);
        ASSERT_FALSE(core_.sent.empty());
        EXPECT_EQ(core_.sent.back().message().fin.status, static_cast<std::uint32_t>(error));
    }

    struct End {
        std::size_t taken;
        int error;
    };
    FakeCore core_;
    memory::Pool send_buffers_{nullptr, 64, 1};
    const std::size_t regions_before_ = fake_verbs::regions();
    RequestPool requests_{core_, send_buffers_};
    TwoStripes stripes_;
    RendezvousProtocol rendezvous_{core_, requests_, *this};
    Peer& peer_ = core_.add_peer();
    Receive receive_;
    char room_[kMessage];
    std::optional<End> end_;
};

TEST_F(StripesTest, EndInAnyOrder) {
    for (const bool is_own_last : {true, false}) {
        SCOPED_TRACE(is_own_last);
        end_.reset();
        core_.transfers.clear();
        stripes_.under_way.clear();
        fetch();
        ASSERT_EQ(core_.transfers.size(), 1u);
        EXPECT_EQ(core_.transfers[0].offset, 0u);
        EXPECT_EQ(core_.transfers[0].bytes, kOwn);
        stripes_.end(1);
        if (!is_own_last) core_.end_transfer();
        EXPECT_FALSE(end_.has_value());
        stripes_.end(0);
        if (is_own_last) core_.end_transfer();
        expect_end(kMessage, 0);
    }
}

// By the connection of the peer, one after the other.
TEST_F(StripesTest, ThatFailAreReadAgain) {
    fetch();
    stripes_.end(1, EIO);
    EXPECT_EQ(core_.transfers.size(), 1u) << "the own part is still being read";
    core_.end_transfer();
    ASSERT_EQ(core_.transfers.size(), 1u);
    EXPECT_EQ(core_.transfers[0].offset, kOwn + kStripe);
    EXPECT_EQ(core_.transfers[0].bytes, kStripe);
    core_.end_transfer();
    EXPECT_FALSE(end_.has_value()) << "the other rail is still reading";
    stripes_.end(0, EIO);
    ASSERT_EQ(core_.transfers.size(), 1u);
    EXPECT_EQ(core_.transfers[0].offset, kOwn);
    core_.end_transfer();
    expect_end(kMessage, 0);
}

// The receive's memory may still be written to by the other rails.
TEST_F(StripesTest, OutliveTheConnectionOfThePeer) {
    fetch();
    core_.end_transfer(ECONNRESET);
    EXPECT_FALSE(end_.has_value());
    stripes_.end(0, EIO);
    EXPECT_TRUE(core_.transfers.empty()) << "nothing is read again";
    EXPECT_FALSE(end_.has_value());
    stripes_.end(1);
    expect_end(0, ECONNRESET);
}

TEST_F(StripesTest, NeedKeysOfTheSender) {
    fetch(false);
    EXPECT_TRUE(stripes_.under_way.empty());
    ASSERT_EQ(core_.transfers.size(), 1u);
    EXPECT_EQ(core_.transfers[0].bytes, kMessage);
    core_.end_transfer();
    expect_end(kMessage, 0);
}

TEST_F(StripesTest, AreAnnouncedWithTheKeysOfAllRails) {
    std::string text(kMessage, 't');
    SendRequest& request = requests_.take(peer_, rendezvous_);
    request.flags = FI_TAGGED;
    request.bytes = text.size();
    const iovec buffer{text.data(), text.size()};
    request.set_buffers(&buffer, 1, nullptr);
    requests_.start(request);
    ASSERT_EQ(core_.sent.size(), 1u);
    const Message rts = core_.sent.front().message();
    EXPECT_EQ(rts.rts.flags, RtsBody::kRailKeys);
    EXPECT_EQ(rts.segments[0].rail_keys.at[0], 70u);
    EXPECT_EQ(rts.segments[0].rail_keys.at[1], 71u);
    EXPECT_EQ(rts.segments[0].rail_keys.at[2], 0u);
    Message fin;
    fin.header.kind = Kind::kFin;
    fin.fin = {rts.rts.operation, 0, 0};
    rendezvous_.on_message(peer_, fin);
    EXPECT_EQ(requests_.open(), 0u);
}

}  // namespace
}  // namespace heddle::protocol::test
