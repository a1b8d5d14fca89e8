// SPDX-License-Identifier: BSD-2-Clause
// Resolves keys and moves payload: see spans.h.
#include "softhca/engine/spans.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "common/copy.h"
#include "softhca/device/memory/remote.h"
#include "softhca/device/own_memory.h"
#include "softhca/engine/mkeys.h"
#include "softhca/engine/windows.h"

namespace softhca::engine {

using device::Fabric;
using device::MemoryRegion;
namespace memory = device::memory;
namespace peers = device::peers;

namespace {

constexpr unsigned kIovecs = 64;

// A run of spans whose sides are each reached in one way, so that one system call copies it.
struct Run {
    iovec source[kIovecs];
    iovec target[kIovecs];
    unsigned count = 0;
    std::size_t bytes = 0;
    bool source_pointer = false, target_pointer = false;
};

void* as_pointer(std::uint64_t address) noexcept {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

// Finds which side of a failed copy is missing, by probing our own side page by page.
bool own_side_faults(pid_t own, const iovec* side, unsigned count) noexcept {
    for (unsigned i = 0; i < count; ++i) {
        const auto start = reinterpret_cast<std::uintptr_t>(side[i].iov_base);
        const std::uintptr_t end = start + side[i].iov_len;
        for (std::uintptr_t at = start; at < end; at = (at & ~std::uintptr_t{4095}) + 4096) {
            char byte;
            iovec local{&byte, 1}, remote{reinterpret_cast<void*>(at), 1};
            if (memory::copy_from(own, &local, 1, &remote, 1, 1) == EFAULT) return true;
        }
    }
    return false;
}

Moved flush(Fabric& fabric, Run& run, std::uint32_t source_slot,
            std::uint32_t target_slot) noexcept {
    if (run.count == 0) return Moved::kOk;
    SOFTHCA_ASSERT(run.count <= kIovecs, "a run ends when it is full");
    SOFTHCA_ASSERT(!run.source_pointer || !run.target_pointer,
                   "no system call copies between two sides that pointers reach");
    const std::uint32_t own = fabric.slot();
    const pid_t own_pid = getpid();
    pid_t other_pid = own_pid;
    const auto pid = [&](std::uint32_t slot) { return slot == own ? own_pid : other_pid; };
    // Another process may have the number of a process that is gone.
    const std::uint32_t other = source_slot == own ? target_slot : source_slot;
    if (other != own) {
        if (!fabric.alive(other)) return Moved::kGone;
        if (const int error = peers::verify(fabric, fabric.segment(), other, &other_pid)) {
            run.count = 0;
            run.bytes = 0;
            return error == ESRCH ? Moved::kGone : Moved::kRefused;
        }
    }
    int error;
    bool source_local;  // our side of the call is the source
    if (run.source_pointer || (!run.target_pointer && source_slot == own)) {
        error = memory::copy_to(pid(target_slot), run.source, run.count, run.target, run.count,
                                run.bytes);
        source_local = true;
    } else {
        error = memory::copy_from(pid(source_slot), run.target, run.count, run.source, run.count,
                                  run.bytes);
        source_local = false;
    }
    Moved result = Moved::kOk;
    if (error == EFAULT) {
        const iovec* local = source_local ? run.source : run.target;
        const bool pointer = source_local ? run.source_pointer : run.target_pointer;
        const bool ours = !pointer && own_side_faults(own_pid, local, run.count);
        result = ours == source_local ? Moved::kSourceFault : Moved::kTargetFault;
    } else if (error != 0) {
        result = error == ESRCH ? Moved::kGone : Moved::kRefused;
    }
    run.count = 0;
    run.bytes = 0;
    return result;
}

// The region that a key names, if this use of it is allowed (IBTA 10.6.3, 10.6.7).
inline Access find_region(const device::Segment& segment, std::uint32_t key, std::uint32_t pd,
                          std::uint64_t address, std::uint64_t length, std::uint32_t rights,
                          const MemoryRegion** found) noexcept {
    const std::uint32_t index = key >> 8;
    if (index >= device::kMaxMrs) return Access::kBadKey;
    const MemoryRegion& region = segment.mrs[index];
    if (!region.head.live() || region.key != key) return Access::kBadKey;
    if (region.pd != pd) return Access::kBadDomain;
    const std::uint64_t start = address - region.iova;
    if (address < region.iova || start > region.length || length > region.length - start)
        return Access::kBadBounds;
    if ((region.access & rights) != rights) return Access::kBadRights;
    *found = &region;
    return Access::kOk;
}

// The null region of every domain, for local use.
[[gnu::cold]] Access resolve_null(std::uint64_t length, std::uint32_t rights,
                                  SpanList& list) noexcept {
    if (rights & ~std::uint32_t{IBV_ACCESS_LOCAL_WRITE}) return Access::kBadRights;
    alignas(64) static std::byte zeros[1 << 16];  // nobody writes there
    while (length != 0) {
        if (!list.has_room()) return Access::kTooMany;
        const std::uint64_t part =
            rights != 0 ? length : std::min<std::uint64_t>(length, sizeof zeros);
        list.add(rights != 0 ? nullptr : zeros, rights != 0 ? Span::kNowhere : 0, part);
        length -= part;
    }
    return Access::kOk;
}

}  // namespace

bool SpanList::grow(unsigned more) noexcept {
    if (more > kMaxSpans - count) return false;
    const unsigned room = std::min(kMaxSpans, std::max(2 * room_, count + more));
    Span* const spans_now = new (std::nothrow) Span[room];
    if (!spans_now) return false;
    std::copy_n(spans, count, spans_now);
    if (spans != usual_) delete[] spans;
    spans = spans_now;
    room_ = room;
    return true;
}

void SpanList::forget() noexcept {
    SOFTHCA_ASSERT(spans != usual_, "the usual spans are part of the list");
    delete[] spans;
    spans = usual_;
    room_ = kUsualSpans;
}

std::byte* resolve_shared_slow(Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                               std::uint64_t address, std::uint64_t length, std::uint32_t rights,
                               Reach& reach) noexcept {
    reach = {};
    const MemoryRegion* region;
    const device::Segment& segment = fabric.segment();
    if (find_region(segment, key, pd, address, length, rights, &region) != Access::kOk)
        return nullptr;
    const std::uint64_t at = region->address + (address - region->iova);
    const std::uint64_t end = region->address + region->length;
    const unsigned count = std::min<unsigned>(region->extents.count, memory::kMaxExtents);
    for (unsigned e = 0; e < count; ++e) {
        const memory::Extent& extent = region->extents.extent[e];
        if (at < extent.address || at - extent.address >= extent.length) continue;
        const std::uint64_t into = at - extent.address;
        if (length > extent.length - into) return nullptr;
        // The part of the extent that belongs to the region.
        const std::uint64_t first = std::max(extent.address, region->address);
        const std::uint64_t bytes = std::min(extent.address + extent.length, end) - first;
        const std::uint32_t process = region->head.owner();
        if (process >= device::kMaxProcesses) return nullptr;
        std::byte* start =
            peers::at(segment, process, extent.offset + (first - extent.address), bytes);
        if (!start) return nullptr;
        const peers::Mapping& mapping = peers::g_mappings[process];
        reach.region = region;
        reach.key = key;
        reach.generation = region->head.generation;
        reach.pd = pd;
        reach.mapping = &mapping;
        reach.mapped = mapping.base.load(std::memory_order_acquire);
        reach.address = region->iova + (first - region->address);
        reach.length = bytes;
        reach.at = start;
        return start + (at - first);
    }
    return nullptr;
}

Access resolve(Fabric& fabric, std::uint32_t key, std::uint32_t pd, std::uint64_t address,
               std::uint64_t length, std::uint32_t rights, SpanList& list) noexcept {
    if (key >> 8 >= device::kMaxMrs) [[unlikely]]
        return is_window_key(key) ? resolve_window(fabric, key, pd, address, length, rights, list)
                                  : resolve_mkey(fabric, key, pd, address, length, rights, list);
    device::Segment& segment = fabric.segment();
    const MemoryRegion* found;
    if (const Access access = find_region(segment, key, pd, address, length, rights, &found);
        access != Access::kOk)
        return key == device::kNullKey ? resolve_null(length, rights, list) : access;
    const MemoryRegion& region = *found;
    const std::uint64_t start = address - region.iova;
    const std::uint32_t process = region.head.owner();
    if (process >= device::kMaxProcesses) return Access::kBadKey;
    if (list.count == 0)
        list.process = process;
    else if (list.process != process)
        return Access::kBadDomain;
    std::uint64_t at = region.address + start;
    std::uint64_t left = length;
    const memory::Extents& extents = region.extents;
    const unsigned extent_count = std::min<unsigned>(extents.count, memory::kMaxExtents);
    while (left) {
        if (!list.has_room()) return Access::kTooMany;
        std::byte* pointer = nullptr;
        std::uint64_t piece = left;
        for (unsigned e = 0; e < extent_count; ++e) {
            const memory::Extent& extent = extents.extent[e];
            if (at >= extent.address && at - extent.address < extent.length) {
                const std::uint64_t into = at - extent.address;
                piece = std::min(left, extent.length - into);
                pointer = peers::at(segment, process, extent.offset + into, piece);
                break;
            }
            // This ends where the next shared extent begins.
            if (extent.address > at) piece = std::min(piece, extent.address - at);
        }
        // No other process may make this one reach memory of its own that it has not registered.
        if (!pointer && process == fabric.slot() &&
            !device::own_memory::is_region(key >> 8, at, piece))
            return Access::kBadBounds;
        SOFTHCA_DEBUG_ASSERT(piece <= left, "extents only shorten what is left");
        list.add(pointer, at, piece);
        at += piece;
        left -= piece;
    }
    return Access::kOk;
}

void copy_ordered(std::byte* to, const std::byte* from, std::size_t length) noexcept {
    using Unaligned [[gnu::aligned(1), gnu::may_alias]] = std::uint64_t;
    if (length >= 8) {
        const std::size_t head = length - 8;
        std::uint64_t tail;
        memcpy(&tail, from + head, 8);
        if (head) common::copy_payload(to, from, head);  // a program may copy onto itself
        // The compiler must not merge this store with the rest. x86-64 stores in order, and on
        // aarch64 the release orders it.
        std::atomic_thread_fence(std::memory_order_release);
        *reinterpret_cast<volatile Unaligned*>(to + head) = tail;
    } else if (length) {
        for (std::size_t i = 0; i + 1 < length; ++i)
            reinterpret_cast<volatile unsigned char*>(to)[i] = static_cast<unsigned char>(from[i]);
        std::atomic_thread_fence(std::memory_order_release);
        reinterpret_cast<volatile unsigned char*>(to)[length - 1] =
            static_cast<unsigned char>(from[length - 1]);
    }
}

Moved move(Fabric& fabric, const SpanList& source, const SpanList& target) noexcept {
    if (source.count == 1 && target.count == 1 && source.spans[0].pointer &&
        target.spans[0].pointer) {
        copy_ordered(target.spans[0].pointer, source.spans[0].pointer,
                     std::min(source.spans[0].length, target.spans[0].length));
        return Moved::kOk;
    }
    unsigned i = 0, j = 0;
    std::size_t from = 0, to = 0;  // offsets into the two spans
    Run run;
    while (i < source.count && j < target.count) {
        const Span& s = source.spans[i];
        const Span& t = target.spans[j];
        std::size_t piece = std::min(s.length - from, t.length - to);
        if (t.is_nowhere()) {
            // Nothing to copy.
        } else if (s.pointer && t.pointer) {
            if (const Moved moved = flush(fabric, run, source.process, target.process);
                moved != Moved::kOk)
                return moved;
            copy_ordered(t.pointer + to, s.pointer + from, piece);
        } else {
            const bool source_pointer = s.pointer != nullptr, target_pointer = t.pointer != nullptr;
            if (run.count == kIovecs || (run.count && (run.source_pointer != source_pointer ||
                                                       run.target_pointer != target_pointer)))
                if (const Moved moved = flush(fabric, run, source.process, target.process);
                    moved != Moved::kOk)
                    return moved;
            // The end of the last span is an iovec of its own, so that it is stored last.
            const bool last = (i + 1 == source.count && from + piece == s.length) ||
                              (j + 1 == target.count && to + piece == t.length);
            if (last && piece > 8) piece -= 8;
            SOFTHCA_DEBUG_ASSERT(run.count < kIovecs, "flush() empties a full run");
            run.source_pointer = source_pointer;
            run.target_pointer = target_pointer;
            run.source[run.count] = {
                source_pointer ? s.pointer + from : as_pointer(s.address + from), piece};
            run.target[run.count] = {target_pointer ? t.pointer + to : as_pointer(t.address + to),
                                     piece};
            ++run.count;
            run.bytes += piece;
        }
        from += piece;
        to += piece;
        SOFTHCA_DEBUG_ASSERT(from <= s.length && to <= t.length, "the shorter side bounds a copy");
        if (from == s.length) ++i, from = 0;
        if (to == t.length) ++j, to = 0;
    }
    return flush(fabric, run, source.process, target.process);
}

}  // namespace softhca::engine
