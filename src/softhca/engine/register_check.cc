// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/register_check.h"

#include <infiniband/verbs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/log.h"
#include "softhca/engine/qp_error.h"

namespace softhca::engine {
namespace {

// The last write of a uUAR: thread << 32 | writer << 26 | blueflame << 25 | QP number. 0: none.
struct Write {
    std::uint32_t thread = 0, qpn = 0;
    RegisterWriter writer = RegisterWriter::kDriver;
    bool blueflame = false;

    static Write of(std::uint64_t word) noexcept {
        return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word & 0xffffff),
                static_cast<RegisterWriter>(word >> 26 & 3), (word >> 25 & 1) != 0};
    }
    std::uint64_t word() const noexcept {
        return std::uint64_t{thread} << 32 |
               std::uint64_t{static_cast<std::uint8_t>(writer)} << 26 |
               std::uint64_t{blueflame} << 25 | qpn;
    }
};

bool is_there(device::Fabric& fabric, std::uint32_t qpn) noexcept {
    const device::QueuePair& qp = fabric.segment().qps[qpn & (device::kMaxQps - 1)];
    return qp.head.live() && qp.number == qpn;
}

}  // namespace

void check_register_write(device::Fabric& fabric, device::QueuePair& qp, std::uint32_t index,
                          RegisterWriter writer, bool blueflame) noexcept {
    if (!qp.blueflame || qp.uar_page >= device::kMaxUarPages || qp.uuar >= device::kUuarsPerUar)
        return;
    thread_local const auto thread = static_cast<std::uint32_t>(syscall(SYS_gettid));
    SOFTHCA_ASSERT(thread != 0, "zero stands for a register that no thread has written");
    SOFTHCA_ASSERT(index < device::kMaxQps, "the index is that of a QP of this process");
    const Write now{thread, qp.number, writer, blueflame};
    auto& last = fabric.segment().uars[qp.uar_page].last_write[qp.uuar];
    const Write before = Write::of(last.exchange(now.word(), std::memory_order_acq_rel));
    if (before.thread == 0 || before.thread == now.thread || before.writer == now.writer) return;
    if ((!before.blueflame && !now.blueflame) || !is_there(fabric, before.qpn)) return;
    LOG_WARN(
        "QP 0x%x: thread %u wrote its uUAR %s, and thread %u that of QP 0x%x %s; the uUAR is "
        "the same one, but their locks are not",
        now.qpn, now.thread, writer == RegisterWriter::kDirect ? "directly" : "by libmlx5",
        before.thread, before.qpn,
        before.writer == RegisterWriter::kDirect ? "directly" : "by libmlx5");
    fail_qp(fabric, index, IBV_EVENT_QP_FATAL, false);
}

}  // namespace softhca::engine
