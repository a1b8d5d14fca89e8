// SPDX-License-Identifier: BSD-2-Clause
// Measuring what ReuseCosts says: two queue pairs of this process, one operation after the other.
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "common/copy.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "memory/pool.h"
#include "memory/reuse_table.h"
#include "protocol/reuse/calibration_file.h"
#include "protocol/reuse/reuse_costs.h"
#include "protocol/wire/wire.h"
#include "verbs/connection.h"
#include "verbs/handles.h"

namespace heddle::protocol {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kOperations = 41, kRegistrations = 9, kLookups = 64;
constexpr std::size_t kAround = sizeof(Header) + sizeof(RingTail);

double nanoseconds(Clock::duration time) {
    return std::chrono::duration<double, std::nano>(time).count();
}

// Pages of their own, as an application's.
class Pages {
public:
    explicit Pages(std::size_t bytes)
        : bytes_((bytes + 4095) / 4096 * 4096),
          memory_(
              ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        HEDDLE_ASSERT(bytes != 0, "each size that is measured has bytes");
        if (memory_ == MAP_FAILED) throw VerbsError("memory to measure copies with", errno);
        std::memset(memory_, 1, bytes_);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { ::munmap(memory_, bytes_); }
    std::byte* begin() const noexcept { return static_cast<std::byte*>(memory_); }

private:
    std::size_t bytes_;
    void* memory_;
};

// Two queue pairs that are connected to each other.
class SelfLoop {
public:
    SelfLoop(ibv_context* context, ibv_pd* pd, std::size_t largest)
        : pd_(pd),
          cq_(ibv_create_cq(context, 16, nullptr, nullptr, 0)),
          user_(largest),
          buffers_(pd, largest + kAround, 2, IBV_ACCESS_REMOTE_WRITE) {
        if (!cq_) throw VerbsError("a completion queue to measure copies with", errno);
        from_ = make_qp();
        to_ = make_qp();
        verbs::connect_locally(from_.get(), to_.get());
        verbs::connect_locally(to_.get(), from_.get());
        mr_.reset(ibv_reg_mr(pd, user_.begin(), largest,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));  // as above
        if (!mr_) throw VerbsError("registering memory to measure copies with", errno);
    }

    // From the post to its completion, with the copy, if there is one.
    double once(ReuseCosts::Way way, std::size_t bytes, bool copy) {
        HEDDLE_ASSERT(bytes + kAround <= buffers_.bytes(), "the buffer holds header and tail, too");
        if (way == ReuseCosts::kSend) post_receive();
        std::byte* const buffer = buffers_.at(0);
        ibv_sge sges[3];
        ibv_send_wr wr{}, *bad = nullptr;
        wr.sg_list = sges;
        const auto begin = Clock::now();
        std::size_t before = way == ReuseCosts::kOneSided ? 0 : sizeof(Header);
        const std::size_t behind = way == ReuseCosts::kRing ? sizeof(RingTail) : 0;
        if (copy) {
            common::copy_payload(buffer + before, user_.begin(), bytes);
            sges[0] = sge(buffer, before + bytes + behind, buffers_.key());
            wr.num_sge = 1;
        } else {
            int& used = wr.num_sge;
            if (before != 0) sges[used++] = sge(buffer, before, buffers_.key());
            sges[used++] = sge(user_.begin(), bytes, mr_->lkey);
            if (behind != 0) sges[used++] = sge(buffer + before, behind, buffers_.key());
        }
        HEDDLE_ASSERT(wr.num_sge >= 1 && static_cast<std::size_t>(wr.num_sge) <= std::size(sges));
        wr.opcode = way == ReuseCosts::kSend ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr_id = 1;
        wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(buffers_.at(1));
        wr.wr.rdma.rkey = buffers_.remote_key();
        if (const int error = ibv_post_send(from_.get(), &wr, &bad))
            throw VerbsError("an operation to measure copies with", error);
        Clock::time_point end{};
        for (int wanted = way == ReuseCosts::kSend ? 2 : 1; wanted != 0;) {
            ibv_wc done{};
            const int found = ibv_poll_cq(cq_.get(), 1, &done);
            if (found == 0 && Clock::now() - begin < std::chrono::seconds(1)) continue;
            if (found <= 0 || done.status != IBV_WC_SUCCESS)
                throw VerbsError("an operation to measure copies with", EIO);
            if (done.wr_id == 1) end = Clock::now();
            --wanted;
        }
        HEDDLE_ASSERT(end >= begin, "one of the completions is that of the post");
        return nanoseconds(end - begin);
    }

    double copy(std::size_t bytes) {
        HEDDLE_ASSERT(bytes <= buffers_.bytes());
        const auto begin = Clock::now();
        common::copy_payload(buffers_.at(0), user_.begin(), bytes);
        asm volatile("" ::: "memory");
        return nanoseconds(Clock::now() - begin);
    }

private:
    static ibv_sge sge(const std::byte* at, std::size_t bytes, std::uint32_t key) {
        return {reinterpret_cast<std::uintptr_t>(at), static_cast<std::uint32_t>(bytes), key};
    }
    verbs::QueuePair make_qp() {
        ibv_qp_init_attr wanted{};
        wanted.qp_type = IBV_QPT_RC;
        wanted.send_cq = wanted.recv_cq = cq_.get();
        wanted.cap = {.max_send_wr = 4,
                      .max_recv_wr = 4,
                      .max_send_sge = 3,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
        verbs::QueuePair qp(ibv_create_qp(pd_, &wanted));
        if (!qp) throw VerbsError("a queue pair to measure copies with", errno);
        return qp;
    }
    void post_receive() {
        ibv_sge into = sge(buffers_.at(1), buffers_.bytes(), buffers_.key());
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = 2;
        wr.sg_list = &into;
        wr.num_sge = 1;
        if (const int error = ibv_post_recv(to_.get(), &wr, &bad))
            throw VerbsError("a receive to measure copies with", error);
    }

    ibv_pd* pd_;
    verbs::CompletionQueue cq_;
    Pages user_;
    memory::Pool buffers_;
    verbs::QueuePair from_, to_;
    verbs::MemoryRegion mr_;
};

double registration(ibv_pd* pd, std::size_t bytes) {
    std::vector<double> times;
    for (int i = 0; i < kRegistrations; ++i) {
        const Pages pages(bytes);
        const auto begin = Clock::now();
        // The provider's registrations live long. For the software HCA, regions that end soon are
        // memory of one operation each: after eight of them the next ones stay private and cost a
        // fifth (uverbs/brief_regions.h). Memory that peers may write to is always shared, as
        // memory is that stays registered. Fresh pages cost the same as those of before.
        verbs::MemoryRegion mr(
            ibv_reg_mr(pd, pages.begin(), bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
        if (!mr) throw VerbsError("registering memory to measure it", errno);
        mr.reset();
        times.push_back(nanoseconds(Clock::now() - begin));
    }
    return median(times);
}

// Looks up a buffer that is there, among some.
double lookup() {
    memory::ReuseTable table;
    const auto round = [&table](std::uintptr_t first) {
        for (std::uintptr_t i = 0; i < kLookups; ++i)
            table.use(reinterpret_cast<const void*>(first + i * 4096), 1024);
    };
    std::vector<double> times;
    for (int i = 0; i < kOperations; ++i) {
        const auto begin = Clock::now();
        round(1 << 20);
        times.push_back(nanoseconds(Clock::now() - begin) / kLookups);
    }
    return median(times);
}

}  // namespace

ReuseCosts ReuseCosts::measure(ibv_context* context, ibv_pd* pd, std::size_t largest) {
    ReuseCosts all;
    const double of_lookup = lookup();
    SelfLoop loop(context, pd, size_of(kSizes - 1));
    for (std::size_t i = 0; i < kSizes && size_of(i) <= largest; ++i) {
        const std::size_t bytes = size_of(i);
        Cost& cost = all.costs[i];
        cost.lookup = of_lookup;
        cost.registration = registration(pd, bytes);
        std::vector<double> copies;
        for (int n = 0; n < kOperations; ++n)
            copies.push_back(loop.copy(bytes));
        cost.copy = median(copies);
        for (std::size_t way = 0; way < kWays; ++way) {
            std::vector<double> copied, gathered;  // in turns, so that both see the same machine
            for (int n = 0; n < kOperations; ++n) {
                copied.push_back(loop.once(static_cast<Way>(way), bytes, true));
                gathered.push_back(loop.once(static_cast<Way>(way), bytes, false));
            }
            HEDDLE_ASSERT(copied.size() == gathered.size(), "the two sides take turns");
            cost.copied[way] = median(copied);
            cost.gathered[way] = median(gathered);
        }
    }
    return all;
}

}  // namespace heddle::protocol
