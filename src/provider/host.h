// SPDX-License-Identifier: BSD-2-Clause
// The libfabric that loaded the provider, found at run time. The provider links no libfabric: every
// MPI brings its own, and a second copy would have separate parameters and logs. If the libfabric
// is not found, parameters come from the environment and nothing is logged.
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

// The provider as libfabric sees it: its name, versions and entry points.
fi_provider& self() noexcept;

// Finds the functions of the library that contains the address `caller`. Called once, before all
// else.
void find_host(const void* caller) noexcept;
const Host& host() noexcept;

bool logged(fi_log_level level) noexcept;  // whether libfabric logs messages of that level
[[gnu::format(printf, 2, 3)]] void log(fi_log_level level, const char* format, ...) noexcept;
// Reports what the user must know even if libfabric logs nothing, such as a wrong option: in
// libfabric's log if it is on, else on stderr.
[[gnu::format(printf, 1, 2)]] void complain(const char* format, ...) noexcept;
// Reports that RLIMIT_MEMLOCK was met, for which MPI prints "Cannot allocate memory" only. The
// first call in a process is complain(), later ones are log(FI_LOG_WARN), since each operation may
// fail.
[[gnu::format(printf, 1, 2)]] void complain_of_memlock(const char* format, ...) noexcept;

}  // namespace heddle::provider
