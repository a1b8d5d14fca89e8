// SPDX-License-Identifier: BSD-2-Clause
#include "verbs/connection.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "heddle/error.h"

namespace heddle::verbs {
namespace {

// ConnectX's usual choices: 4.096 us * 2^14 = 67 ms of patience a try, seven tries; an RNR NAK is
// waited out for ever, because a receiver that is late is not an error.
constexpr std::uint8_t kAckTimeout = 14, kRetries = 7, kRnrForEver = 7, kMinRnrTimer = 12;

void modify(ibv_qp* qp, ibv_qp_attr& attributes, int mask, const char* what) {
    if (const int error = ibv_modify_qp(qp, &attributes, mask))
        throw VerbsError("taking QP " + std::to_string(qp->qp_num) + " to " + what, error);
}

ibv_port_attr query_port(ibv_context* context) {
    ibv_port_attr port{};
    if (const int error = ibv_query_port(context, kPort, &port))
        throw VerbsError("asking for port 1", error);
    return port;
}

std::uint8_t most_reads(ibv_context* context) {
    ibv_device_attr attributes{};
    if (ibv_query_device(context, &attributes) != 0) return 1;
    return static_cast<std::uint8_t>(std::clamp(attributes.max_qp_rd_atom, 1, 16));
}

}  // namespace

QpAddress address_of(ibv_qp* qp) {
    const ibv_port_attr port = query_port(qp->context);
    QpAddress address;
    address.qpn = qp->qp_num;
    address.lid = port.lid;
    address.ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    ibv_gid gid{};
    if (const int error = ibv_query_gid(qp->context, kPort, 0, &gid))
        throw VerbsError("asking for GID 0 of port 1", error);
    std::memcpy(address.gid, gid.raw, sizeof address.gid);
    return address;
}

void connect(ibv_qp* qp, const QpAddress& peer) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = kPort;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    modify(qp, a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");

    const std::uint8_t reads = most_reads(qp->context);
    a = {};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = query_port(qp->context).active_mtu;
    a.dest_qp_num = peer.qpn;
    a.max_dest_rd_atomic = reads;
    a.min_rnr_timer = kMinRnrTimer;
    a.ah_attr.port_num = kPort;
    a.ah_attr.dlid = peer.lid;
    if (peer.ethernet) {
        a.ah_attr.is_global = 1;
        std::memcpy(a.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
        a.ah_attr.grh.hop_limit = 64;
    }
    modify(qp, a,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
           "RTR");

    a = {};
    a.qp_state = IBV_QPS_RTS;
    a.timeout = kAckTimeout;
    a.retry_cnt = kRetries;
    a.rnr_retry = kRnrForEver;
    a.max_rd_atomic = reads;
    modify(qp, a,
           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC,
           "RTS");
}

}  // namespace heddle::verbs
