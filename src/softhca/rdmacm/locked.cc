// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/rdmacm/locked.h"

#include <cerrno>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/table.h"
#include "softhca/engine/events.h"

namespace softhca::rdmacm {

using device::Channel;
using device::kMaxChannels;
using device::kMaxCmEvents;
using device::kMaxCmGroups;
using device::kMaxCmIds;

namespace {

bool is_same(const CmReference& a, const CmReference& b) noexcept {
    return a.index == b.index && a.generation == b.generation;
}

}  // namespace

Locked::Locked(device::Fabric& fabric) noexcept
    : fabric_(fabric), segment_(fabric.segment()), has_lock_(segment_.connection_lock.lock()) {}

Locked::~Locked() {
    if (has_lock_) segment_.connection_lock.unlock();
}

CmId* Locked::make(std::uint32_t channel, std::uint32_t generation, std::uint32_t owner) noexcept {
    std::uint32_t index;
    // The lowest free one, as the kernel's.
    CmId* id = device::reserve(segment_.cm_ids, fabric_, kNone, 0, &index, device::Search::kLowest);
    if (id == nullptr) return nullptr;
    id->head.set_owner(owner);
    id->channel = channel;
    id->channel_generation = generation;
    id->peer = {kNone, 0};
    device::publish(id->head);
    return id;
}

CmId* Locked::make(std::uint32_t channel) noexcept {
    SOFTHCA_ASSERT(channel < kMaxChannels);
    return make(channel, segment_.channels[channel].head.generation, fabric_.slot());
}

CmId* Locked::make_for(const CmId& listener) noexcept {
    return make(listener.channel, listener.channel_generation, listener.head.owner());
}

void Locked::free(CmId& id) noexcept {
    id.head.state.store(device::kDying, std::memory_order_release);
    device::free_item(segment_.cm_ids, id);
}

CmId* Locked::find(CmReference id) noexcept {
    if (id.index >= kMaxCmIds) return nullptr;
    CmId& found = segment_.cm_ids[id.index];
    return found.head.live() && found.head.generation == id.generation ? &found : nullptr;
}

std::uint32_t Locked::index_of(const CmId& id) const noexcept {
    return static_cast<std::uint32_t>(&id - segment_.cm_ids.items);
}

CmReference Locked::reference(const CmId& id) const noexcept {
    return {index_of(id), id.head.generation};
}

int Locked::find(std::uint32_t number, std::uint32_t channel, CmId** out) noexcept {
    if (number >= kMaxCmIds) return ENOENT;
    CmId& id = segment_.cm_ids[number];
    if (!id.head.live() || id.head.owner() != fabric_.slot()) return ENOENT;
    if (id.channel != channel) return EINVAL;
    *out = &id;
    return 0;
}

CmGroup* Locked::make_group(const CmId& id) noexcept {
    std::uint32_t index;
    CmGroup* const group =
        device::reserve(segment_.cm_groups, fabric_, kNone, 0, &index, device::Search::kLowest);
    if (group == nullptr) return nullptr;
    group->id = reference(id);
    device::publish(group->head);
    return group;
}

std::uint32_t Locked::index_of(const CmGroup& group) const noexcept {
    return static_cast<std::uint32_t>(&group - segment_.cm_groups.items);
}

void Locked::free_group(CmGroup& group) noexcept {
    const CmReference own{index_of(group), group.head.generation};
    if (const CmId* const id = find(group.id))
        for (std::uint32_t event; (event = unqueue(*id, own)) != kNone;)
            take_event(event);
    group.head.state.store(device::kDying, std::memory_order_release);
    device::free_item(segment_.cm_groups, group);
}

void Locked::free_groups(const CmId& id) noexcept {
    const CmReference own = reference(id);
    for (std::uint32_t i = 0; i < device::used(segment_.cm_groups); ++i) {
        CmGroup& group = segment_.cm_groups[i];
        if (group.head.live() && is_same(group.id, own)) free_group(group);
    }
}

int Locked::find_group(std::uint32_t number, std::uint32_t channel, CmGroup** out) noexcept {
    if (number >= kMaxCmGroups) return ENOENT;
    CmGroup& group = segment_.cm_groups[number];
    if (!group.head.live() || group.head.owner() != fabric_.slot()) return ENOENT;
    const CmId* const id = find(group.id);
    if (id == nullptr || id->channel != channel) return EINVAL;
    *out = &group;
    return 0;
}

Channel* Locked::channel_of(const CmId& id) noexcept {
    if (id.channel >= kMaxChannels) return nullptr;
    Channel& channel = segment_.channels[id.channel];
    return channel.head.live() && channel.head.generation == id.channel_generation ? &channel
                                                                                   : nullptr;
}

std::uint32_t* Locked::next_link(std::uint32_t* link) noexcept {
    if (*link >= kMaxCmEvents || !segment_.cm_events[*link].head.live()) {
        *link = kNone;
        return nullptr;
    }
    return &segment_.cm_events[*link].next;
}

void Locked::append(Channel& channel, std::uint32_t event) noexcept {
    std::uint32_t* link = &channel.first_event;
    for (std::uint32_t steps = 0; steps < kMaxCmEvents; ++steps) {
        std::uint32_t* const next = next_link(link);
        if (next == nullptr) break;
        link = next;
    }
    *link = event;
}

bool Locked::push(CmId& id, const rdma_ucm_event_resp& event, CmReference made,
                  CmReference group) noexcept {
    Channel* const channel = channel_of(id);
    if (channel == nullptr) return false;
    std::uint32_t index;
    CmEvent* const queued =
        device::reserve(segment_.cm_events, fabric_, kNone, 0, &index, device::Search::kLowest);
    if (queued == nullptr) return false;
    queued->next = kNone;
    queued->id = reference(id);
    queued->made = made;
    queued->group = group;
    std::memcpy(queued->response, &event, sizeof event);
    queued->head.set_owner(channel->head.owner());
    device::publish(queued->head);
    const bool was_empty = next_link(&channel->first_event) == nullptr;
    append(*channel, index);
    if (was_empty) ring(id.channel);
    return true;
}

// While the lock is held: a channel that is rung after its queue was emptied would be readable
// without an event.
void Locked::ring(std::uint32_t channel) noexcept {
    engine::ring_channel(fabric_, channel, segment_.channels[channel].head.generation);
}

void Locked::ring_again() noexcept {
    for (std::uint32_t i = 0; i < device::used(segment_.channels); ++i) {
        Channel& channel = segment_.channels[i];
        if (!channel.head.live() || channel.head.owner() != fabric_.slot() ||
            !engine::is_channel(segment_, i, device::ChannelKind::kConnection) ||
            next_link(&channel.first_event) == nullptr)
            continue;
        engine::silence_channel(i);
        ring(i);
    }
}

void Locked::take_event(std::uint32_t index) noexcept {
    CmEvent& event = segment_.cm_events[index];
    event.head.state.store(device::kDying, std::memory_order_release);
    device::free_item(segment_.cm_events, event);
}

bool Locked::pop(std::uint32_t number, bool is_rung, rdma_ucm_event_resp* out) noexcept {
    SOFTHCA_ASSERT(number < kMaxChannels);
    Channel& channel = segment_.channels[number];
    const std::uint32_t* const next = next_link(&channel.first_event);
    if (next == nullptr) {
        engine::silence_channel(number);
        return false;
    }
    const std::uint32_t index = channel.first_event;
    const CmEvent& event = segment_.cm_events[index];
    std::memcpy(out, event.response, sizeof *out);
    if (CmId* id = find(event.id)) {
        ++id->reported;
        if (event.made.index != kNone) ++id->backlog;
    }
    if (event.group.index < kMaxCmGroups) {
        CmGroup& group = segment_.cm_groups[event.group.index];
        if (group.head.live() && group.head.generation == event.group.generation) ++group.reported;
    }
    channel.first_event = *next;
    take_event(index);
    if (next_link(&channel.first_event) == nullptr)
        engine::silence_channel(number);
    else if (!is_rung)
        ring(number);
    return true;
}

std::uint32_t Locked::unqueue(const CmId& id, CmReference group) noexcept {
    Channel* const channel = channel_of(id);
    if (channel == nullptr) return kNone;
    const CmReference wanted = reference(id);
    std::uint32_t* link = &channel->first_event;
    for (std::uint32_t steps = 0; steps < kMaxCmEvents; ++steps) {
        std::uint32_t* const next = next_link(link);
        if (next == nullptr) return kNone;
        const std::uint32_t index = *link;
        const CmEvent& event = segment_.cm_events[index];
        if (is_same(event.id, wanted) && (group.index == kNone || is_same(event.group, group))) {
            *link = *next;
            if (channel->head.owner() == fabric_.slot() &&
                next_link(&channel->first_event) == nullptr)
                engine::silence_channel(id.channel);
            return index;
        }
        link = next;
    }
    return kNone;
}

void Locked::move(CmId& id, std::uint32_t number) noexcept {
    SOFTHCA_ASSERT(number < kMaxChannels);
    Channel& to = segment_.channels[number];
    // Its events would be moved behind each other without end.
    if (channel_of(id) == &to) return;
    const bool was_empty = next_link(&to.first_event) == nullptr;
    // Those of requests go along, and so do the ids that were made for them.
    for (std::uint32_t index; (index = unqueue(id)) != kNone;) {
        CmEvent& event = segment_.cm_events[index];
        event.next = kNone;
        append(to, index);
        if (CmId* made = find(event.made)) {
            made->channel = number;
            made->channel_generation = to.head.generation;
        }
    }
    id.channel = number;
    id.channel_generation = to.head.generation;
    if (was_empty && next_link(&to.first_event) != nullptr) ring(number);
}

}  // namespace softhca::rdmacm
