// SPDX-License-Identifier: BSD-2-Clause
// Receives, messages without one, and both together, on a core without a device.
#include "protocol/tag/delivery.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/tag/receiver.h"
#include "tests/unit/protocol_fake_core.h"

namespace heddle::protocol {
namespace {

// Ends what is fetched at once, or when it is asked to.
class FakeFetcher final : public MessageFetcher {
public:
    void fetch(Receive& receive, std::span<const iovec> buffers, std::size_t room, Peer& peer,
               const AnnouncedMessage& message, std::span<const Segment> segments) override {
        EXPECT_FALSE(receive.queued);
        under_way.push_back({&receive, &peer, message, std::min(room, message.bytes),
                             buffers.empty() ? nullptr : buffers[0].iov_base, segments.size()});
    }
    void refuse(Peer&, std::uint64_t operation, int error) override {
        refused.emplace_back(operation, error);
    }
    void end_first(RendezvousUser& user, int error = 0) {
        const Fetch first = under_way.front();
        under_way.erase(under_way.begin());
        user.on_fetched(*first.receive, *first.peer, first.message, error == 0 ? first.taken : 0,
                        error, 0);
    }
    struct Fetch {
        Receive* receive;
        Peer* peer;
        AnnouncedMessage message;
        std::size_t taken;
        void* to;
        std::size_t segments;
    };
    std::vector<Fetch> under_way;
    std::vector<std::pair<std::uint64_t, int>> refused;
};

class DeliveryTest : public ::testing::Test {
protected:
    static Options options() {
        Options options;
        options.unexpected_limit = 4096;
        return options;
    }
    // A receive with one buffer. context: of the report.
    void post(std::vector<char>& room, std::uint64_t tag, std::uint64_t from = FI_ADDR_UNSPEC,
              void* context = nullptr, std::uint64_t flags = FI_TAGGED | FI_COMPLETION) {
        iovec iov{room.data(), room.size()};
        ReceiveArguments arguments;
        arguments.iov = &iov;
        arguments.iov_count = 1;
        arguments.from = from;
        arguments.tag = tag;
        arguments.flags = flags;
        arguments.context = context;
        ASSERT_EQ(receiver_.post(arguments), 0);
    }
    ssize_t look(std::uint64_t tag, std::uint64_t flags, void* context = nullptr) {
        ReceiveArguments arguments;
        arguments.tag = tag;
        arguments.flags = FI_TAGGED | FI_COMPLETION | flags;
        arguments.context = context;
        return receiver_.post(arguments);
    }
    void arrive(Peer& peer, std::uint64_t tag, const std::string& text, bool is_tagged = true) {
        peer.incoming.count_received();
        delivery_.on_eager(peer, is_tagged, {tag, 0, false}, std::as_bytes(std::span(text)));
    }
    // late: where it belongs.
    void announce(Peer& peer, std::uint64_t tag, std::uint64_t operation, std::size_t bytes,
                  const PlaceBody* late = nullptr) {
        peer.incoming.count_received();
        Message message{};
        message.header.kind = Kind::kRts;
        message.header.flags = Header::kTagged;
        message.header.tag = tag;
        message.rts.operation = operation;
        message.rts.bytes = bytes;
        message.rts.segments = 1;
        if (late != nullptr) {
            message.header.flags |= Header::kLater;
            message.place = *late;
        }
        delivery_.on_rts(peer, message);
    }
    CompletionEntry next() {
        EXPECT_FALSE(core_.received.empty());
        if (core_.received.empty()) return {};
        const CompletionEntry entry = core_.received.front();
        core_.received.pop();
        return entry;
    }

    test::FakeCore core_{options()};
    FakeFetcher fetcher_;
    FlowControl flow_{core_};
    Receives receives_{core_};
    UnexpectedMessages unexpected_{core_, receives_};
    Delivery delivery_{core_, receives_, unexpected_, flow_, fetcher_};
    Receiver receiver_{core_, receives_, delivery_};
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer();
};

TEST_F(DeliveryTest, MessageGoesIntoTheReceiveThatWaits) {
    std::vector<char> room(8, '.');
    post(room, 7, FI_ADDR_UNSPEC, &room);
    arrive(peer_, 7, "text");
    EXPECT_EQ(std::string(room.begin(), room.end()), "text....");
    const CompletionEntry entry = next();
    EXPECT_EQ(entry.context, &room);
    EXPECT_EQ(entry.flags, FI_RECV | FI_TAGGED);
    EXPECT_EQ(entry.bytes, 4u);
    EXPECT_EQ(entry.buffer, room.data());
    EXPECT_EQ(entry.tag, 7u);
    EXPECT_EQ(entry.source, peer_.address);
    EXPECT_EQ(entry.error, 0);
    EXPECT_TRUE(core_.received.empty());
}

TEST_F(DeliveryTest, MessageWithoutAReceiveIsKept) {
    arrive(peer_, 7, "first");
    arrive(peer_, 7, "second");
    arrive(other_, 7, "third");
    EXPECT_EQ(core_.counts.unexpected, 3u);
    EXPECT_EQ(core_.counts.unexpected_bytes_peak, 16u);
    std::vector<char> room(6, '.');
    post(room, 7, other_.address);
    EXPECT_EQ(std::string(room.begin(), room.end()), "third.");
    post(room, 7);
    EXPECT_EQ(std::string(room.begin(), room.end()), "first.");
    post(room, 7);
    EXPECT_EQ(std::string(room.begin(), room.end()), "second");
    EXPECT_EQ(receives_.tagged.messages(), 0u);
}

TEST_F(DeliveryTest, LongMessageIsCutAndReported) {
    std::vector<char> room(3);
    post(room, 7);
    arrive(peer_, 7, "longer");
    const CompletionEntry entry = next();
    EXPECT_EQ(entry.error, FI_ETRUNC);
    EXPECT_EQ(entry.bytes, 3u);
    EXPECT_EQ(entry.overlong, 3u);
    EXPECT_EQ(std::string(room.begin(), room.end()), "lon");
}

// The sender's limits are not believed.
TEST_F(DeliveryTest, PeerThatSendsTooMuchIsRefused) {
    const std::string text(1000, 'x');
    while (core_.refused.empty() && receives_.tagged.messages() < 10)
        arrive(peer_, 7, text);
    ASSERT_EQ(core_.refused.size(), 1u);
    EXPECT_EQ(core_.refused[0].first, &peer_);
    EXPECT_EQ(core_.refused[0].second, ENOBUFS);
    ASSERT_EQ(core_.complaints.size(), 1u);
    EXPECT_NE(core_.complaints[0].find("FI_HEDDLE_UNEXPECTED_LIMIT"), std::string::npos);
    const std::size_t kept = receives_.tagged.messages();
    arrive(other_, 7, text);
    EXPECT_EQ(receives_.tagged.messages(), kept + 1) << "the limit is each peer's own";
    arrive(peer_, 7, text);
    EXPECT_EQ(core_.complaints.size(), 1u) << "said once";
    EXPECT_EQ(receives_.tagged.messages(), kept + 1);
}

TEST_F(DeliveryTest, MemoryOfTakenMessagesIsFree) {
    const std::string text(1000, 'x');
    std::vector<char> room(1000);
    for (int i = 0; i < 100; ++i) {
        arrive(peer_, 7, text);
        announce(peer_, 7, 1, 100'000);
        post(room, 7);
        post(room, 7);
        fetcher_.end_first(delivery_);
    }
    EXPECT_TRUE(core_.refused.empty());
}

TEST_F(DeliveryTest, ReceiveForManyMessagesIsFilled) {
    std::vector<char> room(100);
    receiver_.on_peer_failed(other_);
    receives_.set_min_multi_receive(20);
    post(room, 0, FI_ADDR_UNSPEC, &room, FI_MULTI_RECV | FI_COMPLETION);
    arrive(peer_, 0, std::string(50, 'a'), false);
    CompletionEntry entry = next();
    EXPECT_EQ(entry.buffer, room.data());
    EXPECT_EQ(entry.flags & FI_MULTI_RECV, 0u);
    arrive(other_, 0, std::string(31, 'b'), false);
    entry = next();
    EXPECT_EQ(entry.buffer, room.data() + 50);
    EXPECT_EQ(entry.bytes, 31u);
    EXPECT_NE(entry.flags & FI_MULTI_RECV, 0u) << "19 bytes are too few";
    EXPECT_EQ(receives_.queued(), 0u);
    arrive(peer_, 0, "c", false);
    EXPECT_EQ(receives_.untagged.messages(), 1u);
}

// The buffer is the application's again after the last message that is on its way into it.
TEST_F(DeliveryTest, ReceiveForManyMessagesEndsWithTheLastPart) {
    std::vector<char> room(100);
    post(room, 7, FI_ADDR_UNSPEC, &room, FI_TAGGED | FI_MULTI_RECV | FI_COMPLETION);
    announce(peer_, 7, 1, 30);
    announce(peer_, 7, 2, 70);
    ASSERT_EQ(fetcher_.under_way.size(), 2u);
    EXPECT_EQ(fetcher_.under_way[1].to, room.data() + 30);
    std::swap(fetcher_.under_way[0], fetcher_.under_way[1]);
    fetcher_.end_first(delivery_);
    EXPECT_EQ(next().flags & FI_MULTI_RECV, 0u);
    fetcher_.end_first(delivery_);
    EXPECT_NE(next().flags & FI_MULTI_RECV, 0u);
}

TEST_F(DeliveryTest, AnnouncedMessageIsFetched) {
    std::vector<char> room(100);
    announce(peer_, 7, 21, 1000);
    EXPECT_TRUE(fetcher_.under_way.empty());
    post(room, 7, FI_ADDR_UNSPEC, &room);
    ASSERT_EQ(fetcher_.under_way.size(), 1u);
    EXPECT_EQ(fetcher_.under_way[0].message.operation, 21u);
    EXPECT_EQ(fetcher_.under_way[0].taken, 100u);
    EXPECT_EQ(fetcher_.under_way[0].segments, 1u);
    EXPECT_TRUE(core_.received.empty());
    fetcher_.end_first(delivery_);
    const CompletionEntry entry = next();
    EXPECT_EQ(entry.error, FI_ETRUNC);
    EXPECT_EQ(entry.overlong, 900u);
    post(room, 7);
    announce(peer_, 7, 22, 10);
    fetcher_.end_first(delivery_, EIO);
    EXPECT_EQ(next().error, EIO);
}

// A message that left a tuple's queue takes its place before those that were sent after it.
TEST_F(DeliveryTest, LateMessageTakesItsPlace) {
    arrive(peer_, 7, "a");
    arrive(peer_, 7, "d");
    const PlaceBody behind_one{1, 2, 0}, before_that{2, 1, 0};
    announce(peer_, 7, 3, 10, &behind_one);   // sent between both
    announce(peer_, 7, 2, 10, &before_that);  // there, too, and before that
    std::vector<char> room(10, '.');
    post(room, 7);
    EXPECT_EQ(room[0], 'a');
    post(room, 7);
    post(room, 7);
    ASSERT_EQ(fetcher_.under_way.size(), 2u);
    EXPECT_EQ(fetcher_.under_way[0].message.operation, 2u);
    EXPECT_EQ(fetcher_.under_way[1].message.operation, 3u);
    post(room, 7);
    EXPECT_EQ(room[0], 'd');
}

TEST_F(DeliveryTest, NothingIsFetchedAtTheEnd) {
    announce(peer_, 7, 1, 1000);
    announce(other_, 7, 2, 1000);
    other_.failed = ECONNRESET;
    arrive(peer_, 7, "text");
    core_.closing = true;
    delivery_.refuse_all();
    EXPECT_EQ(fetcher_.refused, (std::vector<std::pair<std::uint64_t, int>>{{1, ECONNRESET}}));
    announce(peer_, 7, 3, 1000);
    ASSERT_EQ(fetcher_.refused.size(), 2u);
    EXPECT_EQ(fetcher_.refused[1], (std::pair<std::uint64_t, int>{3, ECONNRESET}));
    EXPECT_EQ(receives_.tagged.messages(), 0u);
}

TEST_F(DeliveryTest, PeekClaimAndDiscard) {
    int context = 0;
    EXPECT_EQ(look(7, FI_PEEK), 0);
    EXPECT_EQ(next().error, FI_ENOMSG);
    EXPECT_EQ(look(7, FI_CLAIM, &context), -FI_EINVAL) << "nothing was claimed";
    arrive(peer_, 7, "text");
    EXPECT_EQ(look(7, FI_PEEK), 0);
    CompletionEntry entry = next();
    EXPECT_EQ(entry.error, 0);
    EXPECT_EQ(entry.bytes, 4u);
    EXPECT_EQ(entry.source, peer_.address);
    EXPECT_EQ(look(7, FI_PEEK | FI_CLAIM, &context), 0);
    next();
    EXPECT_EQ(look(7, FI_PEEK), 0);
    EXPECT_EQ(next().error, FI_ENOMSG) << "it is taken";
    std::vector<char> room(4);
    post(room, 7, FI_ADDR_UNSPEC, &context, FI_TAGGED | FI_COMPLETION | FI_CLAIM);
    EXPECT_EQ(std::string(room.begin(), room.end()), "text");
    next();
    announce(peer_, 7, 9, 100);
    EXPECT_EQ(look(7, FI_PEEK | FI_DISCARD), 0);
    EXPECT_EQ(next().bytes, 100u);
    EXPECT_EQ(fetcher_.refused, (std::vector<std::pair<std::uint64_t, int>>{{9, 0}}));
    arrive(peer_, 8, "text");
    EXPECT_EQ(look(8, FI_PEEK | FI_CLAIM, &context), 0);
    next();
    EXPECT_EQ(look(8, FI_CLAIM | FI_DISCARD, &context), 0);
    EXPECT_EQ(next().bytes, 4u);
    EXPECT_EQ(look(8, FI_CLAIM | FI_DISCARD, &context), -FI_EINVAL) << "once";
}

// What is thrown away leaves our memory as what is received does.
TEST_F(DeliveryTest, DiscardedPayloadGivesCredit) {
    Options options;
    options.unexpected_bytes = 400;
    test::FakeCore core(options);
    FlowControl flow(core);
    Receives receives(core);
    UnexpectedMessages unexpected(core, receives);
    Delivery delivery(core, receives, unexpected, flow, fetcher_);
    Receiver receiver(core, receives, delivery);
    Peer& peer = core.add_peer();
    const std::string text(200, 'x');
    delivery.on_eager(peer, true, {7, 0, false}, std::as_bytes(std::span(text)));
    EXPECT_TRUE(core.sent.empty());
    ReceiveArguments arguments;
    arguments.tag = 7;
    arguments.flags = FI_TAGGED | FI_PEEK | FI_DISCARD;
    EXPECT_EQ(receiver.post(arguments), 0);
    ASSERT_EQ(core.sent.size(), 1u);
    EXPECT_EQ(core.sent[0].body<CreditBody>().bytes, 200u);
}

TEST_F(DeliveryTest, CancelledReceiveTakesNothing) {
    std::vector<char> room(4, '.');
    post(room, 7, FI_ADDR_UNSPEC, &room);
    int context = 0;
    EXPECT_EQ(receiver_.cancel(&context), -FI_ENOENT);
    EXPECT_EQ(receiver_.cancel(&room), 0);
    const CompletionEntry entry = next();
    EXPECT_EQ(entry.error, FI_ECANCELED);
    EXPECT_EQ(entry.context, &room);
    EXPECT_EQ(receiver_.cancel(&room), -FI_ENOENT);
    arrive(peer_, 7, "text");
    EXPECT_EQ(room[0], '.');
}

TEST_F(DeliveryTest, ReceivesOfAFailedPeerEndInTheirOrder) {
    std::vector<char> room(4);
    char contexts[5];
    post(room, 5, peer_.address, &contexts[0]);
    post(room, 4, FI_ADDR_UNSPEC, &contexts[1]);
    post(room, 3, peer_.address, &contexts[2]);
    post(room, 2, other_.address, &contexts[3]);
    peer_.failed = ECONNRESET;
    std::vector<bool> named(2);
    receiver_.mark_sources(named);
    EXPECT_EQ(named, (std::vector<bool>{true, true}));
    receiver_.on_peer_failed(peer_);
    for (const int which : {0, 2}) {
        const CompletionEntry entry = next();
        EXPECT_EQ(entry.context, &contexts[which]);
        EXPECT_EQ(entry.error, FI_ECONNRESET);
    }
    EXPECT_EQ(receives_.queued(), 2u);
    // One that is posted later ends at once, unless a message waits for it.
    post(room, 1, peer_.address, &contexts[4]);
    EXPECT_EQ(next().context, &contexts[4]);
    receiver_.on_device_failed(EIO);
    EXPECT_EQ(next().error, EIO);
    EXPECT_EQ(next().error, EIO);
    EXPECT_TRUE(core_.received.empty());
}

// Takes the receives with one tag.
class FakeInterceptor final : public ReceiveInterceptor {
public:
    bool take(Receive& receive) override {
        if (receive.tag != 100) return false;
        taken.push_back(&receive);
        return true;
    }
    bool hides(std::uint32_t, std::uint64_t tag, std::uint64_t) override { return tag == 100; }
    void forget(Receive&) override { ++forgotten; }
    bool cancel(void* context) override { return !taken.empty() && taken[0]->context == context; }
    std::vector<Receive*> taken;
    int forgotten = 0;
};

TEST_F(DeliveryTest, InterceptorTakesTaggedReceivesFirst) {
    FakeInterceptor interceptor;
    receiver_.set_interceptor(&interceptor);
    std::vector<char> room(4, '.');
    arrive(peer_, 100, "text");
    post(room, 100, FI_ADDR_UNSPEC, &room);
    ASSERT_EQ(interceptor.taken.size(), 1u);
    EXPECT_EQ(room[0], '.');
    EXPECT_EQ(look(100, FI_PEEK), 0);
    EXPECT_EQ(next().error, FI_ENOMSG) << "it is not known which is the first";
    EXPECT_EQ(receiver_.cancel(&room), 0);
    int context = 0;
    EXPECT_EQ(receiver_.cancel(&context), -FI_ENOENT);
    post(room, 100, FI_ADDR_UNSPEC, &context, FI_COMPLETION);
    EXPECT_EQ(interceptor.taken.size(), 1u) << "without a tag";
    post(room, 5);
    EXPECT_EQ(interceptor.taken.size(), 1u);
    receives_.give_back(*interceptor.taken[0]);
}

TEST_F(DeliveryTest, InterceptorForgetsWhatWaits) {
    FakeInterceptor interceptor;
    receiver_.set_interceptor(&interceptor);
    std::vector<char> room(4);
    post(room, 5, peer_.address, &room);
    post(room, 6, peer_.address);
    receives_.tagged.find_receive([](PostedReceive& receive) {
        receive.waits = receive.tag == 5;
        return false;
    });
    EXPECT_EQ(receiver_.cancel(&room), 0);
    EXPECT_EQ(interceptor.forgotten, 1);
    receiver_.on_peer_failed(peer_);
    EXPECT_EQ(interceptor.forgotten, 1) << "the other did not wait";
}

}  // namespace
}  // namespace heddle::protocol
