// SPDX-License-Identifier: BSD-2-Clause
// Poll sets: returns the members that have something to read.
#include "provider/poll.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "heddle/detail/assert.h"
#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/guarded.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

struct Member {
    fid* handle = nullptr;
    std::unique_ptr<Ref> ref;
    std::uint64_t done = 0, failed = 0;  // the counter's values at the last poll
};

struct PollSet : fid_poll {
    using Fid = fid_poll;
    explicit PollSet(Domain& of) : fid_poll{}, domain(of), domain_ref(of.refs) {}
    Domain& domain;
    std::vector<Member> members;
    Ref domain_ref;
};

PollSet& set_of(fid_poll* handle) noexcept { return static_cast<PollSet&>(*handle); }

bool ready(Member& member) noexcept {
    if (member.handle->fclass == FI_CLASS_CQ)
        return !object<CompletionQueue>(member.handle).ring.empty();
    const auto& counter = object<CounterObject>(member.handle);
    const bool changed = counter.done() != member.done || counter.failed() != member.failed;
    member.done = counter.done();
    member.failed = counter.failed();
    return changed;
}

int poll(fid_poll* handle, void** contexts, int count) {
    auto& set = set_of(handle);
    return guarded("fi_poll", [&] {
        Guard guard(set.domain);
        set.domain.progress();
        int found = 0;
        for (Member& member : set.members) {
            if (found == count) break;
            if (ready(member)) contexts[found++] = member.handle->context;
        }
        HEDDLE_ASSERT(found >= 0 && found <= std::max(count, 0));
        return found;
    });
}

int add(fid_poll* handle, fid* member, std::uint64_t flags) {
    auto& set = set_of(handle);
    if (flags != 0) return -FI_EBADFLAGS;
    return guarded("fi_poll_add", [&] {
        Domain* domain = nullptr;
        RefCount* refs = nullptr;
        if (member->fclass == FI_CLASS_CQ) {
            auto& cq = object<CompletionQueue>(member);
            domain = &cq.domain;
            refs = &cq.refs;
        } else if (member->fclass == FI_CLASS_CNTR) {
            auto& counter = object<CounterObject>(member);
            domain = &counter.domain;
            refs = &counter.refs;
        }
        if (domain != &set.domain) return -FI_EINVAL;
        HEDDLE_ASSERT(refs != nullptr);
        Guard guard(set.domain);
        Member added;
        added.handle = member;
        added.ref = std::make_unique<Ref>(*refs);
        set.members.push_back(std::move(added));
        return 0;
    });
}

int remove(fid_poll* handle, fid* member, std::uint64_t flags) {
    auto& set = set_of(handle);
    if (flags != 0) return -FI_EBADFLAGS;
    return guarded("fi_poll_del", [&] {
        Guard guard(set.domain);
        const auto removed =
            std::erase_if(set.members, [&](const Member& m) { return m.handle == member; });
        return removed != 0 ? 0 : -FI_EINVAL;
    });
}

int close_set(fid* handle) {
    delete &object<PollSet>(handle);
    return 0;
}

fi_ops poll_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_set,
    .bind = unsupported,
    .control = unsupported,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
fi_ops_poll poll_ops = {
    .size = sizeof(fi_ops_poll),
    .poll = poll,
    .poll_add = add,
    .poll_del = remove,
};

}  // namespace

int open_poll_set(fid_domain* domain, fi_poll_attr* attributes, fid_poll** out) noexcept {
    return guarded("fi_poll_open", [&] {
        if (attributes != nullptr && attributes->flags != 0) return -FI_EBADFLAGS;
        auto set = std::make_unique<PollSet>(static_cast<Domain&>(*domain));
        set->ops = &poll_ops;
        describe(set->fid, FI_CLASS_POLL, nullptr, poll_fid_ops);
        *out = set.release();
        return 0;
    });
}

}  // namespace heddle::provider
