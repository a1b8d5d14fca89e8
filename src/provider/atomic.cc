// SPDX-License-Identifier: BSD-2-Clause
// fi_atomic(3): the calls. The protocol needs contiguous operands and copies them before it
// returns. Operands in several entries are gathered in the endpoint's scratch memory.
#include <rdma/fi_atomic.h>

#include <cstdint>
#include <cstring>

#include "provider/atomics.h"
#include "provider/endpoint.h"
#include "provider/limits.h"

namespace heddle::provider {
namespace {

using protocol::AtomicCall;

// The operands, compare values or results of a call.
struct IoVector {
    const fi_ioc* ioc = nullptr;
    std::size_t count = 0;

    // Returns the number of elements, or SIZE_MAX if the sum overflows: that is more than any
    // limit.
    std::size_t elements() const noexcept {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < count; ++i)
            if (__builtin_add_overflow(sum, ioc[i].count, &sum)) return SIZE_MAX;
        return sum;
    }
    // Returns the elements contiguously: where they are, or copied to `scratch`.
    const void* gathered(std::size_t size, std::byte* scratch) const noexcept {
        if (count == 1) return ioc[0].addr;
        std::byte* to = scratch;
        for (std::size_t i = 0; i < count; ++i) {
            if (ioc[i].addr == nullptr) return nullptr;  // FI_ATOMIC_READ has no operands
            const std::size_t bytes = ioc[i].count * size;
            std::memcpy(to, ioc[i].addr, bytes);
            to += bytes;
        }
        return scratch;
    }
};

struct Request {
    AtomicCall call;
    IoVector operands, compares, results;
    fi_addr_t to;
    std::uint64_t address, key;
    fi_datatype datatype;
    fi_op op;
    void* context;
};

ssize_t start(Endpoint& endpoint, const Request& request, std::uint64_t flags) {
    if (request.operands.count > kMaxIov || request.compares.count > kMaxIov ||
        request.results.count > kMaxIov)
        return -FI_EINVAL;
    const std::size_t most = atomic_count(request.call, request.datatype, request.op);
    if (most == 0) return -FI_EOPNOTSUPP;
    // FI_ATOMIC_READ has results only. All other operations have as many results as operands.
    const bool fetches = request.call != AtomicCall::kWrite;
    const bool reads = request.op == FI_ATOMIC_READ;
    const std::size_t count = reads ? request.results.elements() : request.operands.elements();
    if (count == 0) return -FI_EINVAL;
    if (count > most) return -FI_EMSGSIZE;
    if (fetches && request.results.elements() != count) return -FI_EINVAL;
    if (request.call == AtomicCall::kCompare && request.compares.elements() != count)
        return -FI_EINVAL;
    const auto datatype = static_cast<std::uint8_t>(request.datatype);
    const std::size_t size = protocol::atomic_size(datatype);
    if ((flags & FI_INJECT) != 0 && count * size > endpoint.inject_bytes) return -FI_EMSGSIZE;

    iovec results[kMaxIov];
    for (std::size_t i = 0; i < request.results.count; ++i)
        results[i] = {request.results.ioc[i].addr, request.results.ioc[i].count * size};
    std::byte* const scratch = endpoint.scratch.data();
    if (scratch == nullptr) return -FI_EOPNOTSUPP;  // the endpoint was opened without FI_ATOMIC
    HEDDLE_ASSERT(count * size <= endpoint.scratch.size() / 2,
                  "atomic_count() bounds the operands");
    protocol::AtomicArguments arguments;
    if (!reads) arguments.operand = request.operands.gathered(size, scratch);
    if (request.call == AtomicCall::kCompare)
        arguments.compare = request.compares.gathered(size, scratch + endpoint.scratch.size() / 2);
    if (fetches) {
        arguments.results = results;
        arguments.result_count = request.results.count;
    }
    arguments.count = static_cast<std::uint32_t>(count);
    arguments.datatype = datatype;
    arguments.op = static_cast<std::uint8_t>(request.op);
    arguments.to = request.to;
    arguments.address = request.address;
    arguments.key = request.key;
    arguments.flags = flags;
    arguments.context = request.context;
    return endpoint.rdm->atomic(arguments);
}

ssize_t by_default(fid_ep* ep, const Request& request) {
    return operate(ep, [&](Endpoint& endpoint) {
        std::uint64_t flags = endpoint.sending.flags;
        if (request.call != AtomicCall::kWrite) flags &= ~FI_INJECT;
        return start(endpoint, request, flags);
    });
}

ssize_t by_message(fid_ep* ep, AtomicCall call, const fi_msg_atomic& message, IoVector compares,
                   IoVector results, std::uint64_t flags) {
    return operate(ep, [&](Endpoint& endpoint) -> ssize_t {
        if (message.rma_iov_count != 1) return -FI_EINVAL;
        if ((flags & ~(kTransmitFlags & ~FI_REMOTE_CQ_DATA)) != 0) return -FI_EBADFLAGS;
        if (call != AtomicCall::kWrite && (flags & FI_INJECT) != 0) return -FI_EBADFLAGS;
        const Request request{.call = call,
                              .operands = {message.msg_iov, message.iov_count},
                              .compares = compares,
                              .results = results,
                              .to = message.addr,
                              .address = message.rma_iov[0].addr,
                              .key = message.rma_iov[0].key,
                              .datatype = message.datatype,
                              .op = message.op,
                              .context = message.context};
        return start(endpoint, request, flags | endpoint.sending.completion);
    });
}

ssize_t writev(fid_ep* ep, const fi_ioc* iov, void**, std::size_t count, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, fi_datatype datatype, fi_op op,
               void* context) {
    return by_default(
        ep, {AtomicCall::kWrite, {iov, count}, {}, {}, to, address, key, datatype, op, context});
}
ssize_t write_atomic(fid_ep* ep, const void* buffer, std::size_t count, void*, fi_addr_t to,
                     std::uint64_t address, std::uint64_t key, fi_datatype datatype, fi_op op,
                     void* context) {
    const fi_ioc iov{{const_cast<void*>(buffer)}, count};
    return writev(ep, &iov, nullptr, 1, to, address, key, datatype, op, context);
}
ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* message, std::uint64_t flags) {
    return by_message(ep, AtomicCall::kWrite, *message, {}, {}, flags);
}
ssize_t inject_atomic(fid_ep* ep, const void* buffer, std::size_t count, fi_addr_t to,
                      std::uint64_t address, std::uint64_t key, fi_datatype datatype, fi_op op) {
    const fi_ioc iov{{const_cast<void*>(buffer)}, count};
    const Request request{AtomicCall::kWrite, {&iov, 1}, {},     {}, to, address, key,
                          datatype,           op,        nullptr};
    return operate(ep, [&](Endpoint& endpoint) { return start(endpoint, request, FI_INJECT); });
}
ssize_t readwritev(fid_ep* ep, const fi_ioc* iov, void**, std::size_t count, fi_ioc* results,
                   void**, std::size_t result_count, fi_addr_t to, std::uint64_t address,
                   std::uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    return by_default(ep, {AtomicCall::kFetch,
                           {iov, count},
                           {},
                           {results, result_count},
                           to,
                           address,
                           key,
                           datatype,
                           op,
                           context});
}
ssize_t readwrite(fid_ep* ep, const void* buffer, std::size_t count, void*, void* result, void*,
                  fi_addr_t to, std::uint64_t address, std::uint64_t key, fi_datatype datatype,
                  fi_op op, void* context) {
    const fi_ioc iov{{const_cast<void*>(buffer)}, count};
    fi_ioc results{{result}, count};
    return readwritev(ep, &iov, nullptr, 1, &results, nullptr, 1, to, address, key, datatype, op,
                      context);
}
ssize_t readwritemsg(fid_ep* ep, const fi_msg_atomic* message, fi_ioc* results, void**,
                     std::size_t result_count, std::uint64_t flags) {
    return by_message(ep, AtomicCall::kFetch, *message, {}, {results, result_count}, flags);
}
ssize_t compwritev(fid_ep* ep, const fi_ioc* iov, void**, std::size_t count, const fi_ioc* compares,
                   void**, std::size_t compare_count, fi_ioc* results, void**,
                   std::size_t result_count, fi_addr_t to, std::uint64_t address, std::uint64_t key,
                   fi_datatype datatype, fi_op op, void* context) {
    return by_default(ep, {AtomicCall::kCompare,
                           {iov, count},
                           {compares, compare_count},
                           {results, result_count},
                           to,
                           address,
                           key,
                           datatype,
                           op,
                           context});
}
ssize_t compwrite(fid_ep* ep, const void* buffer, std::size_t count, void*, const void* compare,
                  void*, void* result, void*, fi_addr_t to, std::uint64_t address,
                  std::uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const fi_ioc iov{{const_cast<void*>(buffer)}, count};
    const fi_ioc compares{{const_cast<void*>(compare)}, count};
    fi_ioc results{{result}, count};
    return compwritev(ep, &iov, nullptr, 1, &compares, nullptr, 1, &results, nullptr, 1, to,
                      address, key, datatype, op, context);
}
ssize_t compwritemsg(fid_ep* ep, const fi_msg_atomic* message, const fi_ioc* compares, void**,
                     std::size_t compare_count, fi_ioc* results, void**, std::size_t result_count,
                     std::uint64_t flags) {
    return by_message(ep, AtomicCall::kCompare, *message, {compares, compare_count},
                      {results, result_count}, flags);
}

int valid(AtomicCall call, fi_datatype datatype, fi_op op, std::size_t* count) noexcept {
    const std::size_t most = atomic_count(call, datatype, op);
    if (most == 0) return -FI_EOPNOTSUPP;
    if (count != nullptr) *count = most;
    return 0;
}
int writevalid(fid_ep*, fi_datatype datatype, fi_op op, std::size_t* count) {
    return valid(AtomicCall::kWrite, datatype, op, count);
}
int readwritevalid(fid_ep*, fi_datatype datatype, fi_op op, std::size_t* count) {
    return valid(AtomicCall::kFetch, datatype, op, count);
}
int compwritevalid(fid_ep*, fi_datatype datatype, fi_op op, std::size_t* count) {
    return valid(AtomicCall::kCompare, datatype, op, count);
}

fi_ops_atomic atomic_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = write_atomic,
    .writev = writev,
    .writemsg = writemsg,
    .inject = inject_atomic,
    .readwrite = readwrite,
    .readwritev = readwritev,
    .readwritemsg = readwritemsg,
    .compwrite = compwrite,
    .compwritev = compwritev,
    .compwritemsg = compwritemsg,
    .writevalid = writevalid,
    .readwritevalid = readwritevalid,
    .compwritevalid = compwritevalid,
};

}  // namespace

fi_ops_atomic& atomic_table() noexcept { return atomic_ops; }

}  // namespace heddle::provider
