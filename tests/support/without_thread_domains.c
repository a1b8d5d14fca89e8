// SPDX-License-Identifier: BSD-2-Clause
// Preloaded, or linked into a program: the device is one of another vendor, whose driver has no
// thread domains (the kernel's rxe is such a one) and no UARs to look at. libibverbs then answers
// ibv_alloc_td() itself, with EOPNOTSUPP.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#pragma GCC visibility push(default)

struct ibv_context* ibv_open_device(struct ibv_device* device) {
    struct ibv_context* (*open_device)(struct ibv_device*) =
        (struct ibv_context * (*)(struct ibv_device*)) dlsym(RTLD_NEXT, "ibv_open_device");
    struct ibv_context* context = open_device ? open_device(device) : NULL;
    struct verbs_context* extended = context ? verbs_get_ctx(context) : NULL;
    if (extended) extended->alloc_td = NULL;
    return context;
}

bool mlx5dv_is_supported(struct ibv_device* device) {
    (void)device;
    return false;
}
