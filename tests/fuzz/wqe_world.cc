// SPDX-License-Identifier: BSD-2-Clause
// The objects of wqe_fuzz: see wqe_world.h.
#include "wqe_world.h"

#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "softhca/engine/local.h"
#include "softhca/engine/progress.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::fuzz {
namespace {

constexpr std::size_t kBlockBytes = 64 * 4096;
constexpr std::uint64_t kGap = 64;  // between parts, at least
// What lies between the parts: another value in each process, never seen by what libFuzzer
// instruments, so that no input can hold it.
std::uint64_t g_canary = 0;

#if defined(__clang__)
#define FUZZ_UNSEEN [[gnu::noinline]] __attribute__((no_sanitize("coverage")))
#else
#define FUZZ_UNSEEN [[gnu::noinline]]
#endif

// A run of the canary's bytes in memory that began as zeros was copied from between the parts.
FUZZ_UNSEEN bool holds_canary(const MemoryPart& part) {
    for (std::uint64_t at = 0; at + 8 <= part.length; at += 8) {
        std::uint64_t value;
        std::memcpy(&value, part.bytes() + at, sizeof value);
        if ((value & 0xff) == 0) continue;
        for (unsigned turn = 0; turn < 64; turn += 8)
            if (value == (g_canary << turn | (turn ? g_canary >> (64 - turn) : 0))) return true;
    }
    return false;
}

FUZZ_UNSEEN bool is_canary(const std::byte* at, const std::byte* end) {
    for (; at < end; at += 8) {
        std::uint64_t value;
        std::memcpy(&value, at, sizeof value);
        if (value != g_canary) return false;
    }
    return true;
}

}  // namespace

template <class Request, class Driver, class Answer>
void World::command(std::uint32_t number, const Request& request, const Driver& driver,
                    Answer* answer) {
    if (const int error = attempt(number, request, driver, answer); error && !is_corrupt)
        fail("command %u: errno %d", number, error);
}

MemoryPart World::part(std::uint64_t length) {
    used_ = (used_ + kGap + 63) & ~std::size_t{63};
    if (used_ + length + kGap > kBlockBytes) fail("the block is too small");
    const MemoryPart made{reinterpret_cast<std::uintptr_t>(block_ + used_), length, 0};
    used_ += length;
    std::memset(made.bytes(), 0, length);
    parts_.push_back(made);
    return made;
}

World::World() {
    while (getrandom(&g_canary, sizeof g_canary, 0) != sizeof g_canary) {
    }
    g_canary |= 0x0101'0101'0101'0101ull;  // no byte of it is zero
    block_ = guarded_pages(kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    for (std::size_t at = 0; at < kBlockBytes; at += 8)
        std::memcpy(block_ + at, &g_canary, sizeof g_canary);
    fd_ = uverbs::open_device(0);
    if (fd_ < 0) fail("cannot open the device");
    mlx5_ib_alloc_ucontext_req_v2 wanted{};
    wanted.total_num_bfregs = 16;
    wanted.num_low_latency_bfregs = 4;
    wanted.flags = MLX5_IB_ALLOC_UCTX_DEVX;
    wanted.max_cqe_version = 1;
    wanted.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
    ib_uverbs_get_context_resp opened{};
    command(IB_USER_VERBS_CMD_GET_CONTEXT, std::uint64_t{0}, wanted, &opened);
    async_fd_ = static_cast<int>(opened.async_fd);
    engine::stop_progress();  // what it would do this target does, in an order that repeats
    count_threads_as_own();

    Call alloc_uar(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
    alloc_uar.add(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF, 8);
    alloc_uar.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &uar, sizeof uar);
    alloc_uar.add(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0);
    if (const int error = alloc_uar.run(fd_)) fail("no UAR: errno %d", error);

    ib_uverbs_alloc_pd_resp domain_made{};
    command(IB_USER_VERBS_CMD_ALLOC_PD, std::uint64_t{0}, None{}, &domain_made);
    pd = domain_made.pd_handle;
    command(IB_USER_VERBS_CMD_ALLOC_PD, std::uint64_t{0}, None{}, &domain_made);
    other_pd_ = domain_made.pd_handle;
    ib_uverbs_create_comp_channel_resp made_channel{};
    command(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, std::uint64_t{0}, None{}, &made_channel);
    channel = static_cast<int>(made_channel.fd);
    for (const int fd : {async_fd_, channel})
        fcntl(fd, F_SETFL, O_NONBLOCK);
    ib_uverbs_open_xrcd domain{};
    domain.fd = static_cast<std::uint32_t>(-1);
    domain.oflags = O_CREAT;
    ib_uverbs_open_xrcd_resp opened_domain{};
    command(IB_USER_VERBS_CMD_OPEN_XRCD, domain, None{}, &opened_domain);
    xrcd = opened_domain.xrcd_handle;

    add_cq(64, 64, true);
    add_cq(64, 128, true);
    add_cq(4, 64, false);  // overruns soon
    add_srq(srq, false);
    add_srq(xrc_srq, true);
    add_queue(IB_UVERBS_QPT_RC, 16, 1, false, 0, 0);
    add_queue(IB_UVERBS_QPT_RC, 16, 0, false, 1, 1);
    add_queue(IB_UVERBS_QPT_RC, 64, 3, true, 1, 0);
    add_queue(IB_UVERBS_QPT_RC, 1, 2, true, 2, 1);   // no room for an entry of more than four units
    add_queue(IB_UVERBS_QPT_RC, 8, 4, false, 0, 2);  // connected to itself
    add_queue(IB_UVERBS_QPT_UC, 16, 6, false, 0, 1);
    add_queue(IB_UVERBS_QPT_UC, 4, 5, false, 1, 0);
    add_queue(IB_UVERBS_QPT_UD, 16, 8, false, 0, 1);
    add_queue(IB_UVERBS_QPT_UD, 8, 7, true, 1, 0);
    add_queue(IB_UVERBS_QPT_XRC_INI, 16, 10, false, 0, 0);
    add_queue(IB_UVERBS_QPT_XRC_TGT, 0, 9, false, 0, 0);
    for (const Queue& queue : queues)
        if (queue.type == IB_UVERBS_QPT_UD) join_group(queue);
    for (Queue& queue : queues)
        for (const MemoryPart& each : {queue.receive_ring, queue.send_ring})
            if (each.length) queue_parts.push_back(each);
    for (const SharedQueue* queue : {&srq, &xrc_srq})
        queue_parts.push_back(queue->ring);
    for (const CompletionQueue& cq : cqs)
        queue_parts.push_back(cq.ring);

    constexpr std::uint32_t kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    add_region(part(1024), kAll, pd);
    add_region(part(512), kAll | IBV_ACCESS_MW_BIND, pd);
    add_region(part(256), 0, pd);
    add_region(part(256), IBV_ACCESS_LOCAL_WRITE, pd);
    add_region(part(256), kAll, other_pd_);
    add_region(part(512), kAll | IBV_ACCESS_ON_DEMAND, pd);
    add_region(part(64 * 1024), kAll, pd);  // large enough to be left to others
    // queues can be registered like any memory
    add_region(queues[0].send_ring, kAll, pd);
    add_region(queues[1].receive_ring, kAll, pd);
    add_region(cqs[1].ring, kAll, pd);
    add_region(queues[2].record, kAll, pd);
    for (const std::uint8_t type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_MW_TYPE_2})
        add_window(type);
    for (const std::uint32_t parts : {2u, 8u, 64u})
        add_mkey(parts);
    // three pages, of which the middle one may be gone: once shared, once reached by copies
    for (const std::uint32_t access : {kAll, kAll | IBV_ACCESS_ON_DEMAND}) {
        const MemoryPart pages{reinterpret_cast<std::uintptr_t>(guarded_pages(
                                   3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)),
                               3 * 4096, 0};
        holes.push_back(pages.bytes() + 4096);
        add_region(pages, access, pd);
    }
    spare = part(4096);
    device::Segment& s = segment();
    context = s.pds[pd].head.context;
    remember(s.contexts);
    remember(s.pds);
    remember(s.channels);
    remember(s.xrcds);
    remember(s.xrcd_handles);
    remember(s.uars);
    remember(s.cqs);
    remember(s.srqs);
    remember(s.qps);
    remember(s.mrs);
    remember(s.mws);
    remember(s.mkeys);
    remember(s.dms);
    constexpr unsigned kGroups = 8;  // which inputs make
    remember(&s.multicast, offsetof(device::MulticastGroups, groups));
    remember(s.multicast.groups, kGroups * sizeof s.multicast.groups[0]);
    remember(s.multicast.members, kGroups * sizeof s.multicast.members[0]);
    device::Process& self = fabric().self();
    remember(&self, offsetof(device::Process, epochs));
    remember(&s, offsetof(device::Segment, processes));
}

void World::remember(void* at, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(at);
    records_.push_back({at, {from, from + bytes}});
}

// Its head, with the lock, and the items in use and some behind them.
template <class Table>
void World::remember(Table& table) {
    constexpr std::uint32_t kBehind = sizeof table.items[0] > 4096 ? 2 : 64;
    const std::uint32_t end = std::min(table.high.load() + kBehind, Table::kSize);
    remember(&table, offsetof(Table, items));
    remember(table.items, end * sizeof table.items[0]);
}

void World::restore() {
    for (const Record& record : records_)
        std::memcpy(record.at, record.bytes.data(), record.bytes.size());
    const std::byte* at = block_;
    const auto refill = [&](const std::byte* to) {
        for (; at < to; at += 8)
            std::memcpy(const_cast<std::byte*>(at), &g_canary, sizeof g_canary);
    };
    for (const MemoryPart& each : parts_) {
        refill(each.bytes());
        at = each.bytes() + each.length;
        std::memset(each.bytes(), 0, each.length);
    }
    refill(block_ + kBlockBytes);
}

void World::add_cq(std::uint32_t entries, std::uint32_t entry_bytes, bool events) {
    CompletionQueue cq;
    cq.ring = part(std::uint64_t{entries} * entry_bytes);
    cq.record = part(8);
    ib_uverbs_create_cq request{};
    request.cqe = entries - 1;
    request.comp_channel = events ? channel : -1;
    mlx5_ib_create_cq driver{};
    driver.buf_addr = cq.ring.address;
    driver.db_addr = cq.record.address;
    driver.cqe_size = entry_bytes;
    ib_uverbs_create_cq_resp answer{};
    command(IB_USER_VERBS_CMD_CREATE_CQ, request, driver, &answer);
    cq.index = answer.cq_handle;
    records.push_back(cq.record);
    cqs.push_back(cq);
}

void World::add_srq(SharedQueue& queue, bool xrc) {
    queue.ring = part(kReceives * kReceiveBytes);
    queue.record = part(8);
    ib_uverbs_create_xsrq request{};
    request.srq_type = xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    request.pd_handle = pd;
    request.max_wr = kReceives - 1;
    request.max_sge = kReceiveBytes / 16 - 1;
    request.xrcd_handle = xrcd;
    request.cq_handle = cqs[0].index;
    mlx5_ib_create_srq driver{};
    driver.buf_addr = queue.ring.address;
    driver.db_addr = queue.record.address;
    ib_uverbs_create_srq_resp answer{};
    command(IB_USER_VERBS_CMD_CREATE_XSRQ, request, driver, &answer);
    queue.index = answer.srq_handle;
    queue.number = answer.srqn;
    records.push_back(queue.record);
}

void World::add_queue(std::uint32_t type, std::uint32_t blocks, std::size_t peer,
                      bool shared_receive, std::size_t send_cq, std::size_t receive_cq) {
    Queue queue;
    queue.type = type;
    queue.peer = peer;
    const bool receives =
        !shared_receive && type != IB_UVERBS_QPT_XRC_INI && type != IB_UVERBS_QPT_XRC_TGT;
    const std::uint64_t receive_bytes = receives ? kReceives * kReceiveBytes : 0;
    ib_uverbs_create_qp request{};
    mlx5_ib_create_qp driver{};
    if (type == IB_UVERBS_QPT_XRC_TGT) {
        request.pd_handle = xrcd;
    } else {
        const MemoryPart both = part(receive_bytes + blocks * 64);
        queue.receive_ring = {both.address, receive_bytes, 0};
        queue.send_ring = {both.address + receive_bytes, blocks * std::uint64_t{64}, 0};
        queue.record = part(8);
        records.push_back(queue.record);
        request.pd_handle = pd;
        request.send_cq_handle = cqs[send_cq].index;
        request.recv_cq_handle = cqs[receive_cq].index;
        request.srq_handle = srq.index;
        request.is_srq = shared_receive;
        request.max_send_wr = blocks;
        request.max_send_sge = 2;
        request.max_recv_wr = receives ? kReceives : 0;
        request.max_recv_sge = receives ? kReceiveBytes / 16 : 0;
        request.sq_sig_all = peer & 1;
        driver.buf_addr = both.address;
        driver.db_addr = queue.record.address;
        driver.sq_wqe_count = blocks;
        driver.rq_wqe_count = kReceives;
        driver.rq_wqe_shift = 6;
        driver.bfreg_index = uar;
        driver.flags =
            MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE;
    }
    request.qp_type = static_cast<std::uint8_t>(type);
    ib_uverbs_create_qp_resp answer{};
    command(IB_USER_VERBS_CMD_CREATE_QP, request, driver, &answer);
    queue.index = answer.qp_handle;
    queue.number = answer.qpn;
    queues.push_back(queue);
}

void World::join_group(const Queue& queue) {
    ib_uverbs_attach_mcast request{};
    std::memcpy(request.gid, group_gid, sizeof request.gid);
    request.qp_handle = queue.index;
    request.mlid = device::kFirstMulticastLid;
    command(IB_USER_VERBS_CMD_ATTACH_MCAST, request, None{}, static_cast<None*>(nullptr));
}

void World::modify(Queue& queue, std::uint32_t state) {
    queue.choices = ~0u;
    Call call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    ib_uverbs_modify_qp request{};
    request.qp_handle = queue.index;
    request.attr_mask = IBV_QP_STATE;
    request.qp_state = static_cast<std::uint8_t>(state);
    call.add(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_MODIFY_QP, 0);
    call.in(UVERBS_ATTR_CORE_IN, &request, sizeof request);
    call.run(fd_);  // from some states it is refused, and rightly
}

void World::connect(Queue& queue, std::uint32_t choices) {
    const bool datagram = queue.type == IB_UVERBS_QPT_UD;
    const bool requester = queue.type == IB_UVERBS_QPT_RC || queue.type == IB_UVERBS_QPT_XRC_INI;
    const bool responder = queue.type == IB_UVERBS_QPT_RC || queue.type == IB_UVERBS_QPT_XRC_TGT;
    queue.choices = choices;
    ib_uverbs_modify_qp m{};
    m.qp_handle = queue.index;
    m.qp_state = IBV_QPS_RESET;
    m.attr_mask = IBV_QP_STATE;
    command(IB_USER_VERBS_CMD_MODIFY_QP, m, None{}, static_cast<None*>(nullptr));
    m.qp_state = IBV_QPS_INIT;
    m.port_num = 1;
    m.qkey = kQkey;
    m.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    m.attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                  (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    command(IB_USER_VERBS_CMD_MODIFY_QP, m, None{}, static_cast<None*>(nullptr));
    m.qp_state = IBV_QPS_RTR;
    m.path_mtu = IBV_MTU_256;
    m.dest.dlid = device::kFirstLid;
    m.dest.port_num = 1;
    m.dest_qp_num = queues[queue.peer].number;
    m.max_dest_rd_atomic = 4;
    m.min_rnr_timer = 1;
    m.attr_mask = IBV_QP_STATE;
    if (!datagram) m.attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (responder) m.attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    command(IB_USER_VERBS_CMD_MODIFY_QP, m, None{}, static_cast<None*>(nullptr));
    m.qp_state = IBV_QPS_RTS;
    m.timeout = 1;
    m.retry_cnt = choices & 1;
    m.rnr_retry = choices & 2 ? 7 : choices >> 2 & 1;
    m.max_rd_atomic = 4;
    m.attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (requester)
        m.attr_mask |=
            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    if (queue.type == IB_UVERBS_QPT_XRC_TGT) m.attr_mask |= IBV_QP_TIMEOUT;
    command(IB_USER_VERBS_CMD_MODIFY_QP, m, None{}, static_cast<None*>(nullptr));
}

// Most inputs are about a few queue pairs, and connecting is most of the time that they take.
bool World::untouched(const Queue& queue, std::uint32_t choices) {
    const device::QueuePair& qp = segment().qps[queue.index];
    const engine::LocalQp* local = engine::local_qp(queue.number);
    return local && queue.choices == choices && qp.state.load() == IBV_QPS_RTS &&
           qp.attention.load() == 0 && qp.in_flight.load() == 0 && qp.sq_consumer == 0 &&
           qp.rq_consumer == 0 && qp.requester_psn == 0 && qp.responder_psn == 0 &&
           !local->unfinished.active && local->waiting == engine::WaitReason::kNo &&
           !local->pending.load() && !local->counting_rnr && !local->counting_retries;
}

void World::begin(std::uint32_t choices) {
    for (std::byte* hole : holes)
        if (mprotect(hole, 4096, PROT_READ | PROT_WRITE) != 0) fail("cannot unprotect the hole");
    for (Queue& queue : queues)
        modify(queue, IBV_QPS_RESET);
    // nobody is at work now
    for (const MemoryPart& each : parts_)
        std::memset(each.bytes(), 0, each.length);
    for (const MemoryPart& region : {regions[regions.size() - 2], regions.back()})
        std::memset(region.bytes(), 0, region.length);
    for (const CompletionQueue& cq : cqs) {
        cq.record.set_word(1, 0xffffffffu);  // not armed
        device::CompletionQueue& object = segment().cqs[cq.index];
        object.producer = object.last_solicited = object.failed = 0;
    }
    for (const SharedQueue* queue : {&srq, &xrc_srq}) {
        device::SharedReceiveQueue& object = segment().srqs[queue->index];
        object.next = object.consumed = object.failed = 0;
        object.limit = choices >> 8 & 3;
    }
    for (Queue& queue : queues)
        connect(queue, choices);
}

void World::read_events(int fd) {
    char buffer[4096];
    while (read(fd, buffer, sizeof buffer) > 0) {
    }
}

void World::check() {
    const std::byte* at = block_;
    for (const MemoryPart& each : parts_) {
        const std::byte* next = each.bytes();
        if (!is_canary(at, next))
            fail("memory was written between two parts, at offset %td to %td", at - block_,
                 next - block_);
        at = next + each.length;
    }
    if (!is_canary(at, block_ + kBlockBytes)) fail("memory was written behind the last part");
    for (const MemoryPart& each : parts_)
        if (holds_canary(each))
            fail("what lies between two parts was copied to part %td, %llu bytes at offset %td",
                 &each - parts_.data(), static_cast<unsigned long long>(each.length),
                 each.bytes() - block_);
    read_events(async_fd_);
    read_events(channel);
}

}  // namespace softhca::fuzz
