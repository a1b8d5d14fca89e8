// SPDX-License-Identifier: BSD-2-Clause
// Event queues: a list under a mutex, and an eventfd that is readable while the list is not empty.
#include "provider/eq.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "heddle/detail/assert.h"
#include "provider/guarded.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

EventQueue& queue_of(fid_eq* handle) noexcept { return static_cast<EventQueue&>(*handle); }

// The caller holds the mutex.
void remove_first(EventQueue& eq) {
    HEDDLE_ASSERT(!eq.events.empty());
    eq.events.pop_front();
    if (eq.events.empty()) clear_event(eq.event.get());
}

ssize_t take(EventQueue& eq, std::uint32_t* kind, void* buffer, std::size_t bytes,
             std::uint64_t flags) {
    const std::scoped_lock lock(eq.mutex);
    if (eq.events.empty()) return -FI_EAGAIN;
    const EventQueue::Event& first = eq.events.front();
    if (first.is_error) return -FI_EAVAIL;
    if (first.entry.size() > bytes) return -FI_ETOOSMALL;
    *kind = first.kind;
    const std::size_t size = first.entry.size();
    std::copy(first.entry.begin(), first.entry.end(), static_cast<std::byte*>(buffer));
    if ((flags & FI_PEEK) == 0) remove_first(eq);
    return static_cast<ssize_t>(size);
}

ssize_t read_eq(fid_eq* handle, std::uint32_t* kind, void* buffer, std::size_t bytes,
                std::uint64_t flags) {
    return guarded("fi_eq_read",
                   [&] { return take(queue_of(handle), kind, buffer, bytes, flags); });
}

ssize_t read_error(fid_eq* handle, fi_eq_err_entry* out, std::uint64_t flags) {
    auto& eq = queue_of(handle);
    return guarded("fi_eq_readerr", [&]() -> ssize_t {
        const std::scoped_lock lock(eq.mutex);
        if (eq.events.empty() || !eq.events.front().is_error) return -FI_EAGAIN;
        *out = eq.events.front().error;
        if ((flags & FI_PEEK) == 0) remove_first(eq);
        return sizeof *out;
    });
}

ssize_t write_eq(fid_eq* handle, std::uint32_t kind, const void* entry, std::size_t bytes,
                 std::uint64_t flags) {
    auto& eq = queue_of(handle);
    if (!eq.writable) return -FI_EINVAL;
    if (flags != 0) return -FI_EBADFLAGS;
    return guarded("fi_eq_write", [&]() -> ssize_t {
        eq.put(kind, entry, bytes);
        return static_cast<ssize_t>(bytes);
    });
}

ssize_t sleep_and_read(fid_eq* handle, std::uint32_t* kind, void* buffer, std::size_t bytes,
                       int timeout, std::uint64_t flags) {
    auto& eq = queue_of(handle);
    if (eq.wait_object == FI_WAIT_NONE) return -FI_EINVAL;
    return guarded("fi_eq_sread", [&]() -> ssize_t {
        const Deadline deadline(timeout);
        for (;;) {
            const int left = deadline.left_ms();
            const ssize_t got = take(eq, kind, buffer, bytes, flags);
            if (got != -FI_EAGAIN || left == 0) return got;
            wait_readable(eq.event.get(), left);
        }
    });
}

const char* error_text(fid_eq*, int error, const void*, char* buffer, std::size_t bytes) {
    const char* text = strerrordesc_np(error);
    if (text == nullptr) text = "unknown";
    if (buffer != nullptr && bytes > 0) std::snprintf(buffer, bytes, "%s", text);
    return text;
}

int close_eq(fid* handle) {
    auto& eq = object<EventQueue>(handle);
    HEDDLE_ASSERT(eq.fid.fclass == FI_CLASS_EQ);
    if (eq.refs.any()) return -FI_EBUSY;
    delete &eq;
    return 0;
}

int control_eq(fid* handle, int command, void* argument) {
    auto& eq = object<EventQueue>(handle);
    switch (command) {
        case FI_GETWAIT:
            if (eq.wait_object != FI_WAIT_FD) return -FI_ENODATA;
            *static_cast<int*>(argument) = eq.event.get();
            return 0;
        case FI_GETWAITOBJ:
            *static_cast<fi_wait_obj*>(argument) = eq.wait_object;
            return 0;
        default:
            return -FI_ENOSYS;
    }
}

fi_ops eq_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_eq,
    .bind = unsupported,
    .control = control_eq,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
fi_ops_eq eq_ops = {
    .size = sizeof(fi_ops_eq),
    .read = read_eq,
    .readerr = read_error,
    .write = write_eq,
    .sread = sleep_and_read,
    .strerror = error_text,
};

}  // namespace

EventQueue::EventQueue(Fabric& fabric, fi_wait_obj kind, bool may_write)
    : fid_eq{},
      wait_object(kind == FI_WAIT_UNSPEC ? FI_WAIT_FD : kind),
      writable(may_write),
      event(make_event()),
      fabric_ref(fabric) {}

void EventQueue::put(std::uint32_t kind, const void* entry, std::size_t bytes) {
    HEDDLE_ASSERT(entry != nullptr || bytes == 0);
    Event added;
    added.kind = kind;
    const auto* first = static_cast<const std::byte*>(entry);
    added.entry.assign(first, first + bytes);
    const std::scoped_lock lock(mutex);
    events.push_back(std::move(added));
    set_event(event.get());
}

void EventQueue::put_error(const fi_eq_err_entry& error) {
    HEDDLE_ASSERT(error.err != 0, "an error event has an error");
    Event added;
    added.is_error = true;
    added.error = error;
    const std::scoped_lock lock(mutex);
    events.push_back(std::move(added));
    set_event(event.get());
}

int try_wait(EventQueue& eq) {
    const std::scoped_lock lock(eq.mutex);
    return eq.events.empty() ? 0 : -FI_EAGAIN;
}

int open_event_queue(fid_fabric* fabric, fi_eq_attr* attributes, fid_eq** out,
                     void* context) noexcept {
    return guarded("fi_eq_open", [&] {
        const fi_eq_attr wanted = attributes != nullptr ? *attributes : fi_eq_attr{};
        if ((wanted.flags & ~(FI_WRITE | FI_AFFINITY)) != 0) return -FI_EBADFLAGS;
        switch (wanted.wait_obj) {
            case FI_WAIT_NONE:
            case FI_WAIT_UNSPEC:
            case FI_WAIT_FD:
            case FI_WAIT_YIELD:
                break;
            default:
                return -FI_ENOSYS;
        }
        auto eq = std::make_unique<EventQueue>(static_cast<Fabric&>(*fabric), wanted.wait_obj,
                                               (wanted.flags & FI_WRITE) != 0);
        eq->ops = &eq_ops;
        describe(eq->fid, FI_CLASS_EQ, context, eq_fid_ops);
        *out = eq.release();
        return 0;
    });
}

}  // namespace heddle::provider
