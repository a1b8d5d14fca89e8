// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/tupleq/tuple_device.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/tupleq/tuple.h"
#include "protocol/wire/wire.h"
#include "verbs/connection.h"

namespace heddle::protocol {
namespace {

constexpr std::uint32_t kQueueSges = 3;
constexpr unsigned kPollAtOnce = 16;
// A queue that could not be had is not asked for again before.
constexpr auto kPause = std::chrono::milliseconds(10);
// Ids are addresses of TupleWork objects, or, with this bit, numbers of receives.
constexpr std::uint64_t kReceiveBit = 1;

}  // namespace

DeviceTupleQueue::DeviceTupleQueue(TuplePlace place, const endpoint::SharedContext& shared,
                                   ibv_cq* cq)
    : place_(std::move(place)) {
    ibv_srq_init_attr_ex attributes{};
    attributes.attr.max_wr = kTupleDepth;
    attributes.attr.max_sge = 1;
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                           IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = shared.pd.get();
    attributes.xrcd = shared.xrcd.get();
    attributes.cq = cq;
    srq_.reset(ibv_create_srq_ex(shared.context.get(), &attributes));
    if (!srq_)
        throw VerbsError("a shared receive queue of a tuple", errno,
                         "FI_HEDDLE_TUPLES says how many there may be");
    if (ibv_get_srq_num(srq_.get(), &number_) != 0)
        throw VerbsError("the number of a shared receive queue", errno);
}

bool DeviceTupleQueue::post(void* buffer, std::uint32_t bytes, std::uint32_t key,
                            std::uint64_t receive) noexcept {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer), bytes, key};
    ibv_recv_wr wr{}, *bad = nullptr;
    HEDDLE_ASSERT(receive >> 63 == 0, "an id has 63 bits for a receive");
    wr.wr_id = receive << 1 | kReceiveBit;
    wr.sg_list = &sge;
    wr.num_sge = bytes != 0 ? 1 : 0;  // zero would stand for 2 GiB
    return ibv_post_srq_recv(srq_.get(), &wr, &bad) == 0;
}

DeviceBlockingQueue::DeviceBlockingQueue(TupleDevice& device, const EndpointAddress& to)
    : connector_(device.core_.connector),
      port_(device.channel().objects().resources().shared->port) {
    const endpoint::ThreadResources& resources = device.channel().objects().resources();
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_SEND;
    attributes.send_cq = device.cq_.get();
    attributes.cap.max_send_wr = kDepth;
    attributes.cap.max_send_sge = kQueueSges;
    attributes.cap.max_inline_data = static_cast<std::uint32_t>(device.limits.max_inline);
    attributes.pd = device.send_pd();
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.sq_sig_all = 1;
    qp_.reset(ibv_create_qp_ex(resources.shared->context.get(), &attributes));
    if (!qp_)
        throw VerbsError("a queue pair for a tuple's messages that wait", errno,
                         "FI_HEDDLE_TUPLE_QPS says how many there may be");
    max_inline_ = attributes.cap.max_inline_data;
    request_.from = device.core_.name;
    request_.to = to;
    request_.argument = &device.channel();
    request_.changed = [](void* channel) { static_cast<Channel*>(channel)->wait_set().wake(); };
    request_.qp = qp_.get();
    if (const int error = to_start()) throw VerbsError("taking a queue pair to INIT", error);
    connector_.connect(request_);
}

int DeviceBlockingQueue::to_start() noexcept { return verbs::to_init_of_sender(qp_.get(), port_); }

DeviceBlockingQueue::~DeviceBlockingQueue() { connector_.disconnect(request_); }

BlockingQueue::State DeviceBlockingQueue::state() noexcept {
    if (state_ != State::kConnecting) return state_;
    switch (request_.state.load(std::memory_order_acquire)) {
        case ConnectionRequest::kConnecting:
            break;
        case ConnectionRequest::kConnected:
            state_ = State::kReady;
            break;
        case ConnectionRequest::kFailed:
            state_ = State::kFailed;
            break;
    }
    return state_;
}

bool DeviceBlockingQueue::post(std::span<ibv_sge> sges, bool is_inline, std::uint32_t immediate,
                               std::uint32_t srqn, TupleWork& work) noexcept {
    ibv_send_wr wr{}, *bad = nullptr;
    HEDDLE_ASSERT(has_room() && state_ == State::kReady, "the caller has looked at the queue");
    wr.wr_id = reinterpret_cast<std::uintptr_t>(&work);
    HEDDLE_ASSERT((wr.wr_id & kReceiveBit) == 0, "an address is no id of a receive");
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htobe32(immediate);
    wr.send_flags = IBV_SEND_SIGNALED;
    if (is_inline) wr.send_flags |= IBV_SEND_INLINE;
    wr.qp_type.xrc.remote_srqn = srqn;
    if (ibv_post_send(qp_.get(), &wr, &bad) != 0) return false;
    ++under_way_;
    return true;
}

void DeviceBlockingQueue::flush() noexcept {
    if (state_ != State::kReady) return;
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    ibv_modify_qp(qp_.get(), &error, IBV_QP_STATE);
    state_ = State::kBroken;
}

void DeviceBlockingQueue::reconnect() noexcept {
    HEDDLE_ASSERT(state_ == State::kBroken && idle(), "a WR under way would never complete");
    connector_.disconnect(request_);
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;
    if (ibv_modify_qp(qp_.get(), &reset, IBV_QP_STATE) != 0 || to_start() != 0) {
        state_ = State::kFailed;
        return;
    }
    request_.state.store(ConnectionRequest::kConnecting, std::memory_order_relaxed);
    request_.error = 0;
    state_ = State::kConnecting;
    connector_.connect(request_);
}

TupleDevice::TupleDevice(Core& core)
    : TupleServices(core.connector, core.channel->limits(), core.channel->send_buffers(),
                    core.domain->body().context->pd.get()),
      core_(core),
      entries_(core.options.tuples.queues * kTupleDepth) {}

void TupleDevice::open() {
    if (cq_) return;
    cq_.reset(ibv_create_cq(channel().objects().shared().context.get(), static_cast<int>(entries_),
                            nullptr, channel().objects().events(), 0));
    if (!cq_)
        throw VerbsError("a completion queue of " + std::to_string(entries_) + " entries", errno,
                         "FI_HEDDLE_TUPLES makes it smaller");
}

ibv_pd* TupleDevice::send_pd() {
    const endpoint::ThreadResources& resources = channel().objects().resources();
    if (!channel().direct() || !resources.register_shared()) return resources.shared->pd.get();
    if (!send_register_) send_register_.emplace(*resources.shared);
    return send_register_->pd();
}

std::unique_ptr<TupleQueue> TupleDevice::make_queue() {
    if (!core_.process->take_tuple()) return nullptr;
    TuplePlace place(core_.process.get());
    open();
    return std::make_unique<DeviceTupleQueue>(std::move(place), channel().objects().shared(),
                                              cq_.get());
}

TupleDevice::Pool& TupleDevice::pool_to(const EndpointAddress& peer) {
    EndpointAddress context;
    context.process = peer.process;
    context.context = peer.context;
    const auto pool = std::find_if(pools_.begin(), pools_.end(),
                                   [&](const Pool& each) { return each.to == context; });
    return pool != pools_.end() ? *pool : pools_.emplace_back(Pool{context, {}, {}});
}

BlockingQueue* TupleDevice::take(const EndpointAddress& peer) {
    Pool& pool = pool_to(peer);
    unsigned alive = 0;
    DeviceBlockingQueue* soon = nullptr;
    for (const auto& queue : pool.queues) {
        if (queue->state() == BlockingQueue::State::kFailed) continue;
        ++alive;
        if (queue->owner != nullptr || !queue->idle()) continue;
        if (queue->state() == BlockingQueue::State::kBroken) queue->reconnect();
        if (queue->state() == BlockingQueue::State::kReady) return queue.get();
        soon = queue.get();
    }
    if (soon != nullptr) return soon;
    // Mostly the peer has gone, or has no room. Messages that wait end in the first case, and go by
    // credit in the second.
    if (std::erase_if(pool.queues, [](const auto& queue) {
            return queue->state() == BlockingQueue::State::kFailed && queue->idle();
        }) != 0)
        pool.again_at = Clock::now() + kPause;
    if (alive >= core_.options.tuples.queue_pairs ||
        (pool.again_at != Clock::time_point{} && Clock::now() < pool.again_at))
        return nullptr;
    pool.again_at = {};
    try {
        open();
        pool.queues.push_back(std::make_unique<DeviceBlockingQueue>(*this, peer));
        return pool.queues.back().get();
    } catch (const VerbsError&) {  // credit will come
        pool.again_at = Clock::now() + kPause;
        return nullptr;
    }
}

// One by one: of an entry of an SRQ that is gone libmlx5 makes an error of the call, and what it
// had found before would be lost.
unsigned TupleDevice::poll() {
    if (!cq_) return 0;
    unsigned found = 0;
    for (; found < kPollAtOnce; ++found) {
        ibv_wc wc;
        const int count = ibv_poll_cq(cq_.get(), 1, &wc);
        if (count == 0) break;
        if (count < 0) continue;
        HEDDLE_DEBUG_ASSERT((wc.wr_id & kReceiveBit) == 0 || receives_ != nullptr,
                            "tell() comes before the first receive");
        if (wc.wr_id & kReceiveBit)
            receives_->received(wc.wr_id >> 1, wc);
        else
            reinterpret_cast<TupleWork*>(static_cast<std::uintptr_t>(wc.wr_id))->completed(wc);
    }
    return found;
}

bool TupleDevice::arm() noexcept {
    if (cq_) ibv_req_notify_cq(cq_.get(), 0);
    return poll() == 0;
}

}  // namespace heddle::protocol
