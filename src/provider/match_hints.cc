// SPDX-License-Identifier: BSD-2-Clause
// Hints: what a program asks for is checked against the offer, and the offer becomes what it asked
// for where it has the choice.
#include <rdma/fi_endpoint.h>

#include <cstring>

#include "provider/capabilities.h"
#include "provider/domain.h"
#include "provider/endpoint.h"
#include "provider/limits.h"
#include "provider/offer.h"

namespace heddle::provider {
namespace {

// One reason, at the first thing that does not suit.
class HintMatcher {
public:
    HintMatcher(fi_info& offer, const fi_info& hints, std::uint64_t flags, std::uint32_t version,
                std::string& why)
        : offer_(offer), hints_(hints), flags_(flags), version_(version), why_(why) {}

    bool all() {
        return address() && fabric() && domain() && capabilities() && endpoint() && transmit() &&
               receive();
    }

private:
    bool no(const char* what) {
        why_ = what;
        return false;
    }
    bool most(std::size_t asked, std::size_t there, const char* what) {
        return asked <= there || no(what);
    }

    bool address() {
        if (hints_.addr_format != FI_FORMAT_UNSPEC && hints_.addr_format != kAddressFormat)
            return no("addresses are of the provider's own format");
        if (hints_.dest_addr != nullptr && hints_.dest_addrlen != sizeof(protocol::Name))
            return no("the destination is no name of an endpoint");
        return source();
    }

    // The device of a source that is named has to be ours; which endpoint it is, is ours to say.
    bool source() {
        if (hints_.src_addr == nullptr || (flags_ & FI_SOURCE) != 0) return true;
        protocol::Name asked, ours;
        if (hints_.src_addrlen != sizeof asked) return no("the source is no name");
        std::memcpy(&asked, hints_.src_addr, sizeof asked);
        std::memcpy(&ours, offer_.src_addr, sizeof ours);
        if (!asked.valid()) return no("the source is no name");
        if (std::memcmp(asked.process.gid, ours.process.gid, sizeof ours.process.gid) != 0)
            return no("the source is another device");
        return true;
    }

    bool fabric() {
        const fi_fabric_attr* asked = hints_.fabric_attr;
        if (asked == nullptr) return true;
        if (asked->name != nullptr && std::strcmp(asked->name, offer_.fabric_attr->name) != 0)
            return no("another fabric is asked for");
        if (asked->prov_name != nullptr && std::strcmp(asked->prov_name, "heddle") != 0)
            return no("another provider is asked for");
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
    const fi_domain_attr* asked = hints_.domain_attr;
    if (asked == nullptr) return true;
    fi_domain_attr& ours = *offer_.domain_attr;
    const char* name = asked->name;
    // Of an open domain: the name is that of its device.
    if (asked->domain != nullptr) {
        name = static_cast<const Domain&>(*asked->domain).name.c_str();
        ours.domain = asked->domain;
    }
    if (name != nullptr && std::strcmp(name, ours.name) != 0)
        return no("another domain is asked for");
    // Any level will do: it decides what we lock. Told back as it came, as programs compare.
    if (asked->threading != FI_THREAD_UNSPEC) ours.threading = asked->threading;
    if (asked->control_progress != FI_PROGRESS_UNSPEC)
        ours.control_progress = asked->control_progress;
    if (asked->data_progress != FI_PROGRESS_UNSPEC) ours.data_progress = asked->data_progress;
    if (asked->resource_mgmt != FI_RM_UNSPEC) ours.resource_mgmt = asked->resource_mgmt;
    if (asked->av_type != FI_AV_UNSPEC) ours.av_type = asked->av_type;
    if (asked->auth_key_size != 0) return no("there are no authorization keys");
    if ((asked->caps & ~ours.caps) != 0)
        return no("the domain has no other capabilities than local and remote communication");
    if (FI_VERSION_GE(version_, FI_VERSION(1, 5)) && asked->max_err_data != 0 &&
        asked->max_err_data > ours.max_err_data)
        return no("errors have no further data");
    return most(asked->mr_key_size, ours.mr_key_size, "keys have 8 bytes") &&
           most(asked->cq_data_size, ours.cq_data_size, "remote CQ data has 8 bytes") &&
           most(asked->cq_cnt, ours.cq_cnt, "the device has not so many CQs") &&
           most(asked->ep_cnt, ours.ep_cnt, "there are 65536 endpoints at most") &&
           most(asked->tx_ctx_cnt, ours.tx_ctx_cnt, "there are not so many transmit contexts") &&
           most(asked->rx_ctx_cnt, ours.rx_ctx_cnt, "there are not so many receive contexts") &&
           most(asked->max_ep_tx_ctx, 1, "there are no scalable endpoints") &&
           most(asked->max_ep_rx_ctx, 1, "there are no scalable endpoints") &&
           most(asked->max_ep_stx_ctx, 0, "there are no shared transmit contexts") &&
           most(asked->max_ep_srx_ctx, 0, "there are no shared receive contexts") &&
           most(asked->cntr_cnt, ours.cntr_cnt, "there are not so many counters") &&
           most(asked->mr_iov_limit, ours.mr_iov_limit, "a memory region is one piece") &&
           most(asked->mr_cnt, ours.mr_cnt, "the device has not so many memory regions");
}

bool HintMatcher::capabilities() {
    std::uint64_t caps = hints_.caps;
    if ((caps & ~kCaps) != 0) return no("a capability that is not offered is asked for");
    if (caps != 0) {
        // Directions that were not said are all.
        if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & kMessageDirections) == 0)
            caps |= kMessageDirections;
        if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kRmaDirections) == 0)
            caps |= kRmaDirections;
        offer_.caps = caps | kSecondaryCaps;
    }
    return registration();
}

// mr_mode: what the program says it can do for us. Programs without RMA need nothing of it, and
// some reject what they need not.
bool HintMatcher::registration() {
    fi_domain_attr& ours = *offer_.domain_attr;
    const int asked = hints_.domain_attr != nullptr ? hints_.domain_attr->mr_mode : 0;
    const bool old = FI_VERSION_LT(version_, FI_VERSION(1, 5)) || asked == kMrBasic;
    const int local = asked & FI_MR_LOCAL;
    if (!can_rma()) {
        ours.mr_mode = local;
        return true;
    }
    if (hints_.domain_attr == nullptr) return true;
    if (asked == kMrScalable) return no("keys and addresses of memory regions are the device's");
    if (old) {
        ours.mr_mode = kMrBasic;
        return true;
    }
    if ((asked & kMrMode) == kMrMode) {
        ours.mr_mode = kMrMode | local;
        return true;
    }
    if (hints_.caps != 0)
        return no("RMA needs FI_MR_VIRT_ADDR, FI_MR_ALLOCATED and FI_MR_PROV_KEY");
    // Everything was asked for in general, and nothing of this in particular.
    offer_.caps &= ~(FI_RMA | FI_ATOMIC | kRmaDirections);
    ours.mr_mode = local;
    return true;
}

bool HintMatcher::endpoint() {
    const fi_ep_attr* asked = hints_.ep_attr;
    if (asked == nullptr) return true;
    fi_ep_attr& ours = *offer_.ep_attr;
    if (asked->type != FI_EP_UNSPEC && asked->type != FI_EP_RDM)
        return no("endpoints are of type FI_EP_RDM");
    if (asked->protocol != FI_PROTO_UNSPEC && asked->protocol != kProtocol)
        return no("another protocol is asked for");
    if (asked->protocol_version > kProtocolVersion) return no("the protocol is older");
    if (asked->auth_key_size != 0) return no("there are no authorization keys");
    if (asked->mem_tag_format != 0) ours.mem_tag_format = asked->mem_tag_format;
    return most(asked->max_msg_size, ours.max_msg_size, "messages have up to 2^40 bytes") &&
           most(asked->max_order_raw_size, ours.max_order_raw_size, "order by size") &&
           most(asked->max_order_war_size, ours.max_order_war_size,
                "a write may overtake an RMA read before it") &&
           most(asked->max_order_waw_size, ours.max_order_waw_size, "order by size") &&
           most(asked->tx_ctx_cnt, 1, "an endpoint has one transmit context") &&
           most(asked->rx_ctx_cnt, 1, "an endpoint has one receive context");
}

bool HintMatcher::transmit() {
    fi_tx_attr& ours = *offer_.tx_attr;
    ours.caps &= offer_.caps;
    const fi_tx_attr* asked = hints_.tx_attr;
    if (asked == nullptr) return true;
    if ((asked->caps & ~kCaps) != 0)
        return no("a transmit capability that is not offered is asked for");
    if (asked->caps != 0) ours.caps &= asked->caps;
    if ((asked->op_flags & ~kTransmitOpFlags) != 0)
        return no("flags for transmitting that are not offered are asked for");
    ours.op_flags = asked->op_flags;
    if ((asked->msg_order & ~ours.msg_order) != 0) return no("an order of messages is asked for");
    if ((asked->comp_order & ~ours.comp_order) != 0)
        return no("an order of completions is asked for");
    ours.tclass = asked->tclass;
    return most(asked->inject_size, ours.inject_size, "FI_HEDDLE_INJECT_SIZE is less") &&
           most(asked->size, ours.size, "so many operations under way are asked for") &&
           most(asked->iov_limit, kMaxIov, "there are 8 pieces at most") &&
           most(asked->rma_iov_limit, kMaxIov, "there are 8 pieces at most");
}

bool HintMatcher::receive() {
    fi_rx_attr& ours = *offer_.rx_attr;
    ours.caps &= offer_.caps;
    const fi_rx_attr* asked = hints_.rx_attr;
    if (asked == nullptr) return true;
    if ((asked->caps & ~kCaps) != 0)
        return no("a receive capability that is not offered is asked for");
    if (asked->caps != 0) ours.caps &= asked->caps;
    if ((asked->op_flags & ~kReceiveOpFlags) != 0)
        return no("flags for receiving that are not offered are asked for");
    ours.op_flags = asked->op_flags;
    if ((asked->msg_order & ~ours.msg_order) != 0) return no("an order of messages is asked for");
    if ((asked->comp_order & ~ours.comp_order) != 0)
        return no("an order of completions is asked for");
    return most(asked->total_buffered_recv, ours.total_buffered_recv, "buffered receives") &&
           most(asked->size, ours.size, "so many operations under way are asked for") &&
           most(asked->iov_limit, kMaxIov, "there are 8 pieces at most");
}

}  // namespace

bool match_hints(fi_info& offer, const fi_info& hints, std::uint64_t flags, std::uint32_t version,
                 std::string& why) {
    return HintMatcher(offer, hints, flags, version, why).all();
}

}  // namespace heddle::provider
