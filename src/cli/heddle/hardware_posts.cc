// SPDX-License-Identifier: BSD-2-Clause
// What the device does with work: see hardware_check.h. QPs are connected to themselves, so that
// one port is enough.
#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "cli/heddle/hardware_check.h"
#include "heddle/error.h"
#include "heddle/post/mlx5_completion_queue.h"
#include "heddle/post/mlx5_send_queue.h"
#include "heddle/post/verbs_queue.h"
#include "verbs/connection.h"
#include "verbs/open_device.h"

namespace heddle::cli {
namespace {

using Clock = std::chrono::steady_clock;
using post::Opcode;
using post::Posted;
using post::Work;

constexpr std::uint32_t kDepth = 32, kPieces = 4;
constexpr auto kPatience = std::chrono::seconds(5);
// So long an event may take that is not expected.
constexpr int kNoEventMs = 300, kEventMs = 5000;
constexpr std::size_t kRemote = CheckedDevice::kBytes / 2;

// A QP that is connected to itself, with CQs of its own.
class Loop {
public:
    explicit Loop(CheckedDevice& device) : device_(device) {
        channel_.reset(ibv_create_comp_channel(device.context()));
        if (!channel_) throw VerbsError("a completion channel", errno);
        cq_.reset(ibv_create_cq(device.context(), 64, nullptr, channel_.get(), 0));
        receive_cq_.reset(ibv_create_cq(device.context(), 64, nullptr, nullptr, 0));
        if (!cq_ || !receive_cq_) throw VerbsError("a completion queue", errno);
        ibv_qp_init_attr wanted{};
        wanted.qp_type = IBV_QPT_RC;
        wanted.send_cq = cq_.get();
        wanted.recv_cq = receive_cq_.get();
        wanted.cap = {.max_send_wr = kDepth,
                      .max_recv_wr = kDepth,
                      .max_send_sge = kPieces,
                      .max_recv_sge = 1,
                      .max_inline_data = 128};
        qp_.reset(ibv_create_qp(device.pd(), &wanted));
        if (!qp_) throw VerbsError("a queue pair", errno);
        max_inline = wanted.cap.max_inline_data;
        verbs::connect(qp_.get(), verbs::address_of(qp_.get()));
        if (!device.info.atomics) return;
        ibv_qp_attr allowed{};
        allowed.qp_state = IBV_QPS_RTS;
        allowed.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        if (const int error =
                ibv_modify_qp(qp_.get(), &allowed, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS))
            throw VerbsError("allowing atomics on a queue pair", error);
    }
    ~Loop() {
        if (events_ != 0) ibv_ack_cq_events(cq_.get(), events_);
    }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    ibv_qp* qp() const noexcept { return qp_.get(); }
    ibv_cq* cq() const noexcept { return cq_.get(); }
    ibv_cq* receive_cq() const noexcept { return receive_cq_.get(); }

    void write(std::size_t from, std::size_t to, std::uint32_t bytes) {
        ibv_sge piece = device_.piece(from, bytes);
        ibv_send_wr wr{}, *bad = nullptr;
        wr.sg_list = &piece;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = device_.address(to);
        wr.wr.rdma.rkey = device_.key();
        if (const int error = ibv_post_send(qp_.get(), &wr, &bad))
            throw VerbsError("an RDMA write", error);
    }
    void wait(ibv_cq* cq) const {
        const auto end = Clock::now() + kPatience;
        ibv_wc done{};
        int found;
        while ((found = ibv_poll_cq(cq, 1, &done)) == 0)
            if (Clock::now() > end) throw VerbsError("a completion", ETIMEDOUT);
        if (found < 0 || done.status != IBV_WC_SUCCESS)
            throw VerbsError(std::string("a completion: ") + ibv_wc_status_str(done.status), EIO);
    }
    // An event within that time; it is read.
    bool event(int milliseconds) {
        pollfd fd{channel_->fd, POLLIN, 0};
        if (::poll(&fd, 1, milliseconds) <= 0) return false;
        ibv_cq* of = nullptr;
        void* unused = nullptr;
        if (ibv_get_cq_event(channel_.get(), &of, &unused) != 0) return false;
        ++events_;
        return true;
    }

    std::uint32_t max_inline = 0;

private:
    CheckedDevice& device_;
    verbs::CompletionChannel channel_;
    verbs::CompletionQueue cq_, receive_cq_;
    verbs::QueuePair qp_;
    unsigned events_ = 0;
};

void need_mlx5(const CheckedDevice& device) {
    if (!device.info.mlx5) throw VerbsError(device.info.name + " is not an mlx5 device", ENODEV);
}

// An arm with a number of the caller's choice (PRM "CQ doorbell"), as the direct path writes it.
void arm_with(ibv_cq* cq, std::uint32_t number, std::uint32_t consumed) {
    const mlx5dv_cq shown = post::shown(cq);
    const std::uint32_t command = (number & 3) << 28 | (consumed & 0xffffff);
    post::store_record(shown.dbrec + 1, htobe32(command));
    post::begin_register_stores();
    auto* const at = static_cast<std::byte*>(shown.cq_uar) + 0x20;
    post::store_register(at, htobe64(std::uint64_t{command} << 32 | shown.cqn));
    post::end_register_stores();
    if (const post::Doorbell hook = post::doorbell_hook()) hook(at);
}

// A ring's bytes without the QP's number.
std::vector<std::byte> ring_of(const mlx5dv_qp& qp, std::uint32_t qpn) {
    std::vector<std::byte> bytes(std::size_t{qp.sq.wqe_cnt} * post::kBlock);
    std::memcpy(bytes.data(), qp.sq.buf, bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += post::kBlock) {
        std::uint32_t word;
        std::memcpy(&word, &bytes[at + 4], 4);
        if (be32toh(word) >> 8 != qpn) continue;
        word = htobe32(be32toh(word) & 0xff);
        std::memcpy(&bytes[at + 4], &word, 4);
    }
    return bytes;
}

class RandomWorks {
public:
    RandomWorks(CheckedDevice& device, std::uint32_t max_inline)
        : device_(device), max_inline_(max_inline) {}

    const Work& next() {
        static constexpr Opcode kOpcodes[] = {Opcode::kWrite, Opcode::kRead, Opcode::kCompareSwap,
                                              Opcode::kFetchAdd};
        work_ = {};
        work_.opcode = kOpcodes[upto(device_.info.atomics ? 3 : 1)];
        work_.flags = static_cast<std::uint8_t>(post::kSignaled | (upto(3) ? 0 : post::kFence));
        work_.remote_address = device_.address(kRemote);
        work_.remote_key = device_.key();
        work_.compare_or_add = random_();
        work_.swap = random_();
        pieces_.clear();
        if (post::is_atomic(work_.opcode)) {
            pieces_.push_back(device_.piece(8 * upto(64), 8));
        } else {
            std::uint32_t left = 2048;
            if (work_.opcode == Opcode::kWrite && upto(1)) {
                work_.flags |= post::kInline;
                left = max_inline_;
            }
            for (std::uint32_t count = upto(kPieces); count != 0; --count) {
                const std::uint32_t bytes = upto(std::min(left, 200u));
                pieces_.push_back(device_.piece(upto(4096), bytes));
                left -= bytes;
            }
        }
        work_.pieces = pieces_;
        return work_;
    }

private:
    std::uint32_t upto(std::uint32_t most) {
        return std::uniform_int_distribution<std::uint32_t>(0, most)(random_);
    }
    CheckedDevice& device_;
    std::uint32_t max_inline_;
    std::mt19937 random_{1};
    std::vector<ibv_sge> pieces_;
    Work work_;
};

const char* taken(bool event) { return event ? "taken" : "ignored"; }

}  // namespace

Finding check_entries(CheckedDevice& device) {
    need_mlx5(device);
    Finding finding;
    Loop by_verbs(device), by_direct(device);
    post::VerbsSendQueue<post::SingleThreaded> verbs(by_verbs.qp(), 1);
    post::Mlx5SendQueue<post::SingleThreaded> direct(by_direct.qp(), false, by_direct.max_inline,
                                                     true);
    post::Mlx5CompletionQueue<post::SingleThreaded> completions(by_direct.cq());
    completions.add(direct);
    const mlx5dv_qp one = post::shown(by_verbs.qp()), other = post::shown(by_direct.qp());
    RandomWorks works(device, std::min(by_verbs.max_inline, by_direct.max_inline));
    constexpr int kWorks = 1000;
    std::string difference;
    for (int i = 0; i < kWorks && difference.empty(); ++i) {
        for (const mlx5dv_qp* qp : {&one, &other})
            std::memset(qp->sq.buf, 0, std::size_t{qp->sq.wqe_cnt} * post::kBlock);
        const Work& work = works.next();
        if (verbs.post_now(work) != Posted::kOk || direct.post_now(work) != Posted::kOk)
            throw VerbsError("posting work " + std::to_string(i), EIO);
        by_verbs.wait(by_verbs.cq());
        post::Completion done;
        const auto end = Clock::now() + kPatience;
        while (completions.poll(&done, 1) == 0)
            if (Clock::now() > end) throw VerbsError("a completion of the direct path", ETIMEDOUT);
        if (done.status != IBV_WC_SUCCESS) throw VerbsError("a completion of the direct path", EIO);
        const auto ring = ring_of(one, by_verbs.qp()->qp_num);
        const auto ours = ring_of(other, by_direct.qp()->qp_num);
        for (std::size_t at = 0; at < std::min(ring.size(), ours.size()); ++at)
            if (ring[at] != ours[at]) {
                difference = "byte " + std::to_string(at % post::kBlock) +
                             " of an entry of opcode " +
                             std::to_string(static_cast<int>(work.opcode));
                break;
            }
        if (one.dbrec[MLX5_SND_DBR] != other.dbrec[MLX5_SND_DBR])
            difference = "the doorbell record";
    }
    finding.details = {{"works", kWorks}, {"difference", difference}};
    finding.seen = difference.empty() ? "equal for " + std::to_string(kWorks) + " works"
                                      : "libmlx5 and the direct path differ in " + difference;
    finding.meaning = "The direct path writes what this libmlx5 writes.";
    if (!difference.empty()) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "Use FI_HEDDLE_POST=verbs until this is understood.";
    }
    return finding;
}

Finding check_arm(CheckedDevice& device) {
    need_mlx5(device);
    Finding finding;
    constexpr unsigned kArms = 9;
    unsigned missed_by_verbs = 0, missed_directly = 0;
    {
        Loop loop(device);
        for (unsigned arms = 1; arms <= kArms; ++arms) {
            for (unsigned i = 0; i < arms; ++i)
                ibv_req_notify_cq(loop.cq(), 0);
            loop.write(0, kRemote, 8);
            if (!loop.event(kEventMs)) ++missed_by_verbs;
            loop.wait(loop.cq());
        }
    }
    {
        Loop loop(device);
        post::Mlx5SendQueue<post::SingleThreaded> send(loop.qp(), true, loop.max_inline, true);
        post::Mlx5CompletionQueue<post::SingleThreaded> completions(loop.cq());
        completions.add(send);
        const ibv_sge piece = device.piece(0, 8);
        Work work;
        work.opcode = Opcode::kWrite;
        work.pieces = {&piece, 1};
        work.remote_address = device.address(kRemote);
        work.remote_key = device.key();
        for (unsigned arms = 1; arms <= kArms; ++arms) {
            for (unsigned i = 0; i < arms; ++i)
                completions.arm(false);
            if (send.post_now(work) != Posted::kOk) throw VerbsError("an RDMA write", EIO);
            if (loop.event(kEventMs))
                completions.event_read();
            else
                ++missed_directly;
            post::Completion done;
            const auto end = Clock::now() + kPatience;
            while (completions.poll(&done, 1) == 0)
                if (Clock::now() > end) throw VerbsError("a completion", ETIMEDOUT);
        }
    }
    finding.details = {{"rounds", kArms},
                       {"missed_by_libmlx5", missed_by_verbs},
                       {"missed_directly", missed_directly}};
    finding.seen = "of " + std::to_string(kArms) + " events " + std::to_string(missed_by_verbs) +
                   " did not come by libmlx5, " + std::to_string(missed_directly) + " directly";
    finding.meaning = "Sleeping readers are woken.";
    if (missed_by_verbs + missed_directly != 0) {
        finding.answer = Answer::kDiffers;
        finding.meaning =
            missed_by_verbs == 0
                ? "Sleeping readers may not be woken by the direct path: FI_HEDDLE_POST=verbs."
                : "Sleeping readers may not be woken here, by any library.";
    }
    return finding;
}

Finding check_repeated_arm(CheckedDevice& device) {
    need_mlx5(device);
    Finding finding;
    const auto message = [](Loop& loop, int milliseconds) {
        loop.write(0, kRemote, 8);
        loop.wait(loop.cq());
        return loop.event(milliseconds);
    };
    Loop ahead(device), behind(device);
    arm_with(ahead.cq(), 1, 0);
    const bool took_ahead = message(ahead, kNoEventMs);
    arm_with(behind.cq(), 0, 0);
    if (!message(behind, kEventMs)) throw VerbsError("the event of a first arm", ETIMEDOUT);
    arm_with(behind.cq(), 0, 1);
    const bool took_behind = message(behind, kNoEventMs);
    finding.details = {{"number_ahead", taken(took_ahead)}, {"number_of_last", taken(took_behind)}};
    finding.seen = std::string("the number of the arm before is ") + taken(took_behind) +
                   ", a number ahead is " + taken(took_ahead);
    finding.meaning = "As heddle has it: it counts arms with the events that it has read.";
    if (took_behind) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "The device is kinder than heddle needs.";
    }
    return finding;
}

Finding check_order(CheckedDevice& device) {
    Finding finding;
    Loop loop(device);
    constexpr std::uint32_t kBytes = 1 << 16;
    constexpr std::uint64_t kRounds = 2000;
    const auto at = [&](std::size_t offset) {
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(device.memory() + offset));
    };
    std::uint64_t early = 0, rounds = 0;
    for (std::uint64_t round = 1; round <= kRounds; ++round, ++rounds) {
        for (std::size_t i = 0; i < kBytes; i += 8)
            at(i).store(round, std::memory_order_relaxed);
        loop.write(0, kRemote, kBytes);
        const auto end = Clock::now() + kPatience;
        while (at(kRemote + kBytes - 8).load(std::memory_order_acquire) != round)
            if (Clock::now() > end) throw VerbsError("the end of an RDMA write", ETIMEDOUT);
        for (std::size_t i = 0; i < kBytes; i += 64)
            if (at(kRemote + i).load(std::memory_order_relaxed) != round) {
                ++early;
                break;
            }
        loop.wait(loop.cq());
    }
    using Query = int (*)(ibv_qp*, ibv_wr_opcode, std::uint32_t);
    const auto query = reinterpret_cast<Query>(dlsym(RTLD_DEFAULT, "ibv_query_qp_data_in_order"));
    const int promised = query != nullptr ? query(loop.qp(), IBV_WR_RDMA_WRITE, 0) : -1;
    finding.details = {
        {"writes", rounds},
        {"bytes", kBytes},
        {"seen_early", early},
        {"ibv_query_qp_data_in_order",
         promised < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(promised)}};
    finding.seen = "the end came first in " + std::to_string(early) + " of " +
                   std::to_string(rounds) + " writes of 64 KiB; in order by promise: " +
                   (promised < 0    ? "unknown"
                    : promised != 0 ? "yes"
                                    : "no");
    finding.meaning = "A reader of the last byte found the whole write.";
    if (early != 0) {
        finding.answer = Answer::kDiffers;
        finding.meaning =
            "Packets are placed out of order. Eager rings carry messages of one packet only, "
            "so heddle does not depend on it.";
    }
    return finding;
}

Finding check_scatter(CheckedDevice& device) {
    need_mlx5(device);
    Finding finding;
    Loop loop(device);
    const mlx5dv_cq shown = post::shown(loop.receive_cq());
    nlohmann::ordered_json sizes = nlohmann::ordered_json::array();
    std::uint32_t most = 0, index = 0;
    for (const std::uint32_t bytes : {8u, 32u, 33u, 64u}) {
        ibv_sge into = device.piece(kRemote, 64), from = device.piece(0, bytes);
        ibv_recv_wr receive{}, *bad_receive = nullptr;
        receive.sg_list = &into;
        receive.num_sge = 1;
        if (const int error = ibv_post_recv(loop.qp(), &receive, &bad_receive))
            throw VerbsError("a receive", error);
        ibv_send_wr send{}, *bad_send = nullptr;
        send.sg_list = &from;
        send.num_sge = 1;
        send.opcode = IBV_WR_SEND;
        send.send_flags = IBV_SEND_SIGNALED;
        if (const int error = ibv_post_send(loop.qp(), &send, &bad_send))
            throw VerbsError("a message", error);
        loop.wait(loop.cq());
        loop.wait(loop.receive_cq());
        const auto* const entry = reinterpret_cast<const mlx5_cqe64*>(
            static_cast<const std::byte*>(shown.buf) +
            std::size_t{(index++ & (shown.cqe_cnt - 1)) + 1} * shown.cqe_size - sizeof(mlx5_cqe64));
        const bool inside =
            (entry->op_own & (MLX5_INLINE_SCATTER_32 | MLX5_INLINE_SCATTER_64)) != 0;
        if (inside) most = std::max(most, bytes);
        sizes.push_back({{"bytes", bytes}, {"in_entry", inside}});
    }
    finding.details = {{"entry_bytes", shown.cqe_size}, {"sizes", sizes}};
    finding.seen = most != 0 ? "messages of " + std::to_string(most) +
                                   " bytes come in entries of " + std::to_string(shown.cqe_size)
                             : "no message comes in an entry";
    finding.meaning = "A receiver of small messages saves a cache miss.";
    if (most == 0) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "Small messages go to memory. heddle works with both.";
    }
    return finding;
}

Finding check_numbers(CheckedDevice& device) {
    Finding finding;
    verbs::CompletionQueue cq(ibv_create_cq(device.context(), 16, nullptr, nullptr, 0));
    if (!cq) throw VerbsError("a completion queue", errno);
    constexpr int kMost = 2000;
    std::uint32_t first = 0;
    int again = 0;
    for (int i = 0; i < kMost && again == 0; ++i) {
        ibv_qp_init_attr wanted{};
        wanted.qp_type = IBV_QPT_RC;
        wanted.send_cq = wanted.recv_cq = cq.get();
        wanted.cap = {.max_send_wr = 1,
                      .max_recv_wr = 1,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = 0};
        verbs::QueuePair qp(ibv_create_qp(device.pd(), &wanted));
        if (!qp) throw VerbsError("queue pair " + std::to_string(i + 1), errno);
        if (i == 0)
            first = qp->qp_num;
        else if (qp->qp_num == first)
            again = i;
    }
    finding.details = {{"made", kMost}, {"first_number_again_after", again}};
    if (again != 0) {
        finding.seen = "again after " + std::to_string(again) + " other QPs";
        finding.meaning =
            "A late packet can reach another QP: heddle tells connections apart by "
            "more than their numbers.";
    } else {
        finding.answer = Answer::kDiffers;
        finding.seen = "not within " + std::to_string(kMost) + " QPs";
        finding.meaning = "The device is kinder than heddle needs.";
    }
    return finding;
}

}  // namespace heddle::cli
