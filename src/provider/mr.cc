// SPDX-License-Identifier: BSD-2-Clause
// Memory regions. The device chooses their keys, and RMA addresses are virtual addresses of the
// program (FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED).
#include "provider/mr.h"

#include <rdma/fi_endpoint.h>

#include <cerrno>
#include <memory>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "provider/domain.h"
#include "provider/guarded.h"
#include "provider/object.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

struct MemoryRegion : protocol::RegionHandle {
    using Fid = fid_mr;
    MemoryRegion(Domain& of, const iovec& memory, std::unique_ptr<protocol::Region> registered)
        : RegionHandle{}, region(std::move(registered)), domain(of), domain_ref(of.refs) {
        local_key = region->local_key();
        key = region->key();
        mem_desc = static_cast<fid_mr*>(this);
        is_writable = region->is_writable();
        address = reinterpret_cast<std::uintptr_t>(memory.iov_base);
        bytes = memory.iov_len;
        domain.known_regions.add(*this);
    }
    ~MemoryRegion() { domain.known_regions.remove(*this); }
    MemoryRegion(const MemoryRegion&) = delete;
    MemoryRegion& operator=(const MemoryRegion&) = delete;

    std::unique_ptr<protocol::Region> region;
    Domain& domain;
    Ref domain_ref;
};

int close_mr(fid* handle) {
    return guarded("fi_close of a memory region", [&] {
        delete &object<MemoryRegion>(handle);
        return 0;
    });
}

// No registration belongs to an endpoint. Programs that call fi_mr_bind(3) and fi_mr_enable(3) for
// other providers succeed nevertheless.
int bind_region(fid*, fid* other, std::uint64_t flags) {
    return other->fclass == FI_CLASS_EP && flags == 0 ? 0 : -FI_ENOSYS;
}
int control_region(fid*, int command, void*) { return command == FI_ENABLE ? 0 : -FI_ENOSYS; }

fi_ops mr_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_mr,
    .bind = bind_region,
    .control = control_region,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};

constexpr std::uint64_t kAccess =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

int register_attributes(fid* handle, const fi_mr_attr* attributes, std::uint64_t, fid_mr** out) {
    if (handle->fclass != FI_CLASS_DOMAIN || attributes == nullptr) return -FI_EINVAL;
    auto& domain = object<Domain>(handle);
    if (attributes->iov_count > 1) return -FI_EINVAL;  // mr_iov_limit
    if ((attributes->access & ~kAccess) != 0) return -FI_EINVAL;
    // Programs that were compiled for older interfaces do not have these fields.
    const std::uint32_t api = domain.fabric.api_version;
    if (FI_VERSION_GE(api, FI_VERSION(1, 5)) && attributes->auth_key_size != 0) return -FI_EINVAL;
    if (FI_VERSION_GE(api, FI_VERSION(1, 9)) && attributes->iface != FI_HMEM_SYSTEM)
        return -FI_ENOSYS;
    return guarded("fi_mr_reg", [&] {
        const iovec memory = attributes->iov_count == 0 ? iovec{} : attributes->mr_iov[0];
        const auto reg = [&] {
            return std::make_unique<MemoryRegion>(
                domain, memory,
                domain.protocol->register_memory(memory.iov_base, memory.iov_len,
                                                 attributes->access));
        };
        std::unique_ptr<MemoryRegion> region;
        try {
            region = reg();
        } catch (const VerbsError& error) {
            if (error.error() != ENOMEM) throw;
            Guard guard(domain);
            domain.protocol
                ->give_up_held();  // ends registrations of small buffers, then tries again
            region = reg();
        }
        HEDDLE_ASSERT(region->region != nullptr);
        HEDDLE_ASSERT(region->mem_desc == static_cast<fid_mr*>(region.get()));
        describe(region->fid, FI_CLASS_MR, attributes->context, mr_fid_ops);
        *out = region.release();
        return 0;
    });
}

int register_vector(fid* handle, const iovec* iov, std::size_t count, std::uint64_t access,
                    std::uint64_t offset, std::uint64_t requested_key, std::uint64_t flags,
                    fid_mr** out, void* context) {
    fi_mr_attr attributes{};
    attributes.mr_iov = iov;
    attributes.iov_count = count;
    attributes.access = access;
    attributes.offset = offset;
    attributes.requested_key = requested_key;
    attributes.context = context;
    return register_attributes(handle, &attributes, flags, out);
}

int register_plain(fid* handle, const void* buffer, std::size_t bytes, std::uint64_t access,
                   std::uint64_t offset, std::uint64_t requested_key, std::uint64_t flags,
                   fid_mr** out, void* context) {
    const iovec memory{const_cast<void*>(buffer), bytes};
    return register_vector(handle, &memory, 1, access, offset, requested_key, flags, out, context);
}

fi_ops_mr mr_ops = {
    .size = sizeof(fi_ops_mr),
    .reg = register_plain,
    .regv = register_vector,
    .regattr = register_attributes,
};

}  // namespace

fi_ops_mr& registration_table() noexcept { return mr_ops; }

}  // namespace heddle::provider
