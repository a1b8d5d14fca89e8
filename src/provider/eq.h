// SPDX-License-Identifier: BSD-2-Clause
// fid_eq: events of the control interface. Address vectors write events, and so may programs.
// Thread-safe.
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "provider/fabric.h"
#include "provider/object.h"
#include "provider/sleeper.h"

namespace heddle::provider {

struct EventQueue : fid_eq {
    using Fid = fid_eq;
    EventQueue(Fabric& fabric, fi_wait_obj kind, bool writable);

    void put(std::uint32_t kind, const void* entry, std::size_t bytes);
    void put_error(const fi_eq_err_entry& error);

    struct Event {
        std::uint32_t kind = 0;
        bool is_error = false;
        fi_eq_err_entry error{};
        std::vector<std::byte> entry;
    };
    std::mutex mutex;
    std::deque<Event> events;
    fi_wait_obj wait_object;
    bool writable;
    Descriptor event;  // readable while there are events
    RefCount refs;
    FabricRef fabric_ref;
};

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** eq,
                     void* context) noexcept;
int try_wait(EventQueue& eq);

}  // namespace heddle::provider
