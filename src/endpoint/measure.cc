// SPDX-License-Identifier: BSD-2-Clause
#include "endpoint/measure.h"

#include <infiniband/mlx5dv.h>
#include <malloc.h>
#include <unistd.h>

#include <set>

#include "heddle/detail/assert.h"

namespace heddle::endpoint {
namespace {

// MLX5_NON_FP_BFREGS_PER_UAR: two of the four registers on a page are for data.
constexpr std::uint32_t kRegistersPerPage = 2;

// Returns the bytes that malloc() has allocated, with the blocks that it maps one by one. libmlx5
// allocates its objects, queues and doorbell records so.
std::size_t heap_in_use() noexcept {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
}

std::uintptr_t page_of(const void* address) noexcept {
    return reinterpret_cast<std::uintptr_t>(address) &
           ~(static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)) - 1);
}

}  // namespace

const void* uuar_of(ibv_qp* qp) noexcept {
    mlx5dv_qp out{};
    mlx5dv_obj object{};
    object.qp.in = qp;
    object.qp.out = &out;
    return mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0 ? out.bf.reg : nullptr;
}

Measurement::Measurement() : pages_(mapped_uar_pages()), heap_(heap_in_use()) {}

void Measurement::finish(std::span<ibv_qp* const> qps, std::span<ibv_cq* const> cqs,
                         Usage& usage) const {
    HEDDLE_ASSERT(usage.bytes == 0 && !usage.uars, "a measurement is finished once");
    const std::size_t heap = heap_in_use();
    usage.bytes = heap > heap_ ? heap - heap_ : 0;
    std::set<const void*> registers;
    std::set<std::uintptr_t> qp_pages, cq_pages;
    for (ibv_qp* qp : qps) {
        const void* const uuar = uuar_of(qp);
        if (uuar == nullptr) return;  // not an mlx5 device
        registers.insert(uuar);
        qp_pages.insert(page_of(uuar));
    }
    for (ibv_cq* cq : cqs) {
        mlx5dv_cq out{};
        mlx5dv_obj object{};
        object.cq.in = cq;
        object.cq.out = &out;
        if (mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ) != 0) return;
        cq_pages.insert(page_of(out.cq_uar));
    }
    std::uint32_t pages = 0, for_cqs = 0;
    for (const auto& [address, offset] : mapped_uar_pages()) {
        if (pages_.contains(address)) continue;
        if (is_uar_object(offset) && cq_pages.contains(address) && !qp_pages.contains(address))
            ++for_cqs;
        else
            ++pages;
    }
    HEDDLE_ASSERT(registers.size() <= qps.size(), "a QP rings one register");
    usage.uars = pages;
    usage.cq_uars = for_cqs;
    usage.uuars = kRegistersPerPage * pages;
    usage.uuars_used = static_cast<std::uint32_t>(registers.size());
}

}  // namespace heddle::endpoint
