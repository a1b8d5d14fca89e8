// SPDX-License-Identifier: BSD-2-Clause
// fid_ep: an RDM endpoint. fi_enable(3) creates the protocol's endpoint behind it, since all
// bindings are known by then. An alias (fi_ep_alias) has flags of its own and the same protocol
// endpoint.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/detail/assert.h"
#include "protocol/rdm_endpoint.h"
#include "provider/av.h"
#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/domain.h"
#include "provider/guarded.h"
#include "provider/object.h"

namespace heddle::provider {

// The flags of one direction. `flags` are those of calls that have no flags argument. `completion`
// is added to the flags of calls that have one: FI_COMPLETION, unless the CQ is bound with
// FI_SELECTIVE_COMPLETION.
struct CallFlags {
    std::uint64_t flags = 0, completion = 0;
};

// What fi_ep_bind(3) has bound. It is fixed once the endpoint is enabled.
struct EndpointBindings {
    AddressVectorObject* addresses = nullptr;
    CompletionQueue *transmit = nullptr, *receive = nullptr;
    bool transmit_selective = false, receive_selective = false;
    CounterObject* counters[6] = {};  // see kCounterFlags
};

// Where calls without flags go first. No fast path takes a lock, so all are nullptr unless the
// domain has none.
struct FastPaths {
    protocol::EndpointImpl* injects = nullptr;  // small messages
    // Small messages that get an entry as soon as they are sent, and receives with a tag; nullptr
    // if the flags, or what is bound, say otherwise.
    protocol::EndpointImpl *sends = nullptr, *receives = nullptr;
};

struct Endpoint : fid_ep {
    using Fid = fid_ep;
    Endpoint(Domain& domain, const fi_info& info);
    Endpoint(Endpoint& original, std::uint64_t flags);  // an alias

    // The members that every call needs come first.
    Domain* domain;
    protocol::RdmEndpoint* rdm = nullptr;  // nullptr: not enabled
    FastPaths fast;
    CallFlags sending, receiving;
    std::uint64_t any_source;  // all ones: FI_DIRECTED_RECV was not asked for
    std::size_t inject_bytes;
    bool local_descriptors;  // FI_MR_LOCAL: the program says which of its regions a buffer is in

    // Without FI_MR_LOCAL a program may pass any value.
    void* const* usable(void* const* descriptors) const noexcept {
        return local_descriptors ? descriptors : nullptr;
    }
    // Likewise; but RMA of one buffer uses that of a region which holds it (known_regions.h). An
    // array of descriptors is not even looked at: its address may be any value, too.
    bool is_usable_by_rma(const void* descriptor, const iovec& buffer, bool reads) const noexcept {
        return local_descriptors || domain->known_regions.holds(descriptor, buffer, reads);
    }
    // FI_INJECT is a default of this endpoint, and the message is too long for it.
    bool too_long(std::size_t bytes) const noexcept {
        return (sending.flags & FI_INJECT) != 0 && bytes > inject_bytes;
    }

    std::uint64_t transmit_op_flags, receive_op_flags;  // fi_info's, or FI_SETOPSFLAG's
    std::uint64_t caps;
    std::size_t min_multi_receive;
    EndpointBindings bindings;
    std::vector<std::unique_ptr<Ref>> bound;
    std::vector<std::byte> scratch;               // gathered operands of atomics
    std::unique_ptr<protocol::RdmEndpoint> made;  // nullptr in an alias
    RefCount refs;                                // held by aliases
    Ref original_ref;
    Ref domain_ref;

    void derive_flags() noexcept;
};

// In the order of EndpointBindings::counters.
inline constexpr std::uint64_t kCounterFlags[6] = {FI_SEND,  FI_RECV,        FI_READ,
                                                   FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};

// Calls `call` for an enabled endpoint under its domain's guard. Every operation comes this way.
template <class Call>
ssize_t operate(fid_ep* handle, Call&& call) noexcept {
    auto& endpoint = static_cast<Endpoint&>(*handle);
    if (endpoint.rdm == nullptr) [[unlikely]]
        return -FI_EOPBADSTATE;
    return guarded("an operation", [&]() -> ssize_t {
        Guard guard(*endpoint.domain);
        HEDDLE_DEBUG_ASSERT(endpoint.fid.fclass == FI_CLASS_EP, "no endpoint, or a closed one");
        HEDDLE_DEBUG_ASSERT(endpoint.fast.sends == nullptr || endpoint.domain->lock == nullptr);
        return call(endpoint);
    });
}

// The flags that a program may pass to calls with a flags argument.
inline constexpr std::uint64_t kTransmitFlags = FI_INJECT | FI_COMPLETION | FI_INJECT_COMPLETE |
                                                FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |
                                                FI_MATCH_COMPLETE | FI_REMOTE_CQ_DATA | FI_MORE;
inline constexpr std::uint64_t kReceiveFlags = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;
inline constexpr std::uint64_t kTaggedReceiveFlags =
    FI_COMPLETION | FI_MORE | FI_PEEK | FI_CLAIM | FI_DISCARD;

// Returns the sum of the lengths, or SIZE_MAX if it overflows: that is more than any limit.
inline std::size_t total(const iovec* iov, std::size_t count) noexcept {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i)
        if (__builtin_add_overflow(bytes, iov[i].iov_len, &bytes)) return SIZE_MAX;
    return bytes;
}

fi_ops_msg& message_table() noexcept;
fi_ops_tagged& tagged_table() noexcept;
fi_ops_rma& rma_table() noexcept;
fi_ops_atomic& atomic_table() noexcept;
fi_ops_ep& option_table() noexcept;

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) noexcept;

}  // namespace heddle::provider
