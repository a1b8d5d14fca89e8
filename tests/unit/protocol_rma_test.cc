// SPDX-License-Identifier: BSD-2-Clause
// RMA: which form an operation takes, what it reports, and that it gives back what it has taken,
// also if a buffer, room or memory is missing or the peer fails. The endpoint has no device.
#include "protocol/rma/rma.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/reuse/reuse_costs.h"
#include "protocol/transport/domain.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kInject = 32, kInline = 24, kEager = 64;

class RmaTest : public ::testing::Test {
protected:
    explicit RmaTest(const Bindings& counters = {}) : core_(options(), counters) {
        limits_.max_inline = kInline;
        core_.connect(peer_);
        peer_.name.srqn = 77;
    }
    ~RmaTest() override {
        fake_verbs::fail_registrations(0);
        EXPECT_EQ(requests_.open(), 0u);
        EXPECT_TRUE(core_.posted.empty());
        EXPECT_EQ(fake_verbs::regions(), regions_before_) << "memory is still registered";
        std::byte* const buffer = buffers_.take();
        EXPECT_NE(buffer, nullptr) << "the buffer was not given back";
    }
    static Options options() {
        Options options;
        options.inline_bytes = options.inject_bytes = kInject;
        options.eager_bytes = kEager;
        options.mr_cache_bytes = 0;  // nothing is kept for being used again
        return options;
    }
    ssize_t operate(std::size_t bytes, std::uint64_t flags) {
        const iovec buffer{text_.data(), bytes};
        const RmaSegment remote{kAddress, bytes, kKey};
        return operate({&buffer, 1}, {&remote, 1}, flags);
    }
    ssize_t operate(std::span<const iovec> buffers, std::span<const RmaSegment> remote,
                    std::uint64_t flags) {
        RmaArguments arguments;
        arguments.iov = buffers.data();
        arguments.iov_count = buffers.size();
        arguments.descriptors = descriptors_;
        arguments.to = to_;
        arguments.remote = remote.data();
        arguments.remote_count = remote.size();
        arguments.data = kData;
        arguments.flags = flags;
        arguments.context = &text_;
        return rma_.post(arguments);
    }
    void end_wr(int error = 0) { core_.end_wr(buffers_, error); }
    // One operation has ended.
    void expect_entry(std::uint64_t direction, int error) {
        ASSERT_EQ(core_.transmitted.size(), 1u);
        EXPECT_EQ(core_.transmitted.front().context, &text_);
        EXPECT_EQ(core_.transmitted.front().flags, FI_RMA | direction);
        EXPECT_EQ(core_.transmitted.front().error, error);
        core_.transmitted.pop();
    }
    std::string posted_text() const {
        const std::vector<std::byte>& bytes = core_.posted.front().bytes;
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    static constexpr std::uint64_t kAddress = 8192, kKey = 5, kData = 99;
    std::string text_ = std::string(kEager + 1, 'x');
    FakeCore core_;
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer();
    std::uint64_t to_ = 0;
    void* const* descriptors_ = nullptr;
    memory::Pool buffers_{nullptr, kEager, 1};
    const std::size_t regions_before_ = fake_verbs::regions();
    SendLimits limits_;
    ReuseCosts costs_;
    std::vector<Reuse*> tables_;
    memory::RegistrationCache cache_{std::make_shared<memory::AddressMonitor>(), nullptr, 0};
    ReusePolicy reuse_{core_.CoreServices::options, cache_, tables_,
                       [this]() -> const ReuseCosts& { return costs_; }};
    RequestPool requests_{core_, buffers_};
    Rma rma_{core_, requests_, limits_, reuse_};
};

TEST_F(RmaTest, ASmallWriteGoesInline) {
    ASSERT_EQ(operate(kInline, FI_WRITE | FI_COMPLETION), 0);
    ASSERT_EQ(core_.posted.size(), 1u);
    const FakeCore::PostedWr& wr = core_.posted[0];
    EXPECT_EQ(wr.peer, &peer_);
    EXPECT_EQ(wr.work.opcode, post::Opcode::kWrite);
    EXPECT_EQ(wr.work.flags, post::kInline);
    EXPECT_EQ(wr.work.remote_address, kAddress);
    EXPECT_EQ(wr.work.remote_key, kKey);
    EXPECT_EQ(wr.work.remote_srq, 77u);
    EXPECT_EQ(posted_text(), text_.substr(0, kInline));
    EXPECT_EQ(core_.counts.rma, 1u);
    end_wr();
    expect_entry(FI_WRITE, 0);
}

TEST_F(RmaTest, AnInlineWriteWithoutAReportLeavesNoNote) {
    ASSERT_EQ(operate(8, FI_WRITE), 0);
    ASSERT_EQ(core_.posted.size(), 1u);
    EXPECT_FALSE(core_.posted[0].sent.needs_completion());
    end_wr();
    EXPECT_TRUE(core_.transmitted.empty());
}

TEST_F(RmaTest, AWriteUpToTheEagerSizeIsCopied) {
    ASSERT_EQ(operate(kEager, FI_WRITE | FI_COMPLETION), 0);
    ASSERT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(core_.posted[0].work.flags, 0);
    ASSERT_EQ(core_.posted[0].sges.size(), 1u);
    EXPECT_EQ(core_.posted[0].sges[0].lkey, buffers_.key());
    EXPECT_NE(core_.posted[0].sges[0].addr, reinterpret_cast<std::uintptr_t>(text_.data()));
    EXPECT_EQ(posted_text(), text_.substr(0, kEager));
    EXPECT_EQ(core_.counts.rma_copied, 1u);
    EXPECT_EQ(core_.counts.rma_direct, 0u);
    EXPECT_EQ(buffers_.take(), nullptr) << "the device reads the buffer";
    end_wr();
    expect_entry(FI_WRITE, 0);
}

TEST_F(RmaTest, AReadComesByABuffer) {
    ASSERT_EQ(operate(16, FI_READ | FI_COMPLETION), 0);
    ASSERT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(core_.posted[0].work.opcode, post::Opcode::kRead);
    std::memcpy(reinterpret_cast<void*>(core_.posted[0].sges[0].addr), "sixteen bytes...", 16);
    EXPECT_EQ(text_.substr(0, 17), std::string(17, 'x'));
    end_wr();
    EXPECT_EQ(text_.substr(0, 17), "sixteen bytes...x");
    expect_entry(FI_READ, 0);
}

TEST_F(RmaTest, AReadThatFailedFillsNothingIn) {
    ASSERT_EQ(operate(16, FI_READ), 0);
    std::memset(reinterpret_cast<void*>(core_.posted[0].sges[0].addr), 'y', 16);
    end_wr(EACCES);
    EXPECT_EQ(text_.find('y'), std::string::npos);
    expect_entry(FI_READ, EACCES);  // although success would not have been reported
}

TEST_F(RmaTest, MemoryOfTheApplicationIsUsedWhereItIs) {
    RegionHandle handle{};
    handle.local_key = 321;
    void* const descriptor = static_cast<fid_mr*>(&handle);
    descriptors_ = &descriptor;
    for (const std::uint64_t way : {FI_WRITE, FI_READ}) {
        ASSERT_EQ(operate(kEager, way | FI_COMPLETION), 0);
        ASSERT_EQ(core_.posted.size(), 1u);
        EXPECT_EQ(core_.posted[0].sges[0].lkey, 321u);
        EXPECT_EQ(core_.posted[0].sges[0].addr, reinterpret_cast<std::uintptr_t>(text_.data()));
        end_wr();
        expect_entry(way, 0);
    }
    EXPECT_EQ(core_.counts.rma_direct, 2u);
    EXPECT_EQ(core_.counts.rma_copied, 0u);
}

TEST_F(RmaTest, WithoutABufferMemoryIsRegistered) {
    ASSERT_EQ(operate(kEager, FI_READ | FI_COMPLETION), 0);
    ASSERT_EQ(operate(kEager, FI_READ | FI_COMPLETION), 0);
    EXPECT_EQ(core_.posted.size(), 1u);
    ASSERT_EQ(core_.transfers.size(), 1u);
    EXPECT_EQ(core_.transfers[0].opcode, post::Opcode::kRead);
    EXPECT_EQ(core_.transfers[0].bulk->local.iov[0].iov_base, text_.data());
    core_.end_transfer();
    expect_entry(FI_READ, 0);
    end_wr();
    expect_entry(FI_READ, 0);
}

TEST_F(RmaTest, WithoutRoomTheBufferGoesBack) {
    core_.post_answer = post::Posted::kFull;
    for (const std::uint64_t way : {FI_WRITE, FI_READ}) {
        ASSERT_EQ(operate(kEager, way | FI_COMPLETION), 0);
        ASSERT_EQ(core_.transfers.size(), 1u);
        core_.end_transfer();
        expect_entry(way, 0);
    }
    EXPECT_EQ(core_.counts.rma_copied, 0u);
    core_.post_answer = post::Posted::kOk;
    ASSERT_EQ(operate(kEager, FI_WRITE), 0);
    EXPECT_EQ(core_.posted.size(), 1u) << "a buffer is there";
    end_wr();
}

TEST_F(RmaTest, WhatTheDeviceDoesNotTakeIsAnError) {
    core_.post_answer = post::Posted::kInvalid;
    EXPECT_EQ(operate(8, FI_WRITE), -FI_EINVAL);
    EXPECT_EQ(operate(kEager, FI_WRITE), -FI_EINVAL);
    EXPECT_EQ(operate(kEager, FI_READ), -FI_EINVAL);
    EXPECT_TRUE(core_.transmitted.empty());
}

TEST_F(RmaTest, LongOnesAreTransfers) {
    for (const std::uint64_t way : {FI_WRITE, FI_READ}) {
        ASSERT_EQ(operate(kEager + 1, way | FI_COMPLETION), 0);
        ASSERT_EQ(core_.transfers.size(), 1u);
        EXPECT_EQ(core_.transfers[0].peer, &peer_);
        EXPECT_EQ(core_.transfers[0].bytes, kEager + 1);
        EXPECT_EQ(core_.transfers[0].opcode,
                  way == FI_READ ? post::Opcode::kRead : post::Opcode::kWrite);
        EXPECT_EQ(fake_verbs::regions(), regions_before_ + 1);
        EXPECT_TRUE(core_.transmitted.empty());
        core_.end_transfer();
        expect_entry(way, 0);
        EXPECT_EQ(fake_verbs::regions(), regions_before_);
    }
}

TEST_F(RmaTest, SeveralSegmentsWithoutTheEmptyOnes) {
    const iovec buffers[] = {{text_.data(), 3}, {text_.data() + 3, 0}, {text_.data() + 3, 5}};
    const RmaSegment remote[] = {{100, 0, 1}, {200, 6, 2}, {300, 2, 3}};
    ASSERT_EQ(operate(buffers, remote, FI_WRITE | FI_COMPLETION), 0);
    ASSERT_EQ(core_.transfers.size(), 1u);
    const Bulk& bulk = *core_.transfers[0].bulk;
    EXPECT_EQ(core_.transfers[0].bytes, 8u);
    EXPECT_EQ(bulk.local.count, 2u);
    ASSERT_EQ(bulk.remote_count, 2u);
    EXPECT_EQ(bulk.remote[0].address, 200u);
    EXPECT_EQ(bulk.remote[0].bytes, 6u);
    EXPECT_EQ(bulk.remote[0].key, 2u);
    EXPECT_EQ(bulk.remote[1].key, 3u);
    core_.end_transfer();
    expect_entry(FI_WRITE, 0);
}

TEST_F(RmaTest, ArgumentsThatDoNotFit) {
    const iovec buffer{text_.data(), 8};
    const RmaSegment remote{kAddress, 9, kKey};
    EXPECT_EQ(operate({&buffer, 1}, {&remote, 1}, FI_WRITE), -FI_EINVAL) << "unlike lengths";
    const std::vector<iovec> buffers(kMaxSegments + 1, iovec{text_.data(), 1});
    const std::vector<RmaSegment> segments(kMaxSegments + 1, RmaSegment{kAddress, 1, kKey});
    const std::span some(buffers), more(some.first(kMaxSegments));
    EXPECT_EQ(operate(some, segments, FI_WRITE), -FI_EINVAL);
    EXPECT_EQ(operate(some.first(1), segments, FI_WRITE), -FI_EINVAL);
    EXPECT_EQ(operate(buffers, std::span(segments).first(1), FI_WRITE), -FI_EINVAL);
    EXPECT_EQ(operate(kInject + 1, FI_WRITE | FI_INJECT), -FI_EMSGSIZE);
    to_ = 1000;
    EXPECT_EQ(operate(8, FI_WRITE), -FI_EINVAL) << "no such address";
    EXPECT_EQ(core_.counts.rma, 0u);
    EXPECT_TRUE(core_.transmitted.empty());
    to_ = 0;
    ASSERT_EQ(operate(more, std::span(segments).first(kMaxSegments), FI_WRITE), 0);
    core_.end_transfer();
}

// The target hears of the data when all bytes are there.
TEST_F(RmaTest, DataFollowsTheWrite) {
    ASSERT_EQ(operate(8, FI_WRITE | FI_COMPLETION | FI_REMOTE_CQ_DATA), 0);
    ASSERT_EQ(core_.transfers.size(), 1u) << "its end must be heard of";
    EXPECT_TRUE(core_.sent.empty());
    core_.end_transfer();
    ASSERT_EQ(core_.sent.size(), 1u);
    const Message message = core_.sent[0].message();
    EXPECT_EQ(message.header.kind, Kind::kData);
    EXPECT_EQ(message.data, kData);
    EXPECT_EQ(message.written.bytes, 8u);
    expect_entry(FI_WRITE, 0);
}

TEST_F(RmaTest, NoDataFollowsAWriteThatFailed) {
    ASSERT_EQ(operate(8, FI_WRITE | FI_REMOTE_CQ_DATA), 0);
    core_.end_transfer(EACCES);
    EXPECT_TRUE(core_.sent.empty());
    expect_entry(FI_WRITE, EACCES);
}

// The buffer is the application's again at once.
TEST_F(RmaTest, WhatIsInjectedAndNotInlineIsCopied) {
    ASSERT_EQ(operate(kInline + 1, FI_WRITE | FI_INJECT), 0);
    EXPECT_TRUE(core_.transfers.empty());
    ASSERT_EQ(core_.posted.size(), 1u);
    EXPECT_EQ(core_.posted[0].work.flags, 0);
    ASSERT_EQ(core_.posted[0].sges.size(), 1u);
    EXPECT_EQ(core_.posted[0].sges[0].lkey, buffers_.key());
    EXPECT_EQ(posted_text(), text_.substr(0, kInline + 1));
    EXPECT_EQ(buffers_.take(), nullptr) << "the device reads the buffer";
    end_wr();
    EXPECT_TRUE(core_.transmitted.empty());
}

TEST_F(RmaTest, InjectingToAFailedPeerIsAnError) {
    core_.fail_peer(peer_, ECONNRESET);
    EXPECT_EQ(operate(8, FI_WRITE | FI_INJECT), -ECONNRESET);
    EXPECT_TRUE(core_.transmitted.empty());
    EXPECT_EQ(operate(8, FI_WRITE), 0) << "others have an entry";
    expect_entry(FI_WRITE, ECONNRESET);
}

TEST_F(RmaTest, WithoutAConnectionTheyWait) {
    peer_.open = nullptr;
    ASSERT_EQ(operate(8, FI_WRITE | FI_COMPLETION), 0);
    EXPECT_EQ(peer_.waiting.size(), 1u);
    EXPECT_FALSE(peer_.waiting.front()->is_sequenced()) << "it has no sequence number";
    EXPECT_TRUE(core_.transfers.empty());
    core_.flush(peer_);
    ASSERT_EQ(core_.transfers.size(), 1u);
    core_.end_transfer();
    expect_entry(FI_WRITE, 0);
}

TEST_F(RmaTest, ThePeerFailsWhileTheyWait) {
    peer_.open = nullptr;
    ASSERT_EQ(operate(8, FI_READ), 0);
    ASSERT_EQ(operate(kEager + 1, FI_WRITE), 0);
    core_.fail_peer(peer_, ECONNRESET);
    EXPECT_TRUE(core_.transfers.empty());
    ASSERT_EQ(core_.transmitted.size(), 2u);
    core_.transmitted.pop();
    expect_entry(FI_WRITE, ECONNRESET);
}

TEST_F(RmaTest, ThePeerFailsInATransfer) {
    ASSERT_EQ(operate(kEager + 1, FI_READ), 0);
    core_.fail_peer(peer_, ECONNRESET);
    EXPECT_TRUE(core_.transmitted.empty()) << "the device may still write there";
    core_.end_transfer(ECONNRESET);
    expect_entry(FI_READ, ECONNRESET);
}

TEST_F(RmaTest, ThePeerFailsWithWorkAtTheDevice) {
    ASSERT_EQ(operate(kEager, FI_WRITE), 0);
    core_.fail_peer(peer_, ECONNRESET);
    EXPECT_TRUE(core_.transmitted.empty());
    EXPECT_EQ(buffers_.take(), nullptr);
    end_wr(ECONNRESET);
    expect_entry(FI_WRITE, ECONNRESET);
}

TEST_F(RmaTest, MemoryCannotBeRegistered) {
    fake_verbs::fail_registrations(EACCES);
    ASSERT_EQ(operate(kEager + 1, FI_WRITE), 0);
    EXPECT_TRUE(core_.transfers.empty());
    expect_entry(FI_WRITE, EACCES);
    EXPECT_EQ(core_.counts.unregistered, 0u);
}

TEST_F(RmaTest, WhatExceedsTheLimitOfLockedMemoryIsCopied) {
    fake_verbs::fail_registrations(ENOMEM);
    for (const auto direction : {FI_WRITE, FI_READ}) {
        ASSERT_EQ(operate(kEager + 1, direction | FI_COMPLETION), 0);
        ASSERT_EQ(core_.transfers.size(), 1u);
        EXPECT_FALSE(core_.transfers[0].bulk->local.is_registered());
        core_.end_transfer();
        expect_entry(direction, 0);
    }
    EXPECT_EQ(core_.counts.unregistered, 2u);
    fake_verbs::fail_registrations(0);
    ASSERT_EQ(operate(kEager + 1, FI_WRITE | FI_COMPLETION), 0);
    EXPECT_TRUE(core_.transfers[0].bulk->local.is_registered());
    core_.end_transfer();
    expect_entry(FI_WRITE, 0);
}

// What is under way when the endpoint closes ends without a report.
TEST_F(RmaTest, AnEndpointThatClosesReportsNothing) {
    ASSERT_EQ(operate(kEager, FI_WRITE | FI_COMPLETION), 0);
    ASSERT_EQ(operate(kEager + 1, FI_READ | FI_COMPLETION), 0);
    core_.closing = true;
    end_wr();
    core_.end_transfer(ECONNRESET);
    EXPECT_TRUE(core_.transmitted.empty());
}

struct RmaCounters {
    Counter reads, writes;
};
class CountedRma : RmaCounters, public RmaTest {
protected:
    CountedRma() : RmaTest({.read_counter = &reads, .write_counter = &writes}) {}
    // Reads and writes that are done; that have failed.
    std::vector<std::uint64_t> counted() const {
        return {reads.done, writes.done, reads.failed, writes.failed};
    }
};

TEST_F(CountedRma, EachOfItsWay) {
    using Counted = std::vector<std::uint64_t>;
    ASSERT_EQ(operate(8, FI_WRITE), 0);
    EXPECT_TRUE(core_.posted[0].sent.needs_completion());
    end_wr();
    EXPECT_EQ(counted(), (Counted{0, 1, 0, 0}));
    ASSERT_EQ(operate(8, FI_READ), 0);
    end_wr();
    EXPECT_EQ(counted(), (Counted{1, 1, 0, 0}));
    ASSERT_EQ(operate(kEager, FI_WRITE), 0);
    end_wr();
    EXPECT_EQ(counted(), (Counted{1, 2, 0, 0}));
    EXPECT_TRUE(core_.transmitted.empty());
    ASSERT_EQ(operate(kEager + 1, FI_READ), 0);
    core_.end_transfer(EIO);
    EXPECT_EQ(counted(), (Counted{1, 2, 1, 0}));
    expect_entry(FI_READ, EIO);
}

}  // namespace
}  // namespace heddle::protocol::test
