// SPDX-License-Identifier: BSD-2-Clause
// The receives of an endpoint: those that are posted, with and without tags, and the reports of
// their ends. Threads: the endpoint's.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>

#include "protocol/common/slot_pool.h"
#include "protocol/core/core_services.h"
#include "protocol/tag/matcher.h"
#include "protocol/tag/receive.h"

namespace heddle::protocol {

// How a message has come into its receive.
struct ReceivedBytes {
    void* buffer = nullptr;
    std::size_t bytes = 0;  // the message's
    std::size_t taken = 0;  // those that fit
    int error = 0;          // an FI_E... number
    int device_error = 0;
};

class Receives {
public:
    explicit Receives(CoreServices& core) noexcept : core_(core) {}  // kept
    ~Receives();
    Receives(const Receives&) = delete;
    Receives& operator=(const Receives&) = delete;

    Matcher tagged, untagged;
    Matcher& matcher(bool is_tagged) noexcept { return is_tagged ? tagged : untagged; }
    std::size_t queued() const noexcept { return tagged.receives() + untagged.receives(); }

    [[gnu::always_inline]] Receive& take(const ReceiveArguments& a) {
        Receive& r = pool_.take();
        r.context = a.context;
        r.flags = a.flags;
        r.iov_count = a.iov_count;
        for (std::size_t i = 0; i < a.iov_count; ++i) {
            r.iov[i] = a.iov[i];
            r.bytes += a.iov[i].iov_len;
        }
        return r;
    }
    // One of one buffer, for one message with a tag, that wants a report.
    [[gnu::always_inline]] Receive& take_plain(void* buffer, std::size_t bytes, void* context) {
        Receive& r = pool_.take();
        r.context = context;
        r.flags = FI_TAGGED | FI_COMPLETION;
        r.iov_count = 1;
        r.iov[0] = {buffer, bytes};
        r.bytes = bytes;
        r.plain_room = static_cast<std::int64_t>(bytes);
        return r;
    }
    void give_back(Receive& receive) noexcept { pool_.give_back(receive); }

    // What a message of that size goes into: the receive itself, or a part of one for many
    // messages.
    Receive& part_of(Receive& whole, std::size_t bytes);
    // A message is in its receive, as far as it fits, or has failed.
    void finish(Receive& receive, Peer& peer, const MessageInfo& info, const ReceivedBytes& got);
    // Ends a receive that is not queued any more and has taken no message.
    void end_unmatched(Receive& receive, int error);
    // FI_OPT_MIN_MULTI_RECV: a receive for many messages with less room than that is at its end.
    void set_min_multi_receive(std::size_t bytes) noexcept { min_multi_receive_ = bytes; }

private:
    CompletionEntry* entry(const Receive& receive, std::uint64_t flags, int error);

    CoreServices& core_;
    SlotPool<Receive> pool_;
    std::size_t min_multi_receive_ = 64;
};

}  // namespace heddle::protocol
