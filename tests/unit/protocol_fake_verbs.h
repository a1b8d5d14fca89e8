// SPDX-License-Identifier: BSD-2-Clause
// Memory regions and queue pairs without a device: protocol_fake_verbs.cc has functions that stand
// before those of libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

namespace heddle::protocol::test::fake_verbs {

// Regions that are registered now.
std::size_t regions();
// Registrations after this fail with that errno; 0: they succeed again.
void fail_registrations(int error);

// What ibv_create_qp() would make. They take any state.
ibv_qp* make_queue_pair(ibv_context* context);
// Queue pairs that are there.
std::size_t queue_pairs();

}  // namespace heddle::protocol::test::fake_verbs
