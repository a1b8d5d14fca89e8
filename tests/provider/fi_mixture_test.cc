// SPDX-License-Identifier: BSD-2-Clause
// What comes at once, from several peers, to an endpoint that is alone in its domain (whose
// messages are read on a way of their own, protocol/receive_fast_path.h): messages small and
// larger, with data and without, before and after their receives, which name their source, or do
// not, or both kinds wait. All messages of a peer and tag are read whole, in the order in which
// they were sent.
#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <tuple>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr std::size_t kRoom = 300;
constexpr std::size_t kSources = 3, kMixtureTags = 2;
constexpr std::uint64_t kMixtureIgnored =
    0xffff00;  // of tags, by receives: which message of which source

struct Plan {
    std::size_t source = 0;
    std::uint64_t tag = 0;  // the index of
    std::size_t bytes = 0;
    bool has_data = false;
};

// Bytes of the nth message of a source and a tag.
std::byte byte_of_plan(const Plan& plan, std::uint32_t nth, std::size_t i) {
    return static_cast<std::byte>(plan.source * 91 + plan.tag * 57 + nth * 13 + i);
}

// Seed, and peers that have a ring.
class Mixture : public testing::TestWithParam<std::tuple<unsigned, const char*>> {
protected:
    struct Slot {
        std::array<std::byte, kRoom> bytes;
    };

    Mixture()
        : random_(std::get<0>(GetParam())),
          rings_(setenv("FI_HEDDLE_RINGS", std::get<1>(GetParam()), 1)),
          station_(world_) {
        EXPECT_EQ(rings_, 0);
        station_.enable();
        for (std::size_t i = 0; i < kSources; ++i) {
            Source& source = sources_[i];
            source.world = std::make_unique<World>();
            source.station = std::make_unique<Station>(*source.world);
            source.station->enable();
            source.to_us = source.station->add(station_);
            source.address = station_.add(*source.station);
        }
    }

    std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
    }

    void plan(std::size_t count) {
        // For each tag in this round: do receives name the source?
        for (bool& each : directed_)
            each = below(2) != 0;
        for (std::size_t i = 0; i < count; ++i) {
            static constexpr std::size_t kMixtureSizes[] = {8, 8, 8, 0, 1, 16, 40, kRoom};
            plans_.push_back({below(kSources), below(kMixtureTags),
                              kMixtureSizes[below(std::size(kMixtureSizes))], below(3) == 0});
        }
        receives_ = plans_;
        std::shuffle(receives_.begin(), receives_.end(), random_);
    }

    void send() {
        const Plan plan = plans_.front();
        plans_.pop_front();
        Source& from = sources_[plan.source];
        const std::uint32_t nth = from.sent[plan.tag]++;
        sent_[plan.source][plan.tag].push_back(plan);
        std::array<std::byte, kRoom> bytes;
        for (std::size_t i = 0; i < plan.bytes; ++i)
            bytes[i] = byte_of_plan(plan, nth, i);
        const std::uint64_t tag = plan.tag | (nth & 0xff) << 8 | plan.source << 16;
        const auto inject = [&] {
            fid_ep* const ep = from.station->ep.get();
            return plan.has_data
                       ? fi_tinjectdata(ep, bytes.data(), plan.bytes, nth, from.to_us, tag)
                       : fi_tinject(ep, bytes.data(), plan.bytes, from.to_us, tag);
        };
        const auto send = [&] {
            fid_ep* const ep = from.station->ep.get();
            return plan.has_data
                       ? fi_tsenddata(ep, bytes.data(), plan.bytes, nullptr, nth, from.to_us, tag,
                                      nullptr)
                       : fi_tsend(ep, bytes.data(), plan.bytes, nullptr, from.to_us, tag, nullptr);
        };
        fid_cq* const cq = from.station->transmit.get();
        if (plan.bytes <= 16 && below(2) != 0) {
            ASSERT_EQ(insist(cq, inject), 0);
        } else {
            ASSERT_EQ(insist(cq, send), 0);
            fi_cq_tagged_entry entry;
            ASSERT_EQ(next(cq, entry), 0);
        }
    }

    void receive() {
        const Plan plan = receives_.front();
        receives_.pop_front();
        const fi_addr_t from = directed_[plan.tag] ? sources_[plan.source].address : FI_ADDR_UNSPEC;
        slots_.push_back(std::make_unique<Slot>());
        Slot* const slot = slots_.back().get();
        ASSERT_EQ(fi_trecv(station_.ep.get(), slot->bytes.data(), kRoom, nullptr, from, plan.tag,
                           kMixtureIgnored, slot),
                  0);
    }

    // As many as there are, at most `room`; how many.
    std::size_t read(std::size_t room) {
        std::array<fi_cq_tagged_entry, 8> entries;
        const ssize_t got = fi_cq_read(station_.receive.get(), entries.data(), room);
        if (got == -FI_EAGAIN) return 0;
        EXPECT_GT(got, 0) << fi_strerror(static_cast<int>(-got));
        EXPECT_LE(got, static_cast<ssize_t>(room));
        for (ssize_t i = 0; i < got; ++i)
            check(entries[static_cast<std::size_t>(i)]);
        return got > 0 ? static_cast<std::size_t>(got) : room;
    }

    void check(const fi_cq_tagged_entry& entry) {
        const auto& bytes = static_cast<Slot*>(entry.op_context)->bytes;
        const std::uint64_t tag = entry.tag & ~kMixtureIgnored;
        ASSERT_LT(tag, kMixtureTags);
        ASSERT_EQ(entry.buf, bytes.data());
        const std::size_t source = entry.tag >> 16;
        ASSERT_LT(source, kSources);
        auto& queue = sent_[source][tag];
        ASSERT_FALSE(queue.empty());
        const Plan plan = queue.front();
        const std::uint32_t nth = read_[source][tag]++;
        queue.pop_front();
        ASSERT_EQ(entry.tag >> 8 & 0xff, nth & 0xff);
        ASSERT_EQ(entry.len, plan.bytes);
        ASSERT_EQ(entry.flags & (FI_RECV | FI_TAGGED), FI_RECV | FI_TAGGED);
        ASSERT_EQ((entry.flags & FI_REMOTE_CQ_DATA) != 0, plan.has_data);
        if (plan.has_data) {
            ASSERT_EQ(entry.data, nth);
        }
        for (std::size_t i = 0; i < plan.bytes; ++i)
            ASSERT_EQ(bytes[i], byte_of_plan(plan, nth, i)) << i;
    }

    struct Source {
        std::unique_ptr<World> world;
        std::unique_ptr<Station> station;
        fi_addr_t to_us = FI_ADDR_UNSPEC, address = FI_ADDR_UNSPEC;
        std::uint32_t sent[kMixtureTags] = {};
    };

    std::mt19937 random_;
    const int rings_;
    std::vector<std::unique_ptr<Slot>> slots_;  // of this round; longer than what writes to them
    std::array<Source, kSources> sources_;
    World world_;
    Station station_;
    bool directed_[kMixtureTags] = {};
    std::deque<Plan> plans_, receives_;                                      // of this round
    std::array<std::array<std::deque<Plan>, kMixtureTags>, kSources> sent_;  // and not yet read
    std::uint32_t read_[kSources][kMixtureTags] = {};
};

TEST_P(Mixture, IsReadInOrder) {
    for (int round = 0; round < 40; ++round) {
        const std::size_t count = 1 + below(120), eager = below(100);
        plan(count);
        std::size_t got = 0;
        while (!HasFatalFailure() && (!plans_.empty() || !receives_.empty())) {
            const std::size_t what = below(100);
            if (!receives_.empty() && (what < eager || plans_.empty()))
                receive();
            else if (!plans_.empty())
                send();
            if (below(4) == 0) got += read(1 + below(8));
        }
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (!HasFailure() && got < count && std::chrono::steady_clock::now() < end)
            got += read(1 + below(8));
        ASSERT_FALSE(HasFailure()) << "round " << round << " of seed " << std::get<0>(GetParam());
        ASSERT_EQ(got, count);
        ASSERT_EQ(read(1), 0u);
        slots_.clear();
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Mixture,
                         testing::Combine(testing::Range(1u, 5u), testing::Values("0", "2")));

}  // namespace
}  // namespace heddle::test
