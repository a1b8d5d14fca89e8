// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/connection.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::verbs {
namespace {

void require(int error, ibv_qp* qp, const char* what) {
    if (error != 0)
        throw VerbsError("taking QP " + std::to_string(qp->qp_num) + " to " + what, error);
}

// All of it but the destination.
void add_grh(ibv_ah_attr& path, const LocalPort& port) noexcept {
    path.is_global = 1;
    path.grh.sgid_index = port.gid_index;
    path.grh.hop_limit = 64;
    path.grh.traffic_class = port.traffic_class;
    path.grh.flow_label = port.flow_label;
}

}  // namespace

std::uint8_t most_reads(ibv_context* context) noexcept {
    ibv_device_attr attributes{};
    if (ibv_query_device(context, &attributes) != 0) return 1;
    return static_cast<std::uint8_t>(std::clamp(attributes.max_qp_rd_atom, 1, 16));
}

bool is_global(const QpAddress& peer, const LocalPort& port) noexcept {
    constexpr std::size_t kSubnetPrefix = 8;
    return peer.ethernet || port.grh_required ||
           std::memcmp(peer.gid, port.gid.data(), kSubnetPrefix) != 0;
}

ibv_ah_attr path_from(const LocalPort& port) noexcept {
    ibv_ah_attr path{};
    path.port_num = port.number;
    path.sl = port.service_level;
    if (port.ethernet || port.grh_required) add_grh(path, port);
    return path;
}

ibv_ah_attr path_to(const QpAddress& peer, const LocalPort& port, std::uint32_t spread) noexcept {
    ibv_ah_attr path = path_from(port);
    if (!peer.ethernet) {
        const unsigned bits = spread & ((1u << std::min(port.lid_bits, peer.lid_bits)) - 1);
        path.dlid = static_cast<std::uint16_t>(peer.lid + bits);
        path.src_path_bits = static_cast<std::uint8_t>(bits);
    }
    if (is_global(peer, port)) {
        add_grh(path, port);
        std::memcpy(path.grh.dgid.raw, peer.gid, sizeof peer.gid);
    }
    return path;
}

QpAddress address_of(ibv_qp* qp, const LocalPort& port) noexcept {
    QpAddress address;
    address.qpn = qp->qp_num;
    address.lid = port.lid;
    address.lid_bits = port.lid_bits;
    address.ethernet = port.ethernet;
    std::copy(port.gid.begin(), port.gid.end(), address.gid);
    return address;
}

namespace {

int to_init_with(ibv_qp* qp, const LocalPort& port, int access) noexcept {
    HEDDLE_ASSERT(qp != nullptr);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = port.number;
    a.pkey_index = port.pkey_index;
    a.qp_access_flags = static_cast<unsigned>(access);
    return ibv_modify_qp(qp, &a,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

}  // namespace

int to_init(ibv_qp* qp, const LocalPort& port, bool atomics) noexcept {
    return to_init_with(qp, port,
                        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0));
}

int to_init_of_sender(ibv_qp* qp, const LocalPort& port) noexcept {
    return to_init_with(qp, port, 0);
}

int to_ready_to_receive(ibv_qp* qp, const QpAddress& peer,
                        const ConnectionAttributes& attributes) noexcept {
    HEDDLE_ASSERT(attributes.reads >= 1 && attributes.reads <= 16, "as most_reads() returns it");
    HEDDLE_ASSERT(attributes.receive_psn < 1u << 24, "IBTA: a PSN has 24 bits");
    HEDDLE_ASSERT(attributes.min_rnr_timer < 32, "IBTA 9.7.5.2.8: five bits");
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = attributes.mtu;
    a.dest_qp_num = peer.qpn;
    a.rq_psn = attributes.receive_psn;
    a.max_dest_rd_atomic = attributes.reads;
    a.min_rnr_timer = attributes.min_rnr_timer;
    a.ah_attr = path_to(peer, attributes.port, qp->qp_num ^ peer.qpn);
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type != IBV_QPT_XRC_SEND)  // it answers no requests
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return ibv_modify_qp(qp, &a, mask);
}

int to_ready_to_send(ibv_qp* qp, const ConnectionAttributes& attributes) noexcept {
    HEDDLE_ASSERT(attributes.send_psn < 1u << 24, "IBTA: a PSN has 24 bits");
    HEDDLE_ASSERT(attributes.ack_timeout < 32 && attributes.retries < 8,
                  "IBTA 9.9.2: 5 and 3 bits");
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = attributes.ack_timeout;
    a.retry_cnt = attributes.retries;
    a.rnr_retry = kRnrForEver;
    a.sq_psn = attributes.send_psn;
    a.max_rd_atomic = attributes.reads;
    int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
    if (qp->qp_type != IBV_QPT_XRC_RECV)  // it sends no requests
        mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(qp, &a, mask);
}

void connect(ibv_qp* qp, const QpAddress& peer, const LocalPort& port) {
    ibv_device_attr device{};
    const bool atomics =
        ibv_query_device(qp->context, &device) == 0 && device.atomic_cap != IBV_ATOMIC_NONE;
    require(to_init(qp, port, atomics), qp, "INIT");
    ConnectionAttributes attributes;
    attributes.mtu = port.mtu;
    attributes.reads = most_reads(qp->context);
    attributes.port = port;
    require(to_ready_to_receive(qp, peer, attributes), qp, "RTR");
    require(to_ready_to_send(qp, attributes), qp, "RTS");
}

void connect_locally(ibv_qp* qp, ibv_qp* peer) {
    const LocalPort port = local_port(qp->context);
    connect(qp, address_of(peer, port), port);
}

}  // namespace heddle::verbs
