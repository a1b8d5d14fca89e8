// SPDX-License-Identifier: BSD-2-Clause
#include "endpoint/queue_store.h"

#include "heddle/detail/assert.h"

namespace heddle::endpoint {

post::AnyQueues QueueStore::of(const std::vector<ibv_qp*>& qps, ibv_cq* cq, ibv_cq_ex* extended) {
    HEDDLE_ASSERT(!qps.empty() && cq != nullptr);
    if (options_.path == Path::kVerbs) return verbs(qps, cq, extended);
    return locked_ ? direct(shared_, qps, cq) : direct(free_, qps, cq);
}

post::AnyQueues QueueStore::verbs(const std::vector<ibv_qp*>& qps, ibv_cq* cq,
                                  ibv_cq_ex* extended) {
    post::VerbsQueues queues;
    for (ibv_qp* const qp : qps) {
        sends_.push_back(
            std::make_unique<post::VerbsSendQueue<post::SingleThreaded>>(qp, options_.post_list));
        receives_.push_back(std::make_unique<post::VerbsReceiveQueue>(qp));
        queues.add(*sends_.back(), receives_.back().get());
    }
    completions_.push_back(extended != nullptr
                               ? std::make_unique<post::VerbsCompletionQueue>(extended)
                               : std::make_unique<post::VerbsCompletionQueue>(cq));
    queues.set_completions(*completions_.back());
    return queues;
}

template <class Lock>
post::AnyQueues QueueStore::direct(DirectQueueSet<Lock>& store, const std::vector<ibv_qp*>& qps,
                                   ibv_cq* cq) {
    auto& completions = store.completions[cq];
    if (!completions) completions = std::make_unique<post::Mlx5CompletionQueue<Lock>>(cq);
    post::DirectQueues<Lock> queues;
    for (ibv_qp* const qp : qps) {
        auto& pair = store.pairs[qp];
        if (!pair.send) {
            // If the driver gave the QP no lock, it gave the register to this QP alone.
            pair.send = std::make_unique<post::Mlx5SendQueue<Lock>>(qp, false, options_.max_inline,
                                                                    locked_, options_.depth);
            completions->add(*pair.send);
            if (options_.receive_depth != 0) {
                pair.receive = std::make_unique<post::Mlx5ReceiveQueue<Lock>>(qp);
                completions->add(*pair.receive);
            }
        }
        HEDDLE_ASSERT(pair.send->qpn() == qp->qp_num, "a QP has one send queue");
        queues.add(*pair.send, pair.receive.get());
    }
    queues.set_completions(*completions);
    return queues;
}

}  // namespace heddle::endpoint
