// SPDX-License-Identifier: BSD-2-Clause
// Waiting for another attempt: see retries.h. A wire does this over time, and here timers do. After
// an RNR NAK the sender waits for the responder's RNR timer, and while the peer is silent for the
// local ack timeout, each as often as the QP's attributes allow.
#include "softhca/engine/retries.h"

#include "softhca/engine/srq_waiters.h"

namespace softhca::engine {

using device::count;
using device::Fabric;
using device::QueuePair;

namespace {

// IBTA table 45, RNR NAK timer field, in units of 10 microseconds.
constexpr std::uint32_t kRnrTimer[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                         16,    24,   32,   48,    64,    96,    128,   192,
                                         256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                         4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
constexpr std::uint8_t kInfiniteRnr = 7;
constexpr std::uint64_t kHoldNs = 50'000'000, kHoldPeriodNs = 50'000;
// Nanoseconds. A sender that is notified of posts also looks by itself, when this time has passed
// without a notification.
constexpr std::uint64_t kUnnotifiedNs = 1'000'000;
// A sender that waits for ever looks once in this time.
constexpr std::uint64_t kForEverPeriodNs = 5'000'000;

std::uint64_t rnr_wait_ns(std::uint8_t timer) noexcept {
    return std::uint64_t{kRnrTimer[timer & 31]} * 10'000;
}

// Local ack timeout (IBTA 9.7.6.1.3): 4.096 us * 2^timeout. Zero means for ever, and does while the
// other QP is there. Once that QP is known to be gone it means half a second, since a program that
// hangs serves nobody.
std::uint64_t ack_wait_ns(std::uint8_t timeout) noexcept {
    return std::uint64_t{4096} << (timeout ? (timeout & 31) : 17);
}

}  // namespace

bool wait_after_rnr_nak(Fabric& fabric, LocalQp& local, QueuePair& qp, const Request& request,
                        std::uint8_t timer) noexcept {
    count(qp.send.rnr_naks);
    count(qp.send.bytes_resent, request.data.bytes);
    if (!local.counting_rnr) {
        local.counting_rnr = true;
        local.rnr_left = qp.attr.rnr_retry;
    }
    if (qp.attr.rnr_retry != kInfiniteRnr) {
        if (local.rnr_left == 0) return false;
        SOFTHCA_ASSERT(local.counting_rnr, "the count began with the first NAK");
        --local.rnr_left;
    }
    const std::uint64_t end = device::now_ns() + rnr_wait_ns(timer);
    wait_for(local, WaitReason::kRnr, end);
    // If the number of retries is limited, each takes the whole timer.
    if (qp.attr.rnr_retry != kInfiniteRnr || options().device.has(DeviceTrait::kRnrTimers))
        return true;
    // The responder has answered, so its QP is there.
    QueuePair& target = fabric.segment().qps[target_number(qp, request) & (device::kMaxQps - 1)];
    if (!await_receive(fabric, local, target, request.srq_number)) return true;
    // The post ends the wait, however long the timer is.
    local.wait_until = 0;
    local.look_at = end + kUnnotifiedNs;
    SOFTHCA_DEBUG_ASSERT(local.wait_until <= local.look_at, "may_go_on() reads them in this order");
    return true;
}

bool wait_for_response(Fabric& fabric, LocalQp& local, QueuePair& qp,
                       std::uint32_t number) noexcept {
    const std::uint64_t now = device::now_ns();
    const QueuePair& other = fabric.segment().qps[number & (device::kMaxQps - 1)];
    const bool there = other.head.live() && other.number == number;
    if (qp.attr.timeout == 0 && there) {
        wait_for(local, WaitReason::kNoResponse, now + kForEverPeriodNs);
        return true;
    }
    if (!local.counting_retries) {
        local.counting_retries = true;
        local.retry_left = qp.attr.retry_cnt;
    } else {
        if (local.retry_left == 0) return false;
        --local.retry_left;
        count(qp.send.retries);
    }
    wait_for(local, WaitReason::kNoResponse, now + ack_wait_ns(qp.attr.timeout));
    return true;
}

// An unreliable message for which no receive is posted is lost (IBTA 9.8.3, 9.7.7.2.2). A receiver
// of this fabric may have had no processor for milliseconds, in which one with a real adapter would
// have taken a thousand messages. So the message is held for some milliseconds, but not for a
// receiver that posted nothing in all that time before.
bool hold_longer(LocalQp& local) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked(), "the run lock guards `held_until`");
    const std::uint64_t now = device::now_ns();
    if (local.held_until == 0) local.held_until = now + kHoldNs;
    if (now >= local.held_until || !local.holds) return false;
    wait_for(local, WaitReason::kRnr, now + kHoldPeriodNs);
    return true;
}

bool hold(LocalQp& local, std::uint32_t target) noexcept {
    if (local.held_until == 0 && local.in_vain == target) return false;
    if (hold_longer(local)) return true;
    local.in_vain = target;
    return false;
}

}  // namespace softhca::engine
