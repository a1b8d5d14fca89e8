// SPDX-License-Identifier: BSD-2-Clause
// Owns the queues of a set's endpoints. The direct path has one queue for each QP and CQ, however
// many endpoints share it. With the verbs path each endpoint has queues of its own, since each has
// its own list of requests.
#pragma once

#include <infiniband/verbs.h>

#include <map>
#include <memory>
#include <vector>

#include "heddle/endpoint.h"

namespace heddle::endpoint {

class QueueStore {
public:
    // locked: several threads may use an endpoint at once.
    QueueStore(const EndpointOptions& options, bool locked) : options_(options), locked_(locked) {}

    // Returns the queues of an endpoint with these QPs and this CQ. extended: the same CQ, if only
    // one thread polls it, else nullptr. Throws VerbsError if the device does not support the path.
    post::AnyQueues of(const std::vector<ibv_qp*>& qps, ibv_cq* cq, ibv_cq_ex* extended);

private:
    template <class Lock>
    struct DirectQueueSet {
        struct Pair {
            std::unique_ptr<post::Mlx5SendQueue<Lock>> send;
            std::unique_ptr<post::Mlx5ReceiveQueue<Lock>> receive;
        };
        std::map<ibv_cq*, std::unique_ptr<post::Mlx5CompletionQueue<Lock>>> completions;
        std::map<ibv_qp*, Pair> pairs;
    };
    template <class Lock>
    post::AnyQueues direct(DirectQueueSet<Lock>& store, const std::vector<ibv_qp*>& qps,
                           ibv_cq* cq);
    post::AnyQueues verbs(const std::vector<ibv_qp*>& qps, ibv_cq* cq, ibv_cq_ex* extended);

    EndpointOptions options_;
    bool locked_;
    std::vector<std::unique_ptr<post::VerbsSendQueue<post::SingleThreaded>>> sends_;
    std::vector<std::unique_ptr<post::VerbsReceiveQueue>> receives_;
    std::vector<std::unique_ptr<post::VerbsCompletionQueue>> completions_;
    DirectQueueSet<post::SingleThreaded> free_;
    DirectQueueSet<post::SpinLock> shared_;
};

}  // namespace heddle::endpoint
