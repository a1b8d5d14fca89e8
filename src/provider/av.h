// SPDX-License-Identifier: BSD-2-Clause
// fid_av: the addresses of peers by number. Tables and maps are the same: the fi_addr_t of a map is
// the number, too.
#pragma once

#include <rdma/fi_domain.h>

#include "protocol/common/address_vector.h"
#include "provider/domain.h"
#include "provider/eq.h"
#include "provider/object.h"

namespace heddle::provider {

struct AddressVectorObject : fid_av {
    using Fid = fid_av;
    AddressVectorObject(Domain& of, bool by_events)
        : fid_av{}, domain(of), asynchronous(by_events), domain_ref(of.refs) {}

    Domain& domain;
    protocol::AddressVector names;
    bool asynchronous;  // FI_EVENT: the event queue reports insertions
    EventQueue* events = nullptr;
    Ref events_ref;
    RefCount refs;  // held by endpoints
    Ref domain_ref;
};

int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** av,
                        void* context) noexcept;

}  // namespace heddle::provider
