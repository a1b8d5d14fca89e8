// SPDX-License-Identifier: BSD-2-Clause
// ibv_open_device, interposed for the run record only: it learns there which locks libmlx5 takes
// (engine/driver_locks.h).
#include <cerrno>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <link.h>

#include "softhca/engine/driver_locks.h"
#include "softhca/preload/interpose.h"
#include "softhca/record/recorder.h"

namespace softhca::preload {
namespace {

using OpenDevice = ibv_context*(ibv_device*);

// The function that this caller would have called. A plugin may have a libibverbs that only it
// sees, or a copy under another name. So the libraries that the caller depends on are asked first.
OpenDevice* beneath(const void* caller, OpenDevice* ours) noexcept {
    Dl_info info;
    link_map* map = nullptr;
    void* symbol = nullptr;
    if (::dladdr1(caller, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 && map &&
        map->l_name && map->l_name[0] != '\0') {
        if (void* library = ::dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD)) {
            symbol = ::dlsym(library, "ibv_open_device");
            ::dlclose(library);
        }
    }
    if (symbol == nullptr || symbol == reinterpret_cast<void*>(ours))
        symbol = ::dlsym(RTLD_NEXT, "ibv_open_device");
    if (symbol == nullptr) {
        // The caller found our function by dlsym(RTLD_DEFAULT).
        if (void* library = ::dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
            symbol = ::dlsym(library, "ibv_open_device");
            ::dlclose(library);
        }
    }
    return reinterpret_cast<OpenDevice*>(symbol);
}

}  // namespace

SOFTHCA_INTERPOSE(ibv_open_device, ibv_context*, interpose_ibv_open_device, (ibv_device * device));
ibv_context* interpose_ibv_open_device(ibv_device* device) {
    OpenDevice* real = beneath(__builtin_return_address(0), interpose_ibv_open_device);
    if (real == nullptr) {
        errno = ENOSYS;
        return nullptr;
    }
    ibv_context* context = real(device);
    if (context != nullptr && record::on()) engine::watch_context(context);
    return context;
}

}  // namespace softhca::preload
