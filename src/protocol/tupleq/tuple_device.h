// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects of an endpoint's tuple queues: shared receive queues, one for each tuple, and
// send queues that may block, each with a connection of its own. They report to a completion queue
// of their own, which libmlx5 polls: QPs that are reset and SRQs that come and go, whose entries
// libmlx5 finds by numbers that it shows nobody, are nothing for the direct path's.
//
// One thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "endpoint/thread_resources.h"
#include "heddle/detail/assert.h"
#include "protocol/common/endpoint_address.h"
#include "protocol/transport/channel.h"
#include "protocol/wireup/connector.h"
#include "verbs/handles.h"

namespace heddle::protocol {

class TupleDevice;

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

// A receive queue.
class TupleQueue {
public:
    TupleQueue(ibv_context* context, ibv_pd* pd, ibv_xrcd* xrcd, ibv_cq* cq);  // throws VerbsError
    std::uint32_t number() const noexcept { return number_; }
    // False: the device does not take it. bytes may be 0. receive: as received() gets it.
    bool post(void* buffer, std::uint32_t bytes, std::uint32_t key, std::uint64_t receive) noexcept;

private:
    verbs::SharedReceiveQueue srq_;
    std::uint32_t number_ = 0;
};

// A send queue whose messages may find no receive for as long as it takes: the device waits.
class BlockingQueue {
public:
    enum class State : std::uint8_t { kConnecting, kReady, kBroken, kFailed };
    static constexpr std::uint32_t kDepth = 32;

    BlockingQueue(TupleDevice& device, Connector& connector, const EndpointAddress& from,
                  const EndpointAddress& to);
    ~BlockingQueue();
    BlockingQueue(const BlockingQueue&) = delete;
    BlockingQueue& operator=(const BlockingQueue&) = delete;

    State state() noexcept;  // looks if it has been connected
    int error() const noexcept { return request_.error; }
    std::uint32_t qpn() const noexcept { return qp_->qp_num; }
    bool idle() const noexcept { return under_way_ == 0; }
    bool has_room() const noexcept { return under_way_ < kDepth; }
    bool post(std::span<ibv_sge> sges, bool is_inline, std::uint32_t immediate, std::uint32_t srqn,
              TupleWork& work) noexcept;
    void count_done() noexcept {
        HEDDLE_ASSERT(under_way_ != 0, "a WR completed twice");
        --under_way_;
    }
    // Nothing of what is under way shall go on waiting: it completes, flushed if it has not been
    // delivered. The queue is kBroken.
    void flush() noexcept;
    // A broken one that is idle starts anew.
    void reconnect() noexcept;

    const void* owner = nullptr;  // a tuple has it until it has drained

private:
    int to_start() noexcept;

    Connector& connector_;
    verbs::QueuePair qp_;
    ConnectionRequest request_;
    State state_ = State::kConnecting;
    std::uint32_t under_way_ = 0;
};

class TupleDevice {
public:
    // entries: of the completion queue, which is made when it is needed.
    TupleDevice(Channel& channel, std::uint32_t entries) : channel_(channel), entries_(entries) {}

    void tell(TupleReceives& receives) noexcept { receives_ = &receives; }
    std::unique_ptr<TupleQueue> make_queue();  // throws VerbsError
    // One that nobody has, ready or on its way there; nullptr: `most` are in use, or the device
    // or the peer has no more, for now.
    BlockingQueue* take(Connector& connector, const EndpointAddress& from,
                        const EndpointAddress& to, unsigned most);

    unsigned poll();  // tells works
    // A completion event is asked for; false: something is there already.
    bool arm() noexcept;
    Channel& channel() noexcept { return channel_; }
    ibv_cq* cq() const noexcept { return cq_.get(); }
    ibv_pd* send_pd();             // of blocking queues; throws VerbsError
    std::uint32_t max_inline = 0;  // of blocking queues

private:
    using Clock = std::chrono::steady_clock;
    void open();
    struct Pool {
        EndpointAddress to;
        std::vector<std::unique_ptr<BlockingQueue>> queues;
        Clock::time_point again_at;  // a queue is asked for again
    };
    Channel& channel_;
    TupleReceives* receives_ = nullptr;
    const std::uint32_t entries_;
    verbs::CompletionQueue cq_;
    std::optional<endpoint::OwnRegister> send_register_;
    std::vector<Pool> pools_;  // by remote context
};

}  // namespace heddle::protocol
