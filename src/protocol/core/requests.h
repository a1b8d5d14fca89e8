// SPDX-License-Identifier: BSD-2-Clause
// Operations of the application that do not end where they are asked for, besides receives. They
// live in a RequestPool, whose numbers for them travel in messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocol/common/completions.h"
#include "protocol/common/slot_pool.h"
#include "protocol/core/peer.h"
#include "protocol/core/pending_op.h"
#include "protocol/reuse/reuse.h"
#include "protocol/transport/bulk.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// The report to the application at the end of an operation.
struct Report {
    std::uint8_t what = 0;  // WrContext::What
    bool read = false;      // an RMA read, or an atomic that fetches
    bool is_done = false;   // it was made before the message was sent
    void* context = nullptr;
    Counter* counter = nullptr;
};

// Where the values go that an atomic fetches.
struct AtomicResults {
    std::array<iovec, kMaxSegments> iov{};
    std::size_t count = 0;
};

// A message that goes later than its turn: where it belongs among the sequenced messages to its
// peer.
struct LatePlace {
    bool is_late = false;
    std::uint64_t place = 0;  // the number of those that had been sent before it
    std::uint32_t order = 0;  // among those of the same place
};

struct SendRequest;
class RequestPool;

// The part of the endpoint that knows how a request goes.
class RequestOwner {
public:
    // kMessage, kRts: posts it by the way that suits it, or ends it with an error. False: there is
    // no room, and nothing was done.
    virtual bool start(SendRequest& request) = 0;

protected:
    ~RequestOwner() = default;
};

// Sends messages by copies: for those whose memory cannot be registered.
class MessageCopier : public RequestOwner {
public:
    // So much may lie at that peer until a receive takes it.
    virtual bool may_copy(const Peer& peer, std::size_t bytes) const noexcept = 0;

protected:
    ~MessageCopier() = default;
};

// What is new in each SendRequest.
struct SendRequestFields {
    enum class Step : std::uint8_t {
        kMessage,  // not yet sent: its form is chosen when it goes
        kRts,      // the RTS waits for room
        kAnswer,   // a CTS, FIN or atomic reply is to come
        kBulk,     // bytes are moving
        kFin,      // its end is being told
        kHeld,     // a part of the endpoint has it, and ends it
    };
    RequestPool* pool = nullptr;
    RequestOwner* owner = nullptr;
    Peer* peer = nullptr;
    Step step = Step::kMessage;
    std::uint64_t flags = 0;  // of the operation
    Report report;
    std::uint64_t tag = 0, data = 0;
    std::size_t bytes = 0;
    std::size_t iov_count = 0;
    std::uint64_t receive = 0;       // RPUT: the receiver's number
    std::size_t fragments_sent = 0;  // bytes of them (eager/fragment_sender.h)
    // Its fragments lie in shared memory; or the receiver's processor reads it
    // (rndv/by_process.cc).
    bool by_shm = false;
    LatePlace late;
};

// An operation of the application that takes more than one WR, or waits.
struct SendRequest final : PendingOp, SendRequestFields, PoolSlot<SendRequest> {
    // As many as iov_count says.
    std::array<iovec, kMaxSegments> iov{};
    std::array<void*, kMaxSegments> descriptors{};
    std::vector<std::byte> copy;  // what was injected; operands of an atomic
    Bulk bulk;
    std::unique_ptr<RailMemory> rail_memory;
    OutstandingReply reply;  // kAnswer
    AtomicResults results;

    // Called by SlotPool. What other fields count has no meaning, and resetting it would cost each
    // message.
    void renew() noexcept {
        static_cast<SendRequestFields&>(*this) = {};
        copy.clear();
        bulk.renew();
        rail_memory.reset();
        reply.reset();
        results.count = 0;
    }
    // The application's memory. descriptors: nullptr, or one for each buffer.
    void set_buffers(const iovec* buffers, std::size_t count,
                     void* const* its_descriptors) noexcept;
    // Copies `bytes` of it, as the application may use it again at once.
    void copy_buffers();

    bool try_post() override;
    void fail(int error) override;
    bool is_sequenced() const noexcept override;
};

// An operation of one work that moves small data from, or to, where the application has it; or that
// reads into a buffer of ours, to be copied.
struct ZcopyRequest final : CompletionHandler, PoolSlot<ZcopyRequest> {
    RequestPool* pool = nullptr;
    Reuse::Buffer* reused = nullptr;
    std::byte* copy_from = nullptr;  // of the channel's pool
    void* copy_to = nullptr;
    std::size_t bytes = 0;
    std::uint8_t what = 0;
    bool read = false;
    void* context = nullptr;
    Counter* counter = nullptr;

    void done(int error, int device_error) override;
};

}  // namespace heddle::protocol
