// SPDX-License-Identifier: BSD-2-Clause
// What an asynchronous event of a port means for connections. Those that exist go on when the port
// comes back, or end by their completions; new ones take the port as it is then.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "verbs/local_port.h"

namespace heddle::protocol {

struct PortChange {
    verbs::LocalPort now;
    std::string text;         // one line; empty: nothing that matters has changed
    bool is_for_user = true;  // something works no more, or works again; else it is for the log
};

// The port keeps its GID and its partition where it has them still, at other indices perhaps: they
// are in the names that peers have. One thread at a time.
PortChange port_change(ibv_context* context, const verbs::LocalPort& before,
                       ibv_event_type event) noexcept;

}  // namespace heddle::protocol
