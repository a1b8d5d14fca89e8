// SPDX-License-Identifier: BSD-2-Clause
// The transitions of a QP's state: see qp_state.h.
#include "softhca/uverbs/qp_state.h"

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/segment.h"

namespace softhca::uverbs {
namespace {

struct Rule {
    bool allowed;
    std::uint32_t required, optional;
};

enum class Kind { kRc, kUc, kUd, kXrcInitiator, kXrcTarget, kDcInitiator, kDcTarget };

Kind kind_of(std::uint32_t type) noexcept {
    switch (type) {
        case IB_UVERBS_QPT_UC:
            return Kind::kUc;
        case IB_UVERBS_QPT_UD:
            return Kind::kUd;
        case IB_UVERBS_QPT_XRC_INI:
            return Kind::kXrcInitiator;
        case IB_UVERBS_QPT_XRC_TGT:
            return Kind::kXrcTarget;
        case device::kDciType:
            return Kind::kDcInitiator;
        case device::kDctType:
            return Kind::kDcTarget;
        default:
            return Kind::kRc;
    }
}

constexpr Rule kForbidden{false, 0, 0};

Rule reset_to_init(Kind kind) noexcept {
    const std::uint32_t common = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    return {true, common | (kind == Kind::kUd ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS), 0};
}

Rule init_to_init(Kind kind) noexcept {
    const std::uint32_t common = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    return {true, 0, common | (kind == Kind::kUd ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)};
}

Rule init_to_rtr(Kind kind) noexcept {
    if (kind == Kind::kUd) return {true, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY};
    const std::uint32_t connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const std::uint32_t responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const bool is_responder = kind == Kind::kRc || kind == Kind::kXrcTarget;
    return {true, connected | (is_responder ? responder : 0),
            IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX};
}

Rule rtr_to_rts(Kind kind) noexcept {
    const std::uint32_t retries =
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    const std::uint32_t paths =
        IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
    switch (kind) {
        case Kind::kUd:
            return {true, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY};
        case Kind::kUc:
            return {true, IBV_QP_SQ_PSN, paths};
        case Kind::kRc:
            return {true, IBV_QP_SQ_PSN | retries, paths | IBV_QP_MIN_RNR_TIMER};
        case Kind::kXrcInitiator:
            return {true, IBV_QP_SQ_PSN | retries, paths};
        case Kind::kXrcTarget:
            return {true, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, paths | IBV_QP_MIN_RNR_TIMER};
        case Kind::kDcInitiator:
        case Kind::kDcTarget:
            break;  // dc_initiator(), dc_target()
    }
    return kForbidden;
}

Rule within_rts(Kind kind) noexcept {
    const std::uint32_t paths =
        IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
    switch (kind) {
        case Kind::kUd:
            return {true, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY};
        case Kind::kUc:
        case Kind::kXrcInitiator:
            return {true, 0, paths};
        case Kind::kRc:
        case Kind::kXrcTarget:
            return {true, 0, paths | IBV_QP_MIN_RNR_TIMER};
        case Kind::kDcInitiator:
        case Kind::kDcTarget:
            break;
    }
    return kForbidden;
}

// As modify_dci_qp_is_ok of the kernel driver.
Rule dc_initiator(std::uint32_t from, std::uint32_t to) noexcept {
    const std::uint32_t common = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return {true, common, 0};
    if (from == IBV_QPS_INIT && to == IBV_QPS_INIT) return {true, 0, common};
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
        return {true, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV};
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
        return {true,
                IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                    IBV_QP_SQ_PSN,
                IBV_QP_MIN_RNR_TIMER};
    if (from == IBV_QPS_RTS && to == IBV_QPS_RTS) return {true, 0, IBV_QP_MIN_RNR_TIMER};
    return kForbidden;
}

// As mlx5_ib_modify_dct of the kernel driver, which ignores attributes that it does not need. There
// is no way back.
Rule dc_target(std::uint32_t from, std::uint32_t to) noexcept {
    constexpr std::uint32_t kAll = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                   IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;
    std::uint32_t required = 0;
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
        required = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
        required = IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;
    else
        return kForbidden;
    return {true, required, kAll & ~required};
}

Rule sqe_to_rts(Kind kind) noexcept {
    if (kind == Kind::kUd) return {true, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY};
    if (kind == Kind::kUc) return {true, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS};
    return {true, 0, 0};
}

Rule rule(Kind kind, std::uint32_t from, std::uint32_t to) noexcept {
    SOFTHCA_ASSERT(from <= IBV_QPS_ERR && to <= IBV_QPS_ERR);
    if (kind == Kind::kDcTarget) return dc_target(from, to);
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET)) return {true, 0, 0};
    if (kind == Kind::kDcInitiator) return dc_initiator(from, to);
    switch (from) {
        case IBV_QPS_RESET:
            return to == IBV_QPS_INIT ? reset_to_init(kind) : kForbidden;
        case IBV_QPS_INIT:
            if (to == IBV_QPS_INIT) return init_to_init(kind);
            return to == IBV_QPS_RTR ? init_to_rtr(kind) : kForbidden;
        case IBV_QPS_RTR:
            return to == IBV_QPS_RTS ? rtr_to_rts(kind) : kForbidden;
        case IBV_QPS_RTS:
            // mlx5 has no command for RTS -> SQD (optab of __mlx5_ib_modify_qp), so no QP is ever
            // in SQD.
            return to == IBV_QPS_RTS ? within_rts(kind) : kForbidden;
        case IBV_QPS_SQE:
            return to == IBV_QPS_RTS ? sqe_to_rts(kind) : kForbidden;
        default:
            return kForbidden;
    }
}

}  // namespace

bool qp_change_allowed(std::uint32_t type, std::uint32_t from, std::uint32_t to,
                       std::uint32_t mask) noexcept {
    if (from > IBV_QPS_ERR || to > IBV_QPS_ERR) return false;
    if (mask & IBV_QP_CUR_STATE) {
        const bool sends = from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQE;
        if (!sends) return false;
    }
    const Rule r = rule(kind_of(type), from, to);
    SOFTHCA_ASSERT(!(r.required & r.optional), "an attribute is required or optional");
    if (!r.allowed || (mask & r.required) != r.required) return false;
    return (mask & ~(r.required | r.optional | static_cast<std::uint32_t>(IBV_QP_STATE))) == 0;
}

}  // namespace softhca::uverbs
