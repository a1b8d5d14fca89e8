// SPDX-License-Identifier: BSD-2-Clause
// The only symbol that the provider exports, which libfabric calls.
#include <rdma/providers/fi_prov.h>

#include "provider/fabric.h"
#include "provider/guarded.h"
#include "provider/host.h"
#include "provider/info.h"
#include "provider/parameters.h"
#include "provider/stats.h"
#include "verbs/open_device.h"

namespace heddle::provider {
namespace {

// libfabric rejects a provider whose interface version is below the one that a program requests.
// Members that newer versions added to the structures stay zero or are set in offer.cc.
constexpr std::uint32_t kHighestInterface = FI_VERSION(2, 99);

fi_provider provider = {
    .version = FI_VERSION(HEDDLE_VERSION_MAJOR, HEDDLE_VERSION_MINOR),
    .fi_version = kHighestInterface,
    .context = {},
    .name = "heddle",
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = [] { forget_signal(); },
};

}  // namespace

fi_provider& self() noexcept { return provider; }

}  // namespace heddle::provider

extern "C" [[gnu::visibility("default")]] fi_provider* fi_prov_ini() {
    using namespace heddle::provider;
    static bool once = false;
    if (!once) {
        once = true;
        find_host(__builtin_return_address(0));
        // Other providers probe their devices and register memory before libfabric calls getinfo
        // here.
        heddle::verbs::survive_forks();
        guarded("options", [] {
            read_parameters();
            return 0;
        });
    }
    return &self();
}
