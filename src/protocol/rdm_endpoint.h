// SPDX-License-Identifier: BSD-2-Clause
// A reliable, connectionless endpoint: what stands behind one fi_endpoint of type RDM. Messages
// with and without tags, RMA and atomics to any endpoint whose name is in the address vector;
// connections are made when they are first needed.
//
// Threads: one at a time, for everything, the endpoints on the same channel included (category
// mpi+threads: all of the process; Domain::lock() is held for that).
//
// Calls return 0 or a negative FI_E... number; -FI_EAGAIN: progress() first. What was taken ends as
// an entry in the completions that were bound, unless it was asked that it should not.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "protocol/common/address_vector.h"
#include "protocol/common/endpoint_address.h"
#include "protocol/core/endpoint_types.h"
#include "protocol/reuse/reuse.h"
#include "protocol/transport/domain.h"
#include "protocol/tupleq/tuple.h"

namespace heddle::protocol {

class EndpointImpl;  // endpoint_impl.h

class RdmEndpoint {
public:
    // Throws VerbsError.
    RdmEndpoint(std::shared_ptr<Domain> domain, const AddressVector& addresses,
                const Bindings& bindings);
    // Waits for what was injected (a few seconds at most), then ends everything. Operations that
    // are still open end without an entry.
    ~RdmEndpoint();

    const EndpointAddress& name() const noexcept;

    ssize_t send(const SendArguments& arguments);
    ssize_t receive(const ReceiveArguments& arguments);
    ssize_t rma(const RmaArguments& arguments);
    ssize_t atomic(const AtomicArguments& arguments);
    // 0, or -FI_ENOENT: nothing with that context waits. It ends with FI_ECANCELED.
    ssize_t cancel(void* context);
    void set_min_multi_receive(std::size_t bytes) noexcept;

    // Deals with what has come, up to `most` of it.
    void progress(unsigned most = ~0u);
    // For sleepers: a file descriptor (owned here) that is readable after arm() returned true and
    // something came. False: there is something already, progress() first.
    int wait_fd() const noexcept;
    bool arm();

    EndpointCounts counts() const noexcept;
    EndpointState state() const noexcept;
    // For others: operations are open that have not gone out as they are, in one work.
    bool waits() const noexcept;
    ReuseCounts reuse_counts() const noexcept;  // of sources and destinations
    TupleCounts tuple_counts() const noexcept;

    EndpointImpl& impl() noexcept { return *impl_; }

private:
    std::unique_ptr<EndpointImpl> impl_;
};

}  // namespace heddle::protocol
