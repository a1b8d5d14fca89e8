// SPDX-License-Identifier: BSD-2-Clause
// CREATE_GENERAL_OBJECT: queue pair numbers that no queue pair of the device gets
// (mlx5dv_reserved_qpn_alloc(3)), and the mapping of an address handle to a queue pair
// (mlx5dv_map_ah_to_qp(3)).
#include "softhca/base/assert.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/devx.h"
#include "softhca/uverbs/object_number.h"

namespace softhca::uverbs {
namespace {

using prm::Field;
using prm::Status;
using prm::Structure;

// general_obj_in_cmd_hdr, general_obj_out_cmd_hdr
constexpr Field kType{4, 16, 16}, kLogRange{0xc, 3, 5}, kObject{8, 0, 32};

// A slot of the table that never becomes a queue pair.
Status reserve_number(DeviceContext& context, const Structure& in, Structure& out,
                      FirmwareObject* object) noexcept {
    if (in.get(kLogRange) != 0) return Status::kBadParameter;  // log_reserved_qpn_granularity
    std::uint32_t index;
    device::QueuePair* const slot =
        device::reserve(context.fabric->segment().qps, *context.fabric, context.record,
                        device::kFirstQp, &index, number_search());
    if (!slot) return Status::kNoResources;
    *object = {FirmwareObject::Kind::kReservedNumber, index};
    out.set(kObject, number_of(slot->head, index));
    return Status::kOk;
}

}  // namespace

Status create_general_object(DeviceContext& context, const Structure& in, Structure& out,
                             FirmwareObject* object) noexcept {
    switch (static_cast<GeneralObject>(in.get(kType))) {
        case GeneralObject::kReservedNumber:
            return reserve_number(context, in, out, object);
        case GeneralObject::kAddressMapping:
            // It tells the adapter which queue pair congestion on that path is about. There is no
            // congestion control here, so it has no effect.
            *object = {FirmwareObject::Kind::kAddressMapping, 0};
            return Status::kOk;
    }
    return Status::kBadParameter;
}

void free_reserved_number(DeviceContext& context, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index >= device::kFirstQp && index < device::kMaxQps);
    auto& table = context.fabric->segment().qps;
    device::free_item(table, table[index]);
}

}  // namespace softhca::uverbs
