// SPDX-License-Identifier: BSD-2-Clause
#include "segment_objects.h"

#include <fcntl.h>

#include <cstring>

namespace softhca::fuzz {

std::vector<Extra> extras;

namespace {

constexpr unsigned kMostExtras = 8;

template <class Table>
void made(Table& table, std::uint32_t index, std::uint32_t destroy,
          std::atomic<std::uint32_t>* users) {
    if (index >= Table::kSize) fail("an object has the handle %u", index);
    const Spot spot = spot_of(table[index]);
    const auto* from = static_cast<const std::byte*>(spot.at);
    extras.push_back({destroy, index, spot, users, {from, from + spot.bytes}});
}

// ib_uverbs_destroy_cq, _qp and _srq.
struct DestroyRequest {
    std::uint64_t response = 0;
    std::uint32_t handle = 0, reserved = 0;
};
int destroy(World& w, const Extra& extra) {
    if (extra.destroy == IB_USER_VERBS_CMD_DEALLOC_PD ||
        extra.destroy == IB_USER_VERBS_CMD_CLOSE_XRCD ||
        extra.destroy == IB_USER_VERBS_CMD_DEREG_MR ||
        extra.destroy == IB_USER_VERBS_CMD_DEALLOC_MW)
        return w.attempt(extra.destroy, extra.handle, None{}, static_cast<None*>(nullptr));
    std::byte answer[64];
    return w.attempt(extra.destroy, DestroyRequest{0, extra.handle, 0}, None{}, &answer);
}

}  // namespace

void make_object(World& w, Input& input) {
    if (extras.size() == kMostExtras) return;
    device::Segment& s = w.segment();
    const std::uint64_t part = w.spare.address + input.below(3) * 1024;
    switch (input.below(7)) {
        case 6: {
            ib_uverbs_alloc_mw request{};
            request.pd_handle = w.pd;
            request.mw_type = input.one_in(2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
            ib_uverbs_alloc_mw_resp answer{};
            if (w.attempt(IB_USER_VERBS_CMD_ALLOC_MW, request, None{}, &answer) == 0)
                made(s.mws, answer.mw_handle, IB_USER_VERBS_CMD_DEALLOC_MW, nullptr);
            return;
        }
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

void destroy_one(World& w, Input& input) {
    if (extras.empty()) return;
    const std::size_t which = input.byte() % extras.size();
    if (destroy(w, extras[which]) == 0)
        extras.erase(extras.begin() + static_cast<std::ptrdiff_t>(which));
}

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
    switch (input.below(6)) {
        case 4: {
            ib_uverbs_attach_mcast request{};
            std::memcpy(request.gid, w.group_gid, sizeof request.gid);
            request.gid[15] = input.byte() & 3;
            request.qp_handle =
                input.one_in(3) && !extras.empty() ? extras.back().handle : queue.index;
            request.mlid = static_cast<std::uint16_t>(0xc000 + (input.byte() & 1));
            w.attempt(
                input.one_in(3) ? IB_USER_VERBS_CMD_DETACH_MCAST : IB_USER_VERBS_CMD_ATTACH_MCAST,
                request, None{}, static_cast<None*>(nullptr));
            return;
        }
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

}  // namespace softhca::fuzz
