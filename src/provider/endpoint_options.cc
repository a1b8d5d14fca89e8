// SPDX-License-Identifier: BSD-2-Clause
// Implements fi_cancel(3), fi_setopt(3) and fi_getopt(3).
#include <cstring>

#include "heddle/detail/assert.h"
#include "provider/endpoint.h"
#include "provider/limits.h"
#include "provider/parameters.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

// Options that libfabric added after the headers with which the provider is compiled.
enum NewerOption : int {
    kCudaPermitted = 10,          // bool
    kSharedMemoryPermitted = 11,  // bool
    kMaxMessageSize = 12,         // size_t: message, tagged, RMA
    kMaxTagged = 13,
    kMaxRma = 14,
    kMaxAtomic = 15,
    kInjectMessage = 16,  // size_t: message, tagged, RMA, atomic
    kInjectTagged = 17,
    kInjectRma = 18,
    kInjectAtomic = 19,
};

template <class Value>
int give(const Value& value, void* out, std::size_t* bytes) {
    const std::size_t room = *bytes;
    *bytes = sizeof value;
    if (room < sizeof value) return -FI_ETOOSMALL;
    std::memcpy(out, &value, sizeof value);
    return 0;
}

template <class Value>
int get(Value& value, const void* in, std::size_t bytes) {
    if (bytes != sizeof value) return -FI_EINVAL;
    std::memcpy(&value, in, sizeof value);
    return 0;
}

int get_option(fid_t handle, int level, int name, void* value, std::size_t* bytes) {
    if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
    auto& endpoint = object<Endpoint>(handle);
    switch (name) {
        case FI_OPT_MIN_MULTI_RECV:
            return give(endpoint.min_multi_receive, value, bytes);
        case FI_OPT_CM_DATA_SIZE:
            return give(std::size_t{0}, value, bytes);
        case FI_OPT_TX_SIZE:
            return give(kTransmitSize, value, bytes);
        case FI_OPT_RX_SIZE:
            return give(kReceiveSize, value, bytes);
        case kCudaPermitted:
        case kSharedMemoryPermitted:
            return give(false, value, bytes);
        case kMaxMessageSize:
        case kMaxTagged:
        case kMaxRma:
            return give(kMaxMessage, value, bytes);
        case kMaxAtomic:
            return give(options().protocol.eager_bytes, value, bytes);
        case kInjectMessage:
        case kInjectTagged:
        case kInjectRma:
        case kInjectAtomic:
            return give(endpoint.inject_bytes, value, bytes);
        default:
            return -FI_ENOPROTOOPT;
    }
}

int set_option(fid_t handle, int level, int name, const void* value, std::size_t bytes) {
    if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
    auto& endpoint = object<Endpoint>(handle);
    switch (name) {
        case FI_OPT_MIN_MULTI_RECV: {
            std::size_t least = 0;
            if (const int result = get(least, value, bytes); result != 0) return result;
            Guard guard(*endpoint.domain);
            endpoint.min_multi_receive = least;
            if (endpoint.rdm != nullptr) endpoint.rdm->set_min_multi_receive(least);
            return 0;
        }
        // There is neither in this provider, so whatever a program forbids or allows holds.
        case FI_OPT_FI_HMEM_P2P:
        case kCudaPermitted:
        case kSharedMemoryPermitted:
            return 0;
        case kMaxMessageSize:
        case kMaxTagged:
        case kMaxRma:
        case kMaxAtomic:
        case kInjectMessage:
        case kInjectTagged:
        case kInjectRma:
        case kInjectAtomic: {
            // A program may announce that it needs less than the limit.
            std::size_t wanted = 0, most = 0, size = sizeof most;
            if (const int result = get(wanted, value, bytes); result != 0) return result;
            const int known = get_option(handle, level, name, &most, &size);
            HEDDLE_ASSERT(known == 0 && size == sizeof most, "get_option() knows each of these");
            return wanted <= most ? 0 : -FI_EINVAL;
        }
        default:
            return -FI_ENOPROTOOPT;
    }
}

ssize_t cancel(fid_t handle, void* context) {
    return operate(&object<Endpoint>(handle),
                   [&](Endpoint& endpoint) { return endpoint.rdm->cancel(context); });
}

// Deprecated in libfabric. fi_info has the number of operations that may be outstanding.
ssize_t transmit_left(fid_ep* handle) {
    return operate(handle, [](Endpoint&) { return static_cast<ssize_t>(kTransmitSize); });
}
ssize_t receive_left(fid_ep* handle) {
    return operate(handle, [](Endpoint&) { return static_cast<ssize_t>(kReceiveSize); });
}

fi_ops_ep endpoint_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = cancel,
    .getopt = get_option,
    .setopt = set_option,
    .tx_ctx = unsupported,
    .rx_ctx = unsupported,
    .rx_size_left = receive_left,
    .tx_size_left = transmit_left,
};

}  // namespace

fi_ops_ep& option_table() noexcept { return endpoint_ops; }

}  // namespace heddle::provider
