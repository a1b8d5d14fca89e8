// SPDX-License-Identifier: BSD-2-Clause
// Reading counters (docs/reference/softhca.md), and the C struct in which softhca_query_qp returns
// them.
#pragma once

#include <cstdint>

#include "softhca/device/segment.h"

extern "C" struct softhca_counters {
    std::uint64_t doorbells, blueflame, wqes, dma_read_wqe, dma_read_payload, dma_write_payload,
        dma_write_cqe, rnr_naks, retries;
};

namespace softhca::engine {

// What a register that was never rung holds in its second eight bytes. No control segment looks
// like it.
inline constexpr std::uint64_t kUntouchedRegister = 0x5eed'5eed'5eed'5eedULL;

// A QP's counters: those of its send queue and of its receive side. CQs count completions.
inline softhca_counters read_counters(const device::Counters& send,
                                      const device::Counters& receive) noexcept {
    const auto get = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    softhca_counters out{};
    out.doorbells = get(send.doorbells);
    out.blueflame = get(send.blueflame);
    out.wqes = get(send.wqes);
    out.dma_read_wqe = device::wqe_reads(send) + device::wqe_reads(receive);
    out.dma_read_payload = get(send.dma_read_payload) + get(receive.dma_read_payload);
    out.dma_write_payload = get(send.dma_write_payload) + get(receive.dma_write_payload);
    out.dma_write_cqe = get(send.dma_write_cqe) + get(receive.dma_write_cqe);
    out.rnr_naks = get(send.rnr_naks);
    out.retries = get(send.retries);
    return out;
}

}  // namespace softhca::engine
