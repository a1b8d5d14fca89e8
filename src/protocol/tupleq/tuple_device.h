// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects of an endpoint's tuple queues: shared receive queues, one for each tuple, and
// send queues that may block, each with a connection of its own. They report to a completion queue
// of their own, which libmlx5 polls: QPs that are reset and SRQs that come and go, whose entries
// libmlx5 finds by numbers that it shows nobody, are nothing for the direct path's.
//
// One thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "endpoint/thread_resources.h"
#include "protocol/common/endpoint_address.h"
#include "protocol/core/core.h"
#include "protocol/transport/process.h"
#include "protocol/tupleq/tuple_services.h"
#include "protocol/wireup/connector.h"
#include "verbs/handles.h"

namespace heddle::protocol {

class TupleDevice;

// One of the tuple queues that a process may have, from Process::take_tuple().
struct GiveBackTuple {
    void operator()(Process* process) const noexcept { process->release_tuple(); }
};
using TuplePlace = std::unique_ptr<Process, GiveBackTuple>;

class DeviceTupleQueue final : public TupleQueue {
public:
    // Throws VerbsError.
    DeviceTupleQueue(TuplePlace place, const endpoint::SharedContext& shared, ibv_cq* cq);
    std::uint32_t number() const noexcept override { return number_; }
    bool post(void* buffer, std::uint32_t bytes, std::uint32_t key,
              std::uint64_t receive) noexcept override;

private:
    const TuplePlace place_;
    verbs::SharedReceiveQueue srq_;
    std::uint32_t number_ = 0;
};

class DeviceBlockingQueue final : public BlockingQueue {
public:
    DeviceBlockingQueue(TupleDevice& device, const EndpointAddress& to);  // throws VerbsError
    ~DeviceBlockingQueue() override;
    DeviceBlockingQueue(const DeviceBlockingQueue&) = delete;
    DeviceBlockingQueue& operator=(const DeviceBlockingQueue&) = delete;

    State state() noexcept override;
    std::uint32_t qpn() const noexcept override { return qp_->qp_num; }
    std::size_t max_inline() const noexcept override { return max_inline_; }
    bool post(std::span<ibv_sge> sges, bool is_inline, std::uint32_t immediate, std::uint32_t srqn,
              TupleWork& work) noexcept override;
    void flush() noexcept override;
    // A broken one that is idle starts anew.
    void reconnect() noexcept;

private:
    int to_start() noexcept;

    Connector& connector_;
    const verbs::LocalPort port_;
    verbs::QueuePair qp_;
    ConnectionRequest request_;
    std::size_t max_inline_ = 0;
    State state_ = State::kConnecting;
};

class TupleDevice final : public TupleServices {
public:
    // The core is kept.
    explicit TupleDevice(Core& core);

    std::unique_ptr<TupleQueue> make_queue() override;
    BlockingQueue* take(const EndpointAddress& peer) override;
    unsigned poll() override;
    // It has a CQ: from the first queue on.
    bool is_made() const noexcept { return cq_ != nullptr; }
    // A completion event is asked for; false: something is there already.
    bool arm() noexcept;

private:
    friend class DeviceBlockingQueue;
    using Clock = std::chrono::steady_clock;
    struct Pool {
        EndpointAddress to;
        std::vector<std::unique_ptr<DeviceBlockingQueue>> queues;
        Clock::time_point again_at;  // a queue is asked for again
    };
    Channel& channel() const noexcept { return *core_.channel; }
    void open();        // the completion queue, when it is needed; throws VerbsError
    ibv_pd* send_pd();  // of blocking queues; throws VerbsError
    Pool& pool_to(const EndpointAddress& peer);

    Core& core_;
    const std::uint32_t entries_;  // of the completion queue
    verbs::CompletionQueue cq_;
    std::optional<endpoint::OwnRegister> send_register_;
    std::vector<Pool> pools_;  // by remote context
};

}  // namespace heddle::protocol
