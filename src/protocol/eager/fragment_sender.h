// SPDX-License-Identifier: BSD-2-Clause
// Messages that are longer than a receive buffer and yet not worth a rendezvous: the sender copies
// them in fragments of the eager size, one SEND each. The receiver copies the first while the
// sender copies the second. To a peer on the same host they are copied into shared memory. Longer
// ones go so, too, if their memory cannot be registered. Threads: the endpoint's.
#pragma once

#include <cstddef>
#include <span>

#include "protocol/core/core_services.h"
#include "protocol/core/request_pool.h"
#include "protocol/eager/flow_control.h"

namespace heddle::protocol {

class FragmentSender final : public MessageCopier {
public:
    // Keeps references to all arguments.
    FragmentSender(CoreServices& core, RequestPool& requests, FlowControl& flow) noexcept
        : core_(core), requests_(requests), flow_(flow) {}
    FragmentSender(const FragmentSender&) = delete;
    FragmentSender& operator=(const FragmentSender&) = delete;

    // Posts as many fragments as there is room for. True: all of them, and the request is given
    // back; its end is reported when the last has left. False: the rest goes when it is called
    // again; no other sequenced message may go to that peer before.
    bool start(SendRequest& request) override;
    bool may_copy(const Peer& peer, std::size_t bytes) const noexcept override {
        return flow_.may_send_unregistered(peer, bytes);
    }

private:
    post::Posted post_next(SendRequest& request);
    std::byte* write(const SendRequest& request, std::size_t bytes,
                     std::span<std::byte> room) const noexcept;
    post::Posted put_into_shm(const SendRequest& request, std::size_t bytes, bool is_last);
    post::Posted post_by_buffer(const SendRequest& request, std::size_t bytes, bool is_last);

    CoreServices& core_;
    RequestPool& requests_;
    FlowControl& flow_;
};

}  // namespace heddle::protocol
