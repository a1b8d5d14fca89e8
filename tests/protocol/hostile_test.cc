// SPDX-License-Identifier: BSD-2-Clause
// Single messages that this protocol never sends, or not at that moment. The endpoint that gets one
// drops that peer, and the peer notices. Nothing crashes, and no operation reports success.
#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/protocol/hostile.h"

namespace heddle::protocol::test {
namespace {

TEST_F(Hostile, NamesAnAtomicInACts) {
    ASSERT_NO_FATAL_FAILURE(meet());
    ASSERT_NO_FATAL_FAILURE(begin_atomic());
    const CtsBody cts{operation(), 1, sizeof value, 1, 0};
    const SegmentBody segment{reinterpret_cast<std::uintptr_t>(&value), sizeof value, 0, 0};
    say(Kind::kCts, cts, std::as_bytes(std::span(&segment, 1)));
    expect_damage();
}

TEST_F(Hostile, NamesAnAtomicInAFin) {
    ASSERT_NO_FATAL_FAILURE(meet());
    ASSERT_NO_FATAL_FAILURE(begin_atomic());
    say(Kind::kFin, FinBody{operation(), 0, 0});
    expect_damage();
}

TEST_F(Hostile, AnswersAnAtomicWithoutValues) {
    ASSERT_NO_FATAL_FAILURE(meet());
    ASSERT_NO_FATAL_FAILURE(begin_atomic());
    say(Kind::kAtomicReply, AtomicReplyBody{operation(), 0, 0});
    expect_damage();
}

TEST_F(Hostile, WantsToBeWrittenToWhatItIsToRead) {
    ASSERT_NO_FATAL_FAILURE(meet());
    begin_rendezvous();
    const CtsBody cts{operation(), 1, sizeof value, 1, 0};
    const SegmentBody segment{reinterpret_cast<std::uintptr_t>(&value), sizeof value, 0, 0};
    say(Kind::kCts, cts, std::as_bytes(std::span(&segment, 1)));
    expect_damage();
}

TEST_F(Hostile, SaysThatSomethingFailedWithWhatIsNoError) {
    ASSERT_NO_FATAL_FAILURE(meet());
    begin_rendezvous();
    say(Kind::kFin, FinBody{operation(), 0x8000'0001, 0});
    expect_end(EPROTO);
    EXPECT_EQ(victim.endpoint->counts().protocol_errors, 0);
}

TEST_F(Hostile, SetsFlagsThatThereAreNot) {
    ASSERT_NO_FATAL_FAILURE(meet());
    begin_rendezvous();  // to see that the peer has failed
    EndpointImpl& body = hostile->impl();
    Peer& peer = *body.peers.at(to_victim);
    const Header header{Kind::kEager,       Header::kTagged | Header::kPut, body.name.endpoint,
                        peer.name.endpoint, peer.outgoing.send_sequence(),  kTag};
    std::vector<std::byte> bytes(sizeof header + 8);
    std::memcpy(bytes.data(), &header, sizeof header);
    body.control_message(peer, std::move(bytes));
    expect_damage();
}

// It is not left waiting for answers that never come.
TEST_F(Hostile, IsToldThatItIsNotBelieved) {
    ASSERT_NO_FATAL_FAILURE(meet());
    std::vector<char> bytes(kLarge, 'h');
    hostile->send(to_victim, bytes);  // no receive is posted
    say(Kind::kTupleEnd, TupleBeginBody{17});
    ASSERT_TRUE(until([&] { return victim.endpoint->counts().protocol_errors == 1; }));
    ASSERT_TRUE(until([&] { return !hostile->transmit.empty(); }));
    EXPECT_NE(hostile->transmit.front().error, 0);
}

// Also without any harm meant: with a larger FI_HEDDLE_EAGER_SIZE its buffers would hold them.
TEST_F(Hostile, AsksForMoreValuesThanAnAnswerHolds) {
    ASSERT_NO_FATAL_FAILURE(meet());
    std::vector<std::uint64_t> there(1 << 20, 1);
    const auto known = victim.domain->register_memory(there.data(), there.size() * sizeof there[0],
                                                      FI_REMOTE_READ);
    EndpointImpl& body = hostile->impl();
    Peer& peer = *body.peers.at(to_victim);
    AtomicBody ask;
    ask.operation = ~std::uint64_t{0};
    ask.address = reinterpret_cast<std::uintptr_t>(there.data());
    ask.key = static_cast<std::uint32_t>(known->key());
    ask.count = static_cast<std::uint32_t>(there.size());
    ask.datatype = FI_UINT64;
    ask.op = FI_ATOMIC_READ;
    ask.flags = AtomicBody::kFetch;
    const Header header{
        Kind::kAtomic, 0, body.name.endpoint, peer.name.endpoint, peer.outgoing.send_sequence(), 0};
    std::vector<std::byte> bytes(sizeof header + sizeof ask);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &ask, sizeof ask);
    body.control_message(peer, std::move(bytes));
    peer.outgoing.count_sequenced();
    // An answer comes, to what it had not asked in earnest.
    ASSERT_TRUE(until([&] { return hostile->endpoint->counts().protocol_errors == 1; }));
    EXPECT_EQ(victim.endpoint->counts().protocol_errors, 0);
}

// A sender that does not keep to the credit that it was given, or knows another: what it sends.
class Flood : public ::testing::TestWithParam<const char*> {
protected:
    static constexpr std::size_t kLimit = 65'536;
    static Options bounded() {
        Options small = options_of_both();
        small.unexpected_limit = kLimit;
        small.complain = [](const char* line) { said = line; };
        return small;
    }
    static Options boundless() {
        Options all = options_of_both();
        all.unexpected_bytes = std::size_t{1} << 30;
        return all;
    }
    void send_one(const std::string& what) {
        if (what == "eager") return hostile.send(to_victim, eager);
        if (what == "small") return hostile.send(to_victim, small);
        if (what == "large") return hostile.send(to_victim, large);
        EndpointImpl& body = hostile.impl();
        Peer& peer = *body.peers.at(to_victim);
        const Header header{
            Kind::kData, Header::kWideData, body.name.endpoint, peer.name.endpoint, 0, 0};
        const std::uint64_t data = 1;
        const DataBody written{8};
        std::vector<std::byte> bytes(sizeof header + sizeof data + sizeof written);
        std::memcpy(bytes.data(), &header, sizeof header);
        std::memcpy(bytes.data() + sizeof header, &data, sizeof data);
        std::memcpy(bytes.data() + sizeof header + sizeof data, &written, sizeof written);
        body.control_message(peer, std::move(bytes));
    }

    static inline std::string said;
    End victim{bounded()}, hostile{boundless()};
    std::uint64_t to_victim = 0, to_hostile = 0;
    std::vector<char> small = std::vector<char>(8, 's'), eager = std::vector<char>(1000, 'e'),
                      large = std::vector<char>(kLarge, 'l');
};

TEST_P(Flood, EndsAtTheLimitOfTheReceiver) {
    said.clear();
    to_victim = hostile.addresses.insert(victim.endpoint->name());
    to_hostile = victim.addresses.insert(hostile.endpoint->name());
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (int sent = 0; said.empty(); ++sent) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << sent << " are sent";
        if (hostile.endpoint->state().held < 64) send_one(GetParam());
        hostile.endpoint->progress();
        victim.endpoint->progress();
    }
    EXPECT_NE(said.find("FI_HEDDLE_UNEXPECTED_LIMIT"), std::string::npos) << said;
    // Whoever deals with that peer hears of it, and nothing more is kept.
    victim.send(to_hostile, small);
    while (victim.transmit.empty()) {
        ASSERT_LT(std::chrono::steady_clock::now(), end);
        victim.endpoint->progress();
    }
    EXPECT_EQ(victim.transmit.front().error, ENOBUFS);
    EXPECT_LE(victim.endpoint->state().messages * 1000, 10 * kLimit);
    EXPECT_LE(victim.receive.size() * sizeof(CompletionEntry), kLimit + sizeof(CompletionEntry));
}

INSTANTIATE_TEST_SUITE_P(Of, Flood, testing::Values("eager", "small", "large", "data"),
                         [](const auto& each) { return std::string(each.param); });

// A mask of more bits than an immediate has room for would be shifted out of it.
TEST(HostileTuple, NamesAMaskOfTooManyBits) {
    Options tuples = options_of_both();
    tuples.rendezvous = Rendezvous::kTuple;
    End victim(tuples), hostile(tuples);
    const std::uint64_t to_hostile = victim.addresses.insert(hostile.endpoint->name());
    const std::uint64_t to_victim = hostile.addresses.insert(victim.endpoint->name());
    const auto end = std::chrono::steady_clock::now() + kPatience;
    const auto until = [&](auto&& true_at_last) {
        while (!true_at_last()) {
            ASSERT_LT(std::chrono::steady_clock::now(), end);
            victim.endpoint->progress();
        }
    };
    // Asked for after the second message, and the answer is not what an honest one would be.
    std::vector<char> bytes(8, 'v');
    victim.send(to_hostile, bytes);
    victim.send(to_hostile, bytes);
    until([&] { return victim.endpoint->tuple_counts().asked == 1; });
    TupleAnswerBody answer;  // to the first tuple of the victim's
    answer.declined = static_cast<std::uint32_t>(TupleReason::kMask);
    answer.mask = ~std::uint64_t{0};
    EndpointImpl& body = hostile.impl();
    body.control(*body.peers.at(to_victim), Kind::kTupleAnswer,
                 std::as_bytes(std::span(&answer, 1)), {});
    const TupleSender& sender = victim.impl().tuples->sender;
    ASSERT_EQ(sender.count(), 1u);
    until([&] {
        hostile.endpoint->progress();
        return sender.count() == 0;
    });
    EXPECT_EQ(sender.mask_of(*victim.impl().peers.at(to_hostile)), 0u);
    const TupleCounts counts = victim.endpoint->tuple_counts();
    EXPECT_EQ(counts.declined[static_cast<std::size_t>(TupleReason::kManyBits)], 1u);
}

// Messages of a queue have no header that says whose they are.
TEST(HostileTuple, SendsToTheQueueOfAnother) {
    Options tuples = options_of_both();
    tuples.rendezvous = Rendezvous::kTuple;
    End victim(tuples), other(tuples), hostile(tuples);
    const std::uint64_t to_other = victim.addresses.insert(other.endpoint->name());
    const std::uint64_t from_other = other.addresses.insert(victim.endpoint->name());
    const std::uint64_t from_hostile = hostile.addresses.insert(victim.endpoint->name());
    const auto until = [&](auto&& true_at_last) {
        ASSERT_TRUE(test::until(true_at_last, {&victim, &other, &hostile}));
    };
    std::vector<char> small(8, 's'), bytes(kLarge, 'o'), room(kLarge);
    hostile.send(from_hostile, small, kTag + 1);
    ASSERT_NO_FATAL_FAILURE(until([&] { return victim.endpoint->counts().unexpected == 1; }));
    Peer& peer = *other.impl().peers.at(from_other);
    const TupleOut* queue = nullptr;
    ASSERT_NO_FATAL_FAILURE(until([&] {
        victim.post(to_other, room, nullptr);
        other.send(from_other, bytes);
        until([&] { return !other.transmit.empty() && !victim.receive.empty(); });
        EXPECT_EQ(victim.receive.front().error, 0);
        other.transmit.pop();
        victim.receive.pop();
        queue = other.impl().tuples->sender.find(peer, kTag);
        return queue != nullptr && queue->state == TupleOut::State::kOpen;
    }));
    victim.post(to_other, room, &room);
    EndpointImpl& body = hostile.impl();
    post::WorkRequest work;
    work.opcode = post::Opcode::kSendImm;
    work.immediate = TupleImmediate::put(kTag, 0, queue->sent);
    work.remote_srq = queue->srqn;
    work.flags = post::kInline;
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(small.data()), 8, 0};
    work.sges = {&piece, 1};
    ASSERT_EQ(body.channel->post(*body.peers.at(from_hostile)->connection, work, {}),
              post::Posted::kOk);
    ASSERT_NO_FATAL_FAILURE(until([&] { return !victim.receive.empty(); }));
    EXPECT_EQ(victim.receive.front().error, EPROTO) << "taken for a message of the other";
    EXPECT_EQ(victim.receive.front().context, &room);
    EXPECT_EQ(victim.endpoint->counts().protocol_errors, 1u);
    // The victim also no longer accepts messages of the peer that did this.
    victim.receive.pop();
    ASSERT_NO_FATAL_FAILURE(until([&] {
        hostile.send(from_hostile, small, kTag + 1);
        while (!hostile.transmit.empty() && hostile.transmit.front().error == 0)
            hostile.transmit.pop();
        return !hostile.transmit.empty();
    }));
}

// Offered queues do not stay with those who went without a word.
TEST(HostileTuple, AsksForAQueueAndLeaves) {
    Options few = options_of_both();
    few.rendezvous = Rendezvous::kTuple;
    few.tuples.queues = 1;
    End victim(few), other(few);
    const std::uint64_t to_other = victim.addresses.insert(other.endpoint->name());
    const std::uint64_t from_other = other.addresses.insert(victim.endpoint->name());
    {
        End hostile(few);
        EndpointImpl& body = hostile.impl();
        Peer& peer = *body.peers.at(hostile.addresses.insert(victim.endpoint->name()));
        TupleOpenBody open;
        body.control(peer, Kind::kTupleOpen, std::as_bytes(std::span(&open, 1)), {}, kTag);
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (victim.endpoint->tuple_counts().queues == 0) {
            ASSERT_LT(std::chrono::steady_clock::now(), end);
            hostile.endpoint->progress();
            victim.endpoint->progress();
        }
    }
    std::vector<char> bytes(kLarge, 'o'), room(kLarge);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (victim.endpoint->tuple_counts().queues != 2) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "no queue for the other";
        victim.post(to_other, room, nullptr);
        other.send(from_other, bytes);
        while (other.transmit.empty() || victim.receive.empty()) {
            ASSERT_LT(std::chrono::steady_clock::now(), end);
            victim.endpoint->progress();
            other.endpoint->progress();
        }
        other.transmit.pop();
        victim.receive.pop();
    }
}

}  // namespace
}  // namespace heddle::protocol::test
