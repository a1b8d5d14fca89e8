// SPDX-License-Identifier: BSD-2-Clause
// Checks user handles: see user_object.h.
#include "softhca/uverbs/user_object.h"

#include <infiniband/verbs.h>

#include <cstddef>

#include "softhca/base/assert.h"
#include "softhca/device/memory/mapped.h"
#include "softhca/uverbs/command.h"

namespace softhca::uverbs {

bool is_user_object(const DeviceContext& context, std::uint64_t user_handle,
                    std::size_t bytes) noexcept {
    // Both structures begin with the pointer to their context.
    static_assert(offsetof(ibv_cq, context) == 0 && offsetof(ibv_qp, context) == 0);
    SOFTHCA_ASSERT(bytes >= sizeof(void*));
    std::uint64_t at = 0;
    int fd = -1;
    if (!user_handle || copy_in(&at, user_handle, sizeof(void*)) || !at) return false;
    if (copy_in(&fd, at + offsetof(ibv_context, cmd_fd), sizeof fd)) return false;
    if (find_context(fd).get() != &context) return false;
    return device::memory::check_mapped(user_handle, bytes, true) &&
           device::memory::check_mapped(at, sizeof(ibv_context), true);
}

}  // namespace softhca::uverbs
