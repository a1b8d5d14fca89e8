// SPDX-License-Identifier: BSD-2-Clause
// Messages to a peer on the same host, on a core without a device: which go through shared memory,
// and that a message for which there is no room has left no trace.
#include <rdma/fi_endpoint.h>

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/eager/eager_sender.h"
#include "protocol/eager/fragment_sender.h"
#include "protocol/reuse/reuse_costs.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_rings_support.h"
#include "tests/unit/protocol_shm_support.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kShmEager = 512, kShmMost = 2000;
constexpr std::uint64_t kWideData = std::uint64_t{1} << 40;

class ShmSending : public ::testing::Test {
protected:
    ShmSending() {
        core_.connect(peer_);
        peer_.shm = &ring_;
    }
    ~ShmSending() override { EXPECT_EQ(requests_.open(), 0u); }
    static Options options() {
        Options options;
        options.eager_bytes = kShmEager;
        options.rendezvous_above = kShmMost;
        return options;
    }
    using Result = EagerSender::Result;
    // As the endpoint does.
    Result send(std::size_t bytes, std::uint64_t flags = 0, std::uint64_t data = 0) {
        const iovec buffer{text_.data(), bytes};
        SendArguments arguments;
        arguments.iov = &buffer;
        arguments.iov_count = 1;
        arguments.tag = 7;
        arguments.flags = flags;
        arguments.data = data;
        EagerReport report;
        report.sent.what = WrContext::kEntry;
        report.sent.context = this;
        const Result result = eager_.send(peer_, arguments, bytes, report);
        if (result == Result::kCopied)
            core_.entry(WrContext::kEntry, false, this, 0, 0, 0, nullptr);
        return result;
    }
    void send_fragments(std::size_t bytes) {
        SendRequest& request = requests_.take(peer_, fragments_);
        request.bytes = bytes;
        request.tag = 7;
        request.flags = FI_TAGGED;
        request.report.context = this;
        request.report.what = WrContext::kEntry;
        const iovec buffer{text_.data(), bytes};
        request.set_buffers(&buffer, 1, nullptr);
        requests_.start(request);
    }
    // The next message in the ring.
    Message next() {
        ShmReceiver::Found found;
        Message message;
        EXPECT_EQ(reader_.next(found), ShmReceiver::Next::kMessage);
        EXPECT_TRUE(parse(found.bytes, found.has_immediate, found.immediate, message));
        payload_.assign(reinterpret_cast<const char*>(message.payload.data()),
                        message.payload.size());
        reader_.pop();
        reader_.settle();
        return message;
    }

    FakeCore core_{options()};
    FakeRingUser ring_user_;
    memory::Pool buffers_{nullptr, kShmEager + 64, 1};
    SendLimits limits_;
    ReuseCosts costs_;
    std::vector<Reuse*> tables_;
    memory::RegistrationCache cache_{std::make_shared<memory::AddressMonitor>(), nullptr, 1 << 20};
    ReusePolicy reuse_{core_.CoreServices::options, cache_, tables_,
                       [this]() -> const ReuseCosts& { return costs_; }};
    RequestPool requests_{core_, buffers_};
    FlowControl flow_{core_};
    Rings rings_{core_, ring_user_, nullptr};
    EagerSender eager_{core_, limits_, rings_, reuse_, requests_, flow_};
    FragmentSender fragments_{core_, requests_, flow_};
    RingMemory memory_{kSmallRing};
    ShmSender ring_{memory_.at(), kSmallRing, false};
    ShmReceiver reader_{memory_.at(), kSmallRing};
    Peer& peer_ = core_.add_peer();
    std::string text_ = std::string(kShmMost, 'x'), payload_;
};

TEST_F(ShmSending, AMessageEndsOnceItIsCopied) {
    EXPECT_EQ(send(300, FI_TAGGED), Result::kCopied);
    EXPECT_TRUE(core_.posted.empty()) << "the device has nothing to do";
    ASSERT_EQ(core_.transmitted.size(), 1u);
    EXPECT_EQ(core_.transmitted.front().context, this);
    EXPECT_EQ(core_.counts.shm.sent, 1u);
    EXPECT_EQ(peer_.outgoing.sent, 1u);
    const Message message = next();
    EXPECT_EQ(message.header.kind, Kind::kEager);
    EXPECT_EQ(message.header.flags, Header::kTagged);
    EXPECT_EQ(message.header.sequence, 0u);
    EXPECT_EQ(message.header.tag, 7u);
    EXPECT_EQ(payload_, text_.substr(0, 300));
}

TEST_F(ShmSending, RemoteDataOfBothWidthsComes) {
    EXPECT_EQ(send(8, FI_REMOTE_CQ_DATA, 99), Result::kCopied);
    EXPECT_EQ(send(8, FI_REMOTE_CQ_DATA, kWideData), Result::kCopied);
    Message message = next();
    EXPECT_TRUE(message.has_data);
    EXPECT_EQ(message.data, 99u);
    message = next();
    EXPECT_EQ(message.data, kWideData);
    EXPECT_EQ(message.header.sequence, 1u);
    EXPECT_EQ(payload_, text_.substr(0, 8));
}

TEST_F(ShmSending, AFullRingTakesNothing) {
    std::uint64_t sent = 0;
    while (send(8) == Result::kCopied)
        ++sent;
    EXPECT_EQ(sent, kSmallRing.slots);
    EXPECT_EQ(peer_.outgoing.sent, sent);
    EXPECT_EQ(core_.counts.shm.sent, sent);
    EXPECT_EQ(core_.transmitted.size(), sent);
    next();
    EXPECT_EQ(send(8), Result::kCopied);
}

// FI_ORDER_SAW: one that follows RDMA writes goes behind them, by the same queue pair.
TEST_F(ShmSending, TheFirstBehindWritesGoesByTheDevice) {
    peer_.has_writes = true;
    EXPECT_EQ(send(300), Result::kLater);
    EXPECT_EQ(core_.posted.size(), 1u);
    EXPECT_FALSE(peer_.has_writes);
    EXPECT_EQ(send(300), Result::kCopied);
    EXPECT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(next().header.sequence, 1u) << "its reader waits for the other";
    core_.end_wr(buffers_);
}

TEST_F(ShmSending, ASleepingReceiverIsWoken) {
    EXPECT_EQ(send(8), Result::kCopied);
    EXPECT_TRUE(core_.woken.empty());
    reader_.arm();
    EXPECT_EQ(send(8), Result::kCopied);
    EXPECT_EQ(core_.woken, (std::vector<const Peer*>{&peer_}));
}

TEST_F(ShmSending, LongMessagesGoInFragments) {
    send_fragments(kShmMost);
    EXPECT_TRUE(core_.posted.empty());
    ASSERT_EQ(core_.transmitted.size(), 1u);
    EXPECT_EQ(core_.counts.shm.sent, 1u);
    EXPECT_EQ(peer_.outgoing.sent, 1u);
    std::string whole;
    for (std::size_t offset = 0; offset < kShmMost; offset += kShmEager) {
        const Message message = next();
        EXPECT_EQ(message.header.kind, Kind::kFragment);
        EXPECT_EQ(message.header.sequence, 0u);
        EXPECT_EQ(message.fragment.bytes, kShmMost);
        EXPECT_EQ(message.fragment.offset, offset);
        whole += payload_;
    }
    EXPECT_EQ(whole, text_);
}

// All fragments of a message go the same way, as they have one number.
TEST_F(ShmSending, FragmentsWaitForRoom) {
    EXPECT_EQ(send(300), Result::kCopied);
    EXPECT_EQ(send(500), Result::kCopied);
    EXPECT_EQ(send(500), Result::kCopied);
    EXPECT_EQ(send(500), Result::kCopied);
    send_fragments(kShmMost);
    ASSERT_EQ(peer_.waiting.size(), 1u);
    EXPECT_EQ(core_.transmitted.size(), 4u);
    peer_.has_writes = true;
    for (unsigned i = 0; i < 4; ++i)
        next();
    core_.flush(peer_);
    EXPECT_TRUE(peer_.waiting.empty());
    EXPECT_EQ(core_.transmitted.size(), 5u);
    EXPECT_TRUE(core_.posted.empty());
    for (std::size_t offset = 0; offset < kShmMost; offset += kShmEager)
        EXPECT_EQ(next().fragment.offset, offset);
}

}  // namespace
}  // namespace heddle::protocol::test
