// SPDX-License-Identifier: BSD-2-Clause
// pthread_barrier_wait, interposed for the run record only: which threads wait for each other
// there.
#include <cerrno>

#include <pthread.h>

#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/record/recorder.h"

namespace softhca::preload {

SOFTHCA_INTERPOSE(pthread_barrier_wait, int, interpose_barrier_wait,
                  (pthread_barrier_t * barrier) noexcept);
int interpose_barrier_wait(pthread_barrier_t* barrier) noexcept {
    if (record::on()) [[unlikely]]
        record::add_barrier(barrier);
    const auto real = next<int(pthread_barrier_t*)>(Next::kBarrierWait);
    return real ? real(barrier) : ENOSYS;
}

}  // namespace softhca::preload
