// SPDX-License-Identifier: BSD-2-Clause
// The device and the connector of tuple queues, without either: what a side does to them is
// recorded, and completions come when a test says so.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/error.h"
#include "protocol/tupleq/tuple_services.h"
#include "tests/unit/protocol_fake_core.h"
#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {

inline constexpr std::uint64_t kTag = 0x1005;  // of a tuple

class FakeTargets final : public TargetQueuePairs {
public:
    FakeTargets() noexcept : TargetQueuePairs(removals_now) {}
    std::optional<EndpointAddress> asker(std::uint32_t target_qpn) const override {
        const auto found = askers.find(target_qpn);
        return found != askers.end() ? std::optional(found->second) : std::nullopt;
    }
    void drop(const EndpointAddress&, std::uint32_t qpn) override { dropped.push_back(qpn); }
    bool is_quiet(const EndpointAddress&, std::uint32_t qpn) const override {
        return !loud.contains(qpn);
    }
    void refuse(const EndpointAddress& peer, const EndpointAddress&) override {
        refused.push_back(peer.endpoint);
    }
    bool has_left(const EndpointAddress& peer, const EndpointAddress&) const override {
        return left.contains(peer.endpoint);
    }

    std::atomic<std::uint64_t> removals_now{0};
    std::map<std::uint32_t, EndpointAddress> askers;  // by target QP
    std::vector<std::uint32_t> dropped;
    std::set<std::uint32_t> loud;  // QPs that are not quiet yet
    std::vector<std::uint16_t> refused;
    std::set<std::uint16_t> left;
};

class FakeBlockingQueue final : public BlockingQueue {
public:
    static constexpr std::uint32_t kQpn = 501;
    State state() noexcept override { return now; }
    std::uint32_t qpn() const noexcept override { return kQpn; }
    std::size_t max_inline() const noexcept override { return 16; }
    bool post(std::span<ibv_sge> sges, bool is_inline, std::uint32_t immediate, std::uint32_t srqn,
              TupleWork& work) noexcept override {
        ++under_way_;
        std::size_t bytes = 0;
        for (const ibv_sge& sge : sges)
            bytes += sge.length;
        posted.push_back({&work, bytes, is_inline, immediate, srqn});
        return true;
    }
    void flush() noexcept override { now = State::kBroken; }

    // The first that was posted has ended.
    void end_first(ibv_wc_status status = IBV_WC_SUCCESS) {
        ASSERT_FALSE(posted.empty());
        TupleWork& work = *posted.front().work;
        posted.pop_front();
        ibv_wc wc{};
        wc.status = status;
        work.completed(wc);
    }
    struct Posted {
        TupleWork* work;
        std::size_t bytes;
        bool is_inline;
        std::uint32_t immediate, srqn;
    };
    State now = State::kReady;
    std::deque<Posted> posted;
};

class FakeTupleServices final : public TupleServices {
public:
    explicit FakeTupleServices(FakeTargets& its_targets, memory::Pool& buffers) noexcept
        : TupleServices(its_targets, limits_now, buffers, nullptr) {}

    std::unique_ptr<TupleQueue> make_queue() override {
        if (!process_has_place) return nullptr;
        if (device_error != 0) throw VerbsError("a queue", device_error);
        ++queues;
        return std::make_unique<Queue>(*this, ++last_number_);
    }
    BlockingQueue* take(const EndpointAddress&) override {
        return blocking.owner == nullptr && blocking.idle() &&
                       blocking.now == BlockingQueue::State::kReady && has_blocking
                   ? &blocking
                   : nullptr;
    }
    unsigned poll() override {
        unsigned found = 0;
        for (; !arrived.empty(); ++found) {
            const auto [receive, wc] = arrived.front();
            arrived.pop_front();
            receives_->received(receive, wc);
        }
        return found;
    }

    // What is posted to a receive queue.
    struct Posted {
        std::uint32_t queue;
        void* buffer;
        std::uint32_t bytes;
        std::uint64_t receive;
    };
    // Takes the first that is posted, for a message by that target QP.
    void arrive(std::uint32_t immediate, std::uint32_t bytes, std::uint32_t by_qpn,
                ibv_wc_status status = IBV_WC_SUCCESS) {
        ASSERT_FALSE(posted.empty());
        ibv_wc wc{};
        wc.status = status;
        wc.imm_data = htobe32(immediate);
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.byte_len = bytes;
        wc.qp_num = by_qpn;
        arrived.emplace_back(posted.front().receive, wc);
        posted.pop_front();
    }

    SendLimits limits_now{.max_inline = 8};
    bool process_has_place = true, takes_receives = true, has_blocking = true;
    int device_error = 0;
    std::size_t queues = 0;  // that there are
    std::deque<Posted> posted;
    std::deque<std::pair<std::uint64_t, ibv_wc>> arrived;
    FakeBlockingQueue blocking;

private:
    class Queue final : public TupleQueue {
    public:
        Queue(FakeTupleServices& services, std::uint32_t number)
            : services_(services), number_(number) {}
        ~Queue() override {
            --services_.queues;
            std::erase_if(services_.posted,
                          [&](const Posted& each) { return each.queue == number_; });
        }
        std::uint32_t number() const noexcept override { return number_; }
        bool post(void* buffer, std::uint32_t bytes, std::uint32_t,
                  std::uint64_t receive) noexcept override {
            if (!services_.takes_receives) return false;
            services_.posted.push_back({number_, buffer, bytes, receive});
            return true;
        }

    private:
        FakeTupleServices& services_;
        const std::uint32_t number_;
    };
    std::uint32_t last_number_ = 700;
};

}  // namespace heddle::protocol::test
