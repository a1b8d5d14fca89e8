// SPDX-License-Identifier: BSD-2-Clause
// Freeing a key that has no memory of its own: a memory window, or an indirect key.
#pragma once

#include "softhca/base/assert.h"
#include "softhca/device/epoch.h"
#include "softhca/device/table.h"
#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// The object of that index, which belongs to this context. Another thread may free it first.
template <class Table>
void free_key(DeviceContext& context, Table& table, std::uint32_t index) noexcept {
    SOFTHCA_ASSERT(index < Table::kSize && context.fabric != nullptr);
    auto& key = table[index];
    std::uint32_t live = device::kLive;
    if (!key.head.state.compare_exchange_strong(live, device::kDying)) return;
    const bool quiet = device::epoch::synchronize();
    if (key.pd < device::kMaxPds) context.fabric->segment().pds[key.pd].users.fetch_sub(1);
    if (quiet) device::free_item(table, key);  // else a stopped process may still use it
}

}  // namespace softhca::uverbs
