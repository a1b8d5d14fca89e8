// SPDX-License-Identifier: BSD-2-Clause
// Atomics: the side that asks and the side that does them, and what a peer may get wrong. Neither
// has a device.
#include "protocol/rma/atomics.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/wire/message_writer.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {
namespace {

constexpr std::size_t kBuffer = 128;
using Values = std::vector<std::uint64_t>;

struct AtomicCounters {
    Counter reads, writes, remote_reads, remote_writes;
};

class AtomicsTest : private AtomicCounters, public ::testing::Test {
protected:
    AtomicsTest()
        : core_({}, {.read_counter = &reads,
                     .write_counter = &writes,
                     .remote_read_counter = &remote_reads,
                     .remote_write_counter = &remote_writes}) {
        core_.connect(peer_);
        core_.connect(other_);
    }
    ~AtomicsTest() override {
        EXPECT_EQ(requests_.open(), 0u);
        EXPECT_EQ(peer_.outstanding_replies, 0u);
    }
    std::vector<std::uint64_t> counted() const {
        return {reads.done, writes.done, remote_reads.done, remote_writes.done};
    }

    // The side that asks.
    AtomicArguments arguments(std::uint8_t op, const Values& operands) {
        operands_ = operands;
        AtomicArguments arguments;
        arguments.operand = operands_.data();
        arguments.count = static_cast<std::uint32_t>(operands.size());
        arguments.datatype = FI_UINT64;
        arguments.op = op;
        arguments.address = 4096;
        arguments.key = 9;
        arguments.flags = FI_COMPLETION;
        arguments.context = &results_;
        return arguments;
    }
    AtomicArguments fetching(AtomicArguments arguments) {
        arguments.results = result_buffers_.data();
        arguments.result_count = result_buffers_.size();
        return arguments;
    }
    Message last_request() const {
        EXPECT_FALSE(core_.sent.empty());
        if (core_.sent.empty()) return {};
        EXPECT_EQ(core_.sent.back().kind, Kind::kAtomic);
        return core_.sent.back().message();
    }
    void reply(std::uint64_t operation, int status, const Values& values, Peer& from) {
        Message message;
        message.header.kind = Kind::kAtomicReply;
        message.payload = std::as_bytes(std::span(values));
        message.atomic_reply = {operation, static_cast<std::uint32_t>(status),
                                static_cast<std::uint32_t>(message.payload.size())};
        atomics_.on_reply(from, message);
    }
    void expect_entry(std::uint64_t direction, int error) {
        ASSERT_EQ(core_.transmitted.size(), 1u);
        EXPECT_EQ(core_.transmitted.front().context, &results_);
        EXPECT_EQ(core_.transmitted.front().flags, FI_ATOMIC | direction);
        EXPECT_EQ(core_.transmitted.front().error, error);
        core_.transmitted.pop();
        EXPECT_EQ(requests_.open(), 0u);
    }
    std::uint64_t errors() const { return core_.counts.protocol_errors; }

    // The side that does them: `memory_` with that access is registered as kKey.
    void request(std::uint8_t op, const Values& operands, std::uint8_t flags = 0,
                 std::int64_t offset = 0, std::uint32_t count = 1, std::uint32_t key = kKey) {
        AtomicBody body;
        body.operation = kOperation;
        body.address =
            reinterpret_cast<std::uintptr_t>(&memory_[1]) + static_cast<std::uint64_t>(offset);
        body.key = key;
        body.count = count;
        body.datatype = FI_UINT64;
        body.op = op;
        body.flags = flags;
        std::vector<std::byte> bytes(sizeof(Header) + sizeof body + 8 * operands.size());
        MessageWriter(bytes, {Kind::kAtomic, 0, 0, 0, 0, 0})
            .add(body)
            .add_bytes(std::as_bytes(std::span(operands)));
        Message message;
        ASSERT_TRUE(parse(bytes, false, 0, message));
        core_.sent.clear();
        atomics_.on_request(peer_, message);
    }
    void expect_reply(int status, const Values& values) {
        ASSERT_EQ(core_.sent.size(), 1u);
        EXPECT_EQ(core_.sent[0].kind, Kind::kAtomicReply);
        EXPECT_EQ(core_.sent[0].peer, &peer_);
        const Message message = core_.sent[0].message();
        EXPECT_EQ(message.atomic_reply.operation, kOperation);
        EXPECT_EQ(message.atomic_reply.status, static_cast<std::uint32_t>(status));
        ASSERT_EQ(message.atomic_reply.bytes, 8 * values.size());
        Values came(values.size());
        if (!came.empty())
            std::memcpy(came.data(), core_.sent[0].contents.data() + sizeof(AtomicReplyBody),
                        8 * came.size());
        EXPECT_EQ(came, values);
    }
    struct Registration {
        RegisteredRegions& regions;
        Registration(RegisteredRegions& its_regions, std::uint64_t* at, std::uint64_t access)
            : regions(its_regions) {
            regions.add(kKey, {reinterpret_cast<std::uintptr_t>(at), 16, access});
        }
        ~Registration() { regions.remove(kKey); }
    };

    static constexpr std::uint32_t kKey = 1234;
    static constexpr std::uint64_t kOperation = 55;
    FakeCore core_;
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer();
    memory::Pool buffers_{nullptr, kBuffer, 1};
    RequestPool requests_{core_, buffers_};
    RegisteredRegions regions_;
    Atomics atomics_{core_, requests_, regions_};
    Values operands_, results_ = Values(2, 0);
    std::array<iovec, 2> result_buffers_{iovec{&results_[0], 8}, iovec{&results_[1], 8}};
    std::array<std::uint64_t, 4> memory_{10, 20, 30, 40};  // the middle two are registered
};

TEST_F(AtomicsTest, ARequestHasItsOperands) {
    ASSERT_EQ(atomics_.post(arguments(FI_SUM, {7, 8})), 0);
    const Message request = last_request();
    EXPECT_EQ(request.atomic.address, 4096u);
    EXPECT_EQ(request.atomic.key, 9u);
    EXPECT_EQ(request.atomic.count, 2u);
    EXPECT_EQ(request.atomic.datatype, FI_UINT64);
    EXPECT_EQ(request.atomic.op, FI_SUM);
    EXPECT_EQ(request.atomic.flags, 0);
    Values operands(2);
    ASSERT_EQ(core_.sent[0].contents.size(), sizeof(AtomicBody) + 16);
    std::memcpy(operands.data(), core_.sent[0].contents.data() + sizeof(AtomicBody), 16);
    EXPECT_EQ(operands, (Values{7, 8}));
    EXPECT_EQ(peer_.outgoing.sent, 1u);
    EXPECT_EQ(peer_.outstanding_replies, 1u);
    EXPECT_EQ(core_.counts.atomics, 1u);
    EXPECT_TRUE(core_.transmitted.empty());
    reply(request.atomic.operation, 0, {}, peer_);
    expect_entry(FI_WRITE, 0);
    EXPECT_EQ(counted(), (Values{0, 1, 0, 0}));
}

TEST_F(AtomicsTest, WhatIsFetchedIsScattered) {
    ASSERT_EQ(atomics_.post(fetching(arguments(FI_SUM, {7, 8}))), 0);
    const Message request = last_request();
    EXPECT_EQ(request.atomic.flags, AtomicBody::kFetch);
    reply(request.atomic.operation, 0, {100, 200}, peer_);
    EXPECT_EQ(results_, (Values{100, 200}));
    expect_entry(FI_READ, 0);
    EXPECT_EQ(counted(), (Values{1, 0, 0, 0}));
}

TEST_F(AtomicsTest, ComparedValuesFollowTheOperands) {
    const Values compare{3};
    AtomicArguments a = arguments(FI_CSWAP, {4});
    a.compare = compare.data();
    ASSERT_EQ(atomics_.post(a), 0);
    EXPECT_EQ(last_request().atomic.flags, AtomicBody::kCompare);
    Values both(2);
    std::memcpy(both.data(), core_.sent[0].contents.data() + sizeof(AtomicBody), 16);
    EXPECT_EQ(both, (Values{4, 3}));
    reply(last_request().atomic.operation, 0, {}, peer_);
    expect_entry(FI_WRITE, 0);
}

TEST_F(AtomicsTest, AReadHasNoOperand) {
    ASSERT_EQ(atomics_.post(fetching(arguments(FI_ATOMIC_READ, {0, 0}))), 0);
    EXPECT_EQ(core_.sent[0].contents.size(), sizeof(AtomicBody));
    reply(last_request().atomic.operation, 0, {5, 6}, peer_);
    EXPECT_EQ(results_, (Values{5, 6}));
    expect_entry(FI_READ, 0);
}

TEST_F(AtomicsTest, ArgumentsThatDoNotFit) {
    EXPECT_EQ(atomics_.post(arguments(FI_ATOMIC_READ, {0})), -FI_EINVAL) << "it reads nothing";
    // A buffer holds a request of kBuffer bytes, and its reply.
    const std::size_t room = (kBuffer - sizeof(Header) - sizeof(AtomicBody)) / 8;
    const std::size_t reply_room = (kBuffer - sizeof(Header) - sizeof(AtomicReplyBody)) / 8;
    ASSERT_GT(reply_room, room);
    EXPECT_EQ(atomics_.post(arguments(FI_SUM, Values(room + 1))), -FI_EMSGSIZE);
    EXPECT_EQ(atomics_.post(fetching(arguments(FI_ATOMIC_READ, Values(reply_room + 1)))),
              -FI_EMSGSIZE);
    const Values compare(room);
    AtomicArguments swap = arguments(FI_CSWAP, Values(room));
    swap.compare = compare.data();
    EXPECT_EQ(atomics_.post(swap), -FI_EMSGSIZE);
    AtomicArguments to_nowhere = fetching(arguments(FI_SUM, {1}));
    to_nowhere.results = nullptr;  // a list of one buffer that is not there
    EXPECT_EQ(atomics_.post(to_nowhere), -FI_EINVAL);
    AtomicArguments nowhere = arguments(FI_SUM, {1});
    nowhere.to = 1000;
    EXPECT_EQ(atomics_.post(nowhere), -FI_EINVAL);
    AtomicArguments many = fetching(arguments(FI_SUM, {1}));
    many.result_count = kMaxSegments + 1;
    EXPECT_EQ(atomics_.post(many), -FI_EINVAL);
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_EQ(core_.counts.atomics, 0u);
    ASSERT_EQ(atomics_.post(arguments(FI_SUM, Values(room))), 0) << "the longest";
    reply(last_request().atomic.operation, 0, {}, peer_);
    expect_entry(FI_WRITE, 0);
}

// It gets its sequence number when it goes.
TEST_F(AtomicsTest, WithoutRoomItWaits) {
    core_.has_room = false;
    ASSERT_EQ(atomics_.post(arguments(FI_SUM, {7})), 0);
    ASSERT_EQ(peer_.waiting.size(), 1u);
    EXPECT_TRUE(peer_.waiting.front()->is_sequenced());
    EXPECT_EQ(peer_.outgoing.sent, 0u);
    EXPECT_EQ(peer_.outstanding_replies, 0u);
    peer_.outgoing.count_sequenced();  // another message goes first
    core_.has_room = true;
    core_.flush(peer_);
    EXPECT_EQ(last_request().header.sequence, 1u);
    EXPECT_EQ(peer_.outgoing.sent, 2u);
    EXPECT_EQ(peer_.outstanding_replies, 1u);
    reply(last_request().atomic.operation, 0, {}, peer_);
    expect_entry(FI_WRITE, 0);
}

TEST_F(AtomicsTest, ThePeerFailsBeforeTheRequest) {
    core_.has_room = false;
    ASSERT_EQ(atomics_.post(fetching(arguments(FI_SUM, {7, 8}))), 0);
    core_.fail_peer(peer_, ECONNRESET);
    EXPECT_TRUE(core_.sent.empty());
    expect_entry(FI_READ, ECONNRESET);
    EXPECT_EQ(results_, (Values{0, 0}));
    AtomicArguments injected = arguments(FI_SUM, {7});
    injected.flags = FI_INJECT;
    EXPECT_EQ(atomics_.post(injected), -ECONNRESET);
    EXPECT_TRUE(core_.transmitted.empty());
}

// The endpoint ends what waits for a reply of a failed peer.
TEST_F(AtomicsTest, ThePeerFailsBeforeItsReply) {
    ASSERT_EQ(atomics_.post(fetching(arguments(FI_SUM, {7, 8}))), 0);
    const std::uint64_t operation = last_request().atomic.operation;
    SendRequest* const waiting = requests_.find_awaiting(operation, peer_);
    ASSERT_NE(waiting, nullptr);
    requests_.finish(*waiting, ECONNRESET, 0);
    expect_entry(FI_READ, ECONNRESET);
    reply(operation, 0, {1, 2}, peer_);
    EXPECT_EQ(errors(), 1u) << "its request has ended";
    EXPECT_EQ(results_, (Values{0, 0}));
}

TEST_F(AtomicsTest, TheTargetMayRefuse) {
    ASSERT_EQ(atomics_.post(fetching(arguments(FI_SUM, {7, 8}))), 0);
    reply(last_request().atomic.operation, EACCES, {}, peer_);
    expect_entry(FI_READ, EACCES);
    EXPECT_EQ(results_, (Values{0, 0}));
    EXPECT_EQ(errors(), 0u);
}

TEST_F(AtomicsTest, RepliesThatDoNotFitAreErrors) {
    ASSERT_EQ(atomics_.post(fetching(arguments(FI_SUM, {7, 8}))), 0);
    const std::uint64_t operation = last_request().atomic.operation;
    reply(operation, 0, {1, 2}, other_);
    EXPECT_EQ(errors(), 1u) << "of another peer";
    reply(operation + 1, 0, {1, 2}, peer_);
    EXPECT_EQ(errors(), 2u) << "no such request";
    reply(operation, 0, {1}, peer_);
    EXPECT_EQ(errors(), 3u) << "too few values";
    reply(operation, 0, {1, 2, 3}, peer_);
    EXPECT_EQ(errors(), 4u) << "too many";
    reply(operation, EACCES, {1, 2}, peer_);
    EXPECT_EQ(errors(), 5u) << "values of what was refused";
    EXPECT_TRUE(core_.transmitted.empty());
    EXPECT_EQ(results_, (Values{0, 0}));
    peer_.failed = 0;
    reply(operation, 0, {1, 2}, peer_);
    expect_entry(FI_READ, 0);
    reply(operation, 0, {1, 2}, peer_);
    EXPECT_EQ(errors(), 6u) << "it ends once";
}

TEST_F(AtomicsTest, ValuesThatNobodyAskedForAreAnError) {
    ASSERT_EQ(atomics_.post(arguments(FI_SUM, {7})), 0);
    const std::uint64_t operation = last_request().atomic.operation;
    reply(operation, 0, {1}, peer_);
    EXPECT_EQ(errors(), 1u);
    peer_.failed = 0;
    reply(operation, 0, {}, peer_);
    expect_entry(FI_WRITE, 0);
}

// A message by rendezvous waits for a reply, too, but not for this one.
TEST_F(AtomicsTest, AReplyToAMessageIsAnError) {
    SendRequest& message = requests_.take(peer_, atomics_);
    message.flags = FI_TAGGED;
    message.step = SendRequest::Step::kAnswer;
    message.reply = OutstandingReply(peer_);
    reply(SlotPool<SendRequest>::id(message), 0, {}, peer_);
    EXPECT_EQ(errors(), 1u);
    EXPECT_EQ(requests_.open(), 1u);
    message.reply.reset();
    requests_.end(message);
}

TEST_F(AtomicsTest, TheTargetDoesThem) {
    const Registration registered(regions_, &memory_[1], FI_REMOTE_WRITE);
    ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1, 2}, 0, 0, 2));
    expect_reply(0, {});
    EXPECT_EQ(memory_, (std::array<std::uint64_t, 4>{10, 21, 32, 40}));
    EXPECT_EQ(counted(), (Values{0, 0, 0, 1}));
}

TEST_F(AtomicsTest, TheTargetRepliesWithWhatWasThere) {
    const Registration registered(regions_, &memory_[1], FI_REMOTE_WRITE | FI_REMOTE_READ);
    ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1, 2}, AtomicBody::kFetch, 0, 2));
    expect_reply(0, {20, 30});
    EXPECT_EQ(memory_, (std::array<std::uint64_t, 4>{10, 21, 32, 40}));
    ASSERT_NO_FATAL_FAILURE(
        request(FI_CSWAP, {5, 32}, AtomicBody::kFetch | AtomicBody::kCompare, 8));
    expect_reply(0, {32});
    EXPECT_EQ(memory_[2], 5u);
    ASSERT_NO_FATAL_FAILURE(request(FI_CSWAP, {6, 32}, AtomicBody::kCompare, 8));
    expect_reply(0, {});
    EXPECT_EQ(memory_[2], 5u) << "another value was there";
    EXPECT_EQ(counted(), (Values{0, 0, 0, 3}));
}

TEST_F(AtomicsTest, AReadNeedsNoAccessToWrite) {
    const Registration registered(regions_, &memory_[1], FI_REMOTE_READ);
    ASSERT_NO_FATAL_FAILURE(request(FI_ATOMIC_READ, {}, AtomicBody::kFetch, 0, 2));
    expect_reply(0, {20, 30});
    EXPECT_EQ(counted(), (Values{0, 0, 1, 0}));
    ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1}));
    expect_reply(EACCES, {});
    ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1}, AtomicBody::kFetch));
    expect_reply(EACCES, {});
    EXPECT_EQ(memory_, (std::array<std::uint64_t, 4>{10, 20, 30, 40}));
    EXPECT_EQ(counted(), (Values{0, 0, 1, 0})) << "what was refused does not count";
}

TEST_F(AtomicsTest, FetchingNeedsAccessToRead) {
    const Registration registered(regions_, &memory_[1], FI_REMOTE_WRITE);
    ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1}, AtomicBody::kFetch));
    expect_reply(EACCES, {});
    ASSERT_NO_FATAL_FAILURE(request(FI_CSWAP, {5, 20}, AtomicBody::kCompare));
    expect_reply(EACCES, {});  // a comparison tells what is there
    EXPECT_EQ(memory_[1], 20u);
}

TEST_F(AtomicsTest, OnlyRegisteredMemoryIsTouched) {
    const auto before = memory_;
    {
        const Registration registered(regions_, &memory_[1], FI_REMOTE_WRITE | FI_REMOTE_READ);
        ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1}, 0, 0, 1, kKey + 1));
        expect_reply(EACCES, {});
        for (const std::int64_t offset : {-8, 16, 4}) {
            ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1}, 0, offset));
            expect_reply(EACCES, {});
        }
        ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1, 1}, 0, 8, 2));
        expect_reply(EACCES, {});
        ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1, 1, 1}, 0, 0, 3));
        expect_reply(EACCES, {});
    }
    ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1}));
    expect_reply(EACCES, {});  // not any more
    EXPECT_EQ(memory_, before);
    EXPECT_EQ(counted(), (Values{0, 0, 0, 0}));
}

// The initiator has larger buffers.
TEST_F(AtomicsTest, AReplyThatNoBufferHoldsIsRefused) {
    const Registration registered(regions_, &memory_[1], FI_REMOTE_READ);
    const auto most =
        static_cast<std::uint32_t>((kBuffer - sizeof(Header) - sizeof(AtomicReplyBody)) / 8);
    ASSERT_NO_FATAL_FAILURE(request(FI_ATOMIC_READ, {}, AtomicBody::kFetch, 0, most + 1));
    expect_reply(EMSGSIZE, {});
    ASSERT_NO_FATAL_FAILURE(request(FI_ATOMIC_READ, {}, AtomicBody::kFetch, 0, most));
    expect_reply(EACCES, {});  // it would fit
}

TEST_F(AtomicsTest, NobodyIsThereForTheReply) {
    const Registration registered(regions_, &memory_[1], FI_REMOTE_WRITE);
    core_.fail_peer(peer_, ECONNRESET);
    ASSERT_NO_FATAL_FAILURE(request(FI_SUM, {1}));
    EXPECT_TRUE(core_.sent.empty());
    EXPECT_EQ(memory_[1], 21u);
}

}  // namespace
}  // namespace heddle::protocol::test
