// SPDX-License-Identifier: BSD-2-Clause
// The firmware commands of uverbs_fuzz (softhca/uverbs/devx.h).
#pragma once

#include "uverbs_session.h"

namespace softhca::fuzz {

void devx_method(Session& s);

}  // namespace softhca::fuzz
