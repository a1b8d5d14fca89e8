// SPDX-License-Identifier: BSD-2-Clause
// See protocol_fake_verbs.h.
#include "tests/unit/protocol_fake_verbs.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>

namespace heddle::protocol::test::fake_verbs {
namespace {

std::size_t registered = 0;
std::uint32_t last_key = 0;
int refusal = 0;
std::size_t pairs = 0;
std::uint32_t last_number = 1;

ibv_mr* make_region(void* address, std::size_t bytes) {
    if (refusal != 0) {
        errno = refusal;
        return nullptr;
    }
    auto* const region = new ibv_mr{};
    region->addr = address;
    region->length = bytes;
    region->lkey = ++last_key;
    region->rkey = last_key + (1 << 16);
    ++registered;
    return region;
}

}  // namespace

std::size_t regions() { return registered; }
void fail_registrations(int error) { refusal = error; }

ibv_qp* make_queue_pair(ibv_context* context) {
    auto* const qp = new ibv_qp{};
    qp->context = context;
    qp->qp_num = ++last_number;
    ++pairs;
    return qp;
}
std::size_t queue_pairs() { return pairs; }

}  // namespace heddle::protocol::test::fake_verbs

#undef ibv_reg_mr
extern "C" {
ibv_mr* ibv_reg_mr(ibv_pd*, void* address, size_t bytes, int) {
    return heddle::protocol::test::fake_verbs::make_region(address, bytes);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void* address, size_t bytes, uint64_t, unsigned) {
    return heddle::protocol::test::fake_verbs::make_region(address, bytes);
}
int ibv_dereg_mr(ibv_mr* region) {
    delete region;
    --heddle::protocol::test::fake_verbs::registered;
    return 0;
}
int ibv_destroy_qp(ibv_qp* qp) {
    delete qp;
    --heddle::protocol::test::fake_verbs::pairs;
    return 0;
}
int ibv_modify_qp(ibv_qp*, ibv_qp_attr*, int) { return 0; }
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
    *attributes = {};
    attributes->max_qp_rd_atom = 16;
    return 0;
}
}
