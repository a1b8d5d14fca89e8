// SPDX-License-Identifier: BSD-2-Clause
// Checks the mappings of a range: see mapped.h.

#include "softhca/device/memory/mapped.h"

#include "softhca/device/memory/sharing_state.h"

namespace softhca::device::memory {

bool check_mapped(std::uint64_t address, std::uint64_t length, bool write) noexcept {
    Sharing& sharing = Sharing::instance();
    std::lock_guard lock(sharing.mutex);
    sharing.space.refresh();
    if (!sharing.space.available()) return true;  // an access will find out
    const std::uint64_t end = address + length;
    for (std::uint64_t at = address; at < end;) {
        Vma vma;
        if (!sharing.space.at(at, &vma) || !vma.readable || (write && !vma.writable)) return false;
        at = vma.end;
    }
    return true;
}

}  // namespace softhca::device::memory
