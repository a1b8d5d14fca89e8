// SPDX-License-Identifier: BSD-2-Clause
// libfabric reads its environment when it is first used: which provider, and from where, is set
// before the tests.
#include <cstdlib>

namespace {

const bool environment = [] {
    setenv("FI_PROVIDER", "heddle", 1);
    setenv("FI_PROVIDER_PATH", HEDDLE_PROVIDER_DIR, 1);
    return true;
}();

}  // namespace
