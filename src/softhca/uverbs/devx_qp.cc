// SPDX-License-Identifier: BSD-2-Clause
// Firmware commands on a queue pair that verbs have made: the reset of a stream of a DCI
// (mlx5dv_dci_stream_id_reset(3)).
#include "softhca/base/assert.h"
#include "softhca/device/epoch.h"
#include "softhca/device/table.h"
#include "softhca/engine/local.h"
#include "softhca/uverbs/devx.h"

namespace softhca::uverbs {
namespace {

using prm::Field;
using prm::Status;

// rts2rts_qp_in: its mask of optional parameters, and the queue pair's extended context
constexpr std::size_t kMask = 0x108, kExtended = 0x110;
constexpr Field kHasExtended{8, 0, 1}, kStream{0, 16, 16};
constexpr std::uint64_t kStreamGiven = 1;  // MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID

}  // namespace

Status change_qp(DeviceContext& context, std::uint32_t handle, const prm::Structure& in) noexcept {
    const device::QueuePair* const qp =
        device::find_own(context.fabric->segment().qps, *context.fabric, context.record, handle);
    if (!qp || qp->number != in.get(prm::kObjectNumber)) return Status::kBadResource;
    if (in.get(prm::kOpcode) != static_cast<std::uint32_t>(prm::Opcode::kRts2Rts))
        return Status::kBadOperation;
    if (!in.get(kHasExtended) || in.get64(kMask) != kStreamGiven) return Status::kBadParameter;
    device::epoch::Section section;
    engine::LocalQp* const local = engine::local_qp(qp->number);
    if (!local || qp->state.load(std::memory_order_acquire) != IBV_QPS_RTS)
        return Status::kBadState;
    const auto stream = static_cast<std::uint16_t>(in.get(kStream, kExtended));
    local->run_lock.lock();
    const bool reset = local->streams.in_use() && local->streams.reset(stream);
    local->run_lock.unlock();
    return reset ? Status::kOk : Status::kBadParameter;
}

}  // namespace softhca::uverbs
