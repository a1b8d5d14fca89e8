// SPDX-License-Identifier: BSD-2-Clause
// fi_query_atomic and fi_...atomic_valid.
#include "provider/atomics.h"

#include "protocol/wire.h"
#include "provider/parameters.h"

namespace heddle::provider {

std::size_t atomic_count(protocol::AtomicCall call, fi_datatype datatype, fi_op op) noexcept {
    const auto type = static_cast<unsigned>(datatype), operation = static_cast<unsigned>(op);
    if (type > 0xff || operation > 0xff) return 0;
    const auto narrow_type = static_cast<std::uint8_t>(type);
    if (!protocol::atomic_valid(call, narrow_type, static_cast<std::uint8_t>(operation))) return 0;
    // Request and reply are one message each: what an eager one carries, header and all.
    constexpr std::size_t kAround = sizeof(protocol::Header) + sizeof(protocol::AtomicBody);
    const std::size_t operands = call == protocol::AtomicCall::kCompare ? 2 : 1;
    const std::size_t eager = options().protocol.eager_bytes;
    return (eager - kAround) / (operands * protocol::atomic_size(narrow_type));
}

int query_atomic(fid_domain*, fi_datatype datatype, fi_op op, fi_atomic_attr* attributes,
                 std::uint64_t flags) {
    using protocol::AtomicCall;
    if ((flags & FI_TAGGED) != 0) return -FI_ENOSYS;
    AtomicCall call = AtomicCall::kWrite;
    switch (flags) {
        case 0:
            break;
        case FI_FETCH_ATOMIC:
            call = AtomicCall::kFetch;
            break;
        case FI_COMPARE_ATOMIC:
            call = AtomicCall::kCompare;
            break;
        default:
            return -FI_EBADFLAGS;
    }
    const std::size_t count = atomic_count(call, datatype, op);
    if (count == 0) return -FI_EOPNOTSUPP;
    attributes->count = count;
    attributes->size = protocol::atomic_size(static_cast<std::uint8_t>(datatype));
    return 0;
}

}  // namespace heddle::provider
