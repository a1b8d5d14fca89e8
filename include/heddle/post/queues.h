// SPDX-License-Identifier: BSD-2-Clause
// The two posting paths behind one interface: the queues of one endpoint, of either. All have
//   send(k).post(work), .ring_doorbell(), .post_now(work)
//   receive(k).post_now(sges, id)
//   completions().poll(out, most), .arm(solicited_only), .event_read()
// Code that is a template over them has no decision to make on the way of a message.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "heddle/post/lock.h"
#include "heddle/post/mlx5_completion_queue.h"
#include "heddle/post/mlx5_receive_queue.h"
#include "heddle/post/mlx5_send_queue.h"
#include "heddle/post/verbs_queue.h"

namespace heddle {

// How work reaches the device.
enum class Path : std::uint8_t {
    kVerbs,   // ibv_post_send, ibv_poll_cq; any device
    kDirect,  // mlx5: entries, doorbell records and registers written without libmlx5
};

}  // namespace heddle

namespace heddle::post {

// What an endpoint uses; the set owns it. Queues without receives have no receive(k).
template <class Send, class Receive, class Completions>
class Queues {
public:
    Send& send(std::uint32_t k = 0) const noexcept { return *sends_[k]; }
    Receive& receive(std::uint32_t k = 0) const noexcept { return *receives_[k]; }
    Completions& completions() const noexcept { return *completions_; }
    std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(sends_.size()); }

    void add(Send& send, Receive* receive) {
        sends_.push_back(&send);
        receives_.push_back(receive);
    }
    void set_completions(Completions& completions) noexcept { completions_ = &completions; }

private:
    std::vector<Send*> sends_;
    std::vector<Receive*> receives_;
    Completions* completions_ = nullptr;
};

// libmlx5 locks its queues, or does not, as they were made; the list under construction is the
// endpoint's own.
using VerbsQueues = Queues<VerbsSendQueue<SingleThreaded>, VerbsReceiveQueue, VerbsCompletionQueue>;
template <class Lock>
using DirectQueues = Queues<Mlx5SendQueue<Lock>, Mlx5ReceiveQueue<Lock>, Mlx5CompletionQueue<Lock>>;
using AnyQueues = std::variant<VerbsQueues, DirectQueues<SingleThreaded>, DirectQueues<SpinLock>>;

}  // namespace heddle::post
