// SPDX-License-Identifier: BSD-2-Clause
// Eager messages on a core without a device: the form of each, and that a buffer or a count is as
// it was if there is no room.
#include "protocol/eager/eager_sender.h"

#include <rdma/fi_endpoint.h>

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/reuse/reuse_costs.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"
#include "tests/unit/protocol_rings_support.h"

namespace heddle::protocol::test {
namespace {

using Result = EagerSender::Result;

constexpr std::size_t kInlineEnd = 25, kUnexpected = 2048;
constexpr std::uint64_t kWide = std::uint64_t{1} << 40;

class EagerSenderTest : public ::testing::Test {
protected:
    EagerSenderTest() {
        limits_.inline_end = kInlineEnd;
        core_.connect(peer_);
        peer_.name.srqn = 77;
    }
    ~EagerSenderTest() override {
        fake_verbs::fail_registrations(0);
        while (!core_.posted.empty())
            core_.end_wr(buffers_);
        std::byte* const buffer = buffers_.take();
        EXPECT_NE(buffer, nullptr) << "the buffer was not given back";
    }
    static Options options() {
        Options options;
        options.unexpected_bytes = kUnexpected;
        options.reuse.after = 2;
        return options;
    }
    Result send(std::span<const iovec> buffers, std::uint64_t flags = 0, std::uint64_t data = 0,
                bool may_stay = false) {
        SendArguments arguments;
        arguments.iov = buffers.data();
        arguments.iov_count = buffers.size();
        arguments.tag = 7;
        arguments.flags = flags;
        arguments.data = data;
        std::size_t bytes = 0;
        for (const iovec& each : buffers)
            bytes += each.iov_len;
        EagerReport report;
        report.sent.what = WrContext::kEntry;
        report.sent.context = this;
        report.may_stay = may_stay;
        report.may_be_early = may_be_early_;
        return eager_.send(peer_, arguments, bytes, report);
    }
    Result send(std::size_t bytes, std::uint64_t flags = 0, std::uint64_t data = 0,
                bool may_stay = false) {
        const iovec buffer{text_.data(), bytes};
        return send({&buffer, 1}, flags, data, may_stay);
    }
    // What was posted last: its header, and what follows it.
    Header header() const {
        Header header;
        EXPECT_GE(core_.posted.back().bytes.size(), sizeof header);
        std::memcpy(&header, core_.posted.back().bytes.data(), sizeof header);
        return header;
    }
    std::string payload(std::size_t before = 0) const {
        const auto& bytes = core_.posted.back().bytes;
        const auto* const at = reinterpret_cast<const char*>(bytes.data());
        return {at + sizeof(Header) + before, bytes.size() - sizeof(Header) - before};
    }
    bool is_inline() const { return core_.posted.back().work.flags & post::kInline; }

    FakeCore core_{options()};
    FakeRingUser reader_;
    memory::Pool buffers_{nullptr, 4096, 1};
    SendLimits limits_;
    ReuseCosts costs_;
    std::vector<Reuse*> tables_;
    memory::RegistrationCache cache_{std::make_shared<memory::AddressMonitor>(), nullptr, 1 << 20};
    ReusePolicy reuse_{core_.CoreServices::options, cache_, tables_,
                       [this]() -> const ReuseCosts& { return costs_; }};
    RequestPool requests_{core_, buffers_};
    FlowControl flow_{core_};
    Rings rings_{core_, reader_, nullptr};
    EagerSender eager_{core_, limits_, rings_, reuse_, requests_, flow_};
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer();
    std::string text_ = std::string(1500, 'x');
    bool may_be_early_ = false;
};

TEST_F(EagerSenderTest, ASmallMessageGoesInline) {
    EXPECT_EQ(send(kInlineEnd - 1, FI_TAGGED), Result::kLater);
    EXPECT_TRUE(is_inline());
    EXPECT_EQ(core_.posted[0].work.opcode, post::Opcode::kSend);
    EXPECT_EQ(core_.posted[0].work.remote_srq, 77u);
    EXPECT_EQ(header().kind, Kind::kEager);
    EXPECT_EQ(header().flags, Header::kTagged);
    EXPECT_EQ(header().source, core_.name.endpoint);
    EXPECT_EQ(header().destination, peer_.name.endpoint);
    EXPECT_EQ(header().sequence, 0u);
    EXPECT_EQ(header().tag, 7u);
    EXPECT_EQ(payload(), text_.substr(0, kInlineEnd - 1));
    EXPECT_EQ(core_.counts.inlined, 1u);
    EXPECT_EQ(core_.counts.eager, 0u);
}

TEST_F(EagerSenderTest, MessagesHaveSequenceNumbers) {
    send(1);
    EXPECT_EQ(header().flags, 0u);
    send(100);
    EXPECT_EQ(header().sequence, 1u);
    EXPECT_EQ(peer_.outgoing.sent, 2u);
}

TEST_F(EagerSenderTest, AnEmptyMessageIsAHeader) {
    EXPECT_EQ(send(0), Result::kLater);
    EXPECT_EQ(payload(), "");
}

TEST_F(EagerSenderTest, BuffersAreGathered) {
    std::string first = "one", empty, last = "three!";
    for (const std::size_t last_bytes : {std::size_t{6}, std::size_t{100}}) {  // inline, and not
        last.resize(last_bytes, '!');
        const iovec buffers[] = {{first.data(), 3}, {empty.data(), 0}, {last.data(), last.size()}};
        EXPECT_EQ(send(buffers), Result::kLater);
        EXPECT_EQ(payload(), first + last);
        EXPECT_EQ(is_inline(), last_bytes == 6);
    }
}

TEST_F(EagerSenderTest, ALargerMessageIsCopied) {
    EXPECT_EQ(send(kInlineEnd), Result::kLater);
    EXPECT_FALSE(is_inline());
    ASSERT_EQ(core_.posted[0].sges.size(), 1u);
    EXPECT_EQ(core_.posted[0].sges[0].lkey, buffers_.key());
    EXPECT_EQ(payload(), text_.substr(0, kInlineEnd));
    EXPECT_NE(core_.posted[0].sent.buffer, nullptr);
    EXPECT_EQ(core_.counts.eager, 1u);
    EXPECT_EQ(core_.counts.copied_by_size[EndpointCounts::size_index(kInlineEnd)], 1u);
}

TEST_F(EagerSenderTest, WhatIsCopiedMayBeReportedAtOnce) {
    for (const std::size_t bytes : {10U, 100U}) {  // inline, and not
        may_be_early_ = false;
        EXPECT_EQ(send(bytes), Result::kLater);
        EXPECT_EQ(core_.posted.back().sent.what, WrContext::kEntry);
        EXPECT_EQ(core_.posted.back().sent.context, this);
        core_.end_wr(buffers_);
        may_be_early_ = true;
        EXPECT_EQ(send(bytes), Result::kCopied);
        EXPECT_EQ(core_.posted.back().sent.what, WrContext::kOwn)
            << "not a second time, by the device";
        EXPECT_EQ(core_.posted.back().sent.context, nullptr);
        core_.end_wr(buffers_);
    }
}

TEST_F(EagerSenderTest, WithoutABufferThereIsNoRoom) {
    EXPECT_EQ(send(100), Result::kLater);
    EXPECT_EQ(send(100), Result::kFull);
    EXPECT_EQ(peer_.outgoing.sent, 1u);
    EXPECT_EQ(core_.counts.eager, 1u);
    core_.end_wr(buffers_);
    EXPECT_EQ(send(100), Result::kLater);
}

TEST_F(EagerSenderTest, WhatFindsNoRoomHasDoneNothing) {
    core_.post_answer = post::Posted::kFull;
    for (int i = 0; i < 3; ++i) {  // with one buffer
        EXPECT_EQ(send(10), Result::kFull);
        EXPECT_EQ(send(100), Result::kFull);
        EXPECT_EQ(send(1500, 0, 0, true), Result::kFull);
    }
    EXPECT_EQ(peer_.outgoing.sent, 0u);
    EXPECT_EQ(core_.counts.inlined + core_.counts.eager + core_.counts.gathered, 0u);
    EXPECT_TRUE(flow_.may_send(peer_, kUnexpected)) << "nothing is counted as sent";
}

TEST_F(EagerSenderTest, RemoteDataIsTheImmediateIfItFits) {
    send(10, FI_REMOTE_CQ_DATA, 9);
    EXPECT_EQ(core_.posted.back().work.opcode, post::Opcode::kSendImm);
    EXPECT_EQ(core_.posted.back().work.immediate, 9u);
    EXPECT_EQ(header().flags, 0u);
    EXPECT_EQ(payload(), text_.substr(0, 10));
}

TEST_F(EagerSenderTest, WideRemoteDataTravelsBehindTheHeader) {
    for (const std::size_t bytes : {10U, 100U}) {
        send(bytes, FI_REMOTE_CQ_DATA, kWide);
        EXPECT_EQ(core_.posted.back().work.opcode, post::Opcode::kSend);
        EXPECT_EQ(header().flags, Header::kWideData);
        std::uint64_t data = 0;
        std::memcpy(&data, payload().data(), sizeof data);
        EXPECT_EQ(data, kWide);
        EXPECT_EQ(payload(sizeof data), text_.substr(0, bytes));
    }
}

TEST_F(EagerSenderTest, APeerThatHasTakenNothingGetsNoMore) {
    ASSERT_TRUE(flow_.may_send(peer_, 1500));
    send(1500);
    EXPECT_FALSE(flow_.may_send(peer_, 1500));
    EXPECT_TRUE(flow_.may_send(other_, 1500));
}

TEST_F(EagerSenderTest, AFullWindowIsNoRoom) {
    for (std::uint32_t i = 0; i < kWindow; ++i) {
        ASSERT_EQ(send(kFreeBytes + 1), Result::kLater);
        core_.end_wr(buffers_);
        flow_.on_message(peer_, CreditBody{kFreeBytes + 1, 0});
    }
    EXPECT_EQ(send(kFreeBytes + 1), Result::kFull);
    EXPECT_EQ(peer_.outgoing.sent, kWindow);
    EXPECT_EQ(send(kFreeBytes), Result::kLater);
    core_.end_wr(buffers_);
    flow_.on_message(peer_, CreditBody{0, 1});
    EXPECT_EQ(send(kFreeBytes + 1), Result::kLater);
}

TEST_F(EagerSenderTest, ABufferThatIsUsedAgainIsSentFromWhereItStands) {
    const std::size_t before = fake_verbs::regions();
    may_be_early_ = true;
    for (int i = 0; i < 4 && core_.counts.gathered == 0; ++i) {
        const Result result = send(1500, 0, 0, true);
        ASSERT_EQ(result, core_.counts.gathered == 0 ? Result::kCopied : Result::kLater);
        if (core_.counts.gathered == 0) core_.end_wr(buffers_);
    }
    ASSERT_EQ(core_.counts.gathered, 1u);
    EXPECT_GT(fake_verbs::regions(), before);
    ASSERT_EQ(core_.posted.back().sges.size(), 2u);
    EXPECT_EQ(core_.posted.back().sges[0].lkey, buffers_.key());
    EXPECT_EQ(core_.posted.back().sges[1].addr, reinterpret_cast<std::uintptr_t>(text_.data()));
    EXPECT_NE(core_.posted.back().sges[1].lkey, buffers_.key());
    EXPECT_EQ(payload(), text_);
    EXPECT_EQ(core_.counts.gathered_by_size[EndpointCounts::size_index(1500)], 1u);
    core_.end_wr(buffers_);
    may_be_early_ = false;
    // Its end would be reported too early; or there are several buffers.
    EXPECT_EQ(send(1500), Result::kLater);
    EXPECT_EQ(core_.posted.back().sges.size(), 1u);
    core_.end_wr(buffers_);
    const iovec halves[] = {{text_.data(), 750}, {text_.data() + 750, 750}};
    EXPECT_EQ(send(halves, 0, 0, true), Result::kLater);
    EXPECT_EQ(core_.posted.back().sges.size(), 1u);
}

}  // namespace
}  // namespace heddle::protocol::test
