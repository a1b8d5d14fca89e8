// SPDX-License-Identifier: BSD-2-Clause
// The text of an endpoint's address, for people.
#pragma once

#include <cstddef>

#include "protocol/common/endpoint_address.h"

namespace heddle::provider {

inline constexpr std::size_t kNameText = 160;  // enough for any address
// Writes "heddle://GID/LID:UDQP/ENDPOINT?context=C&srq=N" and returns its length.
std::size_t name_text(const protocol::EndpointAddress& name, char (&out)[kNameText]) noexcept;

}  // namespace heddle::provider
