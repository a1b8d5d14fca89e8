// SPDX-License-Identifier: BSD-2-Clause
// What tuple queues need of the device, of the connector and of the process: receive queues, send
// queues that may block, and whose messages have come. Unit tests of both sides stand on a fake
// one; the real one is tuple_device.h.
//
// One thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "heddle/detail/assert.h"
#include "memory/pool.h"
#include "protocol/common/endpoint_address.h"
#include "protocol/transport/channel.h"
#include "protocol/wireup/targets.h"

namespace heddle::protocol {

// A message that waits for its completion here. In the order of posting for those of one queue.
class TupleWork {
public:
    virtual void completed(const ibv_wc& wc) = 0;

protected:
    ~TupleWork() = default;
};

// Told of receives that are done.
class TupleReceives {
public:
    virtual ~TupleReceives() = default;
    virtual void received(std::uint64_t receive, const ibv_wc& wc) = 0;
};

// A receive queue. It counts against the limits of the process until it is destroyed.
class TupleQueue {
public:
    virtual ~TupleQueue() = default;
    virtual std::uint32_t number() const noexcept = 0;
    // False: the device does not take it. bytes may be 0. receive: as received() gets it.
    virtual bool post(void* buffer, std::uint32_t bytes, std::uint32_t key,
                      std::uint64_t receive) noexcept = 0;
};

// A send queue whose messages may find no receive for as long as it takes: the device waits.
class BlockingQueue {
public:
    enum class State : std::uint8_t { kConnecting, kReady, kBroken, kFailed };
    static constexpr std::uint32_t kDepth = 32;

    virtual ~BlockingQueue() = default;
    virtual State state() noexcept = 0;  // looks if it has been connected
    virtual std::uint32_t qpn() const noexcept = 0;
    // Sizes up to this can be inline.
    virtual std::size_t max_inline() const noexcept = 0;
    // False: the device does not take it. The queue is ready and has room.
    virtual bool post(std::span<ibv_sge> sges, bool is_inline, std::uint32_t immediate,
                      std::uint32_t srqn, TupleWork& work) noexcept = 0;
    // Nothing of what is under way shall go on waiting: it completes, flushed if it has not been
    // delivered. A ready queue is kBroken then.
    virtual void flush() noexcept = 0;

    bool idle() const noexcept { return under_way_ == 0; }
    bool has_room() const noexcept { return under_way_ < kDepth; }
    void count_done() noexcept {
        HEDDLE_ASSERT(under_way_ != 0, "a WR completed twice");
        --under_way_;
    }

    const void* owner = nullptr;  // a tuple has it until it has drained

protected:
    std::uint32_t under_way_ = 0;
};

class TupleServices {
public:
    // All are kept. pd: what peers write credits to is registered there.
    TupleServices(TargetQueuePairs& its_targets, const SendLimits& its_limits,
                  memory::Pool& its_buffers, ibv_pd* its_pd) noexcept
        : targets(its_targets), limits(its_limits), send_buffers(its_buffers), pd(its_pd) {}
    TupleServices(const TupleServices&) = delete;
    TupleServices& operator=(const TupleServices&) = delete;

    // Those that the messages of all tuples come by.
    TargetQueuePairs& targets;
    const SendLimits& limits;  // of the connection of all messages
    memory::Pool& send_buffers;
    ibv_pd* const pd;

    // nullptr: the process has as many as it may. Throws VerbsError if the device has no more.
    virtual std::unique_ptr<TupleQueue> make_queue() = 0;
    // A blocking queue to the peer that nobody has, ready or on its way there; nullptr: as many as
    // there may be are in use, or the device or the peer has no more, for now.
    virtual BlockingQueue* take(const EndpointAddress& peer) = 0;
    // Tells receives and works of their completions; returns how many.
    virtual unsigned poll() = 0;

    void tell(TupleReceives& receives) noexcept { receives_ = &receives; }

protected:
    ~TupleServices() = default;
    TupleReceives* receives_ = nullptr;
};

}  // namespace heddle::protocol
