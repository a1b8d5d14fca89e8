// SPDX-License-Identifier: BSD-2-Clause
// Address vectors. An insertion stores an address; connections are made when they are first needed.
#include "provider/av.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "heddle/detail/assert.h"
#include "provider/guarded.h"
#include "provider/name_text.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

AddressVectorObject& vector_of(fid_av* handle) noexcept {
    return static_cast<AddressVectorObject&>(*handle);
}

EventQueue* events_of(AddressVectorObject& av) noexcept {
    return av.events != nullptr ? av.events : av.domain.events;
}

// Reports that an address of an insertion is invalid, in the caller's array or by the event queue.
void report_bad(AddressVectorObject& av, std::size_t index, std::uint64_t flags, void* context) {
    if ((flags & FI_SYNC_ERR) != 0) {
        static_cast<int*>(context)[index] = FI_EINVAL;
    } else if (av.asynchronous) {
        HEDDLE_ASSERT(events_of(av) != nullptr, "insert() has looked for an event queue");
        fi_eq_err_entry error{};
        error.fid = &av.fid;
        error.context = context;
        error.data = index;
        error.err = FI_EINVAL;
        events_of(av)->put_error(error);
    }
}

int insert(fid_av* handle, const void* addresses, std::size_t count, fi_addr_t* numbers,
           std::uint64_t flags, void* context) {
    auto& av = vector_of(handle);
    if ((flags & ~(FI_MORE | FI_SYNC_ERR)) != 0) return -FI_EBADFLAGS;
    if ((flags & FI_SYNC_ERR) != 0 && context == nullptr) return -FI_EINVAL;
    if (av.asynchronous && events_of(av) == nullptr) return -FI_ENOEQ;
    if (count > INT32_MAX) return -FI_EINVAL;
    return guarded("fi_av_insert", [&] {
        Guard guard(av.domain);
        int inserted = 0;
        const auto* bytes = static_cast<const std::byte*>(addresses);
        for (std::size_t i = 0; i < count; ++i) {
            protocol::EndpointAddress name;
            std::memcpy(&name, bytes + i * sizeof name, sizeof name);
            const bool good = name.valid();
            if (numbers != nullptr) numbers[i] = FI_ADDR_NOTAVAIL;
            if ((flags & FI_SYNC_ERR) != 0) static_cast<int*>(context)[i] = 0;
            if (!good) {
                report_bad(av, i, flags, context);
                continue;
            }
            const std::uint64_t number = av.names.insert(name);
            HEDDLE_ASSERT(number != FI_ADDR_NOTAVAIL && av.names.find(number) != nullptr);
            if (numbers != nullptr) numbers[i] = number;
            ++inserted;
        }
        if (!av.asynchronous || (flags & FI_SYNC_ERR) != 0) return inserted;
        HEDDLE_ASSERT(events_of(av) != nullptr && inserted <= static_cast<int>(count));
        const fi_eq_entry done{&av.fid, context, static_cast<std::uint64_t>(inserted)};
        events_of(av)->put(FI_AV_COMPLETE, &done, sizeof done);
        return 0;
    });
}

int remove(fid_av* handle, fi_addr_t* numbers, std::size_t count, std::uint64_t flags) {
    auto& av = vector_of(handle);
    if (flags != 0) return -FI_EBADFLAGS;
    return guarded("fi_av_remove", [&] {
        Guard guard(av.domain);
        int result = 0;
        for (std::size_t i = 0; i < count; ++i)
            if (!av.names.remove(numbers[i])) result = -FI_EINVAL;
        return result;
    });
}

int look_up(fid_av* handle, fi_addr_t number, void* address, std::size_t* bytes) {
    auto& av = vector_of(handle);
    return guarded("fi_av_lookup", [&] {
        Guard guard(av.domain);
        const protocol::EndpointAddress* name = av.names.find(number);
        if (name == nullptr) return -FI_EINVAL;
        std::memcpy(address, name, std::min(*bytes, sizeof *name));
        *bytes = sizeof *name;
        return 0;
    });
}

const char* text(fid_av*, const void* address, char* buffer, std::size_t* bytes) {
    protocol::EndpointAddress name;
    std::memcpy(&name, address, sizeof name);
    char whole[kNameText];
    const std::size_t length = name_text(name, whole) + 1;
    if (*bytes > 0) std::snprintf(buffer, *bytes, "%s", whole);
    HEDDLE_ASSERT(length > 1 && length <= sizeof whole);
    *bytes = length;
    return buffer;
}

int bind_av(fid* handle, fid* other, std::uint64_t flags) {
    auto& av = object<AddressVectorObject>(handle);
    if (other->fclass != FI_CLASS_EQ) return -FI_EINVAL;
    if (flags != 0) return -FI_EBADFLAGS;
    if (av.events != nullptr) return -FI_EBUSY;
    av.events = &object<EventQueue>(other);
    av.events_ref.set(av.events->refs);
    return 0;
}

int close_av(fid* handle) {
    auto& av = object<AddressVectorObject>(handle);
    HEDDLE_ASSERT(av.fid.fclass == FI_CLASS_AV);
    if (av.refs.any()) return -FI_EBUSY;
    delete &av;
    return 0;
}

fi_ops av_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_av,
    .bind = bind_av,
    .control = unsupported,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
// A template, since only the headers of libfabric 2 have some of the entries.
template <class Operations>
constexpr Operations make_av_ops() {
    Operations ops{};
    ops.size = sizeof ops;
    ops.insert = insert;
    ops.insertsvc = unsupported;
    ops.insertsym = unsupported;
    ops.remove = remove;
    ops.lookup = look_up;
    ops.straddr = text;
    ops.av_set = unsupported;
    if constexpr (requires { ops.insert_auth_key; }) {
        ops.insert_auth_key = unsupported;
        ops.lookup_auth_key = unsupported;
        ops.set_user_id = unsupported;
    }
    return ops;
}
constinit fi_ops_av av_ops = make_av_ops<fi_ops_av>();

}  // namespace

int open_address_vector(fid_domain* domain, fi_av_attr* attributes, fid_av** out,
                        void* context) noexcept {
    return guarded("fi_av_open", [&] {
        const fi_av_attr wanted = attributes != nullptr ? *attributes : fi_av_attr{};
        if ((wanted.flags & ~FI_EVENT) != 0) return -FI_EBADFLAGS;
        // A named vector would be shared by processes. Receive contexts have no numbers here.
        if (wanted.name != nullptr) return -FI_ENOSYS;
        if (wanted.rx_ctx_bits != 0) return -FI_EINVAL;
        switch (wanted.type) {
            case FI_AV_UNSPEC:
                if (attributes != nullptr) attributes->type = FI_AV_TABLE;
                break;
            case FI_AV_TABLE:
            case FI_AV_MAP:
                break;
            default:
                return -FI_EINVAL;
        }
        auto av = std::make_unique<AddressVectorObject>(static_cast<Domain&>(*domain),
                                                        (wanted.flags & FI_EVENT) != 0);
        av->ops = &av_ops;
        describe(av->fid, FI_CLASS_AV, context, av_fid_ops);
        *out = av.release();
        return 0;
    });
}

}  // namespace heddle::provider
