// SPDX-License-Identifier: BSD-2-Clause
// The receiver's side of tuple queues, among the receives of an endpoint, on a core and a device
// that are not there.
#pragma once

#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/tag/receiver.h"
#include "protocol/tupleq/tuple_receiver.h"
#include "tests/unit/protocol_no_fetcher.h"
#include "tests/unit/protocol_tuple_support.h"

namespace heddle::protocol::test {

inline constexpr std::uint64_t kSender = 41, kCredits = 1 << 20;
inline constexpr std::uint32_t kKey = 5, kQpn = 99, kQueues = 2;

class TupleReceiverTest : public ::testing::Test {
protected:
    explicit TupleReceiverTest(Rendezvous rendezvous = Rendezvous::kTuple,
                               bool no_wildcards = false)
        : core_(options(rendezvous, no_wildcards)) {
        receiver_.set_interceptor(&tuples_);
        for (Peer* const peer : {&peer_, &other_, &third_})
            core_.connect(*peer);
        targets_.askers[kQpn] = peer_.name;
        targets_.askers[kQpn + 1] = other_.name;
    }
    ~TupleReceiverTest() override { receiver_.set_interceptor(nullptr); }
    static Options options(Rendezvous rendezvous, bool no_wildcards) {
        Options options;
        options.rendezvous = rendezvous;
        options.tuples.queues = kQueues;
        options.tuples.no_wildcards = no_wildcards;
        return options;
    }
    // A receive of one byte more than the last. Its report has the number as context.
    void post(std::uint64_t from = 0, std::uint64_t tag = kTag, std::uint64_t ignore = 0) {
        iovec iov{room_, ++posts_};
        ReceiveArguments arguments;
        arguments.iov = &iov;
        arguments.iov_count = 1;
        arguments.from = from;
        arguments.tag = tag;
        arguments.ignore = ignore;
        arguments.flags = FI_TAGGED | FI_COMPLETION;
        arguments.context = context(posts_);
        ASSERT_EQ(receiver_.post(arguments), 0);
    }
    static void* context(std::size_t number) { return reinterpret_cast<void*>(number); }
    void ask(Peer& peer, std::uint64_t tag = kTag, std::uint64_t mask = 0) {
        tuples_.got_open(peer, tag, {kSender, mask, kCredits, 0, kKey, 0});
    }
    TupleAnswerBody answer() const {
        EXPECT_EQ(core_.sent.back().kind, Kind::kTupleAnswer);
        return core_.sent.back().body<TupleAnswerBody>();
    }
    void expect_declined(TupleReason reason) {
        EXPECT_EQ(answer().declined, static_cast<std::uint32_t>(reason));
    }
    // A queue for the tag, which messages go to. Returns the receiver's number of it.
    std::uint64_t open(Peer& peer, std::uint64_t tag = kTag) {
        ask(peer, tag);
        expect_declined(TupleReason::kNone);
        const std::uint64_t id = answer().receiver;
        tuples_.got_begin(peer, {id});
        return id;
    }
    // A message comes by the queue.
    void arrive(std::uint32_t number, std::uint32_t bytes = 1, std::uint32_t qpn = kQpn) {
        device_.arrive(TupleImmediate::put(kTag, 0, number), bytes, qpn);
        device_.poll();
    }
    // Number of its receive, or a negative error; 0: nothing has ended.
    long next() {
        if (core_.received.empty()) return 0;
        const CompletionEntry entry = core_.received.front();
        core_.received.pop();
        if (entry.error != 0) return -entry.error;
        return static_cast<long>(reinterpret_cast<std::uintptr_t>(entry.context));
    }
    // An eager message of the tag, which no queue was for.
    void arrive_otherwise(Peer& peer) {
        peer.incoming.count_received();
        const std::string text = "x";
        delivery_.on_eager(peer, true, {kTag, 0, false}, std::as_bytes(std::span(text)));
    }
    std::size_t sent(Kind kind) const {
        return static_cast<std::size_t>(
            std::count_if(core_.sent.begin(), core_.sent.end(),
                          [&](const auto& each) { return each.kind == kind; }));
    }
    TupleReason revoked() const {
        EXPECT_EQ(core_.sent.back().kind, Kind::kTupleRevoke);
        EXPECT_EQ(core_.sent.back().body<TupleRevokeBody>().tuple, kSender);
        return reason_of(core_.sent.back().body<TupleRevokeBody>().reason);
    }
    // The sender has stopped.
    void drain(std::uint64_t id, std::uint32_t delivered, std::uint32_t qpn = 0) {
        tuples_.got_drained(peer_, {id, delivered, qpn});
        tuples_.progress();
    }
    std::uint64_t errors() const { return core_.counts.protocol_errors; }

    FakeCore core_;
    NoFetcher fetcher_;
    FlowControl flow_{core_};
    Receives receives_{core_};
    UnexpectedMessages unexpected_{core_, receives_};
    Delivery delivery_{core_, receives_, unexpected_, flow_, fetcher_};
    memory::Pool send_buffers_{nullptr, 128, 4};
    FakeTargets targets_;
    FakeTupleServices device_{targets_, send_buffers_};
    TupleCounts counts_;
    TupleReceiver tuples_{core_, receives_, delivery_, device_, counts_};
    Receiver receiver_{core_, receives_, delivery_};
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer(), &third_ = core_.add_peer();
    std::size_t posts_ = 0;
    char room_[4096] = {};
};

class TupleReceiverAutoTest : public TupleReceiverTest {
protected:
    TupleReceiverAutoTest() : TupleReceiverTest(Rendezvous::kAuto) {}
};

}  // namespace heddle::protocol::test
