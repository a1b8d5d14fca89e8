// SPDX-License-Identifier: BSD-2-Clause
// Reads completions. A read that finds none makes all endpoints of the domain progress: a program
// may poll one CQ only while peers wait for an endpoint with another CQ.
#include "provider/cq.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>

#include "heddle/detail/assert.h"
#include "protocol/receive_fast_path.h"
#include "provider/cq_strings.h"
#include "provider/guarded.h"
#include "provider/host.h"
#include "provider/unsupported.h"
#include "verbs/memlock.h"

namespace heddle::provider {
namespace {

using protocol::CompletionEntry;

// A read handles at most as many completions as it can return; the next read handles the rest.
constexpr std::size_t kMostAtOnce = 1024;

void give(fi_cq_entry& out, const CompletionEntry& in) noexcept { out.op_context = in.context; }
void give(fi_cq_msg_entry& out, const CompletionEntry& in) noexcept {
    out = {in.context, in.flags, in.bytes};
}
void give(fi_cq_data_entry& out, const CompletionEntry& in) noexcept {
    out = {in.context, in.flags, in.bytes, in.buffer, in.data};
}
void give(fi_cq_tagged_entry& out, const CompletionEntry& in) noexcept {
    out = {in.context, in.flags, in.bytes, in.buffer, in.data, in.tag};
}

// PlainEntry has the layout of fi_cq_tagged_entry.
static_assert(sizeof(protocol::PlainEntry) == sizeof(fi_cq_tagged_entry) &&
              offsetof(protocol::PlainEntry, context) == offsetof(fi_cq_tagged_entry, op_context) &&
              offsetof(protocol::PlainEntry, flags) == offsetof(fi_cq_tagged_entry, flags) &&
              offsetof(protocol::PlainEntry, bytes) == offsetof(fi_cq_tagged_entry, len) &&
              offsetof(protocol::PlainEntry, buffer) == offsetof(fi_cq_tagged_entry, buf) &&
              offsetof(protocol::PlainEntry, data) == offsetof(fi_cq_tagged_entry, data) &&
              offsetof(protocol::PlainEntry, tag) == offsetof(fi_cq_tagged_entry, tag));

// Entries that wait already, up to the first of an error. Returns how many.
template <class Entry>
[[gnu::always_inline]] inline std::size_t read_waiting(protocol::Completions& ring, Entry* to,
                                                       std::size_t count,
                                                       fi_addr_t* sources) noexcept {
    std::size_t got = 0;
    for (; got < count && !ring.empty(); ++got) {
        const CompletionEntry& entry = ring.front();
        if (entry.error != 0) [[unlikely]]
            break;
        give(to[got], entry);
        if (sources != nullptr) sources[got] = entry.source;
        ring.pop();
    }
    return got;
}

// Takes entries; the caller holds the guard. -FI_EAVAIL: the program must read an error entry
// first.
template <class Entry>
ssize_t take(CompletionQueue& cq, void* buffer, std::size_t count, fi_addr_t* sources) {
    protocol::Completions& ring = cq.ring;
    auto* out = static_cast<Entry*>(buffer);
    std::size_t got = 0;
    HEDDLE_DEBUG_ASSERT(cq.reads_until_progress <= CompletionQueue::kReadsWithoutProgress);
    if (cq.reads_until_progress != 0) --cq.reads_until_progress;  // read_messages() has, too
    if (ring.empty() || count == 0 || cq.reads_until_progress == 0) {
        cq.reads_until_progress = CompletionQueue::kReadsWithoutProgress;
        const auto most =
            static_cast<unsigned>(count != 0 ? std::min(count, kMostAtOnce) : kMostAtOnce);
        if (std::is_same_v<Entry, fi_cq_tagged_entry> && sources == nullptr && ring.empty())
            got = ring.read_while(static_cast<protocol::PlainEntry*>(buffer), count,
                                  [&] { cq.domain.progress(most); });
        else
            cq.domain.progress(most);
        if (ring.empty()) return got != 0 ? static_cast<ssize_t>(got) : -FI_EAGAIN;
    }
    got += read_waiting(ring, out + got, count - got, sources != nullptr ? sources + got : nullptr);
    if (got == 0 && count != 0) return -FI_EAVAIL;
    HEDDLE_DEBUG_ASSERT(got <= count, "more entries than the program has room for");
    return static_cast<ssize_t>(got);
}

// Never sleeps, but yields the processor after many empty polls while an operation waits for a
// peer.
template <class Entry>
ssize_t take_or_yield(CompletionQueue& cq, void* buffer, std::size_t count, fi_addr_t* sources) {
    bool yield = false;
    ssize_t got;
    {
        Guard guard(cq.domain);
        got = take<Entry>(cq, buffer, count, sources);
        if (got != -FI_EAGAIN)
            cq.backoff.reset();
        else if (cq.backoff.count_empty_poll()) [[unlikely]]
            yield = cq.domain.waits();
    }
    if (yield) [[unlikely]]
        cq.backoff.yield();
    return got;
}

// Messages are read without other progress, as many as there is room for. Returns how many entries
// there are, or -FI_EAGAIN: the messages have no receives yet; or 0: nothing was done. A message
// without a receive ends it where the program has an entry to read: it may post that receive next,
// so the message is left where it is. Else it is kept, and others are behind it.
template <class Next>
[[gnu::always_inline]] inline ssize_t read_while_plain(std::size_t count, const Next& next) {
    using protocol::ReadNext;
    constexpr unsigned kMostKept = 64;
    std::size_t got = 0;
    for (unsigned kept = 0;;) {
        ReadNext read = ReadNext::kNothing;
        while (got != count && (read = next(got, got == 0)) == ReadNext::kEntry)
            ++got;
        if (got != 0) [[likely]]
            return static_cast<ssize_t>(got);
        if (read != ReadNext::kKept) return kept != 0 ? -FI_EAGAIN : 0;
        if (++kept == kMostKept) return -FI_EAGAIN;
    }
}

[[gnu::noinline]] void yield_if_waits(CompletionQueue& cq) {
    if (cq.domain.waits()) cq.backoff.yield();
}

// There is nothing that progress would find.
[[gnu::always_inline]] inline ssize_t find_nothing(CompletionQueue& cq) {
    if (cq.backoff.count_empty_poll()) [[unlikely]]
        yield_if_waits(cq);
    return -FI_EAGAIN;
}

// What read_messages() left: messages that came in the completion queue entry itself (RC mode).
[[gnu::noinline]] ssize_t read_inlined_messages(CompletionQueue& cq, protocol::EndpointImpl& body,
                                                protocol::PlainEntry* to, std::size_t count) {
    if (body.bindings.receive != &cq.ring || !cq.ring.empty()) return 0;
    return read_while_plain(count, [&](std::size_t at, bool may_keep) {
        return body.read_next_inlined(to[at], may_keep);
    });
}

// Messages in shared memory, likewise. -FI_EAGAIN, too, if there is nothing else that progress
// would find.
[[gnu::noinline, gnu::flatten]] ssize_t read_messages_by_shm(CompletionQueue& cq,
                                                             protocol::EndpointImpl& body,
                                                             protocol::PlainEntry* to,
                                                             std::size_t count) {
    if (body.bindings.receive != &cq.ring || !cq.ring.empty()) return 0;
    bool is_quiet = false;
    const ssize_t got = read_while_plain(count, [&](std::size_t at, bool may_keep) {
        return body.read_next_by_shm(to[at], may_keep, is_quiet);
    });
    if (got > 0) cq.backoff.reset();
    return got != 0 || !is_quiet ? got : find_nothing(cq);
}

// Progress of the only endpoint, by a thread that takes no lock. 0: there is an error to read.
ssize_t read_after_progress(CompletionQueue& cq, protocol::EndpointImpl& body,
                            protocol::PlainEntry* to, std::size_t count) {
    const auto most = static_cast<unsigned>(std::min(count, kMostAtOnce));
    std::size_t got = cq.ring.read_while(to, count, [&] { body.progress(most); });
    if (got == 0 && cq.ring.empty()) return find_nothing(cq);
    got += read_waiting(cq.ring, reinterpret_cast<fi_cq_tagged_entry*>(to) + got, count - got,
                        nullptr);
    cq.backoff.reset();
    return static_cast<ssize_t>(got);
}

template <class Entry>
[[gnu::noinline]] ssize_t read_any(CompletionQueue& cq, void* buffer, std::size_t count) {
    if constexpr (std::is_same_v<Entry, fi_cq_tagged_entry>) {
        protocol::EndpointImpl* const body = cq.domain.reads_next;
        if (body != nullptr && cq.reads_until_progress != 0 && count != 0) {
            auto* const to = static_cast<protocol::PlainEntry*>(buffer);
            ssize_t got = 0;
            if (!body->channel->xrc()) got = read_inlined_messages(cq, *body, to, count);
            if (got == 0 && body->local.is_active())
                got = read_messages_by_shm(cq, *body, to, count);
            if (got == 0 && cq.ring.empty() && cq.domain.sleepers->armed == 0)
                got = read_after_progress(cq, *body, to, count);
            if (got != 0) return got;
        }
    }
    return take_or_yield<Entry>(cq, buffer, count, nullptr);
}

// Reads entries that wait, or messages from the device's CQ, without any other progress
// (EndpointImpl::read_next).
ssize_t read_messages(CompletionQueue& cq, fi_cq_tagged_entry* entries, std::size_t count) {
    protocol::EndpointImpl* const body = cq.domain.reads_next;
    if (body == nullptr || --cq.reads_until_progress == 0) return 0;
    HEDDLE_DEBUG_ASSERT(cq.domain.lock == nullptr, "this path takes no lock");
    if (!cq.ring.empty()) [[unlikely]]
        return static_cast<ssize_t>(read_waiting(cq.ring, entries, count, nullptr));
    auto* const to = reinterpret_cast<protocol::PlainEntry*>(entries);
    ssize_t got = 0;
    if (body->bindings.receive == &cq.ring) [[likely]]
        got = read_while_plain(count, [&](std::size_t at, bool may_keep) {
            return body->read_next(to[at], may_keep);
        });
    if (got != 0) [[likely]]
        return got;
    if (!body->is_quiet()) return 0;
    // Progress would find nothing, so these reads count an eighth until there is some.
    if (++cq.quiet_reads % 8 != 0) ++cq.reads_until_progress;
    return find_nothing(cq);
}

template <class Entry>
[[gnu::flatten]] ssize_t read_cq(fid_cq* handle, void* buffer, std::size_t count) {
    auto& cq = static_cast<CompletionQueue&>(*handle);
    return guarded("fi_cq_read", [&]() -> ssize_t {
        if constexpr (std::is_same_v<Entry, fi_cq_tagged_entry>) {
            const ssize_t got = read_messages(cq, static_cast<Entry*>(buffer), count);
            if (got != 0) [[likely]]
                return got;
        }
        return read_any<Entry>(cq, buffer, count);
    });
}

template <class Entry>
ssize_t read_from(fid_cq* handle, void* buffer, std::size_t count, fi_addr_t* sources) {
    auto& cq = static_cast<CompletionQueue&>(*handle);
    return guarded("fi_cq_readfrom",
                   [&]() -> ssize_t { return take_or_yield<Entry>(cq, buffer, count, sources); });
}

template <class Entry>
ssize_t sleep_and_read_from(fid_cq* handle, void* buffer, std::size_t count, fi_addr_t* sources,
                            const void* condition, int timeout) {
    auto& cq = static_cast<CompletionQueue&>(*handle);
    if (!cq.sleeper.possible()) return -FI_EINVAL;
    return guarded("fi_cq_sread", [&]() -> ssize_t {
        // The number of entries for which the thread wakes.
        const std::size_t least =
            cq.threshold ? std::min(reinterpret_cast<std::size_t>(condition), count) : 0;
        const Deadline deadline(timeout);
        for (;;) {
            const int left = deadline.left_ms();
            {
                Guard guard(cq.domain);
                if (cq.ring.size() < least) cq.domain.progress();
                if (cq.ring.size() >= least || left == 0) {
                    const ssize_t got = take<Entry>(cq, buffer, count, sources);
                    if (got != -FI_EAGAIN || left == 0) return got;
                } else if (!cq.ring.empty() && cq.ring.front().error != 0) {
                    return -FI_EAVAIL;
                }
                if (cq.signalled.exchange(false)) return -FI_EAGAIN;
                if (!cq.sleeper.prepare()) continue;
                HEDDLE_ASSERT(left != 0 && cq.sleeper.possible());
                cq.sleeper.enter();
            }
            wait_readable(cq.sleeper.fd(), left);
            Guard guard(cq.domain);
            cq.sleeper.leave();
        }
    });
}

template <class Entry>
ssize_t sleep_and_read(fid_cq* handle, void* buffer, std::size_t count, const void* condition,
                       int timeout) {
    return sleep_and_read_from<Entry>(handle, buffer, count, nullptr, condition, timeout);
}

// The member that libfabric 1.20 added behind fi_cq_err_entry.
struct ErrorEntryWithSource : fi_cq_err_entry {
    fi_addr_t source;
};

ssize_t read_error(fid_cq* handle, fi_cq_err_entry* out, std::uint64_t) {
    auto& cq = static_cast<CompletionQueue&>(*handle);
    return guarded("fi_cq_readerr", [&]() -> ssize_t {
        Guard guard(cq.domain);
        if (cq.ring.empty()) cq.domain.progress();
        if (cq.ring.empty() || cq.ring.front().error == 0) return -FI_EAGAIN;
        const CompletionEntry& entry = cq.ring.front();
        HEDDLE_ASSERT(entry.error > 0, "errors are positive numbers of fi_errno(3)");
        out->op_context = entry.context;
        out->flags = entry.flags;
        out->len = entry.bytes;
        out->buf = entry.buffer;
        out->data = entry.data;
        out->tag = entry.tag;
        out->olen = entry.overlong;
        out->err = entry.error;
        out->prov_errno = entry.device_error;
        out->err_data = nullptr;
        if (entry.error == FI_ENOMEM)
            complain_of_memlock(
                "the memory of an operation could not be registered, here or at its peer; %s",
                verbs::memlock_hint(ENOMEM, "register less at once").c_str());
        if (cq.errors_have_size) out->err_data_size = 0;
        if (cq.errors_have_source) static_cast<ErrorEntryWithSource*>(out)->source = entry.source;
        cq.ring.pop();
        return 1;
    });
}

int signal(fid_cq* handle) {
    auto& cq = static_cast<CompletionQueue&>(*handle);
    if (!cq.sleeper.possible()) return -FI_EINVAL;
    cq.signalled.store(true);
    cq.sleeper.wake();
    return 0;
}

int close_cq(fid* handle) {
    auto& cq = object<CompletionQueue>(handle);
    HEDDLE_ASSERT(cq.fid.fclass == FI_CLASS_CQ);
    if (cq.refs.any()) return -FI_EBUSY;
    return guarded("fi_close of a CQ", [&] {
        Domain& domain = cq.domain;
        Guard guard(domain);
        delete &cq;
        return 0;
    });
}

int control_cq(fid* handle, int command, void* argument) {
    return object<CompletionQueue>(handle).sleeper.control(command, argument);
}

fi_ops cq_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_cq,
    .bind = unsupported,
    .control = control_cq,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
template <class Entry>
fi_ops_cq cq_ops = {
    .size = sizeof(fi_ops_cq),
    .read = read_cq<Entry>,
    .readfrom = read_from<Entry>,
    .readerr = read_error,
    .sread = sleep_and_read<Entry>,
    .sreadfrom = sleep_and_read_from<Entry>,
    .signal = signal,
    .strerror = error_text,
};

fi_wait_obj wait_object(fi_wait_obj asked) noexcept {
    return asked == FI_WAIT_UNSPEC ? FI_WAIT_FD : asked;
}

}  // namespace

CompletionQueue::CompletionQueue(Domain& of, const fi_cq_attr& attributes)
    : fid_cq{},
      domain(of),
      format(attributes.format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attributes.format),
      threshold(attributes.wait_obj != FI_WAIT_NONE &&
                attributes.wait_cond == FI_CQ_COND_THRESHOLD),
      errors_have_size(FI_VERSION_GE(of.fabric.api_version, FI_VERSION(1, 5))),
      errors_have_source(FI_VERSION_GE(of.fabric.api_version, FI_VERSION(1, 20))),
      sleeper(
          of, wait_object(attributes.wait_obj),
          [](const void* owner) noexcept {
              return !static_cast<const CompletionQueue*>(owner)->ring.empty();
          },
          this),
      domain_ref(of.refs) {}

int try_wait(CompletionQueue& cq) {
    if (!cq.sleeper.possible()) return -FI_EINVAL;
    Guard guard(cq.domain);
    if (!cq.ring.empty()) return -FI_EAGAIN;
    cq.domain.progress();
    if (!cq.ring.empty() || !cq.sleeper.prepare()) return -FI_EAGAIN;
    cq.sleeper.watched();
    return 0;
}

int open_completion_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** out,
                          void* context) noexcept {
    return guarded("fi_cq_open", [&] {
        const fi_cq_attr wanted = attributes != nullptr ? *attributes : fi_cq_attr{};
        if ((wanted.flags & ~FI_AFFINITY) != 0) return -FI_EBADFLAGS;
        switch (wanted.wait_obj) {
            case FI_WAIT_NONE:
            case FI_WAIT_UNSPEC:
            case FI_WAIT_FD:
            case FI_WAIT_YIELD:
                break;
            default:
                return -FI_ENOSYS;
        }
        auto& of = static_cast<Domain&>(*domain);
        Guard guard(of);
        auto cq = std::make_unique<CompletionQueue>(of, wanted);
        switch (cq->format) {
            case FI_CQ_FORMAT_CONTEXT:
                cq->ops = &cq_ops<fi_cq_entry>;
                break;
            case FI_CQ_FORMAT_MSG:
                cq->ops = &cq_ops<fi_cq_msg_entry>;
                break;
            case FI_CQ_FORMAT_DATA:
                cq->ops = &cq_ops<fi_cq_data_entry>;
                break;
            case FI_CQ_FORMAT_TAGGED:
                cq->ops = &cq_ops<fi_cq_tagged_entry>;
                break;
            default:
                return -FI_ENOSYS;
        }
        describe(cq->fid, FI_CLASS_CQ, context, cq_fid_ops);
        if (wanted.format == FI_CQ_FORMAT_UNSPEC && attributes != nullptr)
            attributes->format = cq->format;
        *out = cq.release();
        return 0;
    });
}

}  // namespace heddle::provider
