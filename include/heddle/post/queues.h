// SPDX-License-Identifier: BSD-2-Clause
// The queues of one endpoint, with one interface for both posting paths:
//   send(k).post(request), .ring_doorbell(), .post_now(request)
//   receive(k).post_now(sges, id)
//   completions().poll(out, most), .arm(solicited_only), .event_read()
// A template over them makes no decision about the path at run time.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/post/lock.h"
#include "heddle/post/mlx5_completion_queue.h"
#include "heddle/post/mlx5_receive_queue.h"
#include "heddle/post/mlx5_send_queue.h"
#include "heddle/post/verbs_queue.h"

namespace heddle {

/// How work requests reach the device.
enum class Path : std::uint8_t {
    kVerbs,   ///< ibv_post_send and ibv_poll_cq; any device
    kDirect,  ///< mlx5 only: WQEs, doorbell records and registers are written without libmlx5
};

}  // namespace heddle

namespace heddle::post {

/// The queues of an endpoint. EndpointSet owns the queues and creates this object;
/// Endpoint::visit() hands it out.
///
///     endpoint.visit([&](auto& queues) {
///         queues.send().post(first);
///         queues.send().post(second);
///         queues.send().ring_doorbell();
///         while (queues.completions().poll(&done, 1) == 0) {}
///     });
///
/// Thread safety: the accessors are for any thread; what they return has the rules of its own
/// class.
template <class Send, class Receive, class Completions>
class Queues {
public:
    /// Returns a send queue.
    /// @param k which QP, less than count()
    Send& send(std::uint32_t k = 0) const noexcept {
        HEDDLE_DEBUG_ASSERT(k < sends_.size(), "an endpoint has no QP of that index");
        return *sends_[k];
    }
    /// Returns a receive queue. EndpointOptions::receive_depth is not 0.
    /// @param k which QP, less than count()
    Receive& receive(std::uint32_t k = 0) const noexcept {
        HEDDLE_DEBUG_ASSERT(k < receives_.size() && receives_[k] != nullptr,
                            "an endpoint without receives (EndpointOptions::receive_depth)");
        return *receives_[k];
    }
    /// Returns the completion queue.
    Completions& completions() const noexcept {
        HEDDLE_DEBUG_ASSERT(completions_ != nullptr);
        return *completions_;
    }
    /// Returns the number of QPs.
    std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(sends_.size()); }

    /// For EndpointSet: adds the queues of the next QP. They must outlive this object.
    /// @param send the QP's send queue
    /// @param receive nullptr: the QP has no receives
    void add(Send& send, Receive* receive) {
        sends_.push_back(&send);
        receives_.push_back(receive);
    }
    /// For EndpointSet: sets the completion queue, which must outlive this object.
    void set_completions(Completions& completions) noexcept { completions_ = &completions; }

private:
    std::vector<Send*> sends_;
    std::vector<Receive*> receives_;
    Completions* completions_ = nullptr;
};

/// The queues of the verbs path. libmlx5 locks its queues as the QP was created; the list under
/// construction belongs to the endpoint.
using VerbsQueues = Queues<VerbsSendQueue<SingleThreaded>, VerbsReceiveQueue, VerbsCompletionQueue>;
/// The queues of the direct path.
template <class Lock>
using DirectQueues = Queues<Mlx5SendQueue<Lock>, Mlx5ReceiveQueue<Lock>, Mlx5CompletionQueue<Lock>>;
/// The queues of either path.
using AnyQueues = std::variant<VerbsQueues, DirectQueues<SingleThreaded>, DirectQueues<SpinLock>>;

}  // namespace heddle::post
