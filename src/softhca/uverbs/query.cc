// SPDX-License-Identifier: BSD-2-Clause
// QUERY_DEVICE and QUERY_PORT: a ConnectX-6, reduced to what softhca implements.
#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "softhca/base/options.h"
#include "softhca/device/clock.h"
#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/uverbs/command.h"
#include "softhca/uverbs/most_sges.h"

namespace softhca::uverbs {
namespace {

using namespace softhca::device;

ib_uverbs_query_device_resp device_attributes(const Command& command) noexcept {
    const Port first = port_of(command.segment(), command.context.device, 1);
    ib_uverbs_query_device_resp out{};
    out.fw_ver =
        std::uint64_t{kFirmwareMajor} << 32 | std::uint64_t{kFirmwareMinor} << 16 | kFirmwareSub;
    out.node_guid = htobe64(first.node_guid());
    out.sys_image_guid = htobe64(first.node_guid());
    out.max_mr_size = ~0ull;
    out.page_size_cap = 0xfffffffffffff000ull;
    out.vendor_id = kVendorOui;
    out.vendor_part_id = kPartId;
    out.hw_ver = kHardwareRevision;
    static_assert(kMaxQps > kFirstQp && kMaxCqs > kFirstCq && kMaxMrs > kFirstMr);
    out.max_qp = kMaxQps - kFirstQp;
    out.max_qp_wr = kMaxQpWr;
    const DeviceTraits& traits = options().device;
    out.device_cap_flags = traits.has(DeviceTrait::kNoXrc)
                               ? kDeviceCapFlags & ~std::uint32_t{IB_UVERBS_DEVICE_XRC}
                               : kDeviceCapFlags;
    out.max_sge = most_sges();
    out.max_sge_rd = out.max_sge;
    out.max_cq = kMaxCqs - kFirstCq;
    out.max_cqe = kMaxCqe;
    out.max_mr = kMaxMrs - kFirstMr;
    out.max_mw = kMaxMws;
    out.max_pd = kMaxPds - kFirstPd;
    out.max_qp_rd_atom = kMaxRdAtomic;
    out.max_res_rd_atom = kMaxRdAtomic * out.max_qp;
    out.max_qp_init_rd_atom = kMaxRdAtomic;
    out.atomic_cap = traits.has(DeviceTrait::kNoAtomics) ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA;
    out.max_mcast_grp = kMaxMulticastGroups;
    out.max_mcast_qp_attach = kMaxGroupMembers;
    out.max_total_mcast_qp_attach = kMaxMulticastGroups * kMaxGroupMembers;
    out.max_ah = 0x7fffffff;  // address vectors lie in the application's WQEs
    out.max_srq = kMaxSrqs - kFirstSrq;
    out.max_srq_wr = kMaxSrqWr;
    out.max_srq_sge = most_srq_sges();
    out.max_pkeys = kPkeyTableLength;
    out.local_ca_ack_delay = 16;
    out.phys_port_cnt = static_cast<std::uint8_t>(ports_of_device(command.segment()));
    return out;
}

// On-demand paging: memory that is not shared is always reached through its owner's page tables.
constexpr std::uint32_t kConnectedPaging = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                           IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                           IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;

ib_uverbs_odp_caps paging_capabilities() noexcept {
    ib_uverbs_odp_caps out{};
    out.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    out.per_transport_caps.rc_odp_caps = kConnectedPaging;
    out.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
    return out;
}

}  // namespace

int query_device(Command& command) noexcept {
    if (!command.extended) return command.respond(device_attributes(command));
    ib_uverbs_ex_query_device request;
    if (const int error = command.request(request)) return error;
    if (request.comp_mask || request.reserved) return EINVAL;
    ib_uverbs_ex_query_device_resp out{};
    out.base = device_attributes(command);
    out.response_length = sizeof out;
    out.timestamp_mask = ~0ull;
    out.hca_core_clock = kClockKhz;
    out.odp_caps = paging_capabilities();
    if (!options().device.has(DeviceTrait::kNoXrc)) out.xrc_odp_caps = kConnectedPaging;
    out.max_dm_size = kMemicBytes;
    const std::size_t room = command.core_out.length;
    out.response_length = static_cast<std::uint32_t>(room < sizeof out ? room : sizeof out);
    if (const int error = command.respond(out)) return error;
    mlx5_ib_query_device_resp driver{};
    driver.flags = MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD;
    if (!options().device.has(DeviceTrait::kNoDc)) {
        driver.dci_streams_caps.max_log_num_concurent = kMaxLogStreams;
        driver.dci_streams_caps.max_log_num_errored = kMaxLogFailedStreams;
    }
    const std::size_t driver_room = command.driver_out.length;
    driver.response_length =
        static_cast<std::uint32_t>(driver_room < sizeof driver ? driver_room : sizeof driver);
    return command.driver_respond(driver);
}

int query_port(Command& command) noexcept {
    ib_uverbs_query_port request;
    if (const int error = command.request(request)) return error;
    if (!has_port(command.segment(), request.port_num)) return EINVAL;
    const Port port = port_of(command.segment(), command.context.device, request.port_num);
    const bool ethernet = port.is_ethernet();
    ib_uverbs_query_port_resp out{};
    out.port_cap_flags = port.capabilities();
    out.max_msg_sz = static_cast<std::uint32_t>(kMaxMessage);
    out.gid_tbl_len = kGidTableLength;
    out.pkey_tbl_len = static_cast<std::uint16_t>(port.pkey_table_length());
    out.lid = port.lid();
    out.sm_lid = port.sm_lid();
    out.state = port.state();
    out.max_mtu = IBV_MTU_4096;
    out.active_mtu = port.active_mtu();
    out.max_vl_num = 4;
    out.subnet_timeout = 18;
    out.active_width = 2;   // 4x
    out.active_speed = 64;  // HDR
    out.phys_state = port.physical_state();
    out.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    return command.respond(out);
}

}  // namespace softhca::uverbs
