// SPDX-License-Identifier: BSD-2-Clause
// When does a device send the event that a completion queue was armed for? See hardware_check.h.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "cli/heddle/looped_qp.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/post/mlx5_completion_queue.h"
#include "heddle/post/mlx5_send_queue.h"

namespace heddle::cli {
namespace {

using post::Opcode;
using post::Posted;
using post::WorkRequest;

// How long an event may take; and one that is not expected.
constexpr int kEventMs = 5000, kNoEventMs = 300;

// An arm with a number of the caller's choice (PRM "CQ doorbell"), as the direct path writes it.
void arm_with(ibv_cq* cq, std::uint32_t number, std::uint32_t consumed) {
    const mlx5dv_cq shown = post::detail::layout_of(cq);
    HEDDLE_ASSERT(shown.dbrec != nullptr && shown.cq_uar != nullptr && shown.cqn < 1u << 24,
                  "libmlx5 shows where a CQ is armed");
    const std::uint32_t command = (number & 3) << 28 | (consumed & 0xffffff);
    post::detail::store_record(shown.dbrec + 1, htobe32(command));
    post::detail::begin_register_stores();
    auto* const at = static_cast<std::byte*>(shown.cq_uar) + 0x20;
    post::detail::store_register(at, htobe64(std::uint64_t{command} << 32 | shown.cqn));
    post::detail::end_register_stores();
    if (const post::detail::Doorbell hook = post::detail::doorbell_hook()) hook(at);
}

const char* taken(bool event) { return event ? "taken" : "ignored"; }

}  // namespace

Finding check_arm(CheckedDevice& device) {
    need_mlx5(device);
    Finding finding;
    constexpr unsigned kArms = 9;
    unsigned missed_by_verbs = 0, missed_directly = 0;
    {
        LoopedQp loop(device);
        for (unsigned arms = 1; arms <= kArms; ++arms) {
            for (unsigned i = 0; i < arms; ++i)
                ibv_req_notify_cq(loop.cq(), 0);
            loop.write(0, kRemote, 8);
            if (!loop.event(kEventMs)) ++missed_by_verbs;
            loop.wait(loop.cq());
        }
    }
    {
        LoopedQp loop(device);
        post::Mlx5SendQueue<post::SingleThreaded> send(loop.qp(), true, loop.max_inline, true);
        post::Mlx5CompletionQueue<post::SingleThreaded> completions(loop.cq());
        completions.add(send);
        const ibv_sge piece = device.piece(0, 8);
        WorkRequest work;
        work.opcode = Opcode::kWrite;
        work.sges = {&piece, 1};
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
            const auto end = std::chrono::steady_clock::now() + kCompletionPatience;
            while (completions.poll(&done, 1) == 0)
                if (std::chrono::steady_clock::now() > end)
                    throw VerbsError("a completion", ETIMEDOUT);
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
    const auto message = [](LoopedQp& loop, int milliseconds) {
        loop.write(0, kRemote, 8);
        loop.wait(loop.cq());
        return loop.event(milliseconds);
    };
    LoopedQp later(device), earlier(device);
    arm_with(later.cq(), 1, 0);
    const bool took_later = message(later, kNoEventMs);
    arm_with(earlier.cq(), 0, 0);
    if (!message(earlier, kEventMs)) throw VerbsError("the event of a first arm", ETIMEDOUT);
    arm_with(earlier.cq(), 0, 1);
    const bool took_earlier = message(earlier, kNoEventMs);
    finding.details = {{"number_ahead", taken(took_later)},
                       {"number_of_last", taken(took_earlier)}};
    finding.seen = std::string("the number of the arm before is ") + taken(took_earlier) +
                   ", a number ahead is " + taken(took_later);
    finding.meaning = "As heddle has it: it counts arms with the events that it has read.";
    if (took_earlier) {
        finding.answer = Answer::kDiffers;
        finding.meaning = "The device is kinder than heddle needs.";
    }
    return finding;
}

}  // namespace heddle::cli
