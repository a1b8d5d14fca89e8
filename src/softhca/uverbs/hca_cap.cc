// SPDX-License-Identifier: BSD-2-Clause
// QUERY_HCA_CAP: the device's capabilities as its firmware reports them. They are what QUERY_DEVICE
// says, in another form (query.cc), and what only this command says. A capability that is not set
// here is one that softhca has not.
#include <infiniband/verbs.h>

#include <bit>

#include "softhca/base/options.h"
#include "softhca/device/clock.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/uverbs/devx.h"

namespace softhca::uverbs {
namespace {

using prm::Field;
using prm::Status;
using prm::Structure;

// query_hca_cap_in.op_mod: the kind of capabilities, and whether those in force are asked for (1)
// or the largest that could be set (0). Here they are the same.
enum class CapabilityKind : std::uint32_t {
    kGeneral = 0x0,
    kPaging = 0x2,
    kAtomic = 0x3,
};
constexpr std::uint32_t kLastKind = 0x2b;  // that the PRM names

constexpr std::size_t kBlock = 0x10;  // where the capabilities begin in the response
// cmd_hca_cap.port_type, gid_table_size and max_message are codes.
constexpr std::uint32_t kLogMaxMessage = 30;
static_assert(device::kMaxMessage == std::uint64_t{1} << kLogMaxMessage);

constexpr std::uint32_t log2_of(std::uint32_t count) noexcept {
    return static_cast<std::uint32_t>(std::bit_width(count) - 1);
}

void fill_sizes(Structure& out) noexcept {
    using namespace device;
    out.set({0x10, 0, 8}, log2_of(kMaxSrqWr + 1), kBlock);   // log_max_srq_sz
    out.set({0x10, 8, 8}, log2_of(kMaxQpWr), kBlock);        // log_max_qp_sz
    out.set({0x10, 27, 5}, log2_of(kMaxQps), kBlock);        // log_max_qp
    out.set({0x14, 11, 5}, log2_of(kMaxSrqs), kBlock);       // log_max_srq
    out.set({0x18, 8, 8}, log2_of(kMaxCqe + 1), kBlock);     // log_max_cq_sz
    out.set({0x18, 27, 5}, log2_of(kMaxCqs), kBlock);        // log_max_cq
    out.set({0x1c, 10, 6}, log2_of(kMaxMrs), kBlock);        // log_max_mkey
    out.set({0x20, 9, 7}, 63, kBlock);                       // log_max_mrw_sz
    out.set({0x20, 26, 6}, log2_of(kMaxMkeyParts), kBlock);  // log_max_klm_list_size
    out.set({0x20, 0, 8}, 4, kBlock);                        // max_indirection
    const std::uint32_t reads = log2_of(kMaxRdAtomic);
    out.set({0x24, 10, 6}, reads, kBlock);                                  // log_max_ra_req_dc
    out.set({0x24, 26, 6}, reads, kBlock);                                  // log_max_ra_res_dc
    out.set({0x28, 10, 6}, reads, kBlock);                                  // log_max_ra_req_qp
    out.set({0x28, 26, 6}, reads, kBlock);                                  // log_max_ra_res_qp
    out.set({0x48, 24, 8}, log2_of(kUarPageBytes), kBlock);                 // log_pg_sz
    out.set({0x4c, 11, 5}, log2_of(kBfRegisterBytes), kBlock);              // log_bf_reg_size
    out.set({0x50, 16, 16}, kMaxSqDescriptorBytes + 16, kBlock);            // max_wqe_sz_sq
    out.set({0x54, 16, 16}, kMaxRqDescriptorBytes, kBlock);                 // max_wqe_sz_rq
    out.set({0x58, 16, 16}, kMaxSqDescriptorBytes + 16, kBlock);            // max_wqe_sz_sq_dc
    out.set({0x64, 11, 5}, log2_of(kMaxPds), kBlock);                       // log_max_pd
    out.set({0x64, 27, 5}, log2_of(kMaxXrcds), kBlock);                     // log_max_xrcd
    out.set({0x9c, 0, 32}, static_cast<std::uint32_t>(kClockKhz), kBlock);  // device_frequency_khz
}

void fill_port(Structure& out, const device::Port& port, unsigned ports) noexcept {
    // gid_table_size and pkey_table_size: 8 and 128 times a power of two.
    static_assert(device::kGidTableLength == 8);
    out.set({0x30, 16, 16}, log2_of(port.pkey_table_length() / 128 + 1), kBlock);
    out.set({0x34, 11, 5}, 16, kBlock);                          // local_ca_ack_delay
    out.set({0x34, 22, 2}, port.is_ethernet() ? 1 : 0, kBlock);  // port_type
    out.set({0x34, 24, 8}, ports, kBlock);                       // num_ports
    out.set({0x38, 3, 5}, kLogMaxMessage, kBlock);               // log_max_msg
    out.set({0x3c, 28, 4}, 1, kBlock);                           // cqe_version
    out.set({0x40, 29, 1}, port.is_ethernet(), kBlock);          // roce
}

void fill_features(Structure& out) noexcept {
    const DeviceTraits& traits = options().device;
    const bool dc = !traits.has(DeviceTrait::kNoDc);
    out.set({0x20, 8, 1}, 1, kBlock);    // fixed_buffer_size: keys of equal parts (KSM)
    out.set({0x40, 0, 1}, 1, kBlock);    // compact_address_vector
    out.set({0x40, 12, 1}, dc, kBlock);  // dc_req_sctr_data_cqe
    out.set({0x40, 21, 1}, 1, kBlock);   // sctr_data_cqe
    out.set({0x40, 26, 1}, dc, kBlock);  // dct
    out.set({0x40, 30, 1}, !traits.has(DeviceTrait::kNoAtomics), kBlock);  // atomic
    out.set({0x44, 0, 2}, 3, kBlock);                                      // cq_oi, cq_resize
    out.set({0x44, 7, 1}, 1, kBlock);                                      // pg: on-demand paging
    out.set({0x44, 28, 1}, !traits.has(DeviceTrait::kNoXrc), kBlock);      // xrc
    out.set({0x44, 29, 3}, 7, kBlock);                                     // ud, uc, rc
    out.set({0x24, 2, 1}, 1, kBlock);                                      // qpc_extension
    out.set({0x28, 19, 1}, 1, kBlock);               // dma_mmo_sq: copies by mlx5dv_wr_memcpy()
    out.set({0x0c, 11, 5}, kLogMaxMessage, kBlock);  // log_dma_mmo_max_size
    if (dc) {
        out.set({0xb0, 11, 5}, device::kMaxLogStreams, kBlock);  // log_max_dci_stream_channels
        out.set({0xb0, 19, 5}, device::kMaxLogFailedStreams,
                kBlock);  // log_max_dci_errored_streams
    }
    std::uint64_t objects = 0;
    for (const GeneralObject each :
         {GeneralObject::kReservedNumber, GeneralObject::kAddressMapping})
        objects |= std::uint64_t{1} << static_cast<std::uint32_t>(each);
    out.set64(kBlock + 0x80, objects);                                      // general_obj_types
    out.set({0x48, 0, 1}, 1, kBlock);                                       // uar_4k
    out.set({0x4c, 0, 1}, !traits.has(DeviceTrait::kNoBlueFlame), kBlock);  // bf
}

// odp_cap: a word for each transport, in this order.
void fill_paging(Structure& out) noexcept {
    constexpr std::size_t kRc = 0x10, kUd = 0x18, kXrc = 0x1c, kDc = 0x20;
    // send, receive, write, read, atomic, srq_receive
    constexpr std::uint32_t kAll = 0x3f, kSendAndReceive = 0x30;
    const DeviceTraits& traits = options().device;
    const auto set = [&](std::size_t transport, std::uint32_t operations) {
        out.set({0, 0, 6}, operations, kBlock + transport);
    };
    set(kRc, kAll);
    set(kUd, kSendAndReceive);
    if (!traits.has(DeviceTrait::kNoXrc)) set(kXrc, kAll);
    if (!traits.has(DeviceTrait::kNoDc)) set(kDc, kAll);
}

// atomic_caps: which operations, and on how many bytes (a bit for each size).
void fill_atomic(Structure& out) noexcept {
    if (options().device.has(DeviceTrait::kNoAtomics)) return;
    constexpr std::uint32_t kCompareAndSwap = 1, kFetchAndAdd = 2, kEightBytes = 8;
    out.set({0x10, 16, 16}, kCompareAndSwap | kFetchAndAdd, kBlock);
    out.set({0x14, 16, 16}, kEightBytes, kBlock);
    if (!options().device.has(DeviceTrait::kNoDc)) out.set({0x18, 16, 16}, kEightBytes, kBlock);
}

}  // namespace

Status query_hca_cap(DeviceContext& context, const Structure& in, Structure& out) noexcept {
    switch (static_cast<CapabilityKind>(in.get(prm::kOpMod) >> 1)) {
        case CapabilityKind::kGeneral:
            fill_sizes(out);
            fill_port(out, device::port_of(context.fabric->segment(), context.device, 1),
                      device::ports_of_device(context.fabric->segment()));
            fill_features(out);
            return Status::kOk;
        case CapabilityKind::kPaging:
            fill_paging(out);
            return Status::kOk;
        case CapabilityKind::kAtomic:
            fill_atomic(out);
            return Status::kOk;
    }
    // The device has nothing that the other kinds are about.
    return in.get(prm::kOpMod) >> 1 <= kLastKind ? Status::kOk : Status::kBadParameter;
}

}  // namespace softhca::uverbs
