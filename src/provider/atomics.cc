// SPDX-License-Identifier: BSD-2-Clause
// Implements fi_query_atomic(3) and the ..._atomicvalid calls.
#include "provider/atomics.h"

#include "heddle/detail/assert.h"
#include "protocol/wire/wire.h"
#include "provider/parameters.h"

namespace heddle::provider {

std::size_t atomic_count(protocol::AtomicCall call, fi_datatype datatype, fi_op op) noexcept {
    const auto type = static_cast<unsigned>(datatype), operation = static_cast<unsigned>(op);
    if (type > 0xff || operation > 0xff) return 0;
    const auto type_number = static_cast<std::uint8_t>(type);
    if (!protocol::atomic_valid(call, type_number, static_cast<std::uint8_t>(operation))) return 0;
    // Request and reply are one eager message each, with a header.
    constexpr std::size_t kAround = sizeof(protocol::Header) + sizeof(protocol::AtomicBody);
    const std::size_t operands = call == protocol::AtomicCall::kCompare ? 2 : 1;
    const std::size_t eager = options().protocol.eager_bytes;
    HEDDLE_ASSERT(eager > kAround && protocol::atomic_size(type_number) != 0);
    return (eager - kAround) / (operands * protocol::atomic_size(type_number));
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
