// SPDX-License-Identifier: BSD-2-Clause
// Opens fabrics, and implements fi_trywait(3).
#include "provider/fabric.h"

#include <memory>

#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/domain.h"
#include "provider/eq.h"
#include "provider/guarded.h"
#include "provider/unsupported.h"
#include "verbs/port_choice.h"

namespace heddle::provider {
namespace {

int close_fabric(fid* handle) {
    FabricRef::drop(object<Fabric>(handle));
    return 0;
}

// fi_trywait(3). Returns 0 if everything that arrives from now on makes the wait object readable.
int try_wait(fid_fabric*, fid** handles, int count) {
    return guarded("trywait", [&] {
        for (int i = 0; i < count; ++i) {
            int result = -FI_EINVAL;
            switch (handles[i]->fclass) {
                case FI_CLASS_CQ:
                    result = try_wait(object<CompletionQueue>(handles[i]));
                    break;
                case FI_CLASS_CNTR:
                    result = try_wait(object<CounterObject>(handles[i]));
                    break;
                case FI_CLASS_EQ:
                    result = try_wait(object<EventQueue>(handles[i]));
                    break;
                default:
                    break;
            }
            HEDDLE_ASSERT(result <= 0, "a negative number of fi_errno(3)");
            if (result != 0) return result;
        }
        return 0;
    });
}

int open_domain2(fid_fabric* fabric, fi_info* info, fid_domain** domain, std::uint64_t flags,
                 void* context) {
    return flags == 0 ? open_domain(fabric, info, domain, context) : -FI_ENOSYS;
}

fi_ops fabric_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_fabric,
    .bind = unsupported,
    .control = unsupported,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
fi_ops_fabric fabric_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = open_domain,
    .passive_ep = unsupported,
    .eq_open = open_event_queue,
    .wait_open = unsupported,
    .trywait = try_wait,
    .domain2 = open_domain2,
};

}  // namespace

int open_fabric(fi_fabric_attr* attributes, fid_fabric** out, void* context) noexcept {
    return guarded("fi_fabric", [&] {
        if (attributes->name != nullptr && !verbs::is_fabric_name(attributes->name))
            return -FI_ENODATA;
        auto fabric = std::make_unique<Fabric>();
        describe(fabric->fid, FI_CLASS_FABRIC, context, fabric_fid_ops);
        fabric->ops = &fabric_ops;
        fabric->api_version = attributes->api_version;
        fabric->name = attributes->name != nullptr ? attributes->name : "";
        *out = fabric.release();
        return 0;
    });
}

}  // namespace heddle::provider
