// SPDX-License-Identifier: BSD-2-Clause
// What the engine reports to the run record (docs/reference/run-record.md). Call these only while
// record::on(). The calling thread is the one that the event belongs to.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "softhca/device/fabric.h"
#include "softhca/engine/hooks.h"
#include "softhca/engine/local.h"
#include "softhca/record/recorder.h"

namespace softhca::engine {

// A CQ was created. Call this inside libmlx5's function that creates it.
void record_cq(device::Fabric& fabric, std::uint32_t index, PolledBy polled) noexcept;

// One doorbell. By ibv_post_send(), which took the list from `first` up to `end` (exclusive);
// by ibv_wr_complete(), which wrote at most `blocks` basic blocks from `from` on; or by a program
// that writes WQEs and registers itself and has called softhca_doorbell(). The caller is inside an
// epoch.
void record_post(device::Fabric& fabric, LocalQp& local, ibv_qp* qp, const ibv_send_wr* first,
                 const ibv_send_wr* end) noexcept;
void record_ring_post(device::Fabric& fabric, LocalQp& local, ibv_qp* qp, std::uint16_t from,
                      std::uint32_t blocks, bool blueflame) noexcept;
void record_direct_post(device::Fabric& fabric, LocalQp& local, const void* uar_register,
                        bool blueflame) noexcept;

// A poll that took `cqes` completions, at least one.
void record_poll(std::uint32_t cq, std::uint32_t cqes) noexcept;

// An object of this process is destroyed; its counters are final.
void record_end_of_qp(device::Fabric& fabric, std::uint32_t index) noexcept;
void record_end_of_cq(device::Fabric& fabric, std::uint32_t index) noexcept;
// The process ends: the totals of all objects that are left.
void finish_record(record::Ending ending) noexcept;

}  // namespace softhca::engine
