// SPDX-License-Identifier: BSD-2-Clause
// The engine and the commands on a fabric whose segment another member has corrupted: any bytes of
// the records of all kinds of objects, of the processes, of the tables' heads and of the segment's
// own head. Meanwhile messages are sent, objects are made, queried and destroyed, and a dead
// process is reclaimed. Nothing may crash, wait for ever, or touch memory that is neither a queue
// nor registered. If a corrupt record names a place in shared memory as its queue, that counts as a
// queue: see SECURITY.md.
#include <climits>
#include <memory>

#include "segment_objects.h"
#include "softhca/device/own_memory.h"
#include "wqe_operations.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kMostOperations = 48;
constexpr std::uint32_t kDeadSlot = 1;

World& world() {
    static World* world = new World;  // as long as the process
    return *world;
}

template <class Table>
Spot head_of(Table& table) {
    return {&table, offsetof(Table, items)};
}

Spot pick_spot(World& w, Input& input) {
    device::Segment& s = w.segment();
    switch (input.below(19)) {
        case 17:
            if (input.one_in(2)) return {&s.multicast.members[input.below(3)], 64};
            return {&s.multicast,
                    offsetof(device::MulticastGroups, groups) + 3 * sizeof s.multicast.groups[0]};
        case 0:
            return spot_of(s.contexts[w.context]);
        case 1:
            return spot_of(s.pds[w.pd]);
        case 2:
            return spot_of(s.channels[s.cqs[w.cqs[0].index].channel % device::kMaxChannels]);
        case 3:
            return spot_of(s.xrcd_handles[w.xrcd]);
        case 4:
            return spot_of(s.xrcds[s.xrcd_handles[w.xrcd].domain % device::kMaxXrcds]);
        case 5:
            return spot_of(s.uars[w.uar]);
        case 6:
        case 7:
            return spot_of(s.cqs[w.cqs[input.byte() % w.cqs.size()].index]);
        case 8:
            return spot_of(s.srqs[(input.one_in(2) ? w.xrc_srq : w.srq).index]);
        case 9:
        case 10:
            return spot_of(s.qps[w.queues[input.byte() % w.queues.size()].index]);
        case 11:
            return spot_of(s.mrs[w.regions[input.byte() % w.regions.size()].key >> 8]);
        case 12:
            return {&s.processes[input.one_in(4) ? kDeadSlot : w.fabric().slot()],
                    offsetof(device::Process, epochs)};
        case 13:
            return {&s, offsetof(device::Segment, processes)};
        case 16:
            return spot_of(s.mkeys[w.mkeys[input.byte() % w.mkeys.size()]]);
        case 15:
            return spot_of(s.mws[w.windows[input.byte() % w.windows.size()]]);
        case 14:
            if (!extras.empty()) return extras[input.byte() % extras.size()].spot;
            [[fallthrough]];
        default:
            switch (input.below(6)) {
                case 0:
                    return head_of(s.xrcds);
                case 1:
                    return head_of(s.cqs);
                case 2:
                    return head_of(s.srqs);
                case 3:
                    return head_of(s.mrs);
                case 4:
                    return head_of(s.pds);
                default:
                    return head_of(s.qps);
            }
    }
}

// What is no damage but another test: a lock that this process holds for ever is waited for, for
// three seconds each time; an object that is free may be taken a second time; and nothing may ever
// be copied to a process that is none of this target's.
void keep_within_bounds(World& w) {
    device::Segment& s = w.segment();
    const auto unlock_own = [](device::SharedLock& lock) {
        std::uint32_t word;
        std::memcpy(&word, &lock, sizeof word);
        if ((word - 1) % device::kMaxProcesses ==
            (device::g_lock_owner - 1) % device::kMaxProcesses)
            lock.reset();
    };
    const auto keep = [](device::ObjectHead& head) {
        if (head.state.load() == device::kFree) head.state.store(device::kDying);
    };
    for (const std::uint32_t slot : {w.fabric().slot(), kDeadSlot}) {
        device::Process& process = s.processes[slot];
        constexpr std::int32_t kNumbers[] = {0, -1, INT_MAX};
        if (process.pid != getpid())
            process.pid = kNumbers[static_cast<std::uint32_t>(process.pid) % 3];
    }
    unlock_own(s.process_lock);
    unlock_own(s.atomics_lock);
    unlock_own(s.multicast.lock);
    constexpr std::uint32_t kMostGroups = 64;  // for the reason below
    if (s.multicast.high.load() > kMostGroups) s.multicast.high.store(kMostGroups);
    const auto table = [&](auto& each) {
        unlock_own(each.lock);
        // A walk over all of a large table takes seconds, as its pages come into being by that.
        // Those of XRC domains are small enough.
        constexpr std::uint32_t kMost = 4096;
        if (std::remove_reference_t<decltype(each)>::kSize > kMost && each.high.load() > kMost)
            each.high.store(kMost);
    };
    table(s.contexts), table(s.pds), table(s.channels), table(s.xrcds), table(s.xrcd_handles);
    table(s.uars), table(s.cqs), table(s.srqs), table(s.qps), table(s.dms), table(s.mrs),
        table(s.mws), table(s.mkeys);
    keep(s.contexts[w.context].head);
    keep(s.pds[w.pd].head);
    keep(s.xrcd_handles[w.xrcd].head);
    keep(s.uars[w.uar].head);
    for (std::uint32_t i = 0; i < 8; ++i) {
        unlock_own(s.channels[i].lock);
        if (i < 2) keep(s.channels[i].head);
        if (i == 1) keep(s.xrcds[i].head);
    }
    for (const CompletionQueue& cq : w.cqs) {
        keep(s.cqs[cq.index].head);
        unlock_own(s.cqs[cq.index].lock);
    }
    for (const SharedQueue* srq : {&w.srq, &w.xrc_srq}) {
        keep(s.srqs[srq->index].head);
        unlock_own(s.srqs[srq->index].lock);
    }
    for (const Queue& queue : w.queues) {
        keep(s.qps[queue.index].head);
        unlock_own(s.qps[queue.index].receive_lock);
    }
    for (const MemoryPart& region : w.regions)
        keep(s.mrs[region.key >> 8].head);
    for (const std::uint32_t window : w.windows)
        keep(s.mws[window].head);
    for (const std::uint32_t mkey : w.mkeys)
        keep(s.mkeys[mkey].head);
    for (const Extra& extra : extras)
        if (extra.spot.head) keep(*extra.spot.head);
}

void damage(World& w, Input& input) {
    const Spot spot = pick_spot(w, input);
    const std::uint32_t at = input.below(static_cast<std::uint32_t>(spot.bytes / 4)) * 4;
    auto* const place = static_cast<std::byte*>(spot.at) + at;
    const std::size_t most = spot.bytes - at;
    const auto put = [&](auto value) { std::memcpy(place, &value, std::min(sizeof value, most)); };
    std::uint32_t word;
    std::memcpy(&word, place, sizeof word);
    switch (input.below(7)) {
        case 0:
            put(std::uint32_t{input.byte()});
            break;
        case 1:
            put(word ^ 1u << input.below(32));
            break;
        case 2:
            put(input.pick({0u, ~0u, 1u << 31, 0xffffu, 0x10000u, word + 1, word - 1}));
            break;
        case 3:
            put(input.word());
            break;
        case 4:
            put(std::uint64_t{input.byte()} << input.below(64));
            break;
        case 5:
            put(input.pick<std::uint64_t>({0, ~0ull, 1ull << 47, ~0ull >> 1, 4096}));
            break;
        default:
            input.bytes(place, std::min<std::size_t>(most, 1 + input.below(64)));
            break;
    }
    keep_within_bounds(w);
}

// An object of a dead process: a copy of one of this process, with up to three words corrupted.
template <class Table>
void leave_behind(Table& table, std::uint32_t like, Input& input) {
    const std::uint32_t index = (table.high.load() & (Table::kSize - 1)) + 8 + input.below(16);
    if (index >= Table::kSize || table[index].head.state.load() != device::kFree) return;
    auto& object = table[index];
    std::memcpy(static_cast<void*>(&object), &table[like], sizeof object);
    auto* bytes = reinterpret_cast<std::byte*>(&object);
    for (unsigned n = input.below(4); n; --n)
        input.bytes(bytes + input.below(sizeof object / 4) * 4, 4);
    object.head.set_owner(kDeadSlot);
    object.head.state.store(device::kLive);
    if (table.high.load() <= index) table.high.store(index + 1);
}

void reclaim(World& w, Input& input) {
    device::Segment& s = w.segment();
    device::Process& process = s.processes[kDeadSlot];
    process.generation.store(input.byte());
    process.pid = -1;
    process.state.store(device::kLive);
    if (!input.one_in(4)) s.processes_high.store(kDeadSlot + 1);
    for (unsigned n = 1 + input.below(6); n; --n) {
        switch (input.below(8)) {
            case 0:
                leave_behind(s.qps, w.queues[input.byte() % w.queues.size()].index, input);
                break;
            case 1:
                leave_behind(s.srqs, w.xrc_srq.index, input);
                break;
            case 2:
                leave_behind(s.cqs, w.cqs[0].index, input);
                break;
            case 3:
                leave_behind(s.mrs, w.regions[0].key >> 8, input);
                break;
            case 4:
                leave_behind(s.xrcd_handles, w.xrcd, input);
                break;
            case 5:
                leave_behind(s.pds, w.pd, input);
                break;
            case 6:
                leave_behind(s.uars, w.uar, input);
                break;
            default:
                leave_behind(s.contexts, w.context, input);
                break;
        }
    }
    w.fabric().reclaim_dead();
    keep_within_bounds(w);
}

void one_step(World& w, Input& input) {
    switch (input.below(8)) {
        case 0:
        case 1:
            return damage(w, input);
        case 2:
            return make_object(w, input);
        case 3:
            destroy_one(w, input);
            return keep_within_bounds(w);
        case 4:
            return ask(w, input);
        case 5:
            if (input.one_in(4)) return reclaim(w, input);
            [[fallthrough]];
        default:
            return one_operation(w, input);
    }
}

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
    softhca::fuzz::use_own_fabric("segment", *arguments);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace softhca::fuzz;
    World& w = world();
    Input input(data, size);
    w.begin(input.word());
    w.is_corrupt = true;
    for (unsigned n = 0; n < kMostOperations && !input.empty(); ++n)
        one_step(w, input);
    w.is_corrupt = false;
    run_all_listed(w);
    restore_words();
    restore_regions();
    w.restore();
    destroy_all(w);
    w.restore();
    w.check();
    return 0;
}
