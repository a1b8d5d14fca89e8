// SPDX-License-Identifier: BSD-2-Clause
// Names as people read them.
#pragma once

#include <cstddef>

#include "protocol/name.h"

namespace heddle::provider {

inline constexpr std::size_t kNameText = 160;  // enough for any
// "heddle://GID/LID:UDQP/ENDPOINT?context=C&srq=N"; its length.
std::size_t name_text(const protocol::Name& name, char (&out)[kNameText]) noexcept;

}  // namespace heddle::provider
