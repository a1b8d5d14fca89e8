// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/device/port_change.h"

#include "softhca/base/assert.h"
#include "softhca/device/reclaim.h"

namespace softhca::device {

namespace {

// The events that the kernel sends for an address: one for each entry of the GID table
// (ib_cache_gid_add, ib_cache_gid_del).
std::uint32_t entries_of(const Port& port, unsigned slot) noexcept {
    std::uint32_t entries = 0;
    for (unsigned i = 2 * slot; i < 2 * slot + 2; ++i)
        entries += port.gid(i).type != GidType::kNone;
    return entries;
}

PortAddress* find_address(PortRecord& record, const IpAddress& address) noexcept {
    for (PortAddress& each : record.addresses)
        if (each.is_used.load() != 0 && each.high.load() == address.high &&
            each.low.load() == address.low)
            return &each;
    return nullptr;
}

}  // namespace

PortChange set_link(Segment& segment, unsigned index, bool is_up) noexcept {
    SOFTHCA_ASSERT(index < port_count(segment));
    PortRecord& record = segment.port_records[index];
    const bool was_up = record.link_changes.load() % 2 == 0;
    if (was_up == is_up) return PortChange::kNothingToDo;
    // The hint comes first and goes last, so it is never missing while a link is down.
    if (!is_up) segment.has_link_down.store(1, std::memory_order_seq_cst);
    record.link_changes.fetch_add(1, std::memory_order_seq_cst);
    bool all_up = true;
    for (unsigned i = 0; i < port_count(segment); ++i)
        all_up = all_up && link_is_up(segment, port_at(segment, i).path());
    if (all_up) segment.has_link_down.store(0, std::memory_order_seq_cst);
    return PortChange::kDone;
}

PortChange add_address(Segment& segment, unsigned index, const IpAddress& address) noexcept {
    SOFTHCA_ASSERT(index < port_count(segment));
    if (!has_ethernet(segment)) return PortChange::kInfiniBand;
    for (unsigned other = 0; other < port_count(segment); ++other)
        if (find_address(segment.port_records[other], address) != nullptr)
            return other == index ? PortChange::kNothingToDo : PortChange::kTaken;
    PortRecord& record = segment.port_records[index];
    for (unsigned slot = 0; slot < kPortAddresses; ++slot) {
        PortAddress& free = record.addresses[slot];
        if (free.is_used.load() != 0) continue;
        free.high.store(address.high, std::memory_order_relaxed);
        free.low.store(address.low, std::memory_order_relaxed);
        free.is_used.store(1, std::memory_order_release);
        record.gid_changes.fetch_add(entries_of(port_at(segment, index), slot));
        return PortChange::kDone;
    }
    return PortChange::kNoRoom;
}

PortChange remove_address(Segment& segment, unsigned index, const IpAddress& address) noexcept {
    SOFTHCA_ASSERT(index < port_count(segment));
    if (!has_ethernet(segment)) return PortChange::kInfiniBand;
    PortRecord& record = segment.port_records[index];
    PortAddress* const there = find_address(record, address);
    if (there == nullptr) return PortChange::kNothingToDo;
    const auto slot = static_cast<unsigned>(there - record.addresses);
    const std::uint32_t entries = entries_of(port_at(segment, index), slot);
    there->is_used.store(0, std::memory_order_release);
    record.gid_changes.fetch_add(entries);
    return PortChange::kDone;
}

void announce_port_changes(Segment& segment) noexcept {
    // 0 is what a process has seen that has not looked yet.
    if (segment.port_changes.fetch_add(1, std::memory_order_seq_cst) == ~0u)
        segment.port_changes.store(1, std::memory_order_seq_cst);
    for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot)
        if (segment.processes[slot].state.load(std::memory_order_acquire) == kLive)
            ring_bell(segment, slot);
}

}  // namespace softhca::device
