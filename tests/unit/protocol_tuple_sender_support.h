// SPDX-License-Identifier: BSD-2-Clause
// The sender's side of tuple queues on a core and a device that are not there.
#pragma once

#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "protocol/tupleq/tuple_sender.h"
#include "tests/unit/protocol_tuple_support.h"

namespace heddle::protocol::test {

inline constexpr std::uint64_t kReceiver = 31;
inline constexpr std::uint32_t kSrqn = 77;
inline constexpr unsigned kMostOpens = 64;

class TupleSenderTest : public ::testing::Test, public RequestOwner {
protected:
    explicit TupleSenderTest(Rendezvous rendezvous = Rendezvous::kTuple)
        : core_(options(rendezvous)) {
        core_.connect(peer_);
        core_.connect(other_);
    }
    static Options options(Rendezvous rendezvous) {
        Options options;
        options.rendezvous = rendezvous;
        options.tuples.copy_below = 64;
        options.tuples.open_after = 5;
        options.tuples.queues = kMostOpens;
        options.eager_bytes = 40;
        return options;
    }
    // Messages that leave their tuple's queue: they end at once.
    bool start(SendRequest& request) override {
        otherwise_.push_back(request.report.context);
        requests_.end(request);
        return true;
    }

    // Messages of the tag go otherwise, so often.
    void note(unsigned times, std::uint64_t tag = kTag, std::uint64_t flags = FI_TAGGED) {
        SendArguments arguments;
        arguments.tag = tag;
        arguments.flags = flags;
        arguments.data = 9;
        for (unsigned i = 0; i < times; ++i)
            sender_.note(peer_, arguments);
    }
    std::size_t sent(Kind kind) const {
        return static_cast<std::size_t>(
            std::count_if(core_.sent.begin(), core_.sent.end(),
                          [&](const auto& each) { return each.kind == kind; }));
    }
    TupleOpenBody asked() const {
        EXPECT_FALSE(core_.sent.empty());
        if (core_.sent.empty()) return {};
        EXPECT_EQ(core_.sent.back().kind, Kind::kTupleOpen);
        return core_.sent.back().body<TupleOpenBody>();
    }
    void answer(std::uint64_t tuple, TupleReason declined = TupleReason::kNone,
                std::uint64_t mask = 0) {
        sender_.got_answer(peer_,
                           {tuple, kReceiver, mask, kSrqn, static_cast<std::uint32_t>(declined)});
    }
    // There is a queue for kTag.
    void open(std::uint64_t flags = FI_TAGGED) {
        note(2, kTag, flags);
        open_ = asked();
        answer(open_.sender);
        ASSERT_EQ(core_.sent.back().kind, Kind::kTupleBegin);
        ASSERT_NE(sender_.find(peer_, kTag), nullptr);
    }
    // The receiver has posted the receive of that number, from 0.
    void give_credit(std::uint32_t number, std::uint32_t bytes = 1000) {
        const auto word = std::bit_cast<std::uint64_t>(TupleCredit{number + 1, bytes});
        std::memcpy(reinterpret_cast<std::byte*>(open_.credits) +
                        number % kTupleDepth * sizeof(TupleCredit),
                    &word, sizeof word);
    }
    // The application sends by the queue. Its report has the text's address.
    void send(std::string& text, std::uint64_t flags = 0, std::uint64_t data = 0) {
        send({{text.data(), text.size()}}, flags, data, &text);
    }
    void send(std::initializer_list<iovec> buffers, std::uint64_t flags = 0, std::uint64_t data = 0,
              void* context = nullptr) {
        SendRequest& request = requests_.take(peer_, *this);
        request.flags = FI_TAGGED | flags;
        request.tag = kTag;
        request.data = data;
        for (const iovec& each : buffers)
            request.bytes += each.iov_len;
        request.report.what = WrContext::kEntry;
        request.report.context = context;
        request.set_buffers(buffers.begin(), buffers.size(), nullptr);
        sender_.send(*sender_.find(peer_, kTag), request);
    }
    // The sends that have ended since it was last called, by their texts.
    std::vector<const void*> ended(int error = 0) {
        std::vector<const void*> contexts;
        for (; !core_.transmitted.empty(); core_.transmitted.pop()) {
            EXPECT_EQ(core_.transmitted.front().error, error);
            contexts.push_back(core_.transmitted.front().context);
        }
        return contexts;
    }
    TupleDrainedBody drained() const {
        EXPECT_EQ(core_.sent.back().kind, Kind::kTupleDrained);
        return core_.sent.back().body<TupleDrainedBody>();
    }
    void closed(std::uint32_t delivered) {
        sender_.got_closed(peer_, {open_.sender, delivered, 0});
    }
    std::uint64_t errors() const { return core_.counts.protocol_errors; }

    using Contexts = std::vector<const void*>;
    FakeCore core_;
    memory::Pool send_buffers_{nullptr, 128, 4};
    RequestPool requests_{core_, send_buffers_};
    FakeTargets targets_;
    FakeTupleServices device_{targets_, send_buffers_};
    TupleCounts counts_;
    TupleSender sender_{core_, requests_, device_, counts_};
    Peer &peer_ = core_.add_peer(), &other_ = core_.add_peer();
    TupleOpenBody open_;
    std::vector<const void*> otherwise_;
    std::string big_ = std::string(100, 'b'), small_ = "small", third_ = std::string(100, 't');
};

class TupleAutoTest : public TupleSenderTest {
protected:
    TupleAutoTest() : TupleSenderTest(Rendezvous::kAuto) {}
};

}  // namespace heddle::protocol::test
