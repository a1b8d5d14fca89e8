// SPDX-License-Identifier: BSD-2-Clause
// Messages that are sent at once, with their payload behind the header. Small ones are copied into
// the work queue entry, larger ones into a registered buffer, or they are sent from where the
// application has them (reuse); by a SEND, or into the peer's ring (ring/eager_ring.h). To a peer
// on the same host they are copied into shared memory. Up to eight bytes go by send_fast_path.h.
// Threads: the endpoint's.
#pragma once

#include <rdma/fabric.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "protocol/core/core_services.h"
#include "protocol/core/request_pool.h"
#include "protocol/core/reuse_policy.h"
#include "protocol/eager/flow_control.h"
#include "protocol/ring/rings.h"

namespace heddle::protocol {

// An eager message, taken apart.
struct EagerMessage {
    Header header;
    const iovec* iov;
    std::size_t count, bytes;
    std::uint64_t data;
    bool has_data;
};

// How the end of an eager message is reported.
struct EagerReport {
    WrContext sent;             // by whom and how, once the device has done it; nobody: not at all
    bool may_stay = false;      // its end is not reported while the payload is still needed
    bool may_be_early = false;  // it may be reported as soon as the payload is copied
};

// When a message that is sent has an entry of its end: never, as soon as it is copied (where
// may_report_early()), or when the device has done it.
enum class EntryOfSend { kNone, kWhenCopied, kWhenDone };

class EagerSender {
public:
    // kCopied: the payload is copied, and the end is not reported later.
    enum class Result { kLater, kCopied, kFull, kInvalid };

    // Keeps references to all arguments.
    EagerSender(CoreServices& core, const SendLimits& limits, Rings& rings, ReusePolicy& reuse,
                RequestPool& requests, FlowControl& flow) noexcept
        : core_(core),
          limits_(limits),
          rings_(rings),
          reuse_(reuse),
          requests_(requests),
          flow_(flow) {}

    // Posts the next message to that peer. what: SendArguments, or a SendRequest. kFull: there is
    // no room in the queue, or in the window.
    template <class What>
    Result send(Peer& peer, const What& what, std::size_t bytes, const EagerReport& report) {
        if (!flow_.has_window_for(peer, bytes)) [[unlikely]]
            return Result::kFull;
        return post(peer, message_of(peer, what, bytes), report);
    }

    // The same by a SEND from where the payload stands: reuse said so, and there is window. kLater,
    // kFull or kInvalid.
    Result send_reused(Peer& peer, const SendArguments& what, std::size_t bytes,
                       Reuse::Buffer& reused) noexcept;

private:
    template <class What>
    EagerMessage message_of(const Peer& peer, const What& what, std::size_t bytes) const noexcept {
        const std::uint8_t flags = what.flags & FI_TAGGED ? Header::kTagged : 0;
        return {{Kind::kEager, flags, core_.name.endpoint, peer.name.endpoint,
                 peer.outgoing.send_sequence(), what.tag},
                &what.iov[0],
                what.iov_count,
                bytes,
                what.data,
                (what.flags & FI_REMOTE_CQ_DATA) != 0};
    }
    Result post(Peer& peer, const EagerMessage& out, const EagerReport& report);
    void count(Peer& peer, const EagerMessage& out, SendRing* ring) noexcept;
    Result put_into_shm(Peer& peer, const EagerMessage& out);
    Result post_to_device(Peer& peer, const EagerMessage& out, const EagerReport& report);
    post::Posted post_inline(Peer& peer, const EagerMessage& out, SendRing* ring,
                             const WrContext& sent);
    post::Posted post_copied(Peer& peer, const EagerMessage& out, SendRing* ring,
                             const WrContext& sent);
    post::Posted post_gathered(Peer& peer, const EagerMessage& out, SendRing* ring,
                               const WrContext& sent, Reuse::Buffer& reused);

    CoreServices& core_;
    const SendLimits& limits_;
    Rings& rings_;
    ReusePolicy& reuse_;
    RequestPool& requests_;
    FlowControl& flow_;
};

}  // namespace heddle::protocol
