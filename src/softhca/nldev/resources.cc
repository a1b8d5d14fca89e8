// SPDX-License-Identifier: BSD-2-Clause
// Writes the attributes of each object: see resources.h.
//
// The answers show the keys of memory regions to every process. The kernel shows them only to a
// process with CAP_NET_ADMIN. Here all processes of a fabric belong to one user.
#include "softhca/nldev/resources.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <vector>

#include "softhca/base/assert.h"
#include "softhca/device/port.h"
#include "softhca/device/socket_address.h"
#include "softhca/device/table.h"
#include "softhca/nldev/abi.h"

namespace softhca::nldev {
namespace {

using namespace softhca::device;

constexpr std::uint8_t kPathMigrated = 0;  // enum ib_mig_state

bool is_alias(const QueuePair& qp) noexcept { return qp.alias_of != kNone; }

// The process that is named as the owner. If the creator of an XRC target has gone, it is a process
// that has opened the target.
std::uint32_t slot_of(const Segment& segment, const QueuePair& qp, std::uint32_t index) noexcept {
    if (qp.head.owner() < kMaxProcesses) return qp.head.owner();
    for (std::uint32_t i = 0; i < used(segment.qps); ++i) {
        const QueuePair& other = segment.qps[i];
        if (other.head.live() && other.alias_of == index) return other.head.owner();
    }
    return kNone;
}

// Without an owner the name is softhca's, because iproute2 requires one of the two attributes.
void put_owner(const Segment& segment, std::uint32_t slot, Datagram* out) noexcept {
    if (slot < kMaxProcesses)
        out->u32(RDMA_NLDEV_ATTR_RES_PID, static_cast<std::uint32_t>(segment.processes[slot].pid));
    else
        out->text(RDMA_NLDEV_ATTR_RES_KERN_NAME, "softhca");
}

void fill_pd(const Segment& segment, std::uint32_t index, Datagram* out) {
    const ProtectionDomain& pd = segment.pds[index];
    out->u32(RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY, 0);
    out->u64(RDMA_NLDEV_ATTR_RES_USECNT, pd.users.load(std::memory_order_relaxed));
    out->u32(RDMA_NLDEV_ATTR_RES_PDN, index);
    out->u32(RDMA_NLDEV_ATTR_RES_CTXN, pd.head.context);
    put_owner(segment, pd.head.owner(), out);
}

void fill_cq(const Segment& segment, std::uint32_t index, Datagram* out) {
    const CompletionQueue& cq = segment.cqs[index];
    out->u32(RDMA_NLDEV_ATTR_RES_CQE, cq.cqe_count - 1);
    out->u64(RDMA_NLDEV_ATTR_RES_USECNT, cq.users.load(std::memory_order_relaxed));
    out->u8(kDevDim, 0);
    out->u32(RDMA_NLDEV_ATTR_RES_CQN, cq.number);
    out->u32(RDMA_NLDEV_ATTR_RES_CTXN, cq.head.context);
    put_owner(segment, cq.head.owner(), out);
}

void fill_qp(const Segment& segment, std::uint32_t index, Datagram* out) {
    const QueuePair& qp = segment.qps[index];
    const bool has_peer = qp.type == IB_UVERBS_QPT_RC || qp.type == IB_UVERBS_QPT_UC;
    if (qp.attr.port) out->u32(RDMA_NLDEV_ATTR_PORT_INDEX, qp.attr.port);
    out->u32(RDMA_NLDEV_ATTR_RES_LQPN, qp.number);
    if (qp.pd < kMaxPds) out->u32(RDMA_NLDEV_ATTR_RES_PDN, qp.pd);
    put_owner(segment, slot_of(segment, qp, index), out);
    if (has_peer) {
        out->u32(RDMA_NLDEV_ATTR_RES_RQPN, qp.attr.dest_qpn);
        out->u32(RDMA_NLDEV_ATTR_RES_RQ_PSN, qp.attr.rq_psn);
    }
    out->u32(RDMA_NLDEV_ATTR_RES_SQ_PSN, qp.attr.sq_psn);
    if (has_peer || qp.type == IB_UVERBS_QPT_XRC_INI || qp.type == IB_UVERBS_QPT_XRC_TGT)
        out->u8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, kPathMigrated);
    const bool is_dc = qp.type == device::kDciType || qp.type == device::kDctType;
    out->u8(RDMA_NLDEV_ATTR_RES_TYPE,
            static_cast<std::uint8_t>(is_dc ? std::uint32_t{IB_UVERBS_QPT_DRIVER} : qp.type));
    out->u8(RDMA_NLDEV_ATTR_RES_STATE,
            static_cast<std::uint8_t>(qp.state.load(std::memory_order_acquire)));
}

void fill_mr(const Segment& segment, std::uint32_t index, Datagram* out) {
    const MemoryRegion& mr = segment.mrs[index];
    out->u32(RDMA_NLDEV_ATTR_RES_RKEY, mr.key);
    out->u32(RDMA_NLDEV_ATTR_RES_LKEY, mr.key);
    out->u64(RDMA_NLDEV_ATTR_RES_MRLEN, mr.length);
    out->u32(RDMA_NLDEV_ATTR_RES_MRN, index);
    if (mr.pd < kMaxPds) out->u32(RDMA_NLDEV_ATTR_RES_PDN, mr.pd);
    put_owner(segment, mr.head.owner(), out);
}

void fill_context(const Segment& segment, std::uint32_t index, Datagram* out) {
    out->u32(RDMA_NLDEV_ATTR_RES_CTXN, index);
    put_owner(segment, segment.contexts[index].head.owner(), out);
}

void put_qp_range(std::uint32_t first, std::uint32_t last, Datagram* out) noexcept {
    SOFTHCA_ASSERT(first <= last);
    const Datagram::Mark entry = out->begin_nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY | NLA_F_NESTED);
    if (first == last) {
        out->u32(RDMA_NLDEV_ATTR_RES_LQPN, first);
    } else {
        out->u32(kMinRange, first);
        out->u32(kMaxRange, last);
    }
    out->end_nest(entry);
}

// Writes the numbers of the QPs that receive from an SRQ, as ranges. If they do not fit a datagram,
// the list ends early and leaves room for the owner.
void put_srq_qps(const Segment& segment, std::uint32_t srq, Datagram* out) {
    constexpr std::size_t kRoomForList = 3072;
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t i = 0; i < used(segment.qps); ++i) {
        const QueuePair& qp = segment.qps[i];
        if (qp.head.live() && qp.srq == srq && !is_alias(qp)) numbers.push_back(qp.number);
    }
    std::sort(numbers.begin(), numbers.end());
    const Datagram::Mark table = out->begin_nest(RDMA_NLDEV_ATTR_RES_QP | NLA_F_NESTED);
    for (std::size_t i = 0; i < numbers.size() && out->mark() - table < kRoomForList;) {
        SOFTHCA_DEBUG_ASSERT(i < numbers.size());
        std::size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
            ++last;
        SOFTHCA_ASSERT(last < numbers.size());
        put_qp_range(numbers[i], numbers[last], out);
        i = last + 1;
    }
    out->end_nest(table);
}

void fill_srq(const Segment& segment, std::uint32_t index, Datagram* out) {
    const SharedReceiveQueue& srq = segment.srqs[index];
    out->u32(kResSrqn, srq.number);
    out->u8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<std::uint8_t>(srq.type));
    out->u32(RDMA_NLDEV_ATTR_RES_PDN, srq.pd);
    if (srq.type == IBV_SRQT_XRC && srq.cq < kMaxCqs)
        out->u32(RDMA_NLDEV_ATTR_RES_CQN, segment.cqs[srq.cq].number);
    put_srq_qps(segment, index, out);
    put_owner(segment, srq.head.owner(), out);
}

// The device of the context that an object belongs to.
std::uint32_t device_of(const Segment& segment, const ObjectHead& head) noexcept {
    return head.context < kMaxContexts ? segment.contexts[head.context].device : 0;
}

// An XRC target may have lost its context, but its domain knows the device.
std::uint32_t device_of_qp(const Segment& segment, std::uint32_t index) noexcept {
    const QueuePair& qp = segment.qps[index];
    if (qp.head.context < kMaxContexts || qp.xrcd >= kMaxXrcds) return device_of(segment, qp.head);
    return segment.xrcds[qp.xrcd].of_device;
}

// enum rdma_cm_state of the kernel.
std::uint8_t state_of(const CmId& id) noexcept {
    switch (id.state) {
        case CmState::kIdle:
            return 0;
        case CmState::kResolved:
            return 2;
        case CmState::kRouted:
            return 4;
        case CmState::kRequested:
        case CmState::kReplied:
        case CmState::kConnected:
            return 5;
        case CmState::kDisconnected:
            return 6;
        case CmState::kBound:
            return 7;
        case CmState::kListening:
            return 8;
    }
    return 0;  // a process has written something else
}

bool has_port_of_id(const Segment& segment, const CmId& id) noexcept {
    return id.has_device != 0 && id.source_port < port_count(segment);
}

// One that listens at all devices is shown with the first.
std::uint32_t device_of_id(const Segment& segment, std::uint32_t index) noexcept {
    const CmId& id = segment.cm_ids[index];
    return has_port_of_id(segment, id) ? port_at(segment, id.source_port).device() : 0;
}
std::uint32_t port_of_id(const Segment& segment, std::uint32_t index) noexcept {
    const CmId& id = segment.cm_ids[index];
    return has_port_of_id(segment, id) ? port_at(segment, id.source_port).number() : 0;
}

void put_address(std::uint16_t type, const CmAddress& address, Datagram* out) noexcept {
    sockaddr_storage socket{};
    if (write_address(address, &socket) != 0) out->put(type, &socket, sizeof socket);
}

// As the kernel's fill_res_cm_id_entry().
void fill_id(const Segment& segment, std::uint32_t index, Datagram* out) {
    const CmId& id = segment.cm_ids[index];
    if (const std::uint32_t port = port_of_id(segment, index))
        out->u32(RDMA_NLDEV_ATTR_PORT_INDEX, port);
    if (id.own.qp_number != 0) {
        out->u32(RDMA_NLDEV_ATTR_RES_LQPN, id.own.qp_number);
        out->u8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<std::uint8_t>(id.qp_type));
    }
    out->u32(RDMA_NLDEV_ATTR_RES_PS, id.port_space);
    out->u8(RDMA_NLDEV_ATTR_RES_STATE, state_of(id));
    put_address(RDMA_NLDEV_ATTR_RES_SRC_ADDR, id.source, out);
    put_address(RDMA_NLDEV_ATTR_RES_DST_ADDR, id.destination, out);
    out->u32(RDMA_NLDEV_ATTR_RES_CM_IDN, index);
    put_owner(segment, id.head.owner(), out);
}

std::uint32_t of_no_port(const Segment&, std::uint32_t) { return 0; }
std::uint32_t same_number(const Segment&, std::uint32_t index) { return index; }

constexpr Resource kResources[] = {
    {.name = "pd",
     .command = RDMA_NLDEV_CMD_RES_PD_GET,
     .table = RDMA_NLDEV_ATTR_RES_PD,
     .entry = RDMA_NLDEV_ATTR_RES_PD_ENTRY,
     .number_attribute = RDMA_NLDEV_ATTR_RES_PDN,
     .per_device = true,
     .end = [](const Segment& s) { return used(s.pds); },
     .live = [](const Segment& s, std::uint32_t i) { return s.pds[i].head.live(); },
     .number = same_number,
     .port = of_no_port,
     .device = [](const Segment& s, std::uint32_t i) { return device_of(s, s.pds[i].head); },
     .fill = fill_pd},
    {.name = "cq",
     .command = RDMA_NLDEV_CMD_RES_CQ_GET,
     .table = RDMA_NLDEV_ATTR_RES_CQ,
     .entry = RDMA_NLDEV_ATTR_RES_CQ_ENTRY,
     .number_attribute = RDMA_NLDEV_ATTR_RES_CQN,
     .per_device = true,
     .end = [](const Segment& s) { return used(s.cqs); },
     .live = [](const Segment& s, std::uint32_t i) { return s.cqs[i].head.live(); },
     .number = [](const Segment& s, std::uint32_t i) { return s.cqs[i].number; },
     .port = of_no_port,
     .device = [](const Segment& s, std::uint32_t i) { return device_of(s, s.cqs[i].head); },
     .fill = fill_cq},
    {.name = "qp",
     .command = RDMA_NLDEV_CMD_RES_QP_GET,
     .table = RDMA_NLDEV_ATTR_RES_QP,
     .entry = RDMA_NLDEV_ATTR_RES_QP_ENTRY,
     .number_attribute = RDMA_NLDEV_ATTR_RES_LQPN,
     .per_device = false,
     .end = [](const Segment& s) { return used(s.qps); },
     // An opened XRC target is not listed: it stands for the target itself.
     .live = [](const Segment& s,
                std::uint32_t i) { return s.qps[i].head.live() && !is_alias(s.qps[i]); },
     .number = [](const Segment& s, std::uint32_t i) { return s.qps[i].number; },
     .port = [](const Segment& s, std::uint32_t i) { return std::uint32_t{s.qps[i].attr.port}; },
     .device = device_of_qp,
     .fill = fill_qp},
    {.name = "cm_id",
     .command = RDMA_NLDEV_CMD_RES_CM_ID_GET,
     .table = RDMA_NLDEV_ATTR_RES_CM_ID,
     .entry = RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY,
     .number_attribute = RDMA_NLDEV_ATTR_RES_CM_IDN,
     .per_device = false,
     .end = [](const Segment& s) { return used(s.cm_ids); },
     .live = [](const Segment& s, std::uint32_t i) { return s.cm_ids[i].head.live(); },
     .number = same_number,
     .port = port_of_id,
     .device = device_of_id,
     .fill = fill_id},
    {.name = "mr",
     .command = RDMA_NLDEV_CMD_RES_MR_GET,
     .table = RDMA_NLDEV_ATTR_RES_MR,
     .entry = RDMA_NLDEV_ATTR_RES_MR_ENTRY,
     .number_attribute = RDMA_NLDEV_ATTR_RES_MRN,
     .per_device = true,
     .end = [](const Segment& s) { return used(s.mrs); },
     .live = [](const Segment& s, std::uint32_t i) { return s.mrs[i].head.live(); },
     .number = same_number,
     .port = of_no_port,
     .device = [](const Segment& s, std::uint32_t i) { return device_of(s, s.mrs[i].head); },
     .fill = fill_mr},
    {.name = "ctx",
     .command = kResCtxGet,
     .table = kResCtx,
     .entry = kResCtxEntry,
     .number_attribute = RDMA_NLDEV_ATTR_RES_CTXN,
     .per_device = true,
     .end = [](const Segment& s) { return used(s.contexts); },
     .live = [](const Segment& s, std::uint32_t i) { return s.contexts[i].head.live(); },
     .number = same_number,
     .port = of_no_port,
     .device = [](const Segment& s, std::uint32_t i) { return device_of(s, s.contexts[i].head); },
     .fill = fill_context},
    {.name = "srq",
     .command = kResSrqGet,
     .table = kResSrq,
     .entry = kResSrqEntry,
     .number_attribute = kResSrqn,
     .per_device = true,
     .end = [](const Segment& s) { return used(s.srqs); },
     .live = [](const Segment& s, std::uint32_t i) { return s.srqs[i].head.live(); },
     .number = [](const Segment& s, std::uint32_t i) { return s.srqs[i].number; },
     .port = of_no_port,
     .device = [](const Segment& s, std::uint32_t i) { return device_of(s, s.srqs[i].head); },
     .fill = fill_srq},
};

}  // namespace

std::span<const Resource> resources() noexcept { return kResources; }

const Resource* resource_of(std::uint16_t command) noexcept {
    const auto found = std::find_if(std::begin(kResources), std::end(kResources),
                                    [&](const Resource& r) { return r.command == command; });
    return found == std::end(kResources) ? nullptr : found;
}

}  // namespace softhca::nldev
