// SPDX-License-Identifier: BSD-2-Clause
// Parts of receives, and their ends: see receives.h.
#include "protocol/tag/receives.h"

#include <rdma/fi_errno.h>

#include <algorithm>

namespace heddle::protocol {

Receives::~Receives() {
    for (Matcher* const matcher : {&tagged, &untagged})
        while (matcher->any_receive() != nullptr) {
        }
}

Receive& Receives::part_of(Receive& whole, std::size_t bytes) {
    if (!(whole.flags & FI_MULTI_RECV)) return whole;
    HEDDLE_ASSERT(!whole.exhausted && whole.used <= whole.bytes);
    Receive& part = pool_.take();
    part.context = whole.context;
    part.flags = whole.flags;
    part.parent = &whole;
    part.iov_count = 1;
    part.bytes = whole.bytes - whole.used;
    part.iov[0] = {static_cast<std::byte*>(whole.iov[0].iov_base) + whole.used, part.bytes};
    whole.used += std::min(bytes, part.bytes);
    ++whole.parts;
    if (whole.bytes - whole.used < min_multi_receive_ || whole.used == whole.bytes) {
        whole.exhausted = true;
        if (whole.queued) matcher(whole.flags & FI_TAGGED).take(whole);
    }
    return part;
}

void Receives::finish(Receive& r, Peer& peer, const MessageInfo& info, const ReceivedBytes& got) {
    HEDDLE_ASSERT(!r.queued && got.taken <= got.bytes);
    std::uint64_t flags = FI_RECV | (r.flags & FI_TAGGED ? FI_TAGGED : FI_MSG);
    if (info.has_data) flags |= FI_REMOTE_CQ_DATA;
    int error = got.error;
    std::size_t overlong = 0;
    if (error == 0 && got.taken < got.bytes) [[unlikely]] {
        error = FI_ETRUNC;
        overlong = got.bytes - got.taken;
    }
    if (r.parent != nullptr) {
        Receive& whole = *r.parent;
        HEDDLE_ASSERT(whole.parts != 0);
        if (--whole.parts == 0 && whole.exhausted) {
            flags |= FI_MULTI_RECV;
            pool_.give_back(whole);
        }
    }
    if (CompletionEntry* const report = entry(r, flags, error)) {
        report->context = r.context;
        report->flags = flags;
        report->bytes = got.taken;
        report->buffer = got.buffer;
        report->data = info.has_data ? info.data : 0;
        report->tag = info.tag;
        report->source = core_.peers.address_of(peer);
        report->error = error;
        report->device_error = got.device_error;
        report->overlong = overlong;
    }
    pool_.give_back(r);
}

void Receives::end_unmatched(Receive& r, int error) {
    HEDDLE_ASSERT(!r.queued);
    CompletionEntry report;
    report.context = r.context;
    report.flags = FI_RECV | (r.flags & FI_TAGGED ? FI_TAGGED : FI_MSG);
    if (r.flags & FI_MULTI_RECV) report.flags |= FI_MULTI_RECV;
    report.tag = r.tag;
    report.error = error;
    r.exhausted = true;
    if (CompletionEntry* const slot = entry(r, report.flags, report.error)) *slot = report;
    if (r.parts == 0) pool_.give_back(r);
}

// Counts the end of a receive. Returns the entry that the caller fills in whole, or nullptr.
CompletionEntry* Receives::entry(const Receive& r, std::uint64_t flags, int error) {
    const Bindings& bindings = core_.bindings;
    if (bindings.receive_counter != nullptr) bindings.receive_counter->add(error == 0);
    if (bindings.receive == nullptr) return nullptr;
    if (r.flags & FI_COMPLETION || error != 0 || flags & FI_MULTI_RECV) [[likely]]
        return &bindings.receive->push_unset();
    return nullptr;
}

}  // namespace heddle::protocol
