// SPDX-License-Identifier: BSD-2-Clause
// Writes completion queues: see completion.h. The owner bit follows PRM "CQE ownership": it flips
// with each pass over the ring, and is stored last, together with the opcode.
#include "softhca/engine/completion.h"

#include <infiniband/verbs.h>
#include <string.h>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/base/tsan.h"
#include "softhca/device/clock.h"
#include "softhca/engine/events.h"
#include "softhca/engine/queue_memory.h"
#include "softhca/engine/spans.h"

namespace softhca::engine {

using device::CompletionQueue;
using device::Fabric;
using device::kNone;

namespace {

// The doorbell record words of a CQ. The arm word is sn << 28 | cmd << 24 | consumer index.
constexpr unsigned kSetCi = 0, kArm = 1;
constexpr std::uint32_t kNotArmed = 0xffffffffu;
constexpr std::uint32_t kSolicitedOnly = 1u << 24;
constexpr std::uint32_t kCounterMask = 0xffffff;
constexpr std::uint32_t kFarBehind = 0x400000;

// How many CQEs `later` is after `earlier`, both modulo 2^24; 0 if it is not after it.
std::uint32_t entries_between(std::uint32_t earlier, std::uint32_t later) noexcept {
    const std::uint32_t difference = (later - earlier) & kCounterMask;
    return difference & 0x800000 ? 0 : difference;
}

// Trait `arm`. By the sequence number of an arm the device tells a new arm from a repeated one.
// Every driver counts it with the events that it has read (rdma-core providers/mlx5/cq.c,
// mlx5_cq_event). An arm with another number changes nothing: an earlier arm stays in force.
std::uint32_t arm_in_force(const CompletionQueue& cq, std::uint32_t record) noexcept {
    return (record >> 28 & 3) == (cq.events_sent & 3) ? record : cq.arm_taken;
}

// Sends an event if the application armed the queue for the CQEs that have arrived since. The
// caller holds the queue's lock. A CQE causes at most one event (IBTA 11.4.2.2: notification is of
// CQEs that are added). A CQE that arrived while the queue was not armed had none, and causes it
// when the queue is armed.
void notify(Fabric& fabric, CompletionQueue& cq) noexcept {
    if (cq.channel == kNone) return;
    std::uint32_t arm;
    if (!record_read(fabric, cq.head.owner(), cq.record, kArm, &arm) || arm == kNotArmed) return;
    if (options().device.has(DeviceTrait::kArm)) [[unlikely]] {
        arm = cq.arm_taken = arm_in_force(cq, arm);
        if (arm == kNotArmed) return;
    }
    const bool solicited_only = arm & kSolicitedOnly;
    const std::uint32_t seen = arm & kCounterMask;
    const std::uint32_t wanted = solicited_only ? cq.last_solicited : cq.producer;
    const std::uint32_t before = entries_between(seen, cq.announced) ? cq.announced : seen;
    if (!entries_between(before, wanted)) return;
    // This comes before the event, because the thread that the event wakes may arm again at once.
    record_write(fabric, cq.head.owner(), cq.record, kArm, kNotArmed);
    cq.arm_taken = kNotArmed;
    ++cq.events_sent;
    if (send_completion_event(fabric, cq.channel, cq.channel_generation, cq.user_handle)) {
        cq.announced = solicited_only ? wanted : before + 1;
        return;
    }
    --cq.events_sent;  // the channel's pipe is full: the next CQE tries again
    cq.arm_taken = arm;
    record_write(fabric, cq.head.owner(), cq.record, kArm, arm);
}

void overrun(Fabric& fabric, CompletionQueue& cq) noexcept {
    cq.failed = 1;
    const std::uint32_t owner = cq.head.owner();
    LOG_WARN("CQ 0x%x of process %d overrun: %u entries, none free", cq.number,
             owner < device::kMaxProcesses ? fabric.segment().processes[owner].pid : 0,
             cq.cqe_count);
    std::atomic_ref<std::uint32_t> sent(cq.async_events_sent);
    std::atomic<std::uint32_t> one{0};
    send_async_event(fabric, cq.head.context, IBV_EVENT_CQ_ERR, cq.user_handle, &one);
    sent.fetch_add(one.load());
}

// The caller holds the queue's lock. The owner's record is in a cache line that the owner writes at
// each poll. So it is read only if the queue would be full by its last known value.
bool is_full(Fabric& fabric, CompletionQueue& cq) noexcept {
    const auto waiting = [&] { return (cq.producer - cq.consumer_seen) & kCounterMask; };
    if (waiting() < cq.cqe_count) return false;
    if (!record_read(fabric, cq.head.owner(), cq.record, kSetCi, &cq.consumer_seen)) return false;
    return waiting() >= cq.cqe_count && !(waiting() & 0x800000);
}

// Copies by words, as the fields were just written: a wider load would wait for those stores to
// retire.
void store_entry(std::byte* to, const mlx5_cqe64& cqe, std::uint8_t op_own) noexcept {
    SOFTHCA_DEBUG_ASSERT((reinterpret_cast<std::uintptr_t>(to) & 3) == 0,
                         "queue_words() gives no other address");
    constexpr unsigned kWords = offsetof(mlx5_cqe64, sop_drop_qpn) / 4;
    const auto* from = reinterpret_cast<const std::byte*>(&cqe);
    for (unsigned i = 0; i < kWords; ++i) {
        std::uint32_t word;
        memcpy(&word, from + i * 4, 4);
        std::atomic_ref(reinterpret_cast<std::uint32_t*>(to)[i])
            .store(word, std::memory_order_relaxed);
    }
    const std::uint32_t end[] = {cqe.sop_drop_qpn, htole32(std::uint32_t{cqe.wqe_counter} |
                                                           std::uint32_t{cqe.signature} << 16 |
                                                           std::uint32_t{op_own} << 24)};
    std::atomic_ref(reinterpret_cast<std::uint32_t*>(to)[kWords])
        .store(end[0], std::memory_order_relaxed);
    std::atomic_ref(reinterpret_cast<std::uint32_t*>(to)[kWords + 1])
        .store(end[1], std::memory_order_release);
}

}  // namespace

void clear(Completion& completion) noexcept {
    memset(&completion.cqe, 0, sizeof completion.cqe);
    completion.opcode = 0;
    completion.solicited = false;
    completion.inline_length = 0;
}

// Vendor syndromes seen in logs of ConnectX adapters, e.g. "Remote access (synd 0x13 vend 0x88)".
std::uint8_t vendor_syndrome(std::uint8_t syndrome) noexcept {
    switch (syndrome) {
        case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
            return 0xd6;
        case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
            return 0x68;
        case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
            return 0x51;
        case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
            return 0xf9;
        case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
            return 0x8a;
        case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
            return 0x88;
        case MLX5_CQE_SYNDROME_REMOTE_OP_ERR:
            return 0x89;
        case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
            return 0x81;
        case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
            return 0x87;
        default:
            return 0;
    }
}

void set_error(Completion& completion, std::uint8_t opcode, std::uint8_t syndrome) noexcept {
    SOFTHCA_ASSERT(opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR,
                   "only these two have a syndrome");
    SOFTHCA_ASSERT(syndrome != 0, "zero stands for no error");
    auto* error = reinterpret_cast<mlx5_err_cqe*>(&completion.cqe);
    error->vendor_err_synd = vendor_syndrome(syndrome);
    error->syndrome = syndrome;
    completion.opcode = opcode;
    completion.inline_length = 0;
}

Put put_completion(Fabric& fabric, std::uint32_t index, Completion& completion,
                   bool patient) noexcept {
    SOFTHCA_DEBUG_ASSERT(completion.opcode <= 0xf, "the opcode has four bits of the last byte");
    SOFTHCA_DEBUG_ASSERT(completion.inline_length <= sizeof completion.payload,
                         "in_entry() bounds what travels in the CQE");
    static_assert(sizeof completion.payload <= sizeof completion.cqe);
    if (index >= device::kMaxCqs) return Put::kFailed;
    CompletionQueue& cq = fabric.segment().cqs[index];
    if (!cq.head.live()) return Put::kFailed;
    if (!(patient ? cq.lock.lock() : cq.lock.try_lock_briefly())) return Put::kBusy;
    Put result = Put::kFailed;
    const std::uint32_t process = cq.head.owner();
    if (!cq.failed && !cq.ignore_overrun && is_full(fabric, cq)) overrun(fabric, cq);
    if (!cq.failed) {
        const std::uint32_t slot = cq.producer & (cq.cqe_count - 1);
        // A CQE has one of two sizes, whatever another process has written there.
        const std::uint32_t entry_bytes = cq.cqe_size == 128 ? 128 : 64;
        const std::uint64_t at = std::uint64_t{slot} * entry_bytes;
        const std::uint64_t body = at + entry_bytes - 64;
        // Reading the clock takes a tenth of the time of a small message, so it is done only for
        // programs that can see the timestamp. An error CQE has its syndromes in the timestamp's
        // place.
        if (cq.timestamps && completion.opcode != MLX5_CQE_REQ_ERR &&
            completion.opcode != MLX5_CQE_RESP_ERR)
            completion.cqe.timestamp =
                htobe64(device::counter_to_ns(device::counter(), fabric.segment().clock_factor));
        const std::uint8_t owner = (cq.producer & cq.cqe_count) ? 1 : 0;
        std::uint8_t flags = 0;
        if (completion.inline_length && entry_bytes == 128) {
            flags = MLX5_INLINE_SCATTER_64;
            queue_write(fabric, process, cq.buffer, at, completion.payload,
                        completion.inline_length);
        } else if (completion.inline_length) {
            flags = MLX5_INLINE_SCATTER_32;
            copy_few(&completion.cqe, completion.payload, completion.inline_length);
        }
        const auto op_own = static_cast<std::uint8_t>(completion.opcode << 4 | flags |
                                                      (completion.solicited ? 2 : 0) | owner);
        tsan_release(&cq);
        if (std::byte* to = queue_words(fabric, process, cq.buffer, body, 64)) {
            store_entry(to, completion.cqe, op_own);
        } else {
            completion.cqe.op_own = op_own;
            queue_write(fabric, process, cq.buffer, body, &completion.cqe, 63);
            queue_write(fabric, process, cq.buffer, body + 63, &completion.cqe.op_own, 1);
        }
        ++cq.producer;
        if (completion.solicited || completion.opcode == MLX5_CQE_REQ_ERR ||
            completion.opcode == MLX5_CQE_RESP_ERR)
            cq.last_solicited = cq.producer;
        else if (cq.producer - cq.last_solicited > kFarBehind)  // counters compare modulo 2^24
            cq.last_solicited = cq.producer - kFarBehind;
        device::count(cq.counters.dma_write_cqe);
        notify(fabric, cq);
        result = Put::kOk;
    }
    cq.lock.unlock();
    return result;
}

void check_armed(Fabric& fabric, std::uint32_t index) noexcept {
    if (index >= device::kMaxCqs) return;
    CompletionQueue& cq = fabric.segment().cqs[index];
    if (!cq.head.live() || cq.channel == kNone || !cq.lock.lock()) return;
    notify(fabric, cq);
    cq.lock.unlock();
}

bool is_armed(Fabric& fabric, std::uint32_t index) noexcept {
    if (index >= device::kMaxCqs) return false;
    CompletionQueue& cq = fabric.segment().cqs[index];
    if (!cq.head.live() || cq.channel == kNone || !cq.lock.lock()) return false;
    std::uint32_t arm = kNotArmed;
    const bool is_read = record_read(fabric, cq.head.owner(), cq.record, kArm, &arm);
    cq.lock.unlock();
    return is_read && arm != kNotArmed;
}

void disarm(Fabric& fabric, CompletionQueue& cq) noexcept {
    record_write(fabric, cq.head.owner(), cq.record, kArm, kNotArmed);
    cq.arm_taken = kNotArmed;
}

}  // namespace softhca::engine
