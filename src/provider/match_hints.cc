// SPDX-License-Identifier: BSD-2-Clause
// Checks the hints of a program against the full offer of a device. Where the provider supports
// several values, the offer takes the requested one.
#include <rdma/fi_endpoint.h>

#include <cstring>

#include "heddle/detail/assert.h"
#include "provider/capabilities.h"
#include "provider/domain.h"
#include "provider/endpoint.h"
#include "provider/limits.h"
#include "provider/offer.h"

namespace heddle::provider {
namespace {

// Stops at the first attribute that does not match and reports it as the reason.
class HintMatcher {
public:
    HintMatcher(fi_info& offer, const fi_info& hints, std::uint64_t flags, std::uint32_t version,
                std::string& why)
        : offer_(offer), hints_(hints), flags_(flags), version_(version), why_(why) {}

    bool match() {
        HEDDLE_ASSERT(offer_.domain_attr != nullptr && offer_.ep_attr != nullptr);
        HEDDLE_ASSERT(offer_.tx_attr != nullptr && offer_.rx_attr != nullptr);
        HEDDLE_ASSERT(offer_.fabric_attr != nullptr && offer_.src_addr != nullptr);
        return address() && fabric() && domain() && capabilities() && endpoint() && transmit() &&
               receive();
    }

private:
    bool refuse(const char* what) {
        HEDDLE_ASSERT(what[0] != 0, "a refusal has a reason");
        why_ = what;
        return false;
    }
    bool at_most(std::size_t requested, std::size_t limit, const char* what) {
        return requested <= limit || refuse(what);
    }

    bool address() {
        if (hints_.addr_format != FI_FORMAT_UNSPEC && hints_.addr_format != kAddressFormat)
            return refuse("the address format is the provider's own");
        if (hints_.dest_addr != nullptr && hints_.dest_addrlen != sizeof(protocol::EndpointAddress))
            return refuse("the destination is not the address of an endpoint");
        return source();
    }

    // A source address must name this device. Which endpoint it names does not matter, since the
    // provider numbers endpoints itself.
    bool source() {
        if (hints_.src_addr == nullptr || (flags_ & FI_SOURCE) != 0) return true;
        protocol::EndpointAddress requested, ours;
        if (hints_.src_addrlen != sizeof requested) return refuse("the source is not an address");
        std::memcpy(&requested, hints_.src_addr, sizeof requested);
        std::memcpy(&ours, offer_.src_addr, sizeof ours);
        if (!requested.valid()) return refuse("the source is not an address");
        if (std::memcmp(requested.process.gid, ours.process.gid, sizeof ours.process.gid) != 0)
            return refuse("the source address is that of another device");
        return true;
    }

    bool fabric() {
        const fi_fabric_attr* requested = hints_.fabric_attr;
        if (requested == nullptr) return true;
        if (requested->name != nullptr &&
            std::strcmp(requested->name, offer_.fabric_attr->name) != 0)
            return refuse("another fabric is requested");
        if (requested->prov_name != nullptr && std::strcmp(requested->prov_name, "heddle") != 0)
            return refuse("another provider is requested");
        return true;
    }

    bool domain();
    bool registration();
    bool capabilities();
    bool endpoint();
    bool transmit();
    bool receive();
    bool can_rma() const noexcept { return (offer_.caps & (FI_RMA | FI_ATOMIC)) != 0; }

    fi_info& offer_;
    const fi_info& hints_;
    std::uint64_t flags_;
    std::uint32_t version_;
    std::string& why_;
};

bool HintMatcher::domain() {
    const fi_domain_attr* requested = hints_.domain_attr;
    if (requested == nullptr) return true;
    fi_domain_attr& ours = *offer_.domain_attr;
    const char* name = requested->name;
    // An open domain has the name of its device.
    if (requested->domain != nullptr) {
        name = static_cast<const Domain&>(*requested->domain).name.c_str();
        ours.domain = requested->domain;
    }
    if (name != nullptr && std::strcmp(name, ours.name) != 0)
        return refuse("another domain is requested");
    // Every threading level is supported; it decides what the provider locks. Programs compare the
    // level that they get with the requested one.
    if (requested->threading != FI_THREAD_UNSPEC) ours.threading = requested->threading;
    if (requested->control_progress != FI_PROGRESS_UNSPEC)
        ours.control_progress = requested->control_progress;
    if (requested->data_progress != FI_PROGRESS_UNSPEC)
        ours.data_progress = requested->data_progress;
    if (requested->resource_mgmt != FI_RM_UNSPEC) ours.resource_mgmt = requested->resource_mgmt;
    if (requested->av_type != FI_AV_UNSPEC) ours.av_type = requested->av_type;
    if (requested->auth_key_size != 0) return refuse("authorization keys are not supported");
    if ((requested->caps & ~ours.caps) != 0)
        return refuse("a domain supports local and remote communication only");
    if (FI_VERSION_GE(version_, FI_VERSION(1, 5)) && requested->max_err_data != 0 &&
        requested->max_err_data > ours.max_err_data)
        return refuse("error entries have no further data");
    return at_most(requested->mr_key_size, ours.mr_key_size, "keys have 8 bytes") &&
           at_most(requested->cq_data_size, ours.cq_data_size, "remote CQ data has 8 bytes") &&
           at_most(requested->cq_cnt, ours.cq_cnt, "the device has fewer CQs") &&
           at_most(requested->ep_cnt, ours.ep_cnt, "a domain has at most 65536 endpoints") &&
           at_most(requested->tx_ctx_cnt, ours.tx_ctx_cnt,
                   "a domain has at most 65536 transmit contexts") &&
           at_most(requested->rx_ctx_cnt, ours.rx_ctx_cnt,
                   "a domain has at most 65536 receive contexts") &&
           at_most(requested->max_ep_tx_ctx, 1, "scalable endpoints are not supported") &&
           at_most(requested->max_ep_rx_ctx, 1, "scalable endpoints are not supported") &&
           at_most(requested->max_ep_stx_ctx, 0, "shared transmit contexts are not supported") &&
           at_most(requested->max_ep_srx_ctx, 0, "shared receive contexts are not supported") &&
           at_most(requested->cntr_cnt, ours.cntr_cnt, "a domain has at most 65536 counters") &&
           at_most(requested->mr_iov_limit, ours.mr_iov_limit, "a memory region is contiguous") &&
           at_most(requested->mr_cnt, ours.mr_cnt, "the device has fewer memory regions");
}

bool HintMatcher::capabilities() {
    std::uint64_t caps = hints_.caps;
    if ((caps & ~kCaps) != 0) return refuse("an unsupported capability is requested");
    if (caps != 0) {
        // fi_getinfo(3): without a direction all directions are requested.
        if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & kMessageDirections) == 0)
            caps |= kMessageDirections;
        if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kRmaDirections) == 0)
            caps |= kRmaDirections;
        offer_.caps = caps | kSecondaryCaps;
    }
    return registration();
}

// mr_mode says what the program can comply with. Programs without RMA need none of it, and some
// reject bits that they do not need.
bool HintMatcher::registration() {
    fi_domain_attr& ours = *offer_.domain_attr;
    const int requested = hints_.domain_attr != nullptr ? hints_.domain_attr->mr_mode : 0;
    const bool old = FI_VERSION_LT(version_, FI_VERSION(1, 5)) || requested == kMrBasic;
    const int local = requested & FI_MR_LOCAL;
    if (!can_rma()) {
        ours.mr_mode = local;
        return true;
    }
    if (hints_.domain_attr == nullptr) return true;
    if (requested == kMrScalable)
        return refuse("the device chooses the keys of memory regions, and addresses are virtual");
    if (old) {
        ours.mr_mode = kMrBasic;
        return true;
    }
    if ((requested & kMrMode) == kMrMode) {
        ours.mr_mode = kMrMode | local;
        return true;
    }
    if (hints_.caps != 0)
        return refuse("RMA needs FI_MR_VIRT_ADDR, FI_MR_ALLOCATED and FI_MR_PROV_KEY");
    // The program requested all capabilities, and RMA only as one of them.
    offer_.caps &= ~(FI_RMA | FI_ATOMIC | kRmaDirections);
    ours.mr_mode = local;
    return true;
}

bool HintMatcher::endpoint() {
    const fi_ep_attr* requested = hints_.ep_attr;
    if (requested == nullptr) return true;
    fi_ep_attr& ours = *offer_.ep_attr;
    if (requested->type != FI_EP_UNSPEC && requested->type != FI_EP_RDM)
        return refuse("endpoints are of type FI_EP_RDM");
    if (requested->protocol != FI_PROTO_UNSPEC && requested->protocol != kProtocol)
        return refuse("another protocol is requested");
    if (requested->protocol_version > kProtocolVersion)
        return refuse("a newer version of the protocol is requested");
    if (requested->auth_key_size != 0) return refuse("authorization keys are not supported");
    if (requested->mem_tag_format != 0) ours.mem_tag_format = requested->mem_tag_format;
    return at_most(requested->max_msg_size, ours.max_msg_size, "messages have up to 2^40 bytes") &&
           at_most(requested->max_order_raw_size, ours.max_order_raw_size,
                   "the order of reads after writes ends at 2^40 bytes") &&
           at_most(requested->max_order_war_size, ours.max_order_war_size,
                   "a write may overtake an earlier RMA read") &&
           at_most(requested->max_order_waw_size, ours.max_order_waw_size,
                   "the order of writes after writes ends at 2^40 bytes") &&
           at_most(requested->tx_ctx_cnt, 1, "an endpoint has one transmit context") &&
           at_most(requested->rx_ctx_cnt, 1, "an endpoint has one receive context");
}

bool HintMatcher::transmit() {
    fi_tx_attr& ours = *offer_.tx_attr;
    ours.caps &= offer_.caps;
    const fi_tx_attr* requested = hints_.tx_attr;
    if (requested == nullptr) return true;
    if ((requested->caps & ~kCaps) != 0)
        return refuse("an unsupported transmit capability is requested");
    if (requested->caps != 0) ours.caps &= requested->caps;
    if ((requested->op_flags & ~kTransmitOpFlags) != 0)
        return refuse("unsupported transmit flags are requested");
    ours.op_flags = requested->op_flags;
    if ((requested->msg_order & ~ours.msg_order) != 0)
        return refuse("an unsupported order of messages is requested");
    if ((requested->comp_order & ~ours.comp_order) != 0)
        return refuse("completions are not ordered");
    ours.tclass = requested->tclass;
    return at_most(requested->inject_size, ours.inject_size, "FI_HEDDLE_INJECT_SIZE is smaller") &&
           at_most(requested->size, ours.size, "fewer outstanding operations are supported") &&
           at_most(requested->iov_limit, kMaxIov, "an I/O vector has at most 8 entries") &&
           at_most(requested->rma_iov_limit, kMaxIov, "an I/O vector has at most 8 entries");
}

bool HintMatcher::receive() {
    fi_rx_attr& ours = *offer_.rx_attr;
    ours.caps &= offer_.caps;
    const fi_rx_attr* requested = hints_.rx_attr;
    if (requested == nullptr) return true;
    if ((requested->caps & ~kCaps) != 0)
        return refuse("an unsupported receive capability is requested");
    if (requested->caps != 0) ours.caps &= requested->caps;
    if ((requested->op_flags & ~kReceiveOpFlags) != 0)
        return refuse("unsupported receive flags are requested");
    ours.op_flags = requested->op_flags;
    if ((requested->msg_order & ~ours.msg_order) != 0)
        return refuse("an unsupported order of messages is requested");
    if ((requested->comp_order & ~ours.comp_order) != 0)
        return refuse("completions are not ordered");
    return at_most(requested->total_buffered_recv, ours.total_buffered_recv,
                   "buffered receives are not supported") &&
           at_most(requested->size, ours.size, "fewer outstanding operations are supported") &&
           at_most(requested->iov_limit, kMaxIov, "an I/O vector has at most 8 entries");
}

}  // namespace

bool match_hints(fi_info& offer, const fi_info& hints, std::uint64_t flags, std::uint32_t version,
                 std::string& why) {
    if (!HintMatcher(offer, hints, flags, version, why).match()) return false;
    HEDDLE_ASSERT((offer.caps & ~kCaps) == 0, "more capabilities than are supported");
    HEDDLE_ASSERT((offer.tx_attr->caps & ~kTransmitCaps) == 0);
    HEDDLE_ASSERT((offer.rx_attr->caps & ~kReceiveCaps) == 0);
    HEDDLE_ASSERT((offer.tx_attr->op_flags & ~kTransmitOpFlags) == 0);
    HEDDLE_ASSERT((offer.rx_attr->op_flags & ~kReceiveOpFlags) == 0);
    return true;
}

}  // namespace heddle::provider
