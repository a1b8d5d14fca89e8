// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/rdmacm/route.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <time.h>

#include <cerrno>
#include <cstring>

#include "softhca/device/identity.h"
#include "softhca/device/port.h"
#include "softhca/rdmacm/abi.h"
#include "softhca/rdmacm/address.h"
#include "softhca/rdmacm/gid_address.h"
#include "softhca/rdmacm/multicast.h"

namespace softhca::rdmacm {
namespace {

constexpr std::uint8_t kRate = 16;            // IB_RATE_200_GBPS, that of the port
constexpr std::uint8_t kPacketLifeTime = 16;  // CMA_IBOE_PACKET_LIFETIME - 2; 4.096 us << it
constexpr std::uint8_t kAckTimeout = 17;
constexpr std::uint8_t kHops = 64;
constexpr std::uint32_t kPathFlags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;

device::Port source_port(const device::Segment& segment, const CmId& id) noexcept {
    return device::port_at(segment, id.source_port);
}
device::Port destination_port(const device::Segment& segment, const CmId& id) noexcept {
    return device::port_at(segment, id.destination_port);
}

void gid_of(const device::Port& port, const CmAddress& address, std::uint8_t* gid) noexcept {
    if (address.family == AF_IB && !is_wild(address)) {
        std::memcpy(gid, address.ip, sizeof address.ip);
        return;
    }
    // As the hardware address of a resolved group (ip_ib_mc_map), or rdma_ip2gid.
    if (is_multicast(address)) return group_gid(port, address, false, gid);
    port.gid(gid_index_of(port, address)).copy_to(gid);
}

bool has_path(const CmId& id) noexcept {
    return id.has_device && (id.is_passive || id.state >= CmState::kRouted) &&
           id.state != CmState::kListening;
}

// An IP address as one of AF_IB. Without a device it has no GID.
CmAddress as_gid(const device::Port& port, const CmId& id, const CmAddress& address) noexcept {
    if (address.family == AF_IB) return address;
    std::uint8_t gid[16]{};
    if (id.has_device && address.family != 0) gid_of(port, address, gid);
    CmAddress out = address_of_gid(gid, device::kDefaultPkey);
    out.service = service_of(id, address);
    out.service_mask = ~0ULL;
    return out;
}

// QUERY_ROUTE has room for IP addresses, and the kernel cuts those of AF_IB.
void write_short_address(const CmAddress& from, sockaddr_in6* out) noexcept {
    std::uint8_t whole[sizeof(device::GidSockaddr)]{};
    write_address(from, whole);
    std::memcpy(out, whole, sizeof *out);
}

}  // namespace

std::uint32_t random_psn() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint32_t>(
        static_cast<std::uint64_t>(now.tv_nsec) * 0xd6e8'feb8'6659'fd93ULL >> 40);
}

ib_uverbs_ah_attr path_to(const device::Segment& segment, const CmId& id) noexcept {
    const device::Port port = source_port(segment, id);
    const device::Port there = destination_port(segment, id);
    ib_uverbs_ah_attr path{};
    path.dlid = there.lid();
    path.port_num = static_cast<std::uint8_t>(port.number());
    if (port.is_ethernet()) {
        path.is_global = 1;
        gid_of(there, id.destination, path.grh.dgid);
        path.grh.sgid_index = static_cast<std::uint8_t>(gid_index_of(port, id.source));
        path.grh.hop_limit = kHops;
        path.grh.traffic_class = static_cast<std::uint8_t>(id.traffic_class);
    }
    return path;
}

rdma_ucm_query_route_resp route_of(const device::Segment& segment, const CmId& id) noexcept {
    rdma_ucm_query_route_resp out{};
    write_short_address(id.source, &out.src_addr);
    write_short_address(id.destination, &out.dst_addr);
    const device::Port port = source_port(segment, id);
    const device::Port there = destination_port(segment, id);
    out.ibdev_index = port.device();
    if (!id.has_device) return out;
    out.node_guid = htobe64(port.node_guid());
    out.port_num = static_cast<std::uint8_t>(port.number());
    ib_user_path_rec& path = out.ib_route[0];
    gid_of(port, id.source, path.sgid);
    if (id.destination.family != 0) gid_of(there, id.destination, path.dgid);
    path.pkey = htobe16(path_pkey(id));
    if (!has_path(id)) return out;
    out.num_paths = 1;
    path.slid = htobe16(port.lid());
    path.dlid = htobe16(there.lid());
    path.reversible = 1;
    path.mtu = port.active_mtu();
    path.hop_limit = port.is_ethernet() ? kHops : 0;
    path.traffic_class = static_cast<std::uint8_t>(id.traffic_class);
    path.numb_path = 1;
    path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
    path.rate = kRate;
    path.packet_life_time = kPacketLifeTime;
    return out;
}

rdma_ucm_query_addr_resp addresses_of(const device::Segment& segment, const CmId& id) noexcept {
    rdma_ucm_query_addr_resp out{};
    out.src_size = static_cast<std::uint16_t>(write_address(id.source, &out.src_addr));
    out.dst_size = static_cast<std::uint16_t>(write_address(id.destination, &out.dst_addr));
    const device::Port port = source_port(segment, id);
    out.ibdev_index = port.device();
    if (!id.has_device) return out;
    out.node_guid = htobe64(port.node_guid());
    out.port_num = static_cast<std::uint8_t>(port.number());
    out.pkey = htobe16(path_pkey(id));
    return out;
}

rdma_ucm_query_addr_resp gids_of(const device::Segment& segment, const CmId& id) noexcept {
    rdma_ucm_query_addr_resp out = addresses_of(segment, id);
    std::memset(&out.src_addr, 0, sizeof out.src_addr);
    std::memset(&out.dst_addr, 0, sizeof out.dst_addr);
    const CmAddress source = as_gid(source_port(segment, id), id, id.source);
    const CmAddress destination = as_gid(destination_port(segment, id), id, id.destination);
    out.src_size = static_cast<std::uint16_t>(write_address(source, &out.src_addr));
    out.dst_size = static_cast<std::uint16_t>(write_address(destination, &out.dst_addr));
    return out;
}

// The record as it travels (IBTA 15.2.5.16).
std::size_t path_of(const device::Segment& segment, const CmId& id, PathAnswer* out) noexcept {
    *out = {};
    const rdma_ucm_query_route_resp route = route_of(segment, id);
    if (route.num_paths == 0) return offsetof(PathAnswer, path);
    const ib_user_path_rec& path = route.ib_route[0];
    auto* const wire = reinterpret_cast<std::uint8_t*>(out->path.path_rec);
    std::memcpy(wire + 8, path.dgid, 16);
    std::memcpy(wire + 24, path.sgid, 16);
    std::memcpy(wire + 40, &path.dlid, 2);
    std::memcpy(wire + 42, &path.slid, 2);
    wire[47] = path.hop_limit;
    wire[48] = path.traffic_class;
    wire[49] = 0x80 | path.numb_path;
    std::memcpy(wire + 50, &path.pkey, 2);
    wire[54] = static_cast<std::uint8_t>(std::uint32_t{path.mtu_selector} << 6 | path.mtu);
    wire[55] = static_cast<std::uint8_t>(std::uint32_t{path.rate_selector} << 6 | path.rate);
    wire[56] = static_cast<std::uint8_t>(std::uint32_t{path.packet_life_time_selector} << 6 |
                                         path.packet_life_time);
    out->paths = 1;
    out->path.flags = kPathFlags;
    return sizeof *out;
}

int qp_attributes(const device::Segment& segment, const CmId& id, std::uint32_t state,
                  ib_uverbs_qp_attr* out) noexcept {
    *out = {};
    out->qp_state = state;
    if (!id.has_device) return EINVAL;
    const bool datagram = id.qp_type == IBV_QPT_UD;
    const bool is_asked = id.state >= CmState::kRequested;
    if (state == IBV_QPS_INIT) {
        out->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        out->port_num = static_cast<std::uint8_t>(source_port(segment, id).number());
        if (!has_pkey(source_port(segment, id), path_pkey(id))) return ENOENT;
        if (datagram) {
            out->qp_attr_mask |= IBV_QP_QKEY;
            out->qkey = id.own.qkey != 0 ? id.own.qkey : kDefaultQkey;
            return 0;
        }
        out->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
        if (is_asked) {
            out->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
            if (id.own.responder_resources)
                out->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        }
        return 0;
    }
    // The remote's QP is known to the passive side from the request on.
    const bool knows_remote = id.state == CmState::kReplied || id.state == CmState::kConnected ||
                              (id.is_passive && id.state == CmState::kRequested);
    if (datagram || !knows_remote) return EINVAL;
    const bool responds = id.qp_type == IBV_QPT_RC || id.qp_type == IBV_QPT_XRC_RECV;
    const bool requests = id.qp_type == IBV_QPT_RC || id.qp_type == IBV_QPT_XRC_SEND;
    if (state == IBV_QPS_RTR) {
        out->qp_attr_mask =
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        out->ah_attr = path_to(segment, id);
        out->path_mtu = source_port(segment, id).active_mtu();
        out->dest_qp_num = id.remote.qp_number;
        out->rq_psn = id.own.psn;
        if (responds) {
            out->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            out->max_dest_rd_atomic = id.own.responder_resources;
        }
        return 0;
    }
    if (state != IBV_QPS_RTS) return EINVAL;
    out->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    out->sq_psn = id.remote.psn;
    if (requests) {
        out->qp_attr_mask |=
            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        out->timeout =
            static_cast<std::uint8_t>(id.ack_timeout ? id.ack_timeout & 31 : kAckTimeout);
        out->retry_cnt = id.own.retry_count;
        out->rnr_retry = id.own.rnr_retry;
        out->max_rd_atomic = id.own.initiator_depth;
    }
    return 0;
}

}  // namespace softhca::rdmacm
