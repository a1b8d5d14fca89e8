// SPDX-License-Identifier: BSD-2-Clause
// The engine and the commands on a fabric whose segment another member has corrupted: any bytes of
// the records of all kinds of objects, of the processes, of the tables' heads and of the segment's
// own head. Meanwhile messages are sent, objects are made, queried and destroyed, and a dead
// process is reclaimed. Nothing may crash, wait for ever, or touch memory that is neither a queue
// nor registered. If a corrupt record names a place in shared memory as its queue, that counts as a
// queue: see SECURITY.md.
#include <climits>
#include <memory>

#include "softhca/device/own_memory.h"
#include "wqe_operations.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kMostOperations = 48, kMostExtras = 8;
constexpr std::uint32_t kDeadSlot = 1;

World& world() {
    static World* world = new World;  // as long as the process
    return *world;
}

// A part of the segment that the input may corrupt.
struct Spot {
    void* at;
    std::size_t bytes;
    device::ObjectHead* head = nullptr;
};

// An object that the input made.
struct Extra {
    std::uint32_t destroy;  // the command
    std::uint32_t handle;
    Spot spot;
    std::atomic<std::uint32_t>* users;
    std::vector<std::byte> made;  // its record, as it was then
};
std::vector<Extra> extras;

template <class Object>
Spot spot_of(Object& object) {
    return {&object, sizeof object, &object.head};
}
template <class Table>
Spot head_of(Table& table) {
    return {&table, offsetof(Table, items)};
}

Spot pick_spot(World& w, Input& input) {
    device::Segment& s = w.segment();
    switch (input.below(16)) {
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
    const auto table = [&](auto& each) {
        unlock_own(each.lock);
        // A walk over all of a large table takes seconds, as its pages come into being by that.
        // Those of XRC domains are small enough.
        constexpr std::uint32_t kMost = 4096;
        if (std::remove_reference_t<decltype(each)>::kSize > kMost && each.high.load() > kMost)
            each.high.store(kMost);
    };
    table(s.contexts), table(s.pds), table(s.channels), table(s.xrcds), table(s.xrcd_handles);
    table(s.uars), table(s.cqs), table(s.srqs), table(s.qps), table(s.dms), table(s.mrs);
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

template <class Table>
void made(Table& table, std::uint32_t index, std::uint32_t destroy,
          std::atomic<std::uint32_t>* users) {
    if (index >= Table::kSize) fail("an object has the handle %u", index);
    const Spot spot = spot_of(table[index]);
    const auto* from = static_cast<const std::byte*>(spot.at);
    extras.push_back({destroy, index, spot, users, {from, from + spot.bytes}});
}

void make_object(World& w, Input& input) {
    if (extras.size() == kMostExtras) return;
    device::Segment& s = w.segment();
    const std::uint64_t part = w.spare.address + input.below(3) * 1024;
    switch (input.below(6)) {
        case 0: {
            ib_uverbs_alloc_pd_resp answer{};
            if (w.attempt(IB_USER_VERBS_CMD_ALLOC_PD, std::uint64_t{0}, None{}, &answer) == 0)
                made(s.pds, answer.pd_handle, IB_USER_VERBS_CMD_DEALLOC_PD,
                     &s.pds[answer.pd_handle].users);
            return;
        }
        case 1: {
            ib_uverbs_create_cq request{};
            request.cqe = 3;
            request.comp_channel = input.one_in(2) ? w.channel : -1;
            mlx5_ib_create_cq driver{};
            driver.buf_addr = part;
            driver.db_addr = part + 512;
            driver.cqe_size = 64;
            ib_uverbs_create_cq_resp answer{};
            if (w.attempt(IB_USER_VERBS_CMD_CREATE_CQ, request, driver, &answer) == 0)
                made(s.cqs, answer.cq_handle, IB_USER_VERBS_CMD_DESTROY_CQ,
                     &s.cqs[answer.cq_handle].users);
            return;
        }
        case 2: {
            ib_uverbs_reg_mr request{};
            request.start = request.hca_va = part;
            request.length = 512;
            request.pd_handle = w.pd;
            request.access_flags = IBV_ACCESS_LOCAL_WRITE | (input.one_in(2) ? 0 : 2);
            ib_uverbs_reg_mr_resp answer{};
            if (w.attempt(IB_USER_VERBS_CMD_REG_MR, request, None{}, &answer) == 0)
                made(s.mrs, answer.mr_handle, IB_USER_VERBS_CMD_DEREG_MR, nullptr);
            return;
        }
        case 3: {
            ib_uverbs_create_xsrq request{};
            request.srq_type = input.one_in(2) ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
            request.pd_handle = w.pd;
            request.max_wr = 3;
            request.max_sge = 1;
            request.xrcd_handle = w.xrcd;
            request.cq_handle = w.cqs[0].index;
            mlx5_ib_create_srq driver{};
            driver.buf_addr = part;
            driver.db_addr = part + 512;
            ib_uverbs_create_srq_resp answer{};
            if (w.attempt(IB_USER_VERBS_CMD_CREATE_XSRQ, request, driver, &answer) == 0)
                made(s.srqs, answer.srq_handle, IB_USER_VERBS_CMD_DESTROY_SRQ,
                     &s.srqs[answer.srq_handle].users);
            return;
        }
        case 4: {
            ib_uverbs_open_qp request{};
            request.pd_handle = w.xrcd;
            request.qpn = w.queues.back().number;
            request.qp_type = IB_UVERBS_QPT_XRC_TGT;
            ib_uverbs_create_qp_resp answer{};
            if (w.attempt(IB_USER_VERBS_CMD_OPEN_QP, request, None{}, &answer) == 0)
                made(s.qps, answer.qp_handle, IB_USER_VERBS_CMD_DESTROY_QP, nullptr);
            return;
        }
        default: {
            ib_uverbs_create_qp request{};
            request.pd_handle = w.pd;
            request.send_cq_handle = request.recv_cq_handle = w.cqs[0].index;
            request.max_send_wr = request.max_recv_wr = 4;
            request.max_send_sge = request.max_recv_sge = 1;
            request.qp_type = input.pick<std::uint8_t>({IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UD});
            mlx5_ib_create_qp driver{};
            driver.buf_addr = part;
            driver.db_addr = part + 512;
            driver.sq_wqe_count = driver.rq_wqe_count = 4;
            driver.rq_wqe_shift = 4;
            driver.bfreg_index = w.uar;
            driver.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
            ib_uverbs_create_qp_resp answer{};
            if (w.attempt(IB_USER_VERBS_CMD_CREATE_QP, request, driver, &answer) == 0)
                made(s.qps, answer.qp_handle, IB_USER_VERBS_CMD_DESTROY_QP, nullptr);
            return;
        }
    }
}

// ib_uverbs_destroy_cq, _qp and _srq.
struct DestroyRequest {
    std::uint64_t response = 0;
    std::uint32_t handle = 0, reserved = 0;
};
int destroy(World& w, const Extra& extra) {
    if (extra.destroy == IB_USER_VERBS_CMD_DEALLOC_PD ||
        extra.destroy == IB_USER_VERBS_CMD_CLOSE_XRCD ||
        extra.destroy == IB_USER_VERBS_CMD_DEREG_MR)
        return w.attempt(extra.destroy, extra.handle, None{}, static_cast<None*>(nullptr));
    std::byte answer[64];
    return w.attempt(extra.destroy, DestroyRequest{0, extra.handle, 0}, None{}, &answer);
}

void destroy_one(World& w, Input& input) {
    if (extras.empty()) return;
    const std::size_t which = input.byte() % extras.size();
    if (destroy(w, extras[which]) == 0)
        extras.erase(extras.begin() + static_cast<std::ptrdiff_t>(which));
    keep_within_bounds(w);
}

// With every record as it was made, all can be destroyed.
void destroy_all(World& w) {
    for (const Extra& extra : extras)
        std::memcpy(extra.spot.at, extra.made.data(), extra.made.size());
    for (; !extras.empty(); extras.pop_back()) {
        const Extra& extra = extras.back();
        if (extra.users) extra.users->store(0);
        if (const int error = destroy(w, extra))
            fail("object %u cannot be destroyed by command %u: errno %d", extra.handle,
                 extra.destroy, error);
    }
}

void ask(World& w, Input& input) {
    device::Segment& s = w.segment();
    const Queue& queue = w.queues[input.byte() % w.queues.size()];
    std::byte answer[256];
    switch (input.below(5)) {
        case 0: {
            ib_uverbs_query_qp request{};
            request.qp_handle =
                input.one_in(3) && !extras.empty() ? extras.back().handle : queue.index;
            w.attempt(IB_USER_VERBS_CMD_QUERY_QP, request, None{}, &answer);
            return;
        }
        case 1: {
            ib_uverbs_query_srq request{};
            request.srq_handle = w.srq.index;
            w.attempt(IB_USER_VERBS_CMD_QUERY_SRQ, request, None{}, &answer);
            return;
        }
        case 2: {
            ib_uverbs_modify_srq request{};
            request.srq_handle = w.srq.index;
            request.attr_mask = IBV_SRQ_LIMIT;
            request.srq_limit = input.byte();
            w.attempt(IB_USER_VERBS_CMD_MODIFY_SRQ, request, None{}, static_cast<None*>(nullptr));
            return;
        }
        case 3: {
            ib_uverbs_modify_qp request{};
            request.qp_handle =
                input.one_in(3) && !extras.empty() ? extras.back().handle : queue.index;
            request.attr_mask = IBV_QP_STATE;
            request.qp_state = input.pick<std::uint8_t>({IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS});
            w.attempt(IB_USER_VERBS_CMD_MODIFY_QP, request, None{}, static_cast<None*>(nullptr));
            return;
        }
        default: {
            ib_uverbs_open_xrcd request{};
            request.fd = static_cast<std::uint32_t>(input.one_in(2) ? -1 : w.channel);
            request.oflags = O_CREAT;
            ib_uverbs_open_xrcd_resp opened{};
            if (w.attempt(IB_USER_VERBS_CMD_OPEN_XRCD, request, None{}, &opened) == 0)
                made(s.xrcd_handles, opened.xrcd_handle, IB_USER_VERBS_CMD_CLOSE_XRCD,
                     &s.xrcd_handles[opened.xrcd_handle].users);
            return;
        }
    }
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
            return destroy_one(w, input);
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

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    softhca::fuzz::use_own_fabric("segment");
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
