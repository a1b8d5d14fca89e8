// SPDX-License-Identifier: BSD-2-Clause
// Rendezvous, both sides: each message at its time and at a wrong one, and a peer that fails at
// each step. The endpoint has no device, and the test ends transfers.
#include "protocol/rndv/rendezvous.h"

#include <rdma/fi_endpoint.h>

#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/tag/receive.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {
namespace {

class FakeUser final : public RendezvousUser {
public:
    struct Fetched {
        Receive* receive;
        std::uint64_t operation;
        std::size_t taken;
        int error;
        bool operator==(const Fetched&) const = default;
    };
    void on_fetched(Receive& receive, Peer&, const AnnouncedMessage& message, std::size_t taken,
                    int error, int) override {
        fetched.push_back({&receive, message.operation, taken, error});
    }
    std::vector<Fetched> fetched;
};

class RendezvousTest : public ::testing::Test {
protected:
    explicit RendezvousTest(Rendezvous way = Rendezvous::kGet) : core_(options(way)) {
        core_.connect(peer_);
        core_.connect(other_);
    }
    ~RendezvousTest() override {
        fake_verbs::fail_registrations(0);
        EXPECT_EQ(requests_.open(), 0u);
        EXPECT_EQ(fake_verbs::regions(), regions_before_) << "memory is still registered";
        EXPECT_EQ(peer_.outstanding_replies, 0u);
    }
    static Options options(Rendezvous way) {
        Options options;
        options.rendezvous = way;
        return options;
    }
    void send(std::uint64_t flags = 0) {
        SendRequest& request = requests_.take(peer_, rendezvous_);
        request.flags = FI_TAGGED | flags;
        request.tag = 7;
        request.bytes = text_.size();
        request.report.what = WrContext::kEntry | WrContext::kTagged;
        request.report.context = &text_;
        const iovec buffer{text_.data(), text_.size()};
        request.set_buffers(&buffer, 1, nullptr);
        requests_.start(request);
    }
    std::uint64_t announced() const { return core_.sent.front().message().rts.operation; }
    void cts(std::uint64_t operation, std::size_t bytes, Peer& from) {
        Message message;
        message.header.kind = Kind::kCts;
        message.cts = {operation, kReceiver, bytes, 1, 0};
        message.segments[0] = {{4096, bytes, 9, 0}};
        rendezvous_.on_message(from, message);
    }
    void fin(std::uint64_t operation, int status, bool put, Peer& from) {
        Message message;
        message.header.kind = Kind::kFin;
        message.fin = {operation, static_cast<std::uint32_t>(status), put ? 1u : 0u};
        rendezvous_.on_message(from, message);
    }
    // The send has ended, once.
    void expect_sent(int error) {
        ASSERT_EQ(core_.transmitted.size(), 1u);
        EXPECT_EQ(core_.transmitted.front().context, &text_);
        EXPECT_EQ(core_.transmitted.front().error, error);
        EXPECT_EQ(requests_.open(), 0u);
    }
    void fetch(bool by_put, std::size_t room = 100) {
        const AnnouncedMessage message{{7, 0, false}, kOperation, by_put, 60};
        const iovec buffer{room_, sizeof room_};
        const Segment segment{{8192, 60, 5, 0}};
        rendezvous_.fetch(receive_, {&buffer, 1}, room, peer_, message,
                          {&segment, by_put ? 0u : 1u});
    }
    void expect_fetched(std::size_t taken, int error) {
        EXPECT_EQ(user_.fetched,
                  (std::vector<FakeUser::Fetched>{{&receive_, kOperation, taken, error}}));
    }
    FinBody last_fin() const {
        EXPECT_FALSE(core_.sent.empty());
        if (core_.sent.empty()) return {};
        EXPECT_EQ(core_.sent.back().kind, Kind::kFin);
        return core_.sent.back().body<FinBody>();
    }
    std::uint64_t errors() const { return core_.counts.protocol_errors; }

    static constexpr std::uint64_t kReceiver = 31, kOperation = 41;
    std::string text_ = std::string(50, 'x');
    char room_[100] = {};
    FakeCore core_;
    FakeUser user_;
    memory::Pool send_buffers_{nullptr, 64, 1};
    const std::size_t regions_before_ = fake_verbs::regions();
    RequestPool requests_{core_, send_buffers_};
    RendezvousProtocol rendezvous_{core_, requests_, user_};
    Receive receive_;
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer();
};

class PutTest : public RendezvousTest {
protected:
    PutTest() : RendezvousTest(Rendezvous::kPut) {}
};

TEST_F(RendezvousTest, TheSenderAnnouncesAndTheReceiverReads) {
    send();
    ASSERT_EQ(core_.sent.size(), 1u);
    const Message rts = core_.sent[0].message();
    EXPECT_EQ(rts.header.kind, Kind::kRts);
    EXPECT_EQ(rts.header.flags, Header::kTagged);
    EXPECT_EQ(rts.header.tag, 7u);
    EXPECT_EQ(rts.rts.bytes, text_.size());
    ASSERT_EQ(rts.rts.segments, 1u);
    EXPECT_EQ(rts.segments[0].address, reinterpret_cast<std::uintptr_t>(text_.data()));
    EXPECT_EQ(rts.segments[0].bytes, text_.size());
    EXPECT_EQ(peer_.outgoing.sent, 1u);
    EXPECT_EQ(peer_.outstanding_replies, 1u);
    EXPECT_TRUE(core_.transmitted.empty()) << "the memory is in use";
    fin(rts.rts.operation, 0, false, peer_);
    expect_sent(0);
    fin(rts.rts.operation, 0, false, peer_);
    EXPECT_EQ(errors(), 1u) << "it ends once";
    EXPECT_EQ(core_.transmitted.size(), 1u);
}

TEST_F(RendezvousTest, TheReceiverMayFail) {
    send();
    fin(announced(), EIO, false, peer_);
    expect_sent(EIO);
}

TEST_F(RendezvousTest, AnswersThatDoNotFitAreErrors) {
    send();
    const std::uint64_t operation = announced();
    fin(operation, 0, false, other_);
    EXPECT_EQ(errors(), 1u) << "of another peer";
    fin(operation + 1, 0, false, peer_);
    EXPECT_EQ(errors(), 2u) << "no such message";
    cts(operation, text_.size(), peer_);
    EXPECT_EQ(errors(), 3u) << "it is to be read, not to be written";
    fin(operation, 0, true, peer_);
    EXPECT_EQ(errors(), 4u) << "nothing is fetched";
    EXPECT_TRUE(core_.transmitted.empty());
    EXPECT_TRUE(core_.transfers.empty());
    fin(operation, 0, false, peer_);
    expect_sent(0);
}

TEST_F(RendezvousTest, WithoutRoomTheAnnouncementWaits) {
    core_.has_room = false;
    send();
    EXPECT_EQ(peer_.waiting.size(), 1u);
    EXPECT_EQ(peer_.outgoing.sent, 0u);
    core_.flush(peer_);
    EXPECT_EQ(peer_.waiting.size(), 1u);
    core_.has_room = true;
    core_.flush(peer_);
    EXPECT_EQ(core_.counts.rendezvous, 1u);
    EXPECT_EQ(peer_.outgoing.sent, 1u);
    ASSERT_EQ(core_.sent.size(), 1u);
    fin(announced(), 0, false, peer_);
    expect_sent(0);
}

TEST_F(RendezvousTest, ThePeerFailsBeforeTheAnnouncement) {
    core_.has_room = false;
    send();
    core_.fail_peer(peer_, ECONNRESET);
    expect_sent(ECONNRESET);
    EXPECT_TRUE(core_.sent.empty());
}

TEST_F(RendezvousTest, MemoryOfAMessageCannotBeRegistered) {
    fake_verbs::fail_registrations(ENOMEM);
    send();
    expect_sent(ENOMEM);
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_EQ(peer_.outgoing.sent, 0u);
}

// In copies, which another part of the endpoint sends.
class CopiedMessages : public RendezvousTest, protected MessageCopier {
protected:
    CopiedMessages() {
        rendezvous_.set_copier(*this);
        fake_verbs::fail_registrations(ENOMEM);
    }
    bool may_copy(const Peer& peer, std::size_t) const noexcept override {
        EXPECT_EQ(&peer, &peer_);
        return may_copy_;
    }
    bool start(SendRequest& request) override {
        ++starts_;
        if (!has_room_) return false;
        requests_.finish(request, 0, 0);
        return true;
    }
    bool may_copy_ = true, has_room_ = true;
    int starts_ = 0;
};

TEST_F(CopiedMessages, AreThoseWhoseMemoryExceedsTheLimit) {
    send();
    expect_sent(0);
    EXPECT_EQ(starts_, 1);
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_EQ(core_.counts.unregistered, 1u);
    EXPECT_EQ(core_.counts.rendezvous, 0u);
}

TEST_F(CopiedMessages, WaitForRoomWithoutAnotherRegistration) {
    has_room_ = false;
    send();
    fake_verbs::fail_registrations(0);
    has_room_ = true;
    core_.flush(peer_);
    expect_sent(0);
    EXPECT_EQ(starts_, 2);
    EXPECT_EQ(core_.counts.unregistered, 1u);
}

TEST_F(CopiedMessages, AreNotForWhatMustMeetItsReceive) {
    send(FI_MATCH_COMPLETE);
    expect_sent(ENOMEM);
    EXPECT_EQ(starts_, 0);
}

TEST_F(CopiedMessages, AreNotForMoreThanThePeerMayKeep) {
    may_copy_ = false;
    send();
    expect_sent(ENOMEM);
    EXPECT_EQ(starts_, 0);
}

TEST_F(CopiedMessages, AreNotForOtherErrors) {
    fake_verbs::fail_registrations(EACCES);
    send();
    expect_sent(EACCES);
    EXPECT_EQ(starts_, 0);
}

TEST_F(PutTest, TheReceiverAnswersAndTheSenderWrites) {
    send();
    const Message rts = core_.sent[0].message();
    EXPECT_EQ(rts.header.flags, Header::kTagged | Header::kPut);
    EXPECT_EQ(rts.rts.segments, 0u);
    cts(rts.rts.operation, 20, peer_);
    ASSERT_EQ(core_.transfers.size(), 1u);
    EXPECT_EQ(core_.transfers[0].opcode, post::Opcode::kWrite);
    EXPECT_EQ(core_.transfers[0].bytes, 20u) << "the receive is shorter";
    EXPECT_EQ(core_.transfers[0].peer, &peer_);
    EXPECT_EQ(core_.transfers[0].bulk->remote[0].key, 9u);
    EXPECT_EQ(peer_.outstanding_replies, 0u) << "the peer has answered";
    EXPECT_TRUE(core_.transmitted.empty());
    cts(rts.rts.operation, 20, peer_);
    EXPECT_EQ(errors(), 1u) << "one answer";
    fin(rts.rts.operation, 0, false, peer_);
    EXPECT_EQ(errors(), 2u) << "it has answered otherwise";
    ASSERT_EQ(core_.transfers.size(), 1u);
    peer_.failed = 0;
    core_.end_transfer();
    expect_sent(0);
    EXPECT_EQ(last_fin().operation, kReceiver);
    EXPECT_EQ(last_fin().status, 0u);
    EXPECT_EQ(last_fin().put, 1u);
}

TEST_F(PutTest, AnAnswerForMoreThanThereIsIsAnError) {
    send();
    cts(announced(), text_.size() + 1, peer_);
    EXPECT_EQ(errors(), 1u);
    cts(announced(), text_.size(), other_);
    EXPECT_EQ(errors(), 2u) << "of another peer";
    EXPECT_TRUE(core_.transfers.empty());
    fin(announced(), ENOBUFS, false, peer_);  // the receiver does not want it
    expect_sent(ENOBUFS);
}

TEST_F(PutTest, TheReceiverHearsThatAWriteFailed) {
    send();
    cts(announced(), text_.size(), peer_);
    core_.end_transfer(EIO);
    expect_sent(EIO);
    EXPECT_EQ(last_fin().operation, kReceiver);
    EXPECT_EQ(last_fin().status, static_cast<std::uint32_t>(EIO));
}

TEST_F(RendezvousTest, AReceiverReads) {
    fetch(false, 40);
    ASSERT_EQ(core_.transfers.size(), 1u);
    EXPECT_EQ(core_.transfers[0].opcode, post::Opcode::kRead);
    EXPECT_EQ(core_.transfers[0].bytes, 40u);
    EXPECT_EQ(core_.transfers[0].bulk->remote[0].key, 5u);
    EXPECT_EQ(core_.transfers[0].bulk->remote_count, 1u);
    EXPECT_TRUE(user_.fetched.empty());
    core_.end_transfer();
    expect_fetched(40, 0);
    EXPECT_EQ(last_fin().operation, kOperation);
    EXPECT_EQ(last_fin().status, 0u);
    EXPECT_EQ(last_fin().put, 0u);
}

TEST_F(RendezvousTest, TheSenderHearsThatAReadFailed) {
    fetch(false);
    core_.end_transfer(EIO);
    expect_fetched(0, EIO);
    EXPECT_EQ(last_fin().status, static_cast<std::uint32_t>(EIO));
}

TEST_F(RendezvousTest, AReceiveWithoutRoomReadsNothing) {
    fetch(false, 0);
    EXPECT_TRUE(core_.transfers.empty());
    expect_fetched(0, 0);
    EXPECT_EQ(last_fin().operation, kOperation);
}

TEST_F(RendezvousTest, AReceiveThatExceedsTheLimitOfLockedMemoryIsCopied) {
    fake_verbs::fail_registrations(ENOMEM);
    fetch(false);
    ASSERT_EQ(core_.transfers.size(), 1u);
    EXPECT_FALSE(core_.transfers[0].bulk->local.is_registered());
    EXPECT_EQ(core_.counts.unregistered, 1u);
    core_.end_transfer();
    expect_fetched(60, 0);
}

// The peer would write to it.
TEST_F(RendezvousTest, AReceiveForAWriteMustBeRegistered) {
    fake_verbs::fail_registrations(ENOMEM);
    fetch(true);
    expect_fetched(0, ENOMEM);
    EXPECT_EQ(last_fin().status, static_cast<std::uint32_t>(ENOMEM));
}

TEST_F(RendezvousTest, MemoryOfAReceiveCannotBeRegistered) {
    fake_verbs::fail_registrations(EACCES);
    fetch(false);
    expect_fetched(0, EACCES);
    EXPECT_EQ(last_fin().status, static_cast<std::uint32_t>(EACCES));
    fake_verbs::fail_registrations(0);
    fetch(true);
    const std::uint64_t next = core_.sent.back().message().cts.receive;
    EXPECT_EQ(static_cast<std::uint32_t>(next), 0u) << "its slot is free again";
    fin(next, 0, true, peer_);
}

TEST_F(RendezvousTest, ThePeerFailsBeforeItIsRead) {
    peer_.open = nullptr;
    fetch(false);
    ASSERT_EQ(peer_.waiting.size(), 1u);
    EXPECT_TRUE(core_.transfers.empty());
    core_.fail_peer(peer_, ECONNRESET);
    expect_fetched(0, ECONNRESET);
    EXPECT_TRUE(core_.sent.empty()) << "nobody is there to hear it";
}

// Reads end by themselves, as their connection has failed.
TEST_F(RendezvousTest, ThePeerFailsWhileItIsRead) {
    fetch(false);
    core_.fail_peer(peer_, ECONNRESET);
    rendezvous_.on_peer_failed(peer_, ECONNRESET);
    EXPECT_TRUE(user_.fetched.empty()) << "the device may still write there";
    core_.end_transfer(ECONNRESET);
    expect_fetched(0, ECONNRESET);
}

TEST_F(RendezvousTest, AReceiverIsWrittenTo) {
    fetch(true, 40);
    ASSERT_EQ(core_.sent.size(), 1u);
    const Message answer = core_.sent[0].message();
    EXPECT_EQ(answer.header.kind, Kind::kCts);
    EXPECT_EQ(answer.cts.operation, kOperation);
    EXPECT_EQ(answer.cts.bytes, 40u);
    ASSERT_EQ(answer.cts.segments, 1u);
    EXPECT_EQ(answer.segments[0].address, reinterpret_cast<std::uintptr_t>(room_));
    EXPECT_EQ(answer.segments[0].bytes, 40u);
    EXPECT_EQ(peer_.outstanding_replies, 1u);
    fin(answer.cts.receive, 0, true, other_);
    EXPECT_EQ(errors(), 1u) << "of another peer";
    EXPECT_TRUE(user_.fetched.empty());
    fin(answer.cts.receive, 0, true, peer_);
    expect_fetched(40, 0);
    EXPECT_EQ(core_.sent.size(), 1u) << "the sender knows";
    fin(answer.cts.receive, 0, true, peer_);
    EXPECT_EQ(errors(), 2u) << "it ends once";
}

TEST_F(RendezvousTest, TheSenderMayFail) {
    fetch(true);
    fin(core_.sent[0].message().cts.receive, EIO, true, peer_);
    expect_fetched(0, EIO);
}

TEST_F(RendezvousTest, AnEndBeforeTheAnswerIsAnError) {
    core_.has_room = false;
    fetch(true);
    ASSERT_EQ(peer_.waiting.size(), 1u);
    fin(0, 0, true, peer_);  // the number of the first
    EXPECT_EQ(errors(), 1u);
    EXPECT_TRUE(user_.fetched.empty());
    peer_.failed = 0;
    core_.has_room = true;
    core_.flush(peer_);
    ASSERT_EQ(core_.sent.size(), 1u);
    EXPECT_EQ(core_.sent[0].message().cts.receive, 0u);
    fin(0, 0, true, peer_);
    expect_fetched(60, 0);
}

TEST_F(RendezvousTest, ThePeerFailsBeforeTheAnswer) {
    core_.has_room = false;
    fetch(true);
    core_.fail_peer(peer_, ECONNRESET);
    expect_fetched(0, ECONNRESET);
    rendezvous_.on_peer_failed(peer_, ECONNRESET);
    EXPECT_EQ(user_.fetched.size(), 1u);
}

TEST_F(RendezvousTest, ThePeerFailsBeforeItHasWritten) {
    fetch(true);
    rendezvous_.on_peer_failed(other_, ECONNRESET);
    EXPECT_TRUE(user_.fetched.empty());
    rendezvous_.on_peer_failed(peer_, ECONNRESET);
    expect_fetched(0, ECONNRESET);
}

}  // namespace
}  // namespace heddle::protocol::test
