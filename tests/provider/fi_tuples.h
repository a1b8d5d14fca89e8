// SPDX-License-Identifier: BSD-2-Clause
// For tests of messages by tuple queues, and by the other ways for comparison: some endpoints of
// one process, each of a domain of its own; messages that are known by what is in them; receives
// that know what they have to get. All receives ignore some bits of the tag, as MPI libraries do;
// a message's number in its stream - its sender, receiver and tag - is there.
#pragma once

#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {

class TupleTest : public testing::Test {
protected:
    static constexpr std::uint64_t kIgnored = 0x7f000000;
    static constexpr int kNumberShift = 24;
    static constexpr std::size_t kLarge = 40'000;  // nobody copies it

    // way: FI_HEDDLE_RNDV, and behind a '_' FI_HEDDLE_POST.
    explicit TupleTest(const std::string& way) {
        const std::size_t end = way.find('_');
        way_ = way.substr(0, end);
        setenv("FI_HEDDLE_RNDV", way_.c_str(), 1);
        setenv("FI_HEDDLE_TUPLE_AFTER", "4", 1);  // queues come and go, by auto
        if (end != std::string::npos) setenv("FI_HEDDLE_POST", way.c_str() + end + 1, 1);
    }
    bool by_tuples() const { return way_ == "tupleq"; }

    struct SentMessage {
        std::size_t from = 0, to = 0;
        std::uint64_t tag = 0;
        std::uint32_t number = 0;
        std::vector<std::byte> bytes;
        bool ends = true, done = false;  // ends: it has a completion entry
        int error = 0;
    };
    struct Posted {
        std::size_t from = 0, to = 0;
        std::uint64_t tag = 0, ignore = kIgnored;
        std::vector<std::byte> room;
        bool done = false;
        int error = 0;
        std::size_t bytes = 0;
        std::uint64_t message_tag = 0;
        std::uint32_t number() const { return message_tag >> kNumberShift & 0x7f; }
    };
    static constexpr std::size_t kAnybody = ~std::size_t{0};

    void open(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            ends_.push_back(std::make_unique<End>());
            End& end = *ends_.back();
            end.to.resize(count);
        }
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < count; ++j)
                end(i).to[j] = end(i).station.add(end(j).station);
    }
    // What was counted, once everything is closed.
    nlohmann::json closed() {
        ends_.clear();
        return statistics_.read();
    }
    void TearDown() override { ends_.clear(); }

    static std::byte content(const SentMessage& message, std::size_t at) {
        return static_cast<std::byte>(message.from * 83 + message.to * 41 + message.tag * 13 +
                                      message.number * 29 + at * 7 + (at >> 10));
    }
    SentMessage& send(std::size_t from, std::size_t to, std::uint64_t tag, std::size_t bytes,
                      bool inject = false) {
        SentMessage& message = sent_.emplace_back();
        message.from = from;
        message.to = to;
        message.tag = tag;
        message.number = numbers_[{from, to, tag}]++;
        message.bytes.resize(bytes);
        for (std::size_t i = 0; i < bytes; ++i)
            message.bytes[i] = content(message, i);
        streams_[{from, to, tag}].push_back(&message);
        message.ends = !inject;
        const std::uint64_t wire = tag | std::uint64_t{message.number & 0x7f} << kNumberShift;
        fid_ep* const ep = end(from).station.ep.get();
        const auto end_time = std::chrono::steady_clock::now() + kPatience;
        ssize_t result = -FI_EAGAIN;
        while (result == -FI_EAGAIN && std::chrono::steady_clock::now() < end_time) {
            result = inject ? fi_tinject(ep, message.bytes.data(), bytes, end(from).to[to], wire)
                            : fi_tsend(ep, message.bytes.data(), bytes, nullptr, end(from).to[to],
                                       wire, &message);
            if (result == -FI_EAGAIN) look();
        }
        EXPECT_EQ(result, 0) << fi_strerror(static_cast<int>(-result));
        return message;
    }
    Posted& post(std::size_t to, std::size_t from, std::uint64_t tag, std::size_t room,
                 std::uint64_t ignore = kIgnored) {
        Posted& receive = posted_.emplace_back();
        receive.from = from;
        receive.to = to;
        receive.tag = tag;
        receive.ignore = ignore;
        receive.room.resize(room);
        EXPECT_EQ(
            fi_trecv(end(to).station.ep.get(), receive.room.data(), room, nullptr,
                     from == kAnybody ? FI_ADDR_UNSPEC : end(to).to[from], tag, ignore, &receive),
            0);
        return receive;
    }
    // All completions that there are.
    void look() {
        for (const auto& each : ends_) {
            if (each == nullptr) continue;
            take(each->station.transmit.get(), true);
            take(each->station.receive.get(), false);
        }
    }
    template <class Condition>
    bool until(Condition&& condition) {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (!condition()) {
            if (std::chrono::steady_clock::now() > end) return false;
            look();
        }
        return true;
    }
    void wait(const Posted& receive) {
        ASSERT_TRUE(until([&] { return receive.done; }))
            << "a receive of " << receive.tag << " of " << receive.from << " does not end";
    }
    void wait(const SentMessage& message) {
        ASSERT_TRUE(until([&] { return message.done || !message.ends; }))
            << "message " << message.number << " of tag " << message.tag << " does not end";
    }
    void wait_for_all() {
        for (const Posted& receive : posted_)
            ASSERT_NO_FATAL_FAILURE(wait(receive));
        for (const SentMessage& message : sent_)
            ASSERT_NO_FATAL_FAILURE(wait(message));
    }
    // It was the next of its stream, whole.
    void check_next(const Posted& receive) {
        ASSERT_EQ(receive.error, 0) << fi_strerror(receive.error);
        check_is_next(receive);
    }
    // The same, or it was cut off.
    void check_is_next(const Posted& receive) {
        const Stream stream{receive.from, receive.to, receive.message_tag & ~kIgnored};
        auto& messages = streams_[stream];
        ASSERT_FALSE(messages.empty()) << "nothing more was sent with tag " << std::get<2>(stream);
        const SentMessage& message = *messages.front();
        messages.pop_front();
        ASSERT_EQ(receive.number(), message.number & 0x7f) << "of tag " << message.tag;
        const std::size_t bytes = std::min(message.bytes.size(), receive.room.size());
        ASSERT_EQ(receive.bytes, bytes);
        ASSERT_EQ(receive.error, bytes < message.bytes.size() ? FI_ETRUNC : 0);
        for (std::size_t i = 0; i < bytes; ++i)
            ASSERT_EQ(receive.room[i], content(message, i))
                << "byte " << i << " of message " << message.number << " of tag " << message.tag;
    }
    void check_sent() {
        for (const SentMessage& message : sent_)
            ASSERT_EQ(message.error, 0) << fi_strerror(message.error);
    }
    // All receives of one sender and tag, in the order of posting, got messages in the order of
    // sending; nothing is left.
    void check_all() {
        for (const Posted& receive : posted_)
            ASSERT_NO_FATAL_FAILURE(check_is_next(receive));
        for (const auto& [stream, messages] : streams_)
            ASSERT_TRUE(messages.empty()) << "of tag " << std::get<2>(stream);
        check_sent();
        forget();
    }
    void forget() {
        sent_.clear();
        posted_.clear();
        streams_.clear();
    }
    // So often that the tag gets a queue, if there is one for it: with receives that are there.
    void warm(std::size_t from, std::size_t to, std::uint64_t tag, int times = 6) {
        if (taught_.insert({from, to}).second) {
            ASSERT_NO_FATAL_FAILURE(teach(from, to));
        }
        for (int i = 0; i < times; ++i) {
            post(to, from, tag, kLarge);
            send(from, to, tag, kLarge);
            ASSERT_NO_FATAL_FAILURE(wait_for_all());
        }
        ASSERT_NO_FATAL_FAILURE(check_all());
    }

    struct End {
        End() : station(world) { station.enable(); }
        World world;
        Station station;
        std::vector<fi_addr_t> to;
    };
    End& end(std::size_t i) { return *ends_[i]; }

    using Stream = std::tuple<std::size_t, std::size_t, std::uint64_t>;
    std::string way_;
    Statistics statistics_;
    std::vector<std::unique_ptr<End>> ends_;
    std::deque<SentMessage> sent_;
    std::deque<Posted> posted_;
    std::map<Stream, std::deque<const SentMessage*>> streams_;
    std::map<Stream, std::uint32_t> numbers_;

private:
    // Senders hear which bits are ignored when they first ask for a queue, which they do for a tag
    // that is the same with all its bits.
    void teach(std::size_t from, std::size_t to) {
        for (int i = 0; i < (by_tuples() ? 2 : 4); ++i) {
            numbers_[{from, to, kTaught}] = 0;
            post(to, from, kTaught, kLarge);
            send(from, to, kTaught, kLarge);
            ASSERT_NO_FATAL_FAILURE(wait_for_all());
            ASSERT_NO_FATAL_FAILURE(check_all());
        }
        for (int i = 0; i < 10; ++i)
            look();
    }
    static constexpr std::uint64_t kTaught = 0xffff;
    std::set<std::pair<std::size_t, std::size_t>> taught_;

    void take(fid_cq* cq, bool transmit) {
        fi_cq_tagged_entry entry{};
        for (;;) {
            const ssize_t got = fi_cq_read(cq, &entry, 1);
            int error = 0;
            if (got == -FI_EAVAIL) {
                fi_cq_err_entry failed{};
                ASSERT_EQ(fi_cq_readerr(cq, &failed, 0), 1);
                entry.op_context = failed.op_context;
                entry.tag = failed.tag;
                entry.len = failed.len;
                error = failed.err;
            } else if (got != 1) {
                return;
            }
            if (transmit) {
                auto& message = *static_cast<SentMessage*>(entry.op_context);
                EXPECT_FALSE(message.done) << "it ended twice";
                message.done = true;
                message.error = error;
            } else {
                auto& receive = *static_cast<Posted*>(entry.op_context);
                EXPECT_FALSE(receive.done) << "it ended twice";
                receive.done = true;
                receive.error = error;
                receive.bytes = entry.len;
                receive.message_tag = entry.tag;
            }
        }
    }
};

// By each way, and those by tuples also posted by libibverbs.
class EachWay : public TupleTest, public testing::WithParamInterface<const char*> {
protected:
    EachWay() : TupleTest(GetParam()) {}
};
inline std::string name_of_way(const testing::TestParamInfo<const char*>& info) {
    return info.param;
}

}  // namespace heddle::test
