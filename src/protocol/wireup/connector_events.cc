// SPDX-License-Identifier: BSD-2-Clause
// What the connector does about asynchronous events: of QPs, of ports, and of devices that fail.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/wireup/connector_report.h"
#include "protocol/wireup/connector_service.h"
#include "protocol/wireup/port_change.h"
#include "verbs/device_name.h"

namespace heddle::protocol {

bool Connector::Service::is_watched(ibv_context* context) const noexcept {
    const auto& all = targets_.endpoints();
    return std::any_of(all.begin(), all.end(),
                       [&](const LocalEndpoint& each) { return each.context == context; });
}

// Under the lock, so that no context goes meanwhile. The object of an event exists until the event
// is acknowledged, and its destruction waits for that. So an event is acknowledged before anything
// is done that could wait for a destruction.
void Connector::Service::read_events() noexcept {
    if (!std::exchange(has_events_, false)) return;
    for (const LocalEndpoint& endpoint : targets_.endpoints()) {
        ibv_async_event event;
        while (ibv_get_async_event(endpoint.context, &event) == 0) {
            const ibv_event_type type = event.event_type;
            switch (type) {
                case IBV_EVENT_QP_LAST_WQE_REACHED: {
                    const std::uint32_t number = event.element.qp->qp_num;
                    ibv_ack_async_event(&event);
                    targets_.reached_last(number);
                    continue;
                }
                case IBV_EVENT_QP_FATAL:
                case IBV_EVENT_QP_REQ_ERR:
                case IBV_EVENT_QP_ACCESS_ERR: {
                    // In the error state all WRs of the QP complete, and its owner or peer acts on
                    // these completions. (A responder has none; its requester is answered a NAK.)
                    ibv_qp_attr attributes{};
                    attributes.qp_state = IBV_QPS_ERR;
                    ibv_modify_qp(event.element.qp, &attributes, IBV_QP_STATE);
                    break;
                }
                case IBV_EVENT_CQ_ERR: {
                    const ibv_cq* const cq = event.element.cq;
                    ibv_ack_async_event(&event);
                    device_failed(type, EIO, [&](const LocalEndpoint& e) { return e.cq == cq; });
                    continue;
                }
                case IBV_EVENT_SRQ_ERR: {
                    const ibv_srq* const srq = event.element.srq;
                    ibv_ack_async_event(&event);
                    device_failed(type, EIO, [&](const LocalEndpoint& e) { return e.srq == srq; });
                    continue;
                }
                case IBV_EVENT_DEVICE_FATAL:
                    ibv_ack_async_event(&event);
                    device_failed(type, ENODEV, [&](const LocalEndpoint& e) {
                        return e.context == endpoint.context;
                    });
                    continue;
                case IBV_EVENT_PORT_ERR:
                case IBV_EVENT_PORT_ACTIVE:
                case IBV_EVENT_LID_CHANGE:
                case IBV_EVENT_GID_CHANGE:
                case IBV_EVENT_PKEY_CHANGE: {
                    const int port = event.element.port_num;
                    ibv_ack_async_event(&event);
                    if (port == port_.port().number) port_changed(endpoint.context, type);
                    continue;
                }
                default:  // paths and limits: what they break ends with completions
                    break;
            }
            ibv_ack_async_event(&event);
        }
    }
}

// Each context of the process reports the same event; the first one counts.
void Connector::Service::port_changed(ibv_context* context, ibv_event_type type) noexcept {
    const bool is_down = type == IBV_EVENT_PORT_ERR;
    if ((is_down || type == IBV_EVENT_PORT_ACTIVE) && std::exchange(is_down_, is_down) == is_down)
        return;
    const PortChange change = port_change(context, port_.port(), type);
    port_.take_port(change.now);
    own_.port = change.now;
    own_.mtu = change.now.mtu;
    if (change.text.empty()) return;
    try {
        const std::string line =
            verbs::name_of_port(device_, change.now.number) + " " + change.text;
        if (change.is_for_user)
            tell_user(options_.complain, line);
        else if (options_.inform != nullptr)
            options_.inform(line.c_str());
    } catch (const std::bad_alloc&) {  // then it is not said
    }
}

// Tells the channels of the endpoints concerned, and the user.
template <class Concerns>
void Connector::Service::device_failed(ibv_event_type type, int error,
                                       const Concerns& concerns) noexcept {
    bool is_first = false;
    for (const LocalEndpoint& endpoint : targets_.endpoints()) {
        if (endpoint.drain == nullptr || !concerns(endpoint)) continue;
        if (endpoint.drain->device_error.exchange(error, std::memory_order_release) != 0) continue;
        is_first = true;
        endpoint.drain->ask(endpoint.drain->argument);
    }
    if (!is_first) return;
    try {
        tell_user(options_.complain, "device " + device_ + " reports \"" +
                                         ibv_event_type_str(type) +
                                         "\": all operations of its endpoints end with an error (" +
                                         std::strerror(error) + ")");
    } catch (const std::bad_alloc&) {  // the operations end all the same
    }
}

}  // namespace heddle::protocol
