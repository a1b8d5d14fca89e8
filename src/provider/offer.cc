// SPDX-License-Identifier: BSD-2-Clause
// The full offer of a device. libfabric frees the structures one by one with free(), and copies
// them with the sizes of its own version. So they are allocated larger than our headers say, and
// zeroed.
#include "provider/offer.h"

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "heddle/detail/assert.h"
#include "protocol/common/endpoint_address.h"
#include "provider/capabilities.h"
#include "provider/limits.h"
#include "provider/nic.h"
#include "provider/parameters.h"
#include "verbs/port_choice.h"

namespace heddle::provider {
namespace {

constexpr std::size_t kRoomToGrow = 256;

template <class T>
T* zeroed() {
    void* memory = std::calloc(1, sizeof(T) + kRoomToGrow);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
}

char* copied(const std::string& text) {
    char* copy = strdup(text.c_str());
    if (copy == nullptr) throw std::bad_alloc();
    return copy;
}

// The members that libfabric 2 added behind fi_domain_attr::tclass, in the order of its versions.
// Our headers have none of them, the first two, or all. The libfabric that loads the provider may
// be newer.
struct DomainAttributes2 {
    std::size_t max_ep_auth_key = 0;
    std::uint32_t max_group_id = 0;
    std::uint64_t max_cntr_value = 0, max_err_cntr_value = 0;
};
constexpr std::size_t kDomainAttributes2 =
    offsetof(fi_domain_attr, tclass) + alignof(DomainAttributes2);
static_assert(kDomainAttributes2 % alignof(DomainAttributes2) == 0);
static_assert(kDomainAttributes2 + sizeof(DomainAttributes2) <=
              sizeof(fi_domain_attr) + kRoomToGrow);

void fill_transmit(fi_tx_attr& tx) {
    tx.caps = kTransmitCaps;
    tx.msg_order = kMessageOrder;
    tx.comp_order = 0;  // none
    tx.inject_size = options().protocol.inject_bytes;
    tx.size = kTransmitSize;
    tx.iov_limit = kMaxIov;
    tx.rma_iov_limit = kMaxIov;
}

void fill_receive(fi_rx_attr& rx) {
    rx.caps = kReceiveCaps;
    rx.msg_order = kMessageOrder;
    rx.comp_order = 0;  // none
    rx.size = kReceiveSize;
    rx.iov_limit = kMaxIov;
}

void fill_endpoint(fi_ep_attr& ep) {
    ep.type = FI_EP_RDM;
    ep.protocol = kProtocol;
    ep.protocol_version = kProtocolVersion;
    ep.max_msg_size = kMaxMessage;
    ep.max_order_raw_size = kMaxMessage;
    ep.max_order_war_size = options().protocol.eager_bytes;  // atomics only
    ep.max_order_waw_size = kMaxMessage;
    ep.mem_tag_format = ~std::uint64_t{0};
    ep.tx_ctx_cnt = 1;
    ep.rx_ctx_cnt = 1;
}

void fill_domain(fi_domain_attr& domain, const DeviceInfo& device, std::uint32_t version) {
    domain.name = copied(port_name(device));
    domain.threading = FI_THREAD_SAFE;
    domain.control_progress = FI_PROGRESS_MANUAL;
    domain.data_progress = FI_PROGRESS_MANUAL;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = FI_AV_TABLE;
    domain.mr_mode = kMrMode;
    domain.mr_key_size = sizeof(std::uint64_t);
    domain.cq_data_size = sizeof(std::uint64_t);
    domain.cq_cnt = device.max_cqs;
    domain.ep_cnt = 1 << 16;  // a header has 16 bits for their numbers
    domain.tx_ctx_cnt = domain.ep_cnt;
    domain.rx_ctx_cnt = domain.ep_cnt;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.cntr_cnt = 1 << 16;
    domain.mr_iov_limit = 1;
    domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    domain.mr_cnt = device.max_mrs;
    if (FI_VERSION_LT(version, FI_VERSION(2, 0))) return;
    DomainAttributes2 newer;
    newer.max_cntr_value = ~std::uint64_t{0};
    newer.max_err_cntr_value = ~std::uint64_t{0};
    std::memcpy(reinterpret_cast<std::byte*>(&domain) + kDomainAttributes2, &newer, sizeof newer);
}

// Sets the source address: the part of an endpoint's address that belongs to the device.
void fill_source(fi_info& info, const DeviceInfo& device) {
    protocol::EndpointAddress name;
    name.flags =
        static_cast<std::uint8_t>((device.ethernet ? protocol::EndpointAddress::kEthernet : 0) |
                                  (device.roce_v1 ? protocol::EndpointAddress::kRoceV1 : 0));
    std::memcpy(name.process.gid, device.gid.data(), sizeof name.process.gid);
    name.process.lid = device.lid;
    HEDDLE_ASSERT(info.src_addr == nullptr, "set once");
    info.src_addr = zeroed<protocol::EndpointAddress>();
    info.src_addrlen = sizeof name;
    std::memcpy(info.src_addr, &name, sizeof name);
}

}  // namespace

void FreeInfo::operator()(fi_info* info) const noexcept {
    while (info != nullptr) {
        fi_info* const next = info->next;
        if (info->fabric_attr != nullptr) std::free(info->fabric_attr->name);
        if (info->domain_attr != nullptr) std::free(info->domain_attr->name);
        std::free(info->src_addr);
        if (info->nic != nullptr) fi_close(&info->nic->fid);
        std::free(info->fabric_attr);
        std::free(info->domain_attr);
        std::free(info->tx_attr);
        std::free(info->rx_attr);
        std::free(info->ep_attr);
        std::free(info);
        info = next;
    }
}

Info full_offer(const DeviceInfo& device, std::uint32_t version) {
    Info info(zeroed<fi_info>());
    info->caps = kCaps;
    info->addr_format = kAddressFormat;
    fill_source(*info, device);
    fill_transmit(*(info->tx_attr = zeroed<fi_tx_attr>()));
    fill_receive(*(info->rx_attr = zeroed<fi_rx_attr>()));
    fill_endpoint(*(info->ep_attr = zeroed<fi_ep_attr>()));
    fill_domain(*(info->domain_attr = zeroed<fi_domain_attr>()), device, version);
    info->fabric_attr = zeroed<fi_fabric_attr>();
    info->fabric_attr->name = copied(verbs::fabric_name(device));
    info->fabric_attr->prov_version = FI_VERSION(HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR);
    info->fabric_attr->api_version = version;
    info->nic = make_nic(device);
    HEDDLE_ASSERT((info->tx_attr->caps & ~info->caps) == 0 &&
                  (info->rx_attr->caps & ~info->caps) == 0);
    HEDDLE_ASSERT(info->tx_attr->inject_size <= info->ep_attr->max_msg_size);
    return info;
}

}  // namespace heddle::provider
