// SPDX-License-Identifier: BSD-2-Clause
// Control messages, reports, and peers that cannot be believed: see core_services.h.
#include "protocol/core/core_services.h"

#include <rdma/fi_errno.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "protocol/wire/message_writer.h"
#include "protocol/wireup/connector_report.h"
#include "verbs/memlock.h"

namespace heddle::protocol {

void CoreServices::control(Peer& peer, Kind kind, std::span<const std::byte> contents,
                           std::span<const std::byte> more, std::uint64_t tag) {
    if (peer.failed != 0) return;  // nobody is there to hear it
    const Header header{kind, 0, name.endpoint, peer.name.endpoint, 0, tag};
    const std::size_t bytes = sizeof header + contents.size() + more.size();
    if (can_send(peer) && bytes <= kMostControlBytes) {
        std::byte room[kMostControlBytes];
        MessageWriter message(room, header);
        if (send_control(peer, message.add_bytes(contents).add_bytes(more).written())) return;
    }
    std::vector<std::byte> message(bytes);
    MessageWriter(message, header).add_bytes(contents).add_bytes(more);
    control_message(peer, std::move(message));
}

void CoreServices::control_credit(Peer& peer, const CreditBody& credit) {
    if (peer.failed != 0) return;
    const Header header{Kind::kCredit, 0, name.endpoint, peer.name.endpoint, 0, 0};
    std::vector<std::byte> bytes(sizeof header + sizeof credit);
    MessageWriter(bytes, header).add(credit);
    control_message_first(peer, std::move(bytes));
}

void CoreServices::note_unregistered(std::size_t bytes) {
    ++counts.unregistered;
    static std::atomic_flag said;
    if (said.test_and_set(std::memory_order_relaxed)) return;
    const std::string hint = verbs::memlock_hint(ENOMEM);
    tell_user(options.complain,
              std::to_string(bytes) +
                  " bytes cannot be registered, and are copied, which is slower; so is whatever "
                  "cannot be from now on" +
                  (hint.empty() ? "" : ". " + hint));
}

bool copy_instead(CoreServices& core, LocalBuffers& buffers, const iovec* iov, std::size_t count,
                  std::size_t bytes) {
    if (errno != ENOMEM) return false;
    core.note_unregistered(bytes);
    buffers.use_unregistered(iov, count, bytes);
    return true;
}

void CoreServices::protocol_error(Peer& peer) {
    ++counts.protocol_errors;
    // What comes of a peer that has failed may be the rest of a message, and no reason of its own.
    refuse(peer, peer.failed != 0 ? peer.failed : EPROTO);
}

void CoreServices::entry(std::uint8_t what, bool read, void* context, std::uint64_t extra,
                         int error, int device_error, Counter* counter) {
    if (closing) return;
    if (counter != nullptr) counter->add(error == 0);
    if (!(what & WrContext::kEntry) || bindings.transmit == nullptr) return;
    CompletionEntry& done = bindings.transmit->push();
    done.context = context;
    if (extra & FI_ATOMIC)
        done.flags = FI_ATOMIC | (read ? FI_READ : FI_WRITE);
    else if (what & WrContext::kRma)
        done.flags = FI_RMA | (read ? FI_READ : FI_WRITE);
    else
        done.flags = FI_SEND | (what & WrContext::kTagged ? FI_TAGGED : FI_MSG);
    done.error = error;
    done.device_error = device_error;
}

}  // namespace heddle::protocol
