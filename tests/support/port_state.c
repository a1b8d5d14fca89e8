// SPDX-License-Identifier: BSD-2-Clause
// Preloaded: each port has the state PORT_STATE and the physical state PORT_PHYSICAL_STATE (IBTA
// 14.2.5.6), two numbers in the environment. softhca has no subnet manager whose work could be
// undone. An operation has at most PORT_MAX_MESSAGE bytes. The devices have the transport
// DEVICE_TRANSPORT (enum ibv_transport_type).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>

#pragma GCC visibility push(default)

static int (*query_port)(struct ibv_context*, uint8_t, struct ibv_port_attr*, size_t);

static int query_in_that_state(struct ibv_context* context, uint8_t number,
                               struct ibv_port_attr* port, size_t size) {
    const int error = query_port(context, number, port, size);
    const char *state = getenv("PORT_STATE"), *physical = getenv("PORT_PHYSICAL_STATE");
    if (error == 0 && state && physical) {
        port->state = (enum ibv_port_state)atoi(state);
        port->phys_state = (uint8_t)atoi(physical);
    }
    const char* longest = getenv("PORT_MAX_MESSAGE");
    if (error == 0 && longest) port->max_msg_sz = (uint32_t)atoi(longest);
    return error;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
    struct ibv_context* (*open_device)(struct ibv_device*) =
        (struct ibv_context * (*)(struct ibv_device*)) dlsym(RTLD_NEXT, "ibv_open_device");
    struct ibv_context* context = open_device ? open_device(device) : NULL;
    const char* transport = getenv("DEVICE_TRANSPORT");
    if (transport) device->transport_type = (enum ibv_transport_type)atoi(transport);
    struct verbs_context* extended = context ? verbs_get_ctx(context) : NULL;
    if (extended && extended->query_port) {
        query_port = extended->query_port;
        extended->query_port = query_in_that_state;
    }
    return context;
}
