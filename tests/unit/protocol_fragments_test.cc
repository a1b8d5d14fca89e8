// SPDX-License-Identifier: BSD-2-Clause
// Messages in fragments, out and in, on a core without a device.
#include "protocol/tag/fragments.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/eager/fragment_sender.h"
#include "protocol/tag/receiver.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_no_fetcher.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kFragment = 300, kMost = 1000, kLimit = 4096;

Options fragment_options() {
    Options options;
    options.eager_bytes = kFragment;
    options.rendezvous_above = kMost;
    options.unexpected_limit = kLimit;
    return options;
}

std::vector<std::byte> some_bytes(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i)
        bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    return bytes;
}

class FragmentSenderTest : public ::testing::Test {
protected:
    FragmentSenderTest() { core_.connect(peer_); }
    // Starts a message, as the endpoint does.
    void send(std::size_t bytes, std::uint64_t flags = FI_TAGGED, std::uint64_t data = 0) {
        text_ = some_bytes(bytes);
        // Three buffers, one of them empty.
        const iovec iov[] = {{text_.data(), 123}, {nullptr, 0}, {text_.data() + 123, bytes - 123}};
        SendRequest& request = requests_.take(peer_, sender_);
        request.bytes = bytes;
        request.flags = flags;
        request.tag = 7;
        request.data = data;
        request.report.context = this;
        request.report.what = WrContext::kEntry;
        request.set_buffers(iov, 3, nullptr);
        requests_.start(request);
    }
    Message fragment(std::size_t i) const {
        Message message;
        EXPECT_TRUE(parse(core_.posted.at(i).bytes, false, 0, message));
        return message;
    }

    FakeCore core_{fragment_options()};
    memory::Pool buffers_{nullptr, kFragment + 40, 2};
    RequestPool requests_{core_, buffers_};
    FlowControl flow_{core_};
    FragmentSender sender_{core_, requests_, flow_};
    Peer& peer_ = core_.add_peer();
    std::vector<std::byte> text_;
};

TEST_F(FragmentSenderTest, FragmentsAreOfTheEagerSizeAndHaveOneNumber) {
    send(2 * kFragment);
    ASSERT_EQ(core_.posted.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
        const Message message = fragment(i);
        EXPECT_EQ(message.header.kind, Kind::kFragment);
        EXPECT_EQ(message.header.flags, Header::kTagged);
        EXPECT_EQ(message.header.sequence, 0u);
        EXPECT_EQ(message.header.tag, 7u);
        EXPECT_FALSE(message.has_data);
        EXPECT_EQ(message.fragment.bytes, 2 * kFragment);
        EXPECT_EQ(message.fragment.offset, i * kFragment);
        EXPECT_TRUE(std::ranges::equal(message.payload,
                                       std::span(text_).subspan(i * kFragment, kFragment)));
    }
    EXPECT_EQ(peer_.outgoing.send_sequence(), 1u);
    EXPECT_EQ(core_.counts.eager, 1u) << "one message";
    EXPECT_EQ(requests_.open(), 0u);
}

TEST_F(FragmentSenderTest, DataIsInAll) {
    send(kFragment + 1, FI_REMOTE_CQ_DATA, 12);
    ASSERT_EQ(core_.posted.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(fragment(i).header.flags, Header::kWideData);
        EXPECT_EQ(fragment(i).data, 12u);
    }
    EXPECT_EQ(fragment(1).payload.size(), 1u);
}

// The pool has two buffers: the rest waits, at the head of what waits for the peer.
TEST_F(FragmentSenderTest, TheRestGoesWhenThereIsRoom) {
    send(kMost, FI_TRANSMIT_COMPLETE);
    EXPECT_EQ(core_.posted.size(), 2u);
    EXPECT_EQ(peer_.waiting.size(), 1u);
    EXPECT_EQ(peer_.outgoing.send_sequence(), 0u) << "it has not gone";
    core_.end_wr(buffers_);
    core_.flush(peer_);
    EXPECT_EQ(peer_.waiting.size(), 1u);
    EXPECT_TRUE(core_.transmitted.empty());
    core_.end_wr(buffers_);
    core_.flush(peer_);
    EXPECT_TRUE(peer_.waiting.empty());
    EXPECT_EQ(peer_.outgoing.send_sequence(), 1u);
    EXPECT_EQ(fragment(1).fragment.offset, 3 * kFragment);
    EXPECT_EQ(fragment(1).payload.size(), kMost - 3 * kFragment);
    core_.end_wr(buffers_);
    EXPECT_TRUE(core_.transmitted.empty()) << "the third of four";
    core_.end_wr(buffers_);
    ASSERT_FALSE(core_.transmitted.empty());
    EXPECT_EQ(core_.transmitted.front().context, this);
    EXPECT_EQ(core_.transmitted.front().error, 0);
    core_.transmitted.pop();
    EXPECT_TRUE(core_.transmitted.empty()) << "it ends once";
}

// Unless more than that is wanted.
TEST_F(FragmentSenderTest, TheEndIsReportedWhenAllIsCopied) {
    send(kMost);
    core_.end_wr(buffers_);
    core_.flush(peer_);
    EXPECT_TRUE(core_.transmitted.empty()) << "a part of it is not";
    core_.end_wr(buffers_);
    core_.flush(peer_);
    ASSERT_FALSE(core_.transmitted.empty());
    EXPECT_EQ(core_.transmitted.front().context, this);
    EXPECT_EQ(core_.transmitted.front().error, 0);
    core_.transmitted.pop();
    core_.end_wr(buffers_);
    core_.end_wr(buffers_);
    EXPECT_TRUE(core_.transmitted.empty()) << "it ends once";
}

// Fragments take messages of the window, which is full after these two.
TEST_F(FragmentSenderTest, AFullWindowIsNoRoom) {
    for (std::uint32_t weight = 2 * weight_of(kFragment); weight < kWindow; ++weight)
        flow_.count_fragment_posted(peer_, 0);
    send(kMost);
    EXPECT_EQ(core_.posted.size(), 2u);
    core_.end_wr(buffers_);
    core_.flush(peer_);
    EXPECT_EQ(core_.posted.size(), 1u) << "there is a buffer, and no window";
    flow_.on_message(peer_, CreditBody{0, 1});
    core_.flush(peer_);
    EXPECT_EQ(core_.posted.size(), 2u);
}

TEST_F(FragmentSenderTest, AMessageWhoseRestCannotGoFails) {
    send(kMost);
    core_.fail_peer(peer_, ECONNRESET);
    ASSERT_FALSE(core_.transmitted.empty());
    EXPECT_EQ(core_.transmitted.front().error, ECONNRESET);
    EXPECT_EQ(requests_.open(), 0u);
}

TEST_F(FragmentSenderTest, CreditCountsTheMessage) {
    const std::size_t all = core_.CoreServices::options.unexpected_bytes;
    EXPECT_FALSE(flow_.may_send_fragments(peer_, kFragment)) << "it is sent at once";
    EXPECT_TRUE(flow_.may_send_fragments(peer_, kMost));
    EXPECT_FALSE(flow_.may_send_fragments(peer_, kMost + 1));
    send(2 * kFragment);
    flow_.count_sent(peer_, all - 2 * kFragment - kMost);
    EXPECT_TRUE(flow_.may_send_fragments(peer_, kMost));
    flow_.count_sent(peer_, 200);
    EXPECT_FALSE(flow_.may_send_fragments(peer_, kMost));
}

class FragmentsTest : public ::testing::Test {
protected:
    void post(std::vector<std::byte>& room, void* context) {
        iovec iov[] = {{room.data(), room.size() / 3},
                       {room.data() + room.size() / 3, room.size() - room.size() / 3}};
        ReceiveArguments arguments;
        arguments.iov = iov;
        arguments.iov_count = 2;
        arguments.from = FI_ADDR_UNSPEC;
        arguments.tag = 7;
        arguments.flags = FI_TAGGED | FI_COMPLETION;
        arguments.context = context;
        ASSERT_EQ(receiver_.post(arguments), 0);
    }
    void arrive(std::size_t offset, std::size_t bytes, std::size_t of) {
        Message message;
        message.header.kind = Kind::kFragment;
        message.header.flags = Header::kTagged;
        message.header.tag = 7;
        message.fragment = {of, offset};
        text_ = some_bytes(of);
        message.payload = std::span(text_).subspan(offset, bytes);
        fragments_.on_message(peer_, message);
    }
    void expect_next(const std::vector<std::byte>& room, void* context, std::size_t bytes,
                     int error = 0) {
        ASSERT_FALSE(core_.received.empty());
        const CompletionEntry entry = core_.received.front();
        core_.received.pop();
        EXPECT_EQ(entry.context, context);
        EXPECT_EQ(entry.error, error);
        EXPECT_EQ(entry.bytes, bytes);
        EXPECT_TRUE(
            std::ranges::equal(std::span(room).first(bytes), std::span(text_).first(bytes)));
    }
    void expect_protocol_error() { EXPECT_EQ(core_.counts.protocol_errors, 1u); }

    FakeCore core_{fragment_options()};
    NoFetcher fetcher_;
    FlowControl flow_{core_};
    Receives receives_{core_};
    UnexpectedMessages unexpected_{core_, receives_};
    Delivery delivery_{core_, receives_, unexpected_, flow_, fetcher_};
    Receiver receiver_{core_, receives_, delivery_};
    Fragments fragments_{core_, receives_, unexpected_, delivery_};
    Peer& peer_ = core_.add_peer();
    std::vector<std::byte> text_, room_ = std::vector<std::byte>(kMost);
};

TEST_F(FragmentsTest, AllGoIntoTheReceive) {
    post(room_, this);
    arrive(0, 300, 800);
    EXPECT_EQ(peer_.outstanding_replies, 1u) << "a peer that dies now is to be found out";
    EXPECT_EQ(receives_.queued(), 0u);
    EXPECT_EQ(receiver_.cancel(this), -FI_ENOENT) << "it has a message";
    arrive(300, 300, 800);
    EXPECT_TRUE(core_.received.empty());
    EXPECT_EQ(peer_.incoming.number_received(), 0u);
    arrive(600, 200, 800);
    expect_next(room_, this, 800);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
    EXPECT_EQ(core_.counts.unexpected, 0u);
}

TEST_F(FragmentsTest, WhatIsTooLongIsCutOff) {
    room_.resize(500);
    post(room_, this);
    arrive(0, 300, 900);
    arrive(300, 300, 900);
    arrive(600, 300, 900);
    expect_next(room_, this, 500, FI_ETRUNC);
}

// No receive that is posted meanwhile, and no probe, finds what is not whole.
TEST_F(FragmentsTest, WithoutAReceiveTheyArePutTogether) {
    arrive(0, 300, 600);
    EXPECT_EQ(receives_.tagged.messages(), 0u);
    arrive(300, 300, 600);
    EXPECT_EQ(receives_.tagged.messages(), 1u);
    post(room_, this);
    expect_next(room_, this, 600);
    EXPECT_EQ(receives_.tagged.messages(), 0u);
}

TEST_F(FragmentsTest, TheLastLooksForAReceiveAgain) {
    arrive(0, 300, 600);
    post(room_, this);
    EXPECT_EQ(receives_.queued(), 1u);
    arrive(300, 300, 600);
    expect_next(room_, this, 600);
    EXPECT_EQ(receives_.queued(), 0u);
    EXPECT_EQ(core_.counts.unexpected, 0u);
}

TEST_F(FragmentsTest, AReceiveEndsWithItsPeer) {
    post(room_, this);
    arrive(0, 300, 600);
    fragments_.on_peer_failed(peer_, FI_ECONNRESET);
    expect_next(room_, this, 0, FI_ECONNRESET);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
    fragments_.on_peer_failed(peer_, FI_ECONNRESET);
    EXPECT_TRUE(core_.received.empty());
}

TEST_F(FragmentsTest, AMessageThatIsPutTogetherEndsWithItsPeer) {
    arrive(0, 300, 600);
    fragments_.on_peer_failed(peer_, FI_ECONNRESET);
    EXPECT_TRUE(core_.received.empty());
    EXPECT_EQ(peer_.outstanding_replies, 0u);
}

TEST_F(FragmentsTest, TheRestOfAMessageDoesNotHideWhyItsPeerHasFailed) {
    arrive(0, 300, 600);
    core_.fail_peer(peer_, FI_ENOMEM);
    fragments_.on_peer_failed(peer_, FI_ENOMEM);
    arrive(300, 300, 600);
    EXPECT_EQ(peer_.failed, FI_ENOMEM);
    EXPECT_EQ(core_.refused.size(), 1u) << "the peer learns that nothing more is taken";
}

TEST_F(FragmentsTest, AFragmentInTheMiddleBeginsNothing) {
    post(room_, this);
    arrive(300, 300, 600);
    expect_protocol_error();
    EXPECT_EQ(receives_.queued(), 1u);
}

TEST_F(FragmentsTest, AFragmentIsNotLeftOut) {
    arrive(0, 300, 900);
    arrive(600, 300, 900);
    expect_protocol_error();
}

TEST_F(FragmentsTest, AFragmentDoesNotComeTwice) {
    arrive(0, 300, 900);
    arrive(0, 300, 900);
    expect_protocol_error();
}

TEST_F(FragmentsTest, AMessageDoesNotChangeItsLength) {
    post(room_, this);
    arrive(0, 300, 600);
    arrive(300, 300, 900);
    expect_protocol_error();
}

TEST_F(FragmentsTest, AMessageThatIsTooLongToKeepIsRefused) {
    arrive(0, 300, kLimit);
    ASSERT_EQ(core_.refused.size(), 1u);
    EXPECT_EQ(core_.refused[0].second, ENOBUFS);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
}

}  // namespace
}  // namespace heddle::protocol::test
