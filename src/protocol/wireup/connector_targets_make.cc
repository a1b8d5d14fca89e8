// SPDX-License-Identifier: BSD-2-Clause
// What a peer that asks for a connection gets: a target QP of its own, or by DC a ticket.
#include <algorithm>
#include <cerrno>
#include <mutex>

#include "heddle/detail/assert.h"
#include "protocol/wireup/connector_targets.h"
#include "verbs/connection.h"

namespace heddle::protocol {
namespace {

ibv_qp* create_target(const LocalEndpoint& endpoint) noexcept {
    ibv_qp_init_attr_ex wanted{};
    if (endpoint.xrcd != nullptr) {
        wanted.qp_type = IBV_QPT_XRC_RECV;
        wanted.comp_mask = IBV_QP_INIT_ATTR_XRCD;
        wanted.xrcd = endpoint.xrcd;
    } else {
        wanted.qp_type = IBV_QPT_RC;
        wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
        wanted.pd = endpoint.pd;
        wanted.send_cq = wanted.recv_cq = endpoint.cq;
        wanted.srq = endpoint.srq;
        wanted.cap.max_send_wr = wanted.cap.max_send_sge = 1;  // nothing is sent
    }
    return ibv_create_qp_ex(endpoint.context, &wanted);
}

}  // namespace

// A number that no peer has, or had lately. It is drawn at random, as peers shall not know those of
// others.
void ConnectorTargets::make_ticket(const LocalEndpoint& endpoint, const Datagram& request,
                                   Target& target) {
    HEDDLE_ASSERT(endpoint.dc_target > 1 && endpoint.dc_target < 1u << 24,
                  "the channel's target is there before its endpoints");
    const std::shared_lock lock(askers_mutex_);
    do
        target.psn = random_() & 0xff'ffff;
    while (askers_.contains(target.psn));
    target.qpn = endpoint.dc_target;
    target.mtu = std::min(static_cast<std::uint8_t>(own_.mtu), request.mtu);
    target.reads = std::min(request.reads, verbs::most_reads(endpoint.context));
    target.reached_last = true;  // the device does not say when nothing more comes of a peer
}

int ConnectorTargets::make(const LocalEndpoint& endpoint, const Datagram& request,
                           Target& target) noexcept {
    if (endpoint.name.dc()) {
        make_ticket(endpoint, request, target);
        return 0;
    }
    ibv_qp* const qp = create_target(endpoint);
    if (qp == nullptr) return errno != 0 ? errno : ENOMEM;
    const QpAddress peer = address_of(request.from, request.qpn);
    verbs::ConnectionAttributes attributes = own_;
    attributes.mtu = std::min(own_.mtu, static_cast<ibv_mtu>(request.mtu));
    attributes.receive_psn = request.psn;
    attributes.send_psn = random_() & 0xff'ffff;
    attributes.reads = std::min(request.reads, verbs::most_reads(endpoint.context));
    int error = verbs::to_init(qp, attributes.port, false);
    if (error == 0) error = verbs::to_ready_to_receive(qp, peer, attributes);
    if (error == 0) error = verbs::to_ready_to_send(qp, attributes);
    if (error != 0) {
        ibv_destroy_qp(qp);
        return error;
    }
    HEDDLE_ASSERT(target.qp == nullptr, "a target is made once");
    target.qp = qp;
    target.qpn = qp->qp_num;
    target.psn = attributes.send_psn;
    target.mtu = static_cast<std::uint8_t>(attributes.mtu);
    target.reads = attributes.reads;
    return 0;
}

}  // namespace heddle::protocol
