// SPDX-License-Identifier: BSD-2-Clause
// A peer that sends messages of tuple queues which nobody asked for: of numbers that nothing has,
// in the wrong state, with counts and keys that cannot be, bytes at random. Whoever gets them lets
// go of that peer at most: nothing crashes or hangs, and messages of others come.
//
// A failure names its seed; HEDDLE_TEST_SEED runs that one alone.
#include <gtest/gtest.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kBytes = 40'000;
constexpr std::uint64_t kFriendTag = 0x1005;

Options options() {
    Options options;
    options.endpoints = Category::kMpiEverywhere;  // what breaks is the hostile one's alone
    options.rendezvous = Rendezvous::kTuple;
    return options;
}

class Attack {
public:
    explicit Attack(unsigned seed) : random_(seed) {
        to_hostile_ = victim_.addresses.insert(hostile_->endpoint->name());
        to_friend_ = victim_.addresses.insert(friend_.endpoint->name());
        from_hostile_ = hostile_->addresses.insert(victim_.endpoint->name());
        from_friend_ = friend_.addresses.insert(victim_.endpoint->name());
    }

    void run() {
        ASSERT_NO_FATAL_FAILURE(friendly());
        // As an honest one, so that there are tuples to be wrong about, and a way to the victim.
        const int honest = static_cast<int>(below(8));
        std::vector<char> bytes(kBytes, 'h'), room(kBytes);
        for (int i = 0; i < honest; ++i) {
            victim_.post(to_hostile_, room, &rooms_);
            hostile_->send(from_hostile_, bytes);
            look(20);
        }
        // Receives of it at a queue, or some that could be of anybody.
        std::vector<std::vector<char>> rooms(4, std::vector<char>(kBytes));
        for (auto& each : rooms)
            victim_.post(below(4) == 0 ? FI_ADDR_UNSPEC : to_hostile_, each, &rooms_,
                         below(4) == 0 ? 0xff : 0);
        const std::size_t steps = 1 + below(40);
        for (std::size_t i = 0; i < steps; ++i) {
            step();
            if (below(3) == 0) hostile_->send(from_hostile_, bytes);
            look(below(20));
            if (below(10) == 0) {
                ReceiveArguments probe;
                probe.from = FI_ADDR_UNSPEC;
                probe.ignore = ~std::uint64_t{0};
                probe.flags = FI_PEEK | FI_TAGGED | FI_COMPLETION;
                victim_.endpoint->receive(probe);
            }
        }
        if (below(2) == 0) hostile_.reset();
        ASSERT_NO_FATAL_FAILURE(friendly());
        for (int i = 0; i < 8; ++i)
            victim_.endpoint->cancel(&rooms_);
        hostile_.reset();
        ASSERT_NO_FATAL_FAILURE(friendly());
    }

    std::uint64_t noticed() const { return victim_.endpoint->counts().protocol_errors; }

private:
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
    // A number of a tuple: mostly one that may exist.
    std::uint64_t some_number() {
        if (below(8) == 0) return random_() | random_() << 32;
        return below(3) | std::uint64_t{below(3)} << 32;
    }
    std::uint32_t some_count() {
        static constexpr std::uint32_t kCounts[] = {0, 1, 2, 31, 32, 33, 1u << 31, ~0u};
        return below(3) == 0 ? below(20) : kCounts[below(std::size(kCounts))];
    }
    void look(std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) {
            victim_.endpoint->progress();
            friend_.endpoint->progress();
            if (hostile_) hostile_->endpoint->progress();
        }
    }
    template <class Contents>
    void say(Kind kind, const Contents& contents, std::uint64_t tag = kTag) {
        EndpointImpl& body = hostile_->impl();
        if (Peer* const peer = body.peers.at(from_hostile_))
            body.control(*peer, kind, contents, {}, tag);
    }

    void step() {
        switch (below(9)) {
            case 0: {
                TupleOpenBody open;
                open.sender = some_number();
                open.mask = below(3) == 0 ? random_() : 0;
                // An address and a key that most likely name no registered memory.
                open.credits = below(2) == 0 ? 0 : random_() & ~std::uint64_t{7};
                open.credits_key = below(2) == 0 ? 0 : static_cast<std::uint32_t>(random_());
                open.flags = below(2);
                say(Kind::kTupleOpen, open, below(2) == 0 ? kTag : random_());
                break;
            }
            case 1: {
                TupleAnswerBody answer;
                answer.tuple = some_number();
                answer.receiver = some_number();
                answer.mask = below(2) == 0 ? 0 : random_();
                answer.srqn = random_() & 0xffffff;
                answer.declined = below(2) == 0 ? 0 : some_count();
                say(Kind::kTupleAnswer, answer);
                break;
            }
            case 2:  // numbered, in its place or not
                if (Peer* const peer = hostile_->impl().peers.at(from_hostile_)) {
                    const Header header{Kind::kTupleBegin,
                                        0,
                                        hostile_->impl().name.endpoint,
                                        peer->name.endpoint,
                                        peer->outgoing.send_sequence(),
                                        0};
                    const TupleBeginBody begin{some_number()};
                    std::vector<std::byte> bytes(sizeof header + sizeof begin);
                    std::memcpy(bytes.data(), &header, sizeof header);
                    std::memcpy(bytes.data() + sizeof header, &begin, sizeof begin);
                    hostile_->impl().control_message(*peer, std::move(bytes));
                    if (below(8) != 0) peer->outgoing.count_sequenced();
                }
                break;
            case 3:
                say(Kind::kTupleRevoke, TupleRevokeBody{some_number(), some_count(), 0});
                break;
            case 4:
                say(Kind::kTupleDrained,
                    TupleDrainedBody{some_number(), some_count(),
                                     below(3) == 0 ? some_count() & 0xffffff : 0});
                break;
            case 5:
                say(Kind::kTupleClosed, TupleClosedBody{some_number(), some_count(), 0});
                break;
            case 6:
                say(Kind::kTupleEnd, TupleBeginBody{some_number()});
                break;
            case 7: {  // of a length that it has not, or has
                std::vector<std::byte> bytes(below(64));
                for (std::byte& each : bytes)
                    each = static_cast<std::byte>(random_());
                EndpointImpl& body = hostile_->impl();
                const auto kind =
                    static_cast<Kind>(static_cast<unsigned>(Kind::kTupleOpen) +
                                      below(static_cast<unsigned>(Kind::kLast) -
                                            static_cast<unsigned>(Kind::kTupleOpen) + 2));
                if (Peer* const peer = body.peers.at(from_hostile_))
                    body.control(*peer, kind, std::span<const std::byte>(bytes), {}, kTag);
                break;
            }
            default:
                look(200);
        }
    }

    // Some messages of the friend, with receives before and after them.
    void friendly() {
        for (int i = 0; i < 5; ++i) {
            std::vector<char> bytes(kBytes, static_cast<char>('a' + i)), room(kBytes);
            bool received = false, sent = false;
            if (i % 2 == 0) victim_.post(to_friend_, room, &received, 0, kFriendTag);
            friend_.send(from_friend_, bytes, kFriendTag);
            look(10);
            if (i % 2 != 0) victim_.post(to_friend_, room, &received, 0, kFriendTag);
            const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
            while (!received || !sent) {
                ASSERT_LT(std::chrono::steady_clock::now(), end) << "a friend's message";
                look(1);
                for (; !victim_.receive.empty(); victim_.receive.pop())
                    if (victim_.receive.front().context == &received) {
                        ASSERT_EQ(victim_.receive.front().error, 0);
                        received = true;
                    }
                for (; !friend_.transmit.empty(); friend_.transmit.pop()) {
                    ASSERT_EQ(friend_.transmit.front().error, 0);
                    sent = true;
                }
            }
            ASSERT_EQ(room, bytes);
        }
    }

    std::mt19937_64 random_;
    int rooms_ = 0;  // the context of receives that may end any way
    End victim_{options()}, friend_{options()};
    std::unique_ptr<End> hostile_ = std::make_unique<End>(options());
    std::uint64_t to_hostile_ = 0, to_friend_ = 0, from_hostile_ = 0, from_friend_ = 0;
};

TEST(HostileTuples, HurtNobodyElse) {
    const char* const one = std::getenv("HEDDLE_TEST_SEED");
    const unsigned first = one != nullptr ? static_cast<unsigned>(std::atoi(one)) : 1;
    std::uint64_t noticed = 0;
    for (unsigned seed = first; seed < first + (one != nullptr ? 1 : 10); ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        Attack attack(seed);
        ASSERT_NO_FATAL_FAILURE(attack.run());
        noticed += attack.noticed();
    }
    EXPECT_GT(noticed, 0);
}

}  // namespace
}  // namespace heddle::protocol::test
