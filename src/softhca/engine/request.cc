// SPDX-License-Identifier: BSD-2-Clause
// Decodes send WQEs: see request.h.
#include "softhca/engine/request.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/device/identity.h"
#include "softhca/device/multicast.h"
#include "softhca/device/port.h"

namespace softhca::engine {

using device::Fabric;
using device::QueuePair;

namespace {

constexpr std::uint32_t kExtendedAv = 0x80000000u;  // MLX5_EXTENDED_UD_AV
constexpr std::uint32_t kGrhPresent = 1u << 30;

// Reads a WQE in 16-byte units, and wraps at the end of the ring.
class Cursor {
public:
    Cursor(const LocalQp& local, std::uint16_t counter) noexcept
        : begin_(local.send_ring),
          end_(local.send_ring + ring_bytes(local)),
          at_(local.send_ring + std::size_t{counter & (local.ring_blocks - 1)} * 64) {
        SOFTHCA_DEBUG_ASSERT(begin_ && at_ < end_, "the QP has a send queue");
    }
    std::byte* at() const noexcept { return at_; }
    void advance(std::size_t units) noexcept {
        at_ += units * kUnit;
        if (at_ >= end_) at_ -= end_ - begin_;
        SOFTHCA_DEBUG_ASSERT(at_ >= begin_ && at_ < end_, "a WQE is not longer than the ring");
    }
    std::byte* begin() const noexcept { return begin_; }
    std::size_t to_end() const noexcept { return static_cast<std::size_t>(end_ - at_); }

private:
    std::byte* begin_;
    std::byte* end_;
    std::byte* at_;
};

bool is_rdma(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
           opcode == MLX5_OPCODE_RDMA_READ;
}

// IBTA table 44: the operations of each transport.
bool allowed(std::uint32_t type, std::uint8_t opcode) noexcept {
    switch (type) {
        case IB_UVERBS_QPT_RC:
        case IB_UVERBS_QPT_XRC_INI:
        case device::kDciType:
            return is_send(opcode) || is_rdma(opcode) || is_atomic(opcode) ||
                   opcode == MLX5_OPCODE_UMR || opcode == MLX5_OPCODE_MMO;
        case IB_UVERBS_QPT_UC:
            return is_send(opcode) || opcode == MLX5_OPCODE_UMR ||
                   (is_rdma(opcode) && opcode != MLX5_OPCODE_RDMA_READ);
        case IB_UVERBS_QPT_UD:
            return is_send(opcode) && opcode != MLX5_OPCODE_SEND_INVAL;
        default:
            return false;
    }
}

// Units of the transport segments between the control segment and the data.
std::uint32_t transport_units(std::uint32_t type, std::uint8_t opcode,
                              const Cursor& first) noexcept {
    std::uint32_t units = type == IB_UVERBS_QPT_XRC_INI ? 1 : 0;
    if (has_address_vector(type))
        units += be32toh(load<std::uint32_t>(first.at() + 8)) & kExtendedAv ? 3 : 1;
    if (is_rdma(opcode)) units += 1;
    if (is_atomic(opcode)) units += 2;
    return units;
}

void decode_address_vector(Cursor& cursor, Request& request) noexcept {
    // struct mlx5_wqe_av; the extended part follows only if the bit says so.
    const std::byte* av = cursor.at();
    request.ud.qkey = be32toh(load<std::uint32_t>(av));
    request.ud.access_key = be64toh(load<std::uint64_t>(av));
    const std::uint32_t dqp = be32toh(load<std::uint32_t>(av + 8));
    request.ud.qpn = dqp & 0xffffff;
    request.ud.service_level = static_cast<std::uint8_t>(av[12]) & 0xf;
    request.ud.dlid = be16toh(load<std::uint16_t>(av + 14));
    request.ud.has_grh = false;
    cursor.advance(1);
    if (!(dqp & kExtendedAv)) return;
    const std::byte* second = cursor.at();  // reserved[4], rmac[6] .. tclass, hop_limit, grh_gid_fl
    request.ud.traffic_class = static_cast<std::uint8_t>(second[10]);
    request.ud.hop_limit = static_cast<std::uint8_t>(second[11]);
    const std::uint32_t flow = be32toh(load<std::uint32_t>(second + 12));
    request.ud.has_grh = flow & kGrhPresent;
    request.ud.flow_label = flow & 0xfffff;
    request.ud.sgid_index = static_cast<std::uint8_t>(flow >> 20);
    cursor.advance(1);
    memcpy(request.ud.dgid, cursor.at(), 16);
    cursor.advance(1);
}

// On an Ethernet port the GIDs decide whether the packet arrives, and the receiver always gets a
// header. The WQE has neither a LID nor the bit for a header (mlx5_create_ah of libmlx5). The CQE
// reports which header it is, in the place of InfiniBand's service level (cqe->rx_l3_type).
void address_by_gid(const device::Segment& segment, const device::Port& port,
                    Request& request) noexcept {
    const device::GidEntry source = port.gid(request.ud.sgid_index);
    request.ud.dlid = device::path_to_gid(segment, source, request.ud.dgid);
    request.source_lid = 0;
    request.ud.has_grh = true;
    request.ud.service_level = source.type == device::GidType::kV1 ? kRoceV1
                               : source.is_ipv4()                  ? kRoceV2OverIpv4
                                                                   : kRoceV2OverIpv6;
}

std::uint8_t add_inline(Cursor& cursor, std::uint32_t& left, Request& request) noexcept {
    const std::uint32_t length = be32toh(load<std::uint32_t>(cursor.at())) & ~MLX5_INLINE_SEG;
    const std::uint32_t units = static_cast<std::uint32_t>((length + 4 + kUnit - 1) / kUnit);
    if (length > 0x3ff || units > left) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    SOFTHCA_DEBUG_ASSERT(left != 0 && units != 0 && cursor.to_end() >= kUnit,
                         "the segment begins within the WQE");
    request.has_inline = true;
    if (length) {
        const std::size_t first = std::min<std::size_t>(length, cursor.to_end() - 4);
        if (!request.data.has_room(2)) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
        if (first) request.data.add(cursor.at() + 4, 0, first);
        if (first < length) request.data.add(cursor.begin(), 0, length - first);
    }
    cursor.advance(units);
    left -= units;
    return 0;
}

std::uint8_t add_gather(Fabric& fabric, const QueuePair& qp, Cursor& cursor, std::uint32_t& left,
                        Request& request) noexcept {
    SOFTHCA_DEBUG_ASSERT(left != 0, "the segment begins within the WQE");
    const auto segment = load<mlx5_wqe_data_seg>(cursor.at());
    cursor.advance(1);
    --left;
    const std::uint64_t length = segment_bytes(be32toh(segment.byte_count));
    if (request.data.bytes + length > device::kMaxMessage)
        return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    const bool written = request.opcode == MLX5_OPCODE_RDMA_READ || is_atomic(request.opcode);
    if (resolve(fabric, be32toh(segment.lkey), qp.pd, be64toh(segment.addr), length,
                written ? IBV_ACCESS_LOCAL_WRITE : 0, request.data) != Access::kOk)
        return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    ++request.gathers;
    return 0;
}

std::uint32_t rights_of(std::uint8_t context_flags) noexcept {
    std::uint32_t access = 0;
    if (context_flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE)
        access |= IBV_ACCESS_LOCAL_WRITE;
    if (context_flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ)
        access |= IBV_ACCESS_REMOTE_READ;
    if (context_flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE)
        access |= IBV_ACCESS_REMOTE_WRITE;
    if (context_flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC)
        access |= IBV_ACCESS_REMOTE_ATOMIC;
    return access;
}

// The two segments with which a UMR begins. Each begins a block, so none wraps.
struct Umr {
    mlx5_wqe_umr_ctrl_seg control;
    mlx5_wqe_mkey_context_seg context;

    bool has(std::uint8_t flag) const noexcept { return control.flags & flag; }
    bool frees() const noexcept { return context.free & MLX5_WQE_MKEY_CONTEXT_FREE; }
};

// As libmlx5 makes it of a bind or an invalidation (set_bind_wr). `left`: units behind `umr`.
std::uint8_t decode_window(Cursor& cursor, std::uint32_t left, const Umr& umr,
                           Request& request) noexcept {
    WindowChange& change = request.window;
    change = {};
    change.key = be32toh(request.immediate);
    change.next_key = static_cast<std::uint8_t>(be32toh(umr.context.qpn_mkey));
    change.frees = umr.frees();
    change.must_be_free = umr.has(MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE);
    change.must_be_own = umr.has(MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN);
    if (change.frees) return 0;
    if (!umr.has(MLX5_WQE_UMR_CTRL_FLAG_INLINE) || left < 1 || !is_window_key(change.key))
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    change.access = rights_of(umr.context.access_flags);
    change.iova = be64toh(umr.context.start_addr);
    change.length = be64toh(umr.context.len);
    const auto part = load<mlx5_wqe_umr_klm_seg>(cursor.at());
    change.region_key = be32toh(part.mkey);
    change.address = be64toh(part.address);
    return 0;
}

// As libmlx5 makes it of mlx5dv_wr_mkey_configure() and what follows it. Signatures, encryption and
// parts that lie elsewhere are refused. `left`: units behind `umr`.
std::uint8_t decode_mkey(Cursor& cursor, std::uint32_t left, const Umr& umr,
                         Request& request) noexcept {
    MkeyChange& change = request.mkey;
    change.key = be32toh(request.immediate);
    change.mask = be64toh(umr.control.mkey_mask);
    change.frees = umr.frees();
    const std::uint32_t qpn_mkey = be32toh(umr.context.qpn_mkey);
    change.next_key = static_cast<std::uint8_t>(qpn_mkey);
    change.qp = qpn_mkey >> 8;
    change.access = rights_of(umr.context.access_flags);
    change.start = be64toh(umr.context.start_addr);
    change.length = be64toh(umr.context.len);
    change.must_be_free = umr.has(MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE);
    change.must_be_own = umr.has(MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN);
    change.layout_units = change.frees ? 0 : be16toh(umr.control.klm_octowords);
    constexpr std::uint64_t kRefused =
        MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR | MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
    if ((change.mask & kRefused) != 0 || change.layout_units > left ||
        (change.layout_units != 0 && !umr.has(MLX5_WQE_UMR_CTRL_FLAG_INLINE)))
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    static_assert(sizeof change.layout >= std::size_t{0x3f} * kUnit, "a WQE has at most 63 units");
    for (std::uint32_t i = 0; i < change.layout_units; ++i, cursor.advance(1))
        memcpy(change.layout + std::size_t{i} * kUnit, cursor.at(), kUnit);
    return 0;
}

// struct mlx5_mmo_wqe of libmlx5: a segment about the result, then source and target. The result is
// that of the completion. `left`: units behind the control segment.
std::uint8_t decode_copy(Fabric& fabric, const QueuePair& qp, Cursor& cursor, std::uint32_t left,
                         Request& request, std::uint32_t kind) noexcept {
    constexpr std::uint32_t kDma = 1;  // MLX5_OPC_MOD_MMO_DMA
    if (kind != kDma || left != 3) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    cursor.advance(1);
    --left;
    if (const std::uint8_t error = add_gather(fabric, qp, cursor, left, request)) return error;
    const auto target = load<mlx5_wqe_data_seg>(cursor.at());
    if (segment_bytes(be32toh(target.byte_count)) != request.data.bytes)
        return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    request.remote_key = be32toh(target.lkey);
    request.remote_address = be64toh(target.addr);
    return 0;
}

// `left`: units behind the control segment.
std::uint8_t decode_umr(Cursor& cursor, std::uint32_t left, Request& request) noexcept {
    static_assert(sizeof(mlx5_wqe_umr_ctrl_seg) == std::size_t{kUmrControlUnits} * kUnit);
    static_assert(sizeof(mlx5_wqe_mkey_context_seg) == std::size_t{kUmrContextUnits} * kUnit);
    if (left < umr_units(false)) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    Umr umr;
    umr.control = load<mlx5_wqe_umr_ctrl_seg>(cursor.at());
    cursor.advance(kUmrControlUnits);
    umr.context = load<mlx5_wqe_mkey_context_seg>(cursor.at());
    cursor.advance(kUmrContextUnits);
    left -= umr_units(false);
    return is_mkey(be32toh(request.immediate)) ? decode_mkey(cursor, left, umr, request)
                                               : decode_window(cursor, left, umr, request);
}

}  // namespace

bool has_address_vector(std::uint32_t type) noexcept {
    return type == IB_UVERBS_QPT_UD || type == device::kDciType;
}

std::uint32_t entry_units(const LocalQp& local, std::uint16_t counter) noexcept {
    const Cursor cursor(local, counter);
    return be32toh(load<std::uint32_t>(cursor.at() + 4)) & 0x3f;
}

std::uint32_t entry_blocks(const LocalQp& local, std::uint16_t counter) noexcept {
    const std::uint32_t units = entry_units(local, counter);
    SOFTHCA_DEBUG_ASSERT(units <= 0x3f, "the field has six bits");
    return units ? (units + 3) / 4 : 1;
}

std::uint8_t decode(Fabric& fabric, const LocalQp& local, const QueuePair& qp,
                    std::uint16_t counter, Request& request) noexcept {
    Cursor cursor(local, counter);
    const auto control = load<mlx5_wqe_ctrl_seg>(cursor.at());
    const std::uint32_t qpn_ds = be32toh(control.qpn_ds);
    request.opcode = static_cast<std::uint8_t>(be32toh(control.opmod_idx_opcode));
    request.control = control.fm_ce_se;
    request.immediate = control.imm;
    request.units = qpn_ds & 0x3f;
    request.blocks = request.units ? (request.units + 3) / 4 : 1;
    request.has_inline = false;
    request.gathers = 0;
    request.data.clear(fabric.slot());
    request.srq_number = 0;
    request.ud.has_grh = false;
    request.ud.service_level = 0;
    request.source_lid = qp.attr.lid;
    if (request.units == 0 || request.units > local.ring_blocks * 4 || (qpn_ds >> 8) != qp.number)
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    if (request.opcode == MLX5_OPCODE_NOP) return 0;
    if (!allowed(qp.type, request.opcode)) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    cursor.advance(1);
    std::uint32_t left = request.units - 1;
    if (request.opcode == MLX5_OPCODE_UMR) return decode_umr(cursor, left, request);
    if (request.opcode == MLX5_OPCODE_MMO)
        return decode_copy(fabric, qp, cursor, left, request,
                           be32toh(control.opmod_idx_opcode) >> 24);
    if (has_address_vector(qp.type) && !left) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    const std::uint32_t transport = transport_units(qp.type, request.opcode, cursor);
    if (transport > left) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    left -= transport;
    SOFTHCA_DEBUG_ASSERT(1 + transport + left == request.units, "each unit has one segment");
    if (qp.type == IB_UVERBS_QPT_XRC_INI) {
        request.srq_number = be32toh(load<std::uint32_t>(cursor.at())) & 0xffffff;
        cursor.advance(1);
    }
    if (has_address_vector(qp.type)) {
        decode_address_vector(cursor, request);
        const device::Segment& segment = fabric.segment();
        if (device::has_ethernet(segment))
            address_by_gid(segment, device::port_at(segment, port_index(qp)), request);
        else if (!device::is_multicast_lid(request.ud.dlid))
            request.ud.dlid =
                device::path_to_lid(segment, request.ud.dlid, request.ud.has_grh, request.ud.dgid);
    }
    if (is_rdma(request.opcode) || is_atomic(request.opcode)) {
        request.remote_address = be64toh(load<std::uint64_t>(cursor.at()));
        request.remote_key = be32toh(load<std::uint32_t>(cursor.at() + 8));
        cursor.advance(1);
    }
    if (is_atomic(request.opcode)) {
        request.swap_or_add = be64toh(load<std::uint64_t>(cursor.at()));
        request.compare = be64toh(load<std::uint64_t>(cursor.at() + 8));
        cursor.advance(1);
    }
    while (left) {
        const bool is_inline = be32toh(load<std::uint32_t>(cursor.at())) & MLX5_INLINE_SEG;
        if (is_inline && (request.opcode == MLX5_OPCODE_RDMA_READ || is_atomic(request.opcode)))
            return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
        const std::uint8_t error = is_inline ? add_inline(cursor, left, request)
                                             : add_gather(fabric, qp, cursor, left, request);
        if (error) return error;
    }
    if (qp.type == IB_UVERBS_QPT_UD && request.data.bytes > device::kMtu)
        return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    if (is_atomic(request.opcode) && request.data.bytes < 8)
        return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
    return 0;
}

namespace {

// Visits the data segments of the WQE at `counter`, as far as it makes sense: the head of each, and
// whether it is inline data. Stops when `visit` returns false.
template <class Visit>
void for_each_segment(const LocalQp& local, const QueuePair& qp, std::uint16_t counter,
                      Visit visit) noexcept {
    Cursor cursor(local, counter);
    const auto opcode = static_cast<std::uint8_t>(be32toh(load<std::uint32_t>(cursor.at())));
    const std::uint32_t units = be32toh(load<std::uint32_t>(cursor.at() + 4)) & 0x3f;
    if (units <= 1 || units > local.ring_blocks * 4 || !allowed(qp.type, opcode) ||
        opcode == MLX5_OPCODE_UMR || opcode == MLX5_OPCODE_MMO)
        return;
    cursor.advance(1);
    const std::uint32_t transport = transport_units(qp.type, opcode, cursor);
    if (1 + transport >= units) return;
    cursor.advance(transport);
    for (std::uint32_t left = units - 1 - transport; left != 0;) {
        const auto segment = load<mlx5_wqe_data_seg>(cursor.at());
        const std::uint32_t length = be32toh(segment.byte_count) & ~MLX5_INLINE_SEG;
        const bool is_inline = be32toh(segment.byte_count) & MLX5_INLINE_SEG;
        const std::uint32_t taken = is_inline ? (length + 4 + kUnit - 1) / kUnit : 1;
        if (!visit(segment, is_inline) || taken > left) return;
        cursor.advance(taken);
        left -= taken;
    }
}

}  // namespace

bool carries_inline(const LocalQp& local, const QueuePair& qp, std::uint16_t counter) noexcept {
    bool first = false;
    for_each_segment(local, qp, counter, [&](const mlx5_wqe_data_seg&, bool is_inline) {
        first = is_inline;
        return false;
    });
    return first;
}

Outline outline(const LocalQp& local, const QueuePair& qp, std::uint16_t counter) noexcept {
    const Cursor cursor(local, counter);
    Outline out{};
    const auto control = load<mlx5_wqe_ctrl_seg>(cursor.at());
    out.signaled = control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE;
    const std::uint32_t opcode = be32toh(control.opmod_idx_opcode) & 0xff;
    out.reads = opcode >= MLX5_OPCODE_RDMA_READ && opcode <= MLX5_OPCODE_ATOMIC_MASKED_FA;
    for_each_segment(local, qp, counter, [&](const mlx5_wqe_data_seg& segment, bool is_inline) {
        const std::uint32_t length = be32toh(segment.byte_count) & ~MLX5_INLINE_SEG;
        out.has_inline |= is_inline;
        out.bytes += is_inline ? length : segment_bytes(length);
        if (!is_inline && out.address == 0) out.address = be64toh(segment.addr);
        return true;
    });
    return out;
}

}  // namespace softhca::engine
