// SPDX-License-Identifier: BSD-2-Clause
// The functions of libsofthca for programs that know it. Programs find them with
// dlsym(RTLD_DEFAULT, ...), which returns null pointers on hardware. See docs/reference/softhca.md.
#include "softhca/engine/exports.h"

#include <dlfcn.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "softhca/device/epoch.h"
#include "softhca/device/fabric.h"
#include "softhca/engine/completion.h"
#include "softhca/engine/counters.h"
#include "softhca/engine/direct_polling.h"
#include "softhca/engine/doorbell_count.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/posted.h"
#include "softhca/engine/recording.h"
#include "softhca/engine/register_check.h"

namespace {

using namespace softhca;
using namespace softhca::engine;

constexpr std::uintptr_t kPageMask = device::kUarPageBytes - 1;
constexpr std::uintptr_t kCqDoorbell = 0x20;  // MLX5_CQ_DOORBELL, offset in the UAR page

std::uint64_t load_register(const volatile void* at) noexcept {
    return be64toh(*static_cast<const volatile std::uint64_t*>(at));
}

}  // namespace

softhca::engine::InitObj softhca::engine::real_init_obj() noexcept {
    // libmlx5 is often loaded outside the global scope, by libibverbs' providers or UCX's modules.
    static const InitObj real = [] {
        void* symbol = nullptr;
        if (void* library = dlopen("libmlx5.so.1", RTLD_LAZY | RTLD_NOLOAD))
            symbol = dlsym(library, "mlx5dv_init_obj");
        if (!symbol) symbol = dlsym(RTLD_NEXT, "mlx5dv_init_obj");
        return reinterpret_cast<InitObj>(symbol);
    }();
    return real;
}

extern "C" {

// The program has rung a doorbell at this register (its address in the UAR page, after the store).
// It corresponds to a kick in virtio. It is as thread-safe as the register: if the uUAR is shared,
// the caller holds it.
__attribute__((visibility("default"))) void softhca_doorbell(void* uar_register) {
    device::Fabric* fabric = device::Fabric::current();
    if (!fabric || !uar_register) return;
    const auto address = reinterpret_cast<std::uintptr_t>(uar_register);
    const std::uint64_t value = load_register(uar_register);
    device::epoch::Section section;
    if ((address & kPageMask) == kCqDoorbell) {
        check_armed(*fabric, static_cast<std::uint32_t>(value) & 0xffffff);
        program_may_sleep(*fabric);
        return;
    }
    LocalQp* local = local_qp(static_cast<std::uint32_t>(value) >> 8 & 0xffffff);
    if (!local || !local->send_ring) return;
    if (!local->announced.load(std::memory_order_relaxed)) [[unlikely]]
        local->announced.store(true, std::memory_order_relaxed);
    // A BlueFlame write continues where a doorbell ends, so the second eight bytes distinguish
    // them.
    auto* second = static_cast<volatile std::uint64_t*>(uar_register) + 1;
    const bool blueflame = *second != kUntouchedRegister;
    *second = kUntouchedRegister;
    device::QueuePair& qp = fabric->segment().qps[local->index];
    device::count(blueflame ? qp.send.blueflame : qp.send.doorbells);
    if (local->checks_register) [[unlikely]]
        check_register_write(*fabric, qp, local->index, RegisterWriter::kDirect, blueflame);
    if (record::on()) [[unlikely]]
        record_direct_post(*fabric, *local, uar_register, blueflame);
    run_posted(*fabric, *local);
}

// A program that reads the CQ's memory itself has found no completion. If it returns true,
// something was executed, so the program should look again. Thread-safe.
__attribute__((visibility("default"))) bool softhca_empty_poll(void) { return work_while_empty(); }

// Whether a run record is written; only then the two calls after it do something. All are
// thread-safe.
__attribute__((visibility("default"))) bool softhca_recording(void) { return record::on(); }

// A program that reads the memory of the CQ of this number itself has taken `cqes` completions.
__attribute__((visibility("default"))) void softhca_polled(uint32_t cqn, uint32_t cqes) {
    if (record::on() && cqes != 0) record_poll(cqn, cqes);
}

// The calling thread has reached a barrier other than that of pthread_barrier_wait(). The address
// identifies the barrier.
__attribute__((visibility("default"))) void softhca_barrier(const void* barrier) {
    if (record::on()) record::add_barrier(barrier);
}

// Interposed only to learn which QPs may be posted to without the ops table.
__attribute__((visibility("default"))) int mlx5dv_init_obj(mlx5dv_obj* object, uint64_t type) {
    const InitObj real = real_init_obj();
    if (!real) return ENOSYS;
    const int result = real(object, type);
    device::Fabric* fabric = device::Fabric::current();
    if (result == 0 && fabric && (type & MLX5DV_OBJ_QP) && object->qp.in) {
        device::epoch::Section section;
        if (LocalQp* local = local_qp(object->qp.in->qp_num)) mark_direct(*fabric, *local);
    }
    return result;
}

__attribute__((visibility("default"))) int softhca_query_qp(uint32_t qpn,
                                                            softhca_counters* counters) {
    device::Fabric* fabric = device::Fabric::current();
    if (!fabric || !counters) return EINVAL;
    device::epoch::Section section;
    device::QueuePair& qp = fabric->segment().qps[qpn & (device::kMaxQps - 1)];
    if (!qp.head.live() || qp.number != qpn) return ENOENT;
    *counters = read_counters(qp.send, qp.receive);
    return 0;
}
}
