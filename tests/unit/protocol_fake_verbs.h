// SPDX-License-Identifier: BSD-2-Clause
// Memory regions without a device: protocol_fake_verbs.cc has functions that stand before those of
// libibverbs.
#pragma once

#include <cstddef>

namespace heddle::protocol::test::fake_verbs {

// Regions that are registered now.
std::size_t regions();
// Registrations after this fail with that errno; 0: they succeed again.
void fail_registrations(int error);

}  // namespace heddle::protocol::test::fake_verbs
