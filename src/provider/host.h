// SPDX-License-Identifier: BSD-2-Clause
// The libfabric that loaded us, found at run time: the provider links none, as every MPI brings a
// libfabric of its own and a second copy would have parameters and logs of its own. Where it cannot
// be found, parameters come from the environment and nothing is logged.
#pragma once

#include <rdma/fabric.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

namespace heddle::provider {

struct Host {
    decltype(&::fi_param_define) param_define = nullptr;
    decltype(&::fi_param_get) param_get = nullptr;
    decltype(&::fi_log_enabled) log_enabled = nullptr;
    decltype(&::fi_log) log = nullptr;
};

// What libfabric knows us by: name, versions, entry points.
fi_provider& self() noexcept;

// `caller`: an address in the library whose functions are wanted. Once, before anything else.
void find_host(const void* caller) noexcept;
const Host& host() noexcept;

bool logged(fi_log_level level) noexcept;  // would a message of that level be seen?
[[gnu::format(printf, 2, 3)]] void log(fi_log_level level, const char* format, ...) noexcept;
// For what the user has to know even where libfabric logs nothing: a wrong option.
[[gnu::format(printf, 1, 2)]] void complain(const char* format, ...) noexcept;
// For RLIMIT_MEMLOCK, of which MPI only prints "Cannot allocate memory": the first time in a
// process as complain(), then as log(FI_LOG_WARN), as each operation may fail by it.
[[gnu::format(printf, 1, 2)]] void complain_of_memlock(const char* format, ...) noexcept;

}  // namespace heddle::provider
