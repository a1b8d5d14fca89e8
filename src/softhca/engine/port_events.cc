// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/port_events.h"

#include <infiniband/verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/port.h"
#include "softhca/device/reclaim.h"
#include "softhca/device/table.h"
#include "softhca/engine/events.h"

namespace softhca::engine {

using device::Context;
using device::Fabric;
using device::PortRecord;
using device::Segment;

namespace {

// More changes at a time than a pipe has room for: the first of them are lost.
constexpr std::uint32_t kMostEvents = 1024;

// Segment.port_changes at the last look of this process.
std::atomic<std::uint32_t> g_seen{0};

const PortRecord& record_of(const Segment& segment, const Context& context,
                            unsigned number) noexcept {
    return segment.port_records[device::port_of(segment, context.device, number).index()];
}

// Calls send() for each change between the two counts.
template <class Send>
void each_change(std::uint32_t* seen, std::uint32_t now, const Send& send) noexcept {
    if (now - *seen > kMostEvents) *seen = now - kMostEvents;
    while (*seen != now)
        send(++*seen);
}

void report_to(Fabric& fabric, std::uint32_t index, Context& context) noexcept {
    const Segment& segment = fabric.segment();
    for (unsigned number = 1; number <= device::ports_of_device(segment); ++number) {
        const PortRecord& port = record_of(segment, context, number);
        each_change(&context.link_changes[number - 1],
                    port.link_changes.load(std::memory_order_acquire), [&](std::uint32_t count) {
                        send_async_event(
                            fabric, index,
                            count % 2 != 0 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE, number,
                            nullptr);
                    });
        each_change(&context.gid_changes[number - 1],
                    port.gid_changes.load(std::memory_order_acquire), [&](std::uint32_t) {
                        send_async_event(fabric, index, IBV_EVENT_GID_CHANGE, number, nullptr);
                    });
    }
}

}  // namespace

void note_ports(const Segment& segment, Context& context) noexcept {
    for (unsigned number = 1; number <= device::ports_of_device(segment); ++number) {
        const PortRecord& port = record_of(segment, context, number);
        context.link_changes[number - 1] = port.link_changes.load(std::memory_order_acquire);
        context.gid_changes[number - 1] = port.gid_changes.load(std::memory_order_acquire);
    }
}

void watch_ports(Fabric& fabric) noexcept {
    // The progress thread may have looked before the context was live.
    if (g_seen.exchange(0, std::memory_order_seq_cst) != 0)
        device::ring_bell(fabric, fabric.slot());
}

void report_port_changes(Fabric& fabric) noexcept {
    const std::uint32_t now = fabric.segment().port_changes.load(std::memory_order_acquire);
    if (g_seen.load(std::memory_order_relaxed) == now) return;
    g_seen.store(now, std::memory_order_seq_cst);
    auto& contexts = fabric.segment().contexts;
    for (std::uint32_t i = 0; i < device::used(contexts); ++i) {
        Context& context = contexts[i];
        if (context.head.live() && context.head.owner() == fabric.slot() &&
            context.async_channel != device::kNone)
            report_to(fabric, i, context);
    }
}

}  // namespace softhca::engine
