// SPDX-License-Identifier: BSD-2-Clause
// Does the direct path write what libmlx5 writes? See hardware_check.h.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cli/heddle/looped_qp.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/post/mlx5_completion_queue.h"
#include "heddle/post/mlx5_send_queue.h"
#include "heddle/post/verbs_queue.h"

namespace heddle::cli {
namespace {

using post::Opcode;
using post::Posted;
using post::WorkRequest;

// A ring's bytes without the QP's number.
std::vector<std::byte> ring_of(const mlx5dv_qp& qp, std::uint32_t qpn) {
    HEDDLE_ASSERT(qp.sq.stride == post::detail::kBlock && qp.sq.wqe_cnt != 0,
                  "a send queue is an array of blocks");
    std::vector<std::byte> bytes(std::size_t{qp.sq.wqe_cnt} * post::detail::kBlock);
    std::memcpy(bytes.data(), qp.sq.buf, bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += post::detail::kBlock) {
        std::uint32_t word;
        std::memcpy(&word, &bytes[at + 4], 4);
        if (be32toh(word) >> 8 != qpn) continue;
        word = htobe32(be32toh(word) & 0xff);
        std::memcpy(&bytes[at + 4], &word, 4);
    }
    return bytes;
}

class RandomRequests {
public:
    RandomRequests(CheckedDevice& device, std::uint32_t max_inline)
        : device_(device), max_inline_(max_inline) {}

    const WorkRequest& next() {
        static constexpr Opcode kOpcodes[] = {Opcode::kWrite, Opcode::kRead, Opcode::kCompareSwap,
                                              Opcode::kFetchAdd};
        work_ = {};
        work_.opcode = kOpcodes[upto(device_.info.atomics ? 3 : 1)];
        work_.flags = static_cast<std::uint8_t>(post::kSignaled | (upto(3) ? 0 : post::kFence));
        work_.remote_address = device_.address(kRemote);
        work_.remote_key = device_.key();
        work_.compare_or_add = random_();
        work_.swap = random_();
        sges_.clear();
        if (post::detail::is_atomic(work_.opcode)) {
            sges_.push_back(device_.piece(std::size_t{8} * upto(64), 8));
        } else {
            std::uint32_t left = 2048;
            if (work_.opcode == Opcode::kWrite && upto(1)) {
                work_.flags |= post::kInline;
                left = max_inline_;
            }
            for (std::uint32_t count = upto(kMaxSges); count != 0; --count) {
                const std::uint32_t bytes = upto(std::min(left, 200u));
                sges_.push_back(device_.piece(upto(4096), bytes));
                left -= bytes;
            }
        }
        work_.sges = sges_;
        return work_;
    }

private:
    std::uint32_t upto(std::uint32_t most) {
        return std::uniform_int_distribution<std::uint32_t>(0, most)(random_);
    }
    CheckedDevice& device_;
    std::uint32_t max_inline_;
    std::mt19937 random_{1};
    std::vector<ibv_sge> sges_;
    WorkRequest work_;
};

}  // namespace

Finding check_entries(CheckedDevice& device) {
    need_mlx5(device);
    Finding finding;
    LoopedQp by_verbs(device), by_direct(device);
    post::VerbsSendQueue<post::SingleThreaded> verbs(by_verbs.qp(), 1);
    post::Mlx5SendQueue<post::SingleThreaded> direct(by_direct.qp(), false, by_direct.max_inline,
                                                     true);
    post::Mlx5CompletionQueue<post::SingleThreaded> completions(by_direct.cq());
    completions.add(direct);
    const mlx5dv_qp one = post::detail::layout_of(by_verbs.qp()),
                    other = post::detail::layout_of(by_direct.qp());
    RandomRequests requests(device, std::min(by_verbs.max_inline, by_direct.max_inline));
    constexpr int kRequests = 1000;
    std::string difference;
    for (int i = 0; i < kRequests && difference.empty(); ++i) {
        for (const mlx5dv_qp* qp : {&one, &other})
            std::memset(qp->sq.buf, 0, std::size_t{qp->sq.wqe_cnt} * post::detail::kBlock);
        const WorkRequest& work = requests.next();
        if (verbs.post_now(work) != Posted::kOk || direct.post_now(work) != Posted::kOk)
            throw VerbsError("posting request " + std::to_string(i), EIO);
        by_verbs.wait(by_verbs.cq());
        post::Completion done;
        const auto end = std::chrono::steady_clock::now() + kCompletionPatience;
        while (completions.poll(&done, 1) == 0)
            if (std::chrono::steady_clock::now() > end)
                throw VerbsError("a completion of the direct path", ETIMEDOUT);
        if (done.status != IBV_WC_SUCCESS) throw VerbsError("a completion of the direct path", EIO);
        const auto ring = ring_of(one, by_verbs.qp()->qp_num);
        const auto ours = ring_of(other, by_direct.qp()->qp_num);
        HEDDLE_ASSERT(ring.size() == ours.size(), "both QPs were asked for the same depth");
        for (std::size_t at = 0; at < std::min(ring.size(), ours.size()); ++at)
            if (ring[at] != ours[at]) {
                difference = "byte " + std::to_string(at % post::detail::kBlock) +
                             " of an entry of opcode " +
                             std::to_string(static_cast<int>(work.opcode));
                break;
            }
        if (one.dbrec[MLX5_SND_DBR] != other.dbrec[MLX5_SND_DBR])
            difference = "the doorbell record";
    }
    finding.details = {{"works", kRequests}, {"difference", difference}};
    finding.seen = difference.empty() ? "equal for " + std::to_string(kRequests) + " works"
                                      : "libmlx5 and the direct path differ in " + difference;
    finding.meaning = "The direct path writes what this libmlx5 writes.";
    if (!difference.empty()) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "Use FI_HEDDLE_POST=verbs until this is understood.";
    }
    return finding;
}

}  // namespace heddle::cli
