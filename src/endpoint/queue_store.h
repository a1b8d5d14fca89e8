// SPDX-License-Identifier: BSD-2-Clause
// The queues of a set's endpoints by the path that was chosen: one object for each QP and CQ,
// however many endpoints share it, except that each endpoint has a list of its own by the verbs
// path.
#pragma once

#include <infiniband/verbs.h>

#include <map>
#include <memory>
#include <vector>

#include "heddle/endpoint.h"

namespace heddle::endpoint {

class QueueStore {
public:
    // locked: several threads may be in an endpoint at once.
    QueueStore(const EndpointOptions& options, bool locked) : options_(options), locked_(locked) {}

    // Of an endpoint with these QPs and this CQ. Throws VerbsError when the device does not have
    // the path.
    post::AnyQueues of(const std::vector<ibv_qp*>& qps, ibv_cq* cq);

private:
    template <class Lock>
    struct Direct {
        struct Pair {
            std::unique_ptr<post::Mlx5SendQueue<Lock>> send;
            std::unique_ptr<post::Mlx5ReceiveQueue<Lock>> receive;
        };
        std::map<ibv_cq*, std::unique_ptr<post::Mlx5CompletionQueue<Lock>>> completions;
        std::map<ibv_qp*, Pair> pairs;
    };
    template <class Lock>
    post::AnyQueues direct(Direct<Lock>& store, const std::vector<ibv_qp*>& qps, ibv_cq* cq);
    post::AnyQueues verbs(const std::vector<ibv_qp*>& qps, ibv_cq* cq);

    EndpointOptions options_;
    bool locked_;
    std::vector<std::unique_ptr<post::VerbsSendQueue<post::SingleThreaded>>> sends_;
    std::vector<std::unique_ptr<post::VerbsReceiveQueue>> receives_;
    std::vector<std::unique_ptr<post::VerbsCompletionQueue>> completions_;
    Direct<post::SingleThreaded> free_;
    Direct<post::SpinLock> shared_;
};

}  // namespace heddle::endpoint
