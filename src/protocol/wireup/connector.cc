// SPDX-License-Identifier: BSD-2-Clause
// Connector's interface; connector_service.h has the thread behind it.
#include "protocol/wireup/connector.h"

#include <utility>

#include "protocol/wireup/connector_service.h"

namespace heddle::protocol {

Connector::Connector(ibv_context* context, ibv_pd* pd, const verbs::LocalPort& port,
                     const Options& options)
    : Connector(std::make_unique<Service>(context, pd, port, options)) {}
Connector::Connector(std::unique_ptr<Service> service) noexcept
    : TargetQueuePairs(service->removals()), service_(std::move(service)) {}
Connector::~Connector() = default;

const ProcessName& Connector::process() const noexcept { return service_->self().process; }
const EndpointAddress& Connector::self() const noexcept { return service_->self(); }
void Connector::add(const LocalEndpoint& endpoint) { service_->add(endpoint); }
void Connector::remove(const EndpointAddress& endpoint) { service_->remove(endpoint); }
void Connector::connect(ConnectionRequest& request) { service_->connect(request); }
void Connector::disconnect(ConnectionRequest& request) { service_->stop(request); }
void Connector::abandon(ConnectionRequest& request) { service_->abandon(request); }
void Connector::refuse(const EndpointAddress& peer, const EndpointAddress& endpoint) {
    service_->refuse(peer, endpoint);
}
void Connector::drop(const EndpointAddress& peer, std::uint32_t peer_qpn) {
    service_->drop(peer, peer_qpn);
}
bool Connector::is_quiet(const EndpointAddress& peer, std::uint32_t peer_qpn) const {
    return service_->is_quiet(peer, peer_qpn);
}
void Connector::lose(const EndpointAddress& peer, const EndpointAddress& endpoint) {
    service_->lose(peer, endpoint);
}
void Connector::drained() { service_->drained(); }
bool Connector::has_left(const EndpointAddress& peer, const EndpointAddress& endpoint) const {
    return service_->has_left(peer, endpoint);
}
std::optional<EndpointAddress> Connector::asker(std::uint32_t target_qpn) const {
    return service_->asker(target_qpn);
}
Connector::Counts Connector::counts() const { return service_->counts(); }

}  // namespace heddle::protocol
