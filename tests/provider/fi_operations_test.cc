// SPDX-License-Identifier: BSD-2-Clause
// All operations at random, several under way, between two endpoints whose buffers are soon in
// frequent use (FI_HEDDLE_REUSE=4): messages, reads, writes, atomics, injected ones and receives
// that are cancelled take their bookkeeping from the same pools, and none may leave a trace in
// another. After each completion all memory that nothing is under way for is compared with what it
// has to hold.
#include <algorithm>
#include <array>
#include <list>
#include <numeric>
#include <random>
#include <tuple>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"
#include "tests/support/mapped_memory.h"

namespace heddle::test {
namespace {

constexpr std::size_t kSlots = 10, kSlotBytes = 24 * 1024, kUnderWay = 6;
constexpr std::size_t kFavourites[kSlots] = {64,   129,  200,  512,  1024,
                                             1024, 3000, 4096, 8192, 20'000};
constexpr int kOperations = 800;
constexpr std::uint64_t kNeverSent = 1 << 20;

// Seed, peers that have a ring, and the way of large messages.
class Operations : public testing::TestWithParam<std::tuple<unsigned, const char*, const char*>> {
protected:
    enum Kind { kSend, kInject, kRead, kWrite, kInjectWrite, kFetch, kCancel, kKinds };
    struct Slot {
        std::byte* at = nullptr;
        std::vector<std::byte> expected;
        bool busy = false;
    };
    struct Side {
        std::array<Slot, kSlots> slots;
        std::byte* memory = nullptr;
        Opened<fid_mr> region;
        Station* station = nullptr;
        fi_addr_t other = FI_ADDR_NOTAVAIL;
    };
    struct Operation {
        Kind kind = kSend;
        Slot *local = nullptr, *remote = nullptr;
        std::size_t bytes = 0;
        int left = 1;  // completions
        bool is_posted = true;
        std::uint64_t tag = 0;
        Side* receiver = nullptr;
    };

    Operations() : random_(std::get<0>(GetParam())) {
        setenv("FI_HEDDLE_REUSE", "4", 1);
        setenv("FI_HEDDLE_RINGS", std::get<1>(GetParam()), 1);
        setenv("FI_HEDDLE_RING_SIZE", "8192", 1);
        setenv("FI_HEDDLE_RNDV", std::get<2>(GetParam()), 1);
        world_.emplace();
        pair_.emplace(*world_);
        sides_[0].station = &pair_->a;
        sides_[1].station = &pair_->b;
        sides_[0].other = pair_->to_b;
        sides_[1].other = pair_->to_a;
        for (Side& side : sides_) {
            side.memory = map_some(kSlots * kSlotBytes);
            side.region = opened<fid_mr>("fi_mr_reg", [&](fid_mr** mr) {
                return fi_mr_reg(world_->domain.get(), side.memory, kSlots * kSlotBytes,
                                 FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, mr, nullptr);
            });
            for (std::size_t i = 0; i < kSlots; ++i) {
                Slot& slot = side.slots[i];
                slot.at = side.memory + i * kSlotBytes;
                slot.expected.resize(kSlotBytes);
                scribble(slot, kSlotBytes);
            }
        }
    }
    nlohmann::json closed() {
        for (Side& side : sides_)
            side.region = {};
        pair_.reset();
        world_.reset();
        for (Side& side : sides_)
            munmap(side.memory, kSlots * kSlotBytes);
        return statistics_.read();
    }

    std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
    }
    void scribble(Slot& slot, std::size_t bytes) {
        const std::uint64_t seed = random_();
        for (std::size_t i = 0; i < bytes; ++i)
            slot.expected[i] = static_cast<std::byte>(seed + i * 31 + (i >> 8));
        std::memcpy(slot.at, slot.expected.data(), bytes);
    }
    // One that nothing is under way for, or nullptr.
    Slot* idle(Side& side) {
        Slot& slot = side.slots[below(kSlots)];
        return slot.busy ? nullptr : &slot;
    }

    void begin() {
        Side& from = sides_[below(2)];
        Side& to = &from == &sides_[0] ? sides_[1] : sides_[0];
        Slot* const local = idle(from);
        Slot* const remote = idle(to);
        if (local == nullptr || remote == nullptr) return;
        Operation& op = under_way_.emplace_back();
        op.kind = static_cast<Kind>(below(kKinds));
        op.local = local;
        op.remote = remote;
        const auto favourite = kFavourites[local - from.slots.data()];
        op.bytes = below(4) != 0 ? favourite : 1 + below(kFavourites[below(kSlots)]);
        local->busy = remote->busy = true;
        if (below(2) != 0) scribble(*local, op.bytes);
        fid_ep* const ep = from.station->ep.get();
        fid_cq* const cq = from.station->transmit.get();
        const auto address = reinterpret_cast<std::uint64_t>(remote->at);
        const std::uint64_t key = fi_mr_key(to.region.get());
        ssize_t result = 0;
        switch (op.kind) {
            case kInject:
                op.bytes = std::min<std::size_t>(op.bytes, 128);
                [[fallthrough]];
            case kSend:
                // At most one is under way into each slot.
                op.tag = static_cast<std::uint64_t>(remote - to.slots.data());
                op.receiver = &to;
                op.is_posted = false;
                if (below(2) != 0) post(op);
                if (op.kind == kSend) {
                    op.left = 2;
                    result = insist(cq, [&] {
                        return fi_tsend(ep, local->at, op.bytes, nullptr, from.other, op.tag, &op);
                    });
                } else {
                    result = insist(cq, [&] {
                        return fi_tinject(ep, local->at, op.bytes, from.other, op.tag);
                    });
                }
                copy(*local, *remote, op.bytes);
                if (op.kind == kInject) {  // it is the program's again
                    scribble(*local, op.bytes);
                    local->busy = false;
                    op.local = nullptr;
                }
                break;
            case kRead:
                result = insist(cq, [&] {
                    return fi_read(ep, local->at, op.bytes, nullptr, from.other, address, key, &op);
                });
                copy(*remote, *local, op.bytes);
                break;
            case kInjectWrite:
                op.bytes = std::min<std::size_t>(op.bytes, 128);
                // Nobody says when it has arrived: a write behind it, which does so in order.
                result = insist(cq, [&] {
                    return fi_inject_write(ep, local->at, op.bytes, from.other, address, key);
                });
                ASSERT_EQ(result, 0);
                [[fallthrough]];
            case kWrite:
                result = insist(cq, [&] {
                    return fi_write(ep, local->at, op.bytes, nullptr, from.other, address, key,
                                    &op);
                });
                copy(*local, *remote, op.bytes);
                break;
            case kFetch:
                fetch(op, from, address, key, result);
                break;
            case kCancel:
                ASSERT_EQ(fi_trecv(ep, local->at, op.bytes, nullptr,
                                   below(2) != 0 ? from.other : FI_ADDR_UNSPEC, kNeverSent, 0, &op),
                          0);
                ASSERT_EQ(fi_cancel(from.station->ep.handle(), &op), 0);
                break;
            case kKinds:
                break;
        }
        ASSERT_EQ(result, 0) << fi_strerror(static_cast<int>(-result));
    }
    // 8 bytes there are added to, and what was there comes here.
    void fetch(Operation& op, Side& from, std::uint64_t address, std::uint64_t key,
               ssize_t& result) {
        op.bytes = 8;
        std::uint64_t operand = 0, old = 0;
        std::memcpy(&old, op.remote->expected.data(), 8);
        std::memcpy(&operand, op.local->expected.data() + 8, 8);
        result = insist(from.station->transmit.get(), [&] {
            return fi_fetch_atomic(from.station->ep.get(), op.local->at + 8, 1, nullptr,
                                   op.local->at, nullptr, from.other, address, key, FI_UINT64,
                                   FI_SUM, &op);
        });
        std::memcpy(op.local->expected.data(), &old, 8);
        old += operand;
        std::memcpy(op.remote->expected.data(), &old, 8);
    }
    void post(Operation& op) {
        op.is_posted = true;
        Side& to = *op.receiver;
        ASSERT_EQ(fi_trecv(to.station->ep.get(), op.remote->at, kSlotBytes, nullptr,
                           below(8) != 0 ? to.other : FI_ADDR_UNSPEC, op.tag, 0, &op),
                  0);
    }
    static void copy(const Slot& from, Slot& to, std::size_t bytes) {
        std::memcpy(to.expected.data(), from.expected.data(), bytes);
    }

    void look() {
        for (Side& side : sides_)
            for (fid_cq* const cq : {side.station->transmit.get(), side.station->receive.get()}) {
                fi_cq_tagged_entry entry{};
                const ssize_t got = fi_cq_read(cq, &entry, 1);
                if (got == -FI_EAGAIN) continue;
                if (got == -FI_EAVAIL) {
                    fi_cq_err_entry error{};
                    ASSERT_EQ(fi_cq_readerr(cq, &error, 0), 1);
                    auto& op = *static_cast<Operation*>(error.op_context);
                    ASSERT_EQ(error.err, FI_ECANCELED) << "operation " << op.kind;
                    ASSERT_EQ(op.kind, kCancel);
                    ended(op);
                } else {
                    ASSERT_EQ(got, 1);
                    auto& op = *static_cast<Operation*>(entry.op_context);
                    check_flags(op, entry, cq == side.station->transmit.get());
                    ended(op);
                }
            }
    }
    static void check_flags(const Operation& op, const fi_cq_tagged_entry& entry, bool transmit) {
        constexpr std::uint64_t kWhat = FI_SEND | FI_RECV | FI_RMA | FI_READ | FI_WRITE | FI_ATOMIC;
        std::uint64_t wanted = FI_RMA | FI_WRITE;
        if (op.kind == kSend || op.kind == kInject) wanted = transmit ? FI_SEND : FI_RECV;
        if (op.kind == kRead) wanted = FI_RMA | FI_READ;
        if (op.kind == kFetch) wanted = FI_ATOMIC | FI_READ;
        EXPECT_EQ(entry.flags & kWhat, wanted) << "operation " << op.kind;
        if (wanted == FI_RECV) {
            EXPECT_EQ(entry.len, op.bytes);
        }
    }
    void ended(Operation& op) {
        ASSERT_GT(op.left, 0) << "operation " << op.kind << " ended twice";
        if (--op.left != 0) return;
        if (op.local != nullptr) op.local->busy = false;
        op.remote->busy = false;
        ++done_[op.kind];
        under_way_.remove_if([&](const Operation& each) { return &each == &op; });
        check();
    }
    void check() {
        for (std::size_t n = 0; n < sides_.size(); ++n)
            for (std::size_t i = 0; i < kSlots; ++i) {
                const Slot& slot = sides_[n].slots[i];
                if (slot.busy) continue;
                ASSERT_EQ(std::memcmp(slot.at, slot.expected.data(), kSlotBytes), 0)
                    << "buffer " << i << " of endpoint " << n;
            }
    }
    bool post_one() {
        for (Operation& op : under_way_)
            if (!op.is_posted) {
                post(op);
                return true;
            }
        return false;
    }

    std::mt19937_64 random_;
    Statistics statistics_;
    std::optional<World> world_;
    std::optional<Pair> pair_;
    std::array<Side, 2> sides_;
    std::list<Operation> under_way_;
    std::array<int, kKinds> done_{};
};

TEST_P(Operations, LeaveNoTraceInEachOther) {
    auto last_end = std::chrono::steady_clock::now();
    for (int ended = 0; ended < kOperations || !under_way_.empty();) {
        if (ended < kOperations && under_way_.size() < kUnderWay) begin();
        if (ended >= kOperations || below(3) == 0) post_one();
        look();
        if (HasFatalFailure()) return;
        const int now = std::accumulate(done_.begin(), done_.end(), 0);
        if (now != ended) last_end = std::chrono::steady_clock::now();
        ended = now;
        ASSERT_LT(std::chrono::steady_clock::now(), last_end + kPatience)
            << under_way_.size() << " do not end";
    }
    for (int kind = 0; kind < kKinds; ++kind)
        EXPECT_GT(done_[static_cast<std::size_t>(kind)], 10) << "operations " << kind;
    const auto counts = closed();
    EXPECT_GT(counts["gathered"], 0);
    EXPECT_GT(counts["rma_direct"], 0);
    EXPECT_GT(counts["rma_copied"], 10);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Operations,
                         testing::Combine(testing::Values(1u, 2u), testing::Values("0", "1"),
                                          testing::Values("rget", "rput", "tupleq")),
                         [](const auto& test) {
                             return std::to_string(std::get<0>(test.param)) +
                                    (*std::get<1>(test.param) == '0' ? "_send_" : "_ring_") +
                                    std::get<2>(test.param);
                         });

}  // namespace
}  // namespace heddle::test
