// SPDX-License-Identifier: BSD-2-Clause
// Remembers bfregs, and adds up counters: see qp_bfreg.h.
#include "softhca/uverbs/qp_bfreg.h"

#include "softhca/base/assert.h"

namespace softhca::uverbs {
namespace {

// By QP index: 0 for none, else bfreg + 1. Written by the thread that creates or destroys the QP.
std::atomic<std::uint16_t> g_bfregs[device::kMaxQps];

void add(std::atomic<std::uint64_t>& to, const std::atomic<std::uint64_t>& from) noexcept {
    to.fetch_add(from.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void add(device::Counters& to, const device::Counters& from) noexcept {
    add(to.doorbells, from.doorbells);
    add(to.blueflame, from.blueflame);
    add(to.wqes, from.wqes);
    add(to.dma_read_wqe, from.dma_read_wqe);
    add(to.dma_read_payload, from.dma_read_payload);
    add(to.dma_write_payload, from.dma_write_payload);
    add(to.dma_write_cqe, from.dma_write_cqe);
    add(to.rnr_naks, from.rnr_naks);
    add(to.retries, from.retries);
    add(to.bytes_sent, from.bytes_sent);
    add(to.bytes_resent, from.bytes_resent);
}

}  // namespace

void remember_bfreg(std::uint32_t qp, std::uint32_t bfreg) noexcept {
    SOFTHCA_ASSERT(qp < device::kMaxQps && (bfreg == device::kNone || bfreg < 0xffff));
    g_bfregs[qp].store(bfreg == device::kNone ? 0 : static_cast<std::uint16_t>(bfreg + 1));
}

std::uint32_t recall_bfreg(std::uint32_t qp) noexcept {
    SOFTHCA_ASSERT(qp < device::kMaxQps);
    const std::uint16_t value = g_bfregs[qp].exchange(0);
    return value ? value - 1u : device::kNone;
}

void retire_counters(device::Context& record, const device::QueuePair& qp) noexcept {
    add(record.counters, qp.send);
    add(record.counters, qp.receive);
}

}  // namespace softhca::uverbs
