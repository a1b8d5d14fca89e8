// SPDX-License-Identifier: BSD-2-Clause
// fid_av: the names of peers by number. Tables and maps are the same: a map's fi_addr_t is the
// number, too.
#pragma once

#include <rdma/fi_domain.h>

#include "protocol/address_vector.h"
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
    bool asynchronous;  // FI_EVENT: what was inserted is told by the event queue
    EventQueue* events = nullptr;
    Ref events_ref;
    RefCount refs;  // by endpoints
    Ref domain_ref;
};

int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** av,
                        void* context) noexcept;

}  // namespace heddle::provider
