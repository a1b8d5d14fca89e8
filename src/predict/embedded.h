// SPDX-License-Identifier: BSD-2-Clause
// Files of this folder that are part of the command: it has them wherever it is installed.
#pragma once

#include <string_view>

namespace heddle::predict {

extern const std::string_view kConnectx4Haswell;  // machines/connectx4-haswell.toml
extern const std::string_view kRevision1, kRevision2, kRevision3;  // revisions/N.toml
extern const std::string_view kOtherPoints;                        // revisions/3-other-points.toml

}  // namespace heddle::predict
