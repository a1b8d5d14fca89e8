// SPDX-License-Identifier: BSD-2-Clause
// ioctl methods that have no write command (rdma/ib_user_ioctl_cmds.h): queries of a region, advice
// about on-demand paging, device memory; and opening a device by its method. Importing a device
// (QUERY_CONTEXT) is not supported.
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/attributes.h"
#include "softhca/uverbs/device_memory.h"

namespace softhca::uverbs {
namespace {

using device::kNone;

constexpr std::size_t kMaxAdvised = 1024;

int query_mr(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t handle;
    if (const int error = attributes.value(UVERBS_ATTR_QUERY_MR_HANDLE, &handle)) return error;
    const device::MemoryRegion* region =
        device::find_own(context.fabric->segment().mrs, *context.fabric, context.record,
                         static_cast<std::uint32_t>(handle));
    if (!region) return ENOENT;
    int error = attributes.put(UVERBS_ATTR_QUERY_MR_RESP_LKEY, region->key);
    if (!error) error = attributes.put(UVERBS_ATTR_QUERY_MR_RESP_RKEY, region->key);
    if (!error) error = attributes.put(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, region->length);
    if (!error) error = attributes.put(UVERBS_ATTR_QUERY_MR_RESP_IOVA, region->iova);
    return error;
}

// There is nothing to prefetch. The arguments are checked as the kernel checks them
// (mlx5_ib_advise_mr, get_prefetchable_mr).
int check_advised(DeviceContext& context, std::uint32_t pd, std::uint64_t advice,
                  const ib_uverbs_sge& sge) noexcept {
    const std::uint32_t index = sge.lkey >> 8;
    if (index >= device::kMaxMrs) return ENOENT;
    const device::MemoryRegion* region =
        device::find_own(context.fabric->segment().mrs, *context.fabric, context.record, index);
    if (!region || region->key != sge.lkey || !(region->access & IBV_ACCESS_ON_DEMAND))
        return ENOENT;
    if (region->pd != pd) return EPERM;
    if (advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
        !(region->access & IBV_ACCESS_LOCAL_WRITE))
        return EPERM;
    const std::uint64_t start = sge.addr - region->iova;
    if (sge.addr < region->iova || start > region->length || sge.length > region->length - start)
        return EFAULT;
    return 0;
}

int advise_mr(DeviceContext& context, const Attributes& attributes) noexcept {
    std::uint64_t pd = 0, advice = 0, flags = 0;
    int error = attributes.value(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, &pd);
    if (!error) error = attributes.value(UVERBS_ATTR_ADVISE_MR_ADVICE, &advice);
    if (!error) error = attributes.value(UVERBS_ATTR_ADVISE_MR_FLAGS, &flags);
    if (error) return error;
    if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
    if (flags & ~std::uint64_t{IB_UVERBS_ADVISE_MR_FLAG_FLUSH}) return EINVAL;
    const Buffer list = attributes.input(UVERBS_ATTR_ADVISE_MR_SGE_LIST);
    if (!list.present() || list.length % sizeof(ib_uverbs_sge) ||
        list.length / sizeof(ib_uverbs_sge) > kMaxAdvised)
        return EINVAL;
    for (std::size_t at = 0; at < list.length; at += sizeof(ib_uverbs_sge)) {
        ib_uverbs_sge sge;
        SOFTHCA_ASSERT(sizeof sge <= list.length - at);
        if (copy_in(&sge, list.address + at, sizeof sge)) return EFAULT;
        if ((error = check_advised(context, static_cast<std::uint32_t>(pd), advice, sge)))
            return error;
    }
    return 0;
}

}  // namespace

int run_method(DeviceContext& context, unsigned object, unsigned method,
               const Attributes& attributes) noexcept {
    if (object == UVERBS_OBJECT_DEVICE && method == UVERBS_METHOD_GET_CONTEXT)
        return get_context_by_method(context, attributes);
    if (context.record == kNone) return EPROTONOSUPPORT;
    if (object == UVERBS_OBJECT_ASYNC_EVENT && method == UVERBS_METHOD_ASYNC_EVENT_ALLOC)
        return alloc_async_fd(context, attributes);
    if (object == UVERBS_OBJECT_MR && method == UVERBS_METHOD_QUERY_MR)
        return query_mr(context, attributes);
    if (object == UVERBS_OBJECT_MR && method == UVERBS_METHOD_ADVISE_MR)
        return advise_mr(context, attributes);
    if (object == UVERBS_OBJECT_MR && method == UVERBS_METHOD_DM_MR_REG)
        return reg_dm_mr(context, attributes);
    if (object == UVERBS_OBJECT_DEVICE && method == UVERBS_METHOD_QUERY_GID_ENTRY)
        return query_gid_entry(context, attributes);
    if (object == UVERBS_OBJECT_DEVICE && method == UVERBS_METHOD_QUERY_GID_TABLE)
        return query_gid_table(context, attributes);
    if (object == UVERBS_OBJECT_AH && method == UVERBS_METHOD_AH_DESTROY) {
        std::uint64_t handle;
        const int error = attributes.value(UVERBS_ATTR_DESTROY_AH_HANDLE, &handle);
        return error ? error : destroy_ah(context, static_cast<std::uint32_t>(handle));
    }
    if (object == UVERBS_OBJECT_DM) return device_memory_method(context, method, attributes);
    return EPROTONOSUPPORT;
}

}  // namespace softhca::uverbs
