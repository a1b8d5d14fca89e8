// SPDX-License-Identifier: BSD-2-Clause
// The connections of a fabric, locked: ids, and the queues of events of their channels. An id of
// another process is changed and given events as one's own.
//
// A process may be killed while it has the lock, and the next one goes on with what it left.
// Therefore a queue is a list without an end that could be wrong: whoever appends walks to it.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>

#include "softhca/device/fabric.h"

namespace softhca::rdmacm {

using device::CmAddress;
using device::CmEvent;
using device::CmGroup;
using device::CmId;
using device::CmReference;
using device::CmState;
using device::kNone;

static_assert(sizeof(rdma_ucm_event_resp) == device::kCmEventBytes);

class Locked {
public:
    explicit Locked(device::Fabric& fabric) noexcept;
    ~Locked();
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    // Whether the lock was had. Nothing else may be called if not.
    explicit operator bool() const noexcept { return has_lock_; }

    device::Fabric& fabric() noexcept { return fabric_; }
    device::Segment& segment() noexcept { return segment_; }

    // A new id of this process on that channel, or nullptr (ENOMEM).
    CmId* make(std::uint32_t channel) noexcept;
    // A new id for a request to the listener, of its process and on its channel.
    CmId* make_for(const CmId& listener) noexcept;
    // Frees it with its queued events. `destroy` is called for each id that was made for a request
    // in the queue of a listener.
    template <class Destroy>
    void free(CmId& id, const Destroy& destroy) noexcept {
        for (std::uint32_t index; (index = unqueue(id)) != kNone;)
            if (CmId* made = find(segment_.cm_events[index].made);
                take_event(index), made != nullptr)
                destroy(*made);
        free_groups(id);
        free(id);
    }

    // A live id, or nullptr.
    CmId* find(CmReference id) noexcept;
    CmReference reference(const CmId& id) const noexcept;
    std::uint32_t index_of(const CmId& id) const noexcept;
    // The id of that number on that channel of this process. Returns 0, ENOENT, or EINVAL if it is
    // on another channel.
    int find(std::uint32_t number, std::uint32_t channel, CmId** out) noexcept;

    // A new group of the id, or nullptr (ENOMEM).
    CmGroup* make_group(const CmId& id) noexcept;
    // Frees it with its queued events.
    void free_group(CmGroup& group) noexcept;
    std::uint32_t index_of(const CmGroup& group) const noexcept;
    // The group of that number of an id on that channel of this process. Returns as find() does.
    int find_group(std::uint32_t number, std::uint32_t channel, CmGroup** out) noexcept;

    // Queues an event for the id. made: the new id, if it is a request for a listener. group: it is
    // an event of that group. False: there is no room, or the id's channel is gone.
    bool push(CmId& id, const rdma_ucm_event_resp& event, CmReference made = {kNone, 0},
              CmReference group = {kNone, 0}) noexcept;
    // Takes the first event of a channel of this process. False: there is none. is_rung: the pipe
    // may still have a byte for the others.
    bool pop(std::uint32_t channel, bool is_rung, rdma_ucm_event_resp* event) noexcept;
    // Rings those channels of this process that have events, in case whoever queued them could not.
    void ring_again() noexcept;
    // Moves the id with its queued events to another channel of this process.
    void move(CmId& id, std::uint32_t channel) noexcept;

    // Calls visit(CmId&) for each live id.
    template <class Visit>
    void each(const Visit& visit) noexcept {
        const std::uint32_t high = segment_.cm_ids.high.load(std::memory_order_acquire);
        for (std::uint32_t i = 0; i < high && i < device::kMaxCmIds; ++i)
            if (segment_.cm_ids[i].head.live()) visit(segment_.cm_ids[i]);
    }

private:
    CmId* make(std::uint32_t channel, std::uint32_t generation, std::uint32_t owner) noexcept;
    void free(CmId& id) noexcept;
    device::Channel* channel_of(const CmId& id) noexcept;
    void free_groups(const CmId& id) noexcept;
    // Takes the first event of that id, or of that group of it, out of its channel's queue. Its
    // index, or kNone.
    std::uint32_t unqueue(const CmId& id, CmReference group = {kNone, 0}) noexcept;
    void append(device::Channel& channel, std::uint32_t event) noexcept;
    void take_event(std::uint32_t index) noexcept;
    // The link that leads to the next event of a queue, to walk along it: *link is kNone at the
    // end.
    std::uint32_t* next_link(std::uint32_t* link) noexcept;
    void ring(std::uint32_t channel) noexcept;

    device::Fabric& fabric_;
    device::Segment& segment_;
    const bool has_lock_;
};

}  // namespace softhca::rdmacm
