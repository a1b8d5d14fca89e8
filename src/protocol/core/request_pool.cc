// SPDX-License-Identifier: BSD-2-Clause
// The requests of an endpoint that are open: see request_pool.h.
#include "protocol/core/request_pool.h"

#include "common/copy.h"
#include "heddle/detail/assert.h"
#include "protocol/common/iov.h"

namespace heddle::protocol {

SendRequest& RequestPool::take(Peer& peer, RequestOwner& owner) {
    ++open_;
    SendRequest& request = requests_.take();
    request.pool = this;
    request.owner = &owner;
    request.peer = &peer;
    return request;
}

void RequestPool::start(SendRequest& request) {
    Peer& peer = *request.peer;
    if (!CoreServices::can_send(peer) || !request.owner->start(request))
        core_.wait(peer, of_pool(request));
}

void RequestPool::end(SendRequest& request) noexcept {
    HEDDLE_ASSERT(open_ != 0 && request.pool == this);
    --open_;
    requests_.give_back(request);
}

void RequestPool::finish(SendRequest& request, int error, int device_error) {
    request.reply.reset();
    request.bulk.local.release();
    request.rail_memory.reset();
    std::uint8_t what = request.report.what;
    if (error != 0 && !request.report.is_done) what |= WrContext::kEntry;
    core_.entry(what, request.report.read, request.report.context, request.flags, error,
                device_error, request.report.counter);
    end(request);
}

SendRequest* RequestPool::find_awaiting(std::uint64_t id, const Peer& peer) const noexcept {
    SendRequest* const request = requests_.find(id);
    const bool awaits =
        request != nullptr && request->peer == &peer && request->step == SendRequest::Step::kAnswer;
    HEDDLE_DEBUG_ASSERT(!awaits || request->reply.is_open());
    return awaits ? request : nullptr;
}

ZcopyRequest& RequestPool::take_zcopy(std::uint8_t what, void* context, Counter* counter) {
    ZcopyRequest& request = zcopy_requests_.take();
    request.pool = this;
    request.what = what;
    request.context = context;
    request.counter = counter;
    return request;
}

void ZcopyRequest::done(int error, int device_error) {
    CoreServices& core = pool->core_;
    if (reused != nullptr) {
        HEDDLE_ASSERT(reused->in_flight != 0, "a buffer in use was counted down twice");
        --reused->in_flight;
    }
    if (copy_from != nullptr) {
        if (error == 0) common::copy_payload(copy_to, copy_from, bytes);
        pool->send_buffers_.give_back(copy_from);
    }
    const ZcopyRequest ended = *this;
    pool->give_back(*this);
    // An error is reported even if success would not have been.
    const std::uint8_t wanted = error != 0 ? ended.what | WrContext::kEntry : ended.what;
    core.entry(wanted, ended.read, ended.context, 0, error, device_error, ended.counter);
}

void SendRequest::set_buffers(const iovec* buffers, std::size_t count,
                              void* const* its_descriptors) noexcept {
    HEDDLE_ASSERT(count <= iov.size(), "the caller has looked at the number of buffers");
    iov_count = count;
    for (std::size_t i = 0; i < count; ++i) {
        iov[i] = buffers[i];
        descriptors[i] = its_descriptors != nullptr ? its_descriptors[i] : nullptr;
    }
}

void SendRequest::copy_buffers() {
    HEDDLE_ASSERT(copy.empty(), "the buffers of a request are copied once");
    copy.resize(bytes);
    const std::byte* const end = gather({iov.data(), iov_count}, 0, copy);
    HEDDLE_ASSERT(end == copy.data() + bytes, "the buffers have the bytes of the request");
    iov[0] = {copy.data(), bytes};
    descriptors[0] = nullptr;  // it is of the application's memory
    iov_count = 1;
}

bool SendRequest::try_post() {
    switch (step) {
        case Step::kMessage:
        case Step::kRts:
            return owner->start(*this);
        case Step::kBulk:
            return bulk.post();
        case Step::kAnswer:
        case Step::kFin:
        case Step::kHeld:
            return true;
    }
    return true;
}

bool SendRequest::is_sequenced() const noexcept {
    return (step == Step::kMessage && !(flags & FI_RMA)) || step == Step::kRts;
}

void SendRequest::fail(int error) {
    if (step == Step::kBulk)
        bulk.post();  // it sees that the connection has failed, and ends when all WRs have
    else
        pool->finish(*this, error, 0);
}

}  // namespace heddle::protocol
