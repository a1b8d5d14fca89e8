// SPDX-License-Identifier: BSD-2-Clause
// Bytes between local memory and registered memory of a peer, by RDMA reads or writes: for an RMA
// operation, and for a rendezvous. WRs are posted as there is room for them. The caller's function
// is called once, when the last WR is done or all that were posted before an error are. The memory
// stays registered until the caller releases it. Local memory that is not registered is copied, in
// parts, through the channel's send buffers.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>

#include "heddle/detail/assert.h"
#include "memory/registration_cache.h"
#include "protocol/transport/channel.h"
#include "protocol/transport/domain.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// Local memory with the keys that the device wants: registered, unless the application has a
// registration of its own (FI_MR_LOCAL).
class LocalBuffers {
public:
    LocalBuffers() = default;
    LocalBuffers(const LocalBuffers&) = delete;
    LocalBuffers& operator=(const LocalBuffers&) = delete;
    ~LocalBuffers() { release(); }
    // False: errno says why it could not be registered. The iov is copied. access: IBV_ACCESS_...
    bool use(Domain::Body& domain, const iovec* iov, std::size_t count, void* const* descriptors,
             std::size_t bytes, int access) noexcept;
    // The same with the cache alone: nothing makes room if memory cannot be registered.
    bool use(memory::RegistrationCache& cache, const iovec* iov, std::size_t count,
             void* const* descriptors, std::size_t bytes, int access) noexcept;
    // The same without keys: for what the processor moves or copies.
    void use_unregistered(const iovec* iov, std::size_t count, std::size_t bytes) noexcept;
    bool is_registered() const noexcept { return is_registered_; }
    void release() noexcept;

    std::size_t count = 0;
    std::array<iovec, kMaxSegments> iov{};
    std::array<std::uint32_t, kMaxSegments> local_keys{}, remote_keys{};

private:
    bool is_registered_ = true;
    memory::RegistrationCache* cache_ = nullptr;
    std::array<memory::RegistrationCache::Region*, kMaxSegments> registrations_{};
};

// The memory of a message, at the sender's other rails.
struct RailMemory {
    std::array<LocalBuffers, kOtherRails> at;
};

class Bulk final : public CompletionHandler {
public:
    using Done = void (*)(void* argument, int error, int device_error);

    LocalBuffers local;
    std::array<Segment, kMaxSegments> remote{};
    std::size_t remote_count = 0;

    // `bytes` from `offset`, the same of both memories.
    struct Range {
        std::size_t offset = 0, bytes = 0;
    };
    // srqn: the peer's. opcode: kRead or kWrite. Called once before post(), and again for another
    // range when that of before has ended.
    void begin(Channel& channel, ChannelUser& user, Connection& connection, std::uint32_t srqn,
               post::Opcode opcode, const Range& range, Done done, void* argument) noexcept;
    // It has ended, and may begin anew: nothing of it is left.
    void renew() noexcept {
        HEDDLE_ASSERT(outstanding_ == 0, "the device still has a part of the transfer");
        local.release();
        remote_count = 0;
        posting_ = false;
        done_ = nullptr;
    }
    // Posts what there is room for; false: there is more, call again after a poll. `finished` may
    // be called before it returns.
    bool post() noexcept;
    void done(int error, int device_error) override;

private:
    // A part of a read into memory that is not registered, while the device fills a buffer for it.
    struct CopiedPart final : CompletionHandler {
        Bulk* bulk = nullptr;
        std::byte* buffer = nullptr;  // nullptr: the part is free
        std::byte* to = nullptr;
        std::size_t bytes = 0;
        void done(int error, int device_error) override;
    };
    // At once: more would keep buffers from messages.
    static constexpr std::size_t kCopiedParts = 8;
    using CopiedParts = std::array<CopiedPart, kCopiedParts>;

    post::Posted post_part(std::size_t bytes) noexcept;
    post::Posted copy_part(ibv_sge& sge, WrContext& sent) noexcept;
    void finish_if_all_done();

    Channel* channel_ = nullptr;
    ChannelUser* user_ = nullptr;  // the operation is of this one
    Connection* connection_ = nullptr;
    std::uint32_t srqn_ = 0;
    post::Opcode opcode_ = post::Opcode::kRead;
    std::size_t left_ = 0;  // bytes not yet posted
    std::size_t local_at_ = 0, local_offset_ = 0, remote_at_ = 0, remote_offset_ = 0;
    std::uint32_t outstanding_ = 0;
    bool posting_ = false;
    std::unique_ptr<CopiedParts> copied_;  // once a read needed them
    int error_ = 0, device_error_ = 0;
    Done done_ = nullptr;
    void* argument_ = nullptr;
};

}  // namespace heddle::protocol
