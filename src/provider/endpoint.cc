// SPDX-License-Identifier: BSD-2-Clause
// Opens, binds, enables, names and closes endpoints.
#include "provider/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>

#include <algorithm>
#include <cstring>

#include "protocol/endpoint_impl.h"
#include "provider/guarded.h"
#include "provider/limits.h"
#include "provider/parameters.h"
#include "provider/stats.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

template <class Object>
void hold(Endpoint& endpoint, Object& bound) {
    endpoint.bound.push_back(std::make_unique<Ref>(bound.refs));
}

int bind_cq(Endpoint& endpoint, CompletionQueue& cq, std::uint64_t flags) {
    if ((flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)) != 0) return -FI_EBADFLAGS;
    if ((flags & (FI_TRANSMIT | FI_RECV)) == 0) return -FI_EBADFLAGS;
    if (&cq.domain != endpoint.domain) return -FI_EINVAL;
    if ((flags & FI_TRANSMIT) != 0 && endpoint.bindings.transmit != nullptr) return -FI_EBUSY;
    if ((flags & FI_RECV) != 0 && endpoint.bindings.receive != nullptr) return -FI_EBUSY;
    HEDDLE_ASSERT(endpoint.made == nullptr, "bindings are fixed once an endpoint is enabled");
    hold(endpoint, cq);
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    if ((flags & FI_TRANSMIT) != 0) {
        endpoint.bindings.transmit = &cq;
        endpoint.bindings.transmit_selective = selective;
    }
    if ((flags & FI_RECV) != 0) {
        endpoint.bindings.receive = &cq;
        endpoint.bindings.receive_selective = selective;
    }
    return 0;
}

int bind_counter(Endpoint& endpoint, CounterObject& counter, std::uint64_t flags) {
    std::uint64_t known = 0;
    for (const std::uint64_t each : kCounterFlags)
        known |= each;
    if (flags == 0 || (flags & ~known) != 0) return -FI_EBADFLAGS;
    if (&counter.domain != endpoint.domain) return -FI_EINVAL;
    for (std::size_t i = 0; i < std::size(kCounterFlags); ++i)
        if ((flags & kCounterFlags[i]) != 0 && endpoint.bindings.counters[i] != nullptr)
            return -FI_EBUSY;
    HEDDLE_ASSERT(endpoint.made == nullptr, "bindings are fixed once an endpoint is enabled");
    hold(endpoint, counter);
    for (std::size_t i = 0; i < std::size(kCounterFlags); ++i)
        if ((flags & kCounterFlags[i]) != 0) endpoint.bindings.counters[i] = &counter;
    return 0;
}

int bind_endpoint(fid* handle, fid* other, std::uint64_t flags) {
    auto& endpoint = object<Endpoint>(handle);
    if (endpoint.rdm != nullptr) return -FI_EOPBADSTATE;
    return guarded("fi_ep_bind", [&] {
        switch (other->fclass) {
            case FI_CLASS_AV: {
                auto& addresses = object<AddressVectorObject>(other);
                if (&addresses.domain != endpoint.domain) return -FI_EINVAL;
                if (endpoint.bindings.addresses != nullptr) return -FI_EBUSY;
                hold(endpoint, addresses);
                endpoint.bindings.addresses = &addresses;
                return 0;
            }
            case FI_CLASS_CQ:
                return bind_cq(endpoint, object<CompletionQueue>(other), flags);
            case FI_CLASS_CNTR:
                return bind_counter(endpoint, object<CounterObject>(other), flags);
            case FI_CLASS_EQ:
                hold(endpoint, object<EventQueue>(other));
                return 0;  // endpoints write no events
            default:
                return -FI_ENOSYS;
        }
    });
}

int enable(Endpoint& endpoint) {
    if (endpoint.rdm != nullptr) return 0;
    if (endpoint.bindings.addresses == nullptr) return -FI_ENOAV;
    const auto counter = [&](std::size_t i) {
        return endpoint.bindings.counters[i] != nullptr ? &endpoint.bindings.counters[i]->count
                                                        : nullptr;
    };
    const bool sends = (endpoint.caps & (FI_SEND | FI_READ | FI_WRITE)) != 0;
    const bool receives = (endpoint.caps & FI_RECV) != 0;
    if (sends && endpoint.bindings.transmit == nullptr && !counter(0) && !counter(2) && !counter(3))
        return -FI_ENOCQ;
    if (receives && endpoint.bindings.receive == nullptr && !counter(1)) return -FI_ENOCQ;
    protocol::Bindings bindings;
    bindings.transmit =
        endpoint.bindings.transmit != nullptr ? &endpoint.bindings.transmit->ring : nullptr;
    bindings.receive =
        endpoint.bindings.receive != nullptr ? &endpoint.bindings.receive->ring : nullptr;
    bindings.send_counter = counter(0);
    bindings.receive_counter = counter(1);
    bindings.read_counter = counter(2);
    bindings.write_counter = counter(3);
    bindings.remote_read_counter = counter(4);
    bindings.remote_write_counter = counter(5);

    Domain& domain = *endpoint.domain;
    Guard guard(domain);
    if ((endpoint.caps & FI_ATOMIC) != 0)
        endpoint.scratch.resize(2 * options().protocol.eager_bytes);
    endpoint.made = std::make_unique<protocol::RdmEndpoint>(
        domain.protocol, endpoint.bindings.addresses->names, bindings);
    endpoint.made->set_min_multi_receive(endpoint.min_multi_receive);
    try {
        domain.enabled(*endpoint.made);
    } catch (...) {  // the domain keeps no pointer to an endpoint that is not enabled
        domain.closing(*endpoint.made);
        endpoint.made.reset();
        throw;
    }
    endpoint.rdm = endpoint.made.get();
    HEDDLE_ASSERT(endpoint.refs.any() == false, "an alias of an endpoint that was not enabled");
    if (domain.lock == nullptr && endpoint.inject_bytes >= sizeof(std::uint64_t) &&
        options().protocol.inline_bytes >= sizeof(std::uint64_t))
        endpoint.fast.injects = &endpoint.made->impl();
    endpoint.derive_flags();
    return 0;
}

int make_alias(Endpoint& endpoint, const struct fi_alias& wanted) {
    if (endpoint.rdm == nullptr) return -FI_EOPBADSTATE;
    auto alias = std::make_unique<Endpoint>(endpoint, wanted.flags);
    *wanted.fid = &alias.release()->fid;
    return 0;
}

// FI_SETOPSFLAG and FI_GETOPSFLAG. FI_TRANSMIT or FI_RECV says which flags are meant.
int operation_flags(Endpoint& endpoint, std::uint64_t& flags, bool set) {
    const std::uint64_t direction = flags & (FI_TRANSMIT | FI_RECV);
    if (direction != FI_TRANSMIT && direction != FI_RECV) return -FI_EINVAL;
    std::uint64_t& ours =
        direction == FI_TRANSMIT ? endpoint.transmit_op_flags : endpoint.receive_op_flags;
    const std::uint64_t possible = direction == FI_TRANSMIT ? kTransmitOpFlags : kReceiveOpFlags;
    if (!set) {
        flags = ours;
        return 0;
    }
    const std::uint64_t wanted = flags & ~direction;
    if ((wanted & ~possible) != 0) return -FI_EBADFLAGS;
    Guard guard(*endpoint.domain);
    ours = wanted;
    endpoint.derive_flags();
    return 0;
}

int control_endpoint(fid* handle, int command, void* argument) {
    auto& endpoint = object<Endpoint>(handle);
    return guarded("fi_control of an endpoint", [&] {
        switch (command) {
            case FI_ENABLE:
                return enable(endpoint);
            case FI_ALIAS:
                return make_alias(endpoint, *static_cast<struct fi_alias*>(argument));
            case FI_GETOPSFLAG:
            case FI_SETOPSFLAG:
                return operation_flags(endpoint, *static_cast<std::uint64_t*>(argument),
                                       command == FI_SETOPSFLAG);
            default:
                return -FI_ENOSYS;
        }
    });
}

int close_endpoint(fid* handle) {
    auto& endpoint = object<Endpoint>(handle);
    if (endpoint.refs.any()) return -FI_EBUSY;
    return guarded("fi_close of an endpoint", [&] {
        Domain& domain = *endpoint.domain;
        Guard guard(domain);
        HEDDLE_ASSERT(endpoint.made == nullptr || endpoint.made.get() == endpoint.rdm);
        if (endpoint.made != nullptr) {
            endpoint_closing(domain, *endpoint.made);
            domain.closing(*endpoint.made);
        }
        delete &endpoint;
        return 0;
    });
}

int get_name(fid* handle, void* address, std::size_t* bytes) {
    auto& endpoint = object<Endpoint>(handle);
    if (endpoint.rdm == nullptr) return -FI_EOPBADSTATE;
    const std::size_t room = *bytes;
    *bytes = sizeof(protocol::EndpointAddress);
    if (room < sizeof(protocol::EndpointAddress)) return -FI_ETOOSMALL;
    std::memcpy(address, &endpoint.rdm->name(), sizeof(protocol::EndpointAddress));
    return 0;
}

fi_ops endpoint_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_endpoint,
    .bind = bind_endpoint,
    .control = control_endpoint,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
fi_ops_cm cm_table = {
    .size = sizeof(fi_ops_cm),
    .setname = unsupported,
    .getname = get_name,
    .getpeer = unsupported,
    .connect = unsupported,
    .listen = unsupported,
    .accept = unsupported,
    .reject = unsupported,
    .shutdown = unsupported,
    .join = unsupported,
};
fi_ops_collective collective_table = {
    .size = sizeof(fi_ops_collective),
    .barrier = unsupported,
    .broadcast = unsupported,
    .alltoall = unsupported,
    .allreduce = unsupported,
    .allgather = unsupported,
    .reduce_scatter = unsupported,
    .reduce = unsupported,
    .scatter = unsupported,
    .gather = unsupported,
    .msg = unsupported,
    .barrier2 = unsupported,
};

void fill_tables(Endpoint& endpoint, void* context) {
    describe(endpoint.fid, FI_CLASS_EP, context, endpoint_fid_ops);
    endpoint.ops = &option_table();
    endpoint.cm = &cm_table;
    endpoint.msg = &message_table();
    endpoint.tagged = &tagged_table();
    endpoint.rma = &rma_table();
    endpoint.atomic = &atomic_table();
    endpoint.collective = &collective_table;
}

}  // namespace

Endpoint::Endpoint(Domain& of, const fi_info& info)
    : fid_ep{},
      domain(&of),
      any_source((info.caps & FI_DIRECTED_RECV) != 0 ? 0 : FI_ADDR_UNSPEC),
      inject_bytes(options().protocol.inject_bytes),
      local_descriptors(of.local_descriptors),
      transmit_op_flags(info.tx_attr != nullptr ? info.tx_attr->op_flags & kTransmitOpFlags : 0),
      receive_op_flags(info.rx_attr != nullptr ? info.rx_attr->op_flags & kReceiveOpFlags : 0),
      caps(info.caps),
      min_multi_receive(kMinMultiReceive),
      domain_ref(of.refs) {}

Endpoint::Endpoint(Endpoint& original, std::uint64_t flags)
    : fid_ep{},
      domain(original.domain),
      rdm(original.rdm),
      fast(original.fast),
      any_source(original.any_source),
      inject_bytes(original.inject_bytes),
      local_descriptors(original.local_descriptors),
      transmit_op_flags(original.transmit_op_flags),
      receive_op_flags(original.receive_op_flags),
      caps(original.caps),
      min_multi_receive(original.min_multi_receive),
      bindings(original.bindings),
      scratch(original.scratch.size()),
      original_ref(original.refs),
      domain_ref(original.domain->refs) {
    HEDDLE_ASSERT(rdm != nullptr && made == nullptr, "only an enabled endpoint has aliases");
    fill_tables(*this, original.fid.context);
    const std::uint64_t own = flags & ~(FI_TRANSMIT | FI_RECV);
    if ((flags & FI_TRANSMIT) != 0) transmit_op_flags = own & kTransmitOpFlags;
    if ((flags & FI_RECV) != 0) receive_op_flags = own & kReceiveOpFlags;
    derive_flags();
}

void Endpoint::derive_flags() noexcept {
    sending.completion =
        bindings.transmit != nullptr && !bindings.transmit_selective ? FI_COMPLETION : 0;
    receiving.completion =
        bindings.receive != nullptr && !bindings.receive_selective ? FI_COMPLETION : 0;
    sending.flags = transmit_op_flags | sending.completion;
    receiving.flags = receive_op_flags | receiving.completion;
    HEDDLE_ASSERT((transmit_op_flags & ~kTransmitOpFlags) == 0);
    HEDDLE_ASSERT((receive_op_flags & ~kReceiveOpFlags) == 0);
    if (bindings.transmit == nullptr) sending.flags &= ~FI_COMPLETION;
    if (bindings.receive == nullptr) receiving.flags &= ~FI_COMPLETION;
    HEDDLE_ASSERT(fast.injects == nullptr || domain->lock == nullptr,
                  "the fast path takes no lock");
    const bool is_early =
        sending.flags & FI_COMPLETION && protocol::may_report_early(sending.flags);
    fast.sends = is_early ? fast.injects : nullptr;
    const bool is_plain =
        rdm != nullptr && domain->lock == nullptr && (receiving.flags & FI_COMPLETION) != 0 &&
        rdm->impl().bindings.receive_counter == nullptr && rdm->impl().tuples == nullptr;
    fast.receives = is_plain ? &rdm->impl() : nullptr;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** out, void* context) noexcept {
    return guarded("fi_endpoint", [&] {
        if (info == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
        if (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC)
            return -FI_EINVAL;
        auto endpoint = std::make_unique<Endpoint>(static_cast<Domain&>(*domain), *info);
        fill_tables(*endpoint, context);
        *out = endpoint.release();
        return 0;
    });
}

}  // namespace heddle::provider
