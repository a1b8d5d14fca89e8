// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/bulk.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "common/copy.h"
#include "heddle/detail/assert.h"
#include "protocol/transport/process.h"

namespace heddle::protocol {

bool LocalBuffers::use(Domain::Body& domain, const iovec* from, std::size_t sges,
                       void* const* descriptors, std::size_t bytes, int access) noexcept {
    if (use(*domain.cache, from, sges, descriptors, bytes, access)) return true;
    if (errno != ENOMEM) return false;
    domain.give_up_held();
    return use(*domain.cache, from, sges, descriptors, bytes, access);
}

bool LocalBuffers::use(memory::RegistrationCache& cache, const iovec* from, std::size_t sges,
                       void* const* descriptors, std::size_t bytes, int access) noexcept {
    HEDDLE_ASSERT(sges == 0 || from != nullptr);
    release();
    is_registered_ = true;
    cache_ = &cache;
    if (sges == 1 && bytes != 0 && (descriptors == nullptr || *descriptors == nullptr)) [[likely]] {
        HEDDLE_ASSERT(bytes <= from->iov_len, "the caller moves no more than its buffer has");
        auto* const region = cache.get(from->iov_base, bytes, access);
        if (region == nullptr) return false;
        iov[0] = {from->iov_base, bytes};
        registrations_[0] = region;
        local_keys[0] = region->local_key();
        remote_keys[0] = region->remote_key();
        count = 1;
        return true;
    }
    for (std::size_t i = 0; i < sges && bytes != 0; ++i) {
        if (from[i].iov_len == 0) continue;
        if (count == kMaxSegments) {
            errno = EINVAL;
            return false;
        }
        iov[count] = from[i];
        iov[count].iov_len = std::min(from[i].iov_len, bytes);
        bytes -= iov[count].iov_len;
        const auto* handle =
            descriptors != nullptr ? static_cast<const fid_mr*>(descriptors[i]) : nullptr;
        if (handle != nullptr) {
            const auto& own = static_cast<const RegionHandle&>(*handle);
            local_keys[count] = own.local_key;
            remote_keys[count] = static_cast<std::uint32_t>(own.key);
        } else {
            auto* const region = cache.get(iov[count].iov_base, iov[count].iov_len, access);
            if (region == nullptr) {
                const int error = errno;
                release();
                errno = error;
                return false;
            }
            registrations_[count] = region;
            local_keys[count] = region->local_key();
            remote_keys[count] = region->remote_key();
        }
        ++count;
    }
    HEDDLE_ASSERT(bytes == 0, "the caller moves no more bytes than its buffers have");
    return true;
}

void LocalBuffers::use_unregistered(const iovec* from, std::size_t sges,
                                    std::size_t bytes) noexcept {
    release();
    is_registered_ = false;
    for (std::size_t i = 0; i < sges && bytes != 0; ++i) {
        HEDDLE_ASSERT(count < kMaxSegments, "messages and receives have no more buffers");
        if (from[i].iov_len == 0) continue;
        iov[count] = {from[i].iov_base, std::min(from[i].iov_len, bytes)};
        remote_keys[count] = 0;
        bytes -= iov[count++].iov_len;
    }
    HEDDLE_ASSERT(bytes == 0, "the caller moves no more bytes than its buffers have");
}

void LocalBuffers::release() noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        if (registrations_[i] == nullptr) continue;
        HEDDLE_ASSERT(cache_ != nullptr, "what is registered has a cache to go back to");
        cache_->put(std::exchange(registrations_[i], nullptr));
    }
    count = 0;
}

namespace {

// The buffer of `count` in which that byte is, and its number there.
template <class SizeOf>
void find_byte(std::size_t byte, std::size_t count, const SizeOf& size_of, std::size_t& at,
               std::size_t& offset) noexcept {
    for (at = 0; at < count && byte >= size_of(at); ++at)
        byte -= size_of(at);
    offset = byte;
}

}  // namespace

void Bulk::begin(Channel& channel, ChannelUser& user, Connection& connection, std::uint32_t srqn,
                 post::Opcode opcode, const Range& range, Done done, void* argument) noexcept {
    HEDDLE_ASSERT(outstanding_ == 0 && done_ == nullptr, "the transfer before has not ended");
    HEDDLE_ASSERT(opcode == post::Opcode::kRead || opcode == post::Opcode::kWrite);
    HEDDLE_ASSERT(done != nullptr && remote_count <= remote.size());
    channel_ = &channel;
    user_ = &user;
    connection_ = &connection;
    srqn_ = srqn;
    opcode_ = opcode;
    left_ = range.bytes;
    local_at_ = local_offset_ = remote_at_ = remote_offset_ = 0;
    if (range.offset != 0) {
        const auto here = [this](std::size_t i) { return local.iov[i].iov_len; };
        const auto there = [this](std::size_t i) { return std::size_t{remote[i].bytes}; };
        find_byte(range.offset, local.count, here, local_at_, local_offset_);
        find_byte(range.offset, remote_count, there, remote_at_, remote_offset_);
    }
    outstanding_ = 0;
    error_ = device_error_ = 0;
    done_ = done;
    argument_ = argument;
}

bool Bulk::post() noexcept {
    posting_ = true;
    while (left_ != 0 && error_ == 0) {
        if (connection_->failed()) {
            error_ = connection_->error();
            break;
        }
        HEDDLE_ASSERT(local_at_ < local.count && remote_at_ < remote_count,
                      "both sides have memory for all bytes");
        const std::size_t here = local.iov[local_at_].iov_len, there = remote[remote_at_].bytes;
        const std::size_t most = local.is_registered() ? channel_->limits().max_message
                                                       : channel_->send_buffers().bytes();
        const std::size_t bytes =
            std::min({here - local_offset_, there - remote_offset_, left_, most});
        if (bytes != 0) {
            const post::Posted posted = post_part(bytes);
            if (posted == post::Posted::kFull) {
                posting_ = false;
                return false;
            }
            if (posted == post::Posted::kInvalid) {
                error_ = EINVAL;
                break;
            }
            ++outstanding_;
        }
        left_ -= bytes;
        local_offset_ += bytes;
        remote_offset_ += bytes;
        if (local_offset_ == here) {
            ++local_at_;
            local_offset_ = 0;
        }
        if (remote_offset_ == there) {
            ++remote_at_;
            remote_offset_ = 0;
        }
    }
    posting_ = false;
    left_ = 0;
    finish_if_all_done();
    return true;
}

post::Posted Bulk::post_part(std::size_t bytes) noexcept {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(local.iov[local_at_].iov_base) + local_offset_,
                static_cast<std::uint32_t>(bytes), local.local_keys[local_at_]};
    post::WorkRequest work;
    work.opcode = opcode_;
    work.sges = {&sge, 1};
    work.remote_address = remote[remote_at_].address + remote_offset_;
    work.remote_key = remote[remote_at_].key;
    work.remote_srq = srqn_;
    WrContext sent;
    sent.user = user_;
    sent.handler = this;
    if (local.is_registered()) [[likely]]
        return channel_->post(*connection_, work, sent);
    if (const post::Posted copied = copy_part(sge, sent); copied != post::Posted::kOk)
        return copied;
    const post::Posted posted = channel_->post(*connection_, work, sent);
    if (posted == post::Posted::kOk) return posted;
    channel_->send_buffers().give_back(reinterpret_cast<const std::byte*>(sge.addr));
    if (sent.handler != this) static_cast<CopiedPart*>(sent.handler)->buffer = nullptr;
    return posted;
}

// Puts a buffer in the place of the program's memory. The channel gives it back after a write.
post::Posted Bulk::copy_part(ibv_sge& sge, WrContext& sent) noexcept {
    if (outstanding_ == kCopiedParts) return post::Posted::kFull;
    memory::Pool& buffers = channel_->send_buffers();
    HEDDLE_DEBUG_ASSERT(sge.length <= buffers.bytes(), "a part fits into a buffer");
    auto* const user = reinterpret_cast<std::byte*>(sge.addr);
    std::byte* buffer = nullptr;
    if (opcode_ == post::Opcode::kRead) {
        if (!copied_) copied_.reset(new (std::nothrow) CopiedParts);
        if (!copied_) return post::Posted::kFull;
        const auto free = std::ranges::find(*copied_, nullptr, &CopiedPart::buffer);
        HEDDLE_ASSERT(free != copied_->end(), "no more are outstanding than there are parts");
        buffer = buffers.take();
        if (buffer == nullptr) return post::Posted::kFull;
        free->bulk = this;
        free->buffer = buffer;
        free->to = user;
        free->bytes = sge.length;
        sent.handler = &*free;
    } else {
        buffer = buffers.take();
        if (buffer == nullptr) return post::Posted::kFull;
        common::copy_payload(buffer, user, sge.length);
        sent.buffer = buffer;
    }
    sge.addr = reinterpret_cast<std::uintptr_t>(buffer);
    sge.lkey = buffers.key();
    return post::Posted::kOk;
}

void Bulk::CopiedPart::done(int error, int device_error) {
    HEDDLE_ASSERT(buffer != nullptr, "a part completed twice");
    if (error == 0) common::copy_payload(to, buffer, bytes);
    bulk->channel_->send_buffers().give_back(buffer);
    buffer = nullptr;
    bulk->done(error, device_error);
}

void Bulk::done(int error, int device_error) {
    HEDDLE_ASSERT(outstanding_ != 0, "a WR completed twice");
    --outstanding_;
    if (error != 0 && error_ == 0) {
        error_ = error;
        device_error_ = device_error;
    }
    finish_if_all_done();
}

void Bulk::finish_if_all_done() {
    // After an error nothing more is posted: what is left counts as done.
    if (outstanding_ != 0 || posting_ || (left_ != 0 && error_ == 0)) return;
    left_ = 0;
    if (done_ == nullptr) return;
    const Done done = done_;
    done_ = nullptr;
    done(argument_, error_, device_error_);
}

}  // namespace heddle::protocol
