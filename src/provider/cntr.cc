// SPDX-License-Identifier: BSD-2-Clause
// Counters. Reading one makes the endpoints of the domain progress, since a program that reads
// counters may call nothing else.
#include "provider/cntr.h"

#include <memory>

#include "heddle/detail/assert.h"
#include "provider/guarded.h"
#include "provider/unsupported.h"

namespace heddle::provider {
namespace {

CounterObject& counter_of(fid_cntr* handle) noexcept {
    return static_cast<CounterObject&>(*handle);
}

void progress(CounterObject& counter) noexcept {
    guarded("progress", [&] {
        Guard guard(counter.domain);
        counter.domain.progress();
        return 0;
    });
}

std::uint64_t read_cntr(fid_cntr* handle) {
    auto& counter = counter_of(handle);
    progress(counter);
    return counter.done();
}
std::uint64_t read_error(fid_cntr* handle) {
    auto& counter = counter_of(handle);
    progress(counter);
    return counter.failed();
}

// A change by the program itself also wakes sleepers, when the guard ends.
template <class Change>
int change(fid_cntr* handle, Change&& by) noexcept {
    auto& counter = counter_of(handle);
    return guarded("a counter", [&] {
        Guard guard(counter.domain);
        by(counter.count);
        return 0;
    });
}
int add(fid_cntr* handle, std::uint64_t value) {
    return change(handle, [=](protocol::Counter& c) { c.done.fetch_add(value); });
}
int add_error(fid_cntr* handle, std::uint64_t value) {
    return change(handle, [=](protocol::Counter& c) { c.failed.fetch_add(value); });
}
int set(fid_cntr* handle, std::uint64_t value) {
    return change(handle, [=](protocol::Counter& c) { c.done.store(value); });
}
int set_error(fid_cntr* handle, std::uint64_t value) {
    return change(handle, [=](protocol::Counter& c) { c.failed.store(value); });
}

int wait(fid_cntr* handle, std::uint64_t threshold, int timeout) {
    auto& counter = counter_of(handle);
    if (!counter.sleeper.possible()) return -FI_EINVAL;
    return guarded("fi_cntr_wait", [&] {
        const Deadline deadline(timeout);
        const std::uint64_t failed_before = counter.failed();
        for (;;) {
            const int left = deadline.left_ms();
            {
                Guard guard(counter.domain);
                counter.domain.progress();
                if (counter.done() >= threshold) return 0;
                if (counter.failed() != failed_before) return -FI_EAVAIL;
                if (left == 0) return -FI_ETIMEDOUT;
                counter.seen_done = counter.done();
                counter.seen_failed = counter.failed();
                if (!counter.sleeper.prepare()) continue;
                HEDDLE_ASSERT(counter.done() < threshold && left != 0);
                counter.sleeper.enter();
            }
            wait_readable(counter.sleeper.fd(), left);
            Guard guard(counter.domain);
            counter.sleeper.leave();
        }
    });
}

int close_counter(fid* handle) {
    auto& counter = object<CounterObject>(handle);
    HEDDLE_ASSERT(counter.fid.fclass == FI_CLASS_CNTR);
    if (counter.refs.any()) return -FI_EBUSY;
    return guarded("fi_close of a counter", [&] {
        Domain& domain = counter.domain;
        Guard guard(domain);
        delete &counter;
        return 0;
    });
}

int control_cntr(fid* handle, int command, void* argument) {
    return object<CounterObject>(handle).sleeper.control(command, argument);
}

fi_ops cntr_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_counter,
    .bind = unsupported,
    .control = control_cntr,
    .ops_open = unsupported,
    .tostr = unsupported,
    .ops_set = unsupported,
};
fi_ops_cntr cntr_ops = {
    .size = sizeof(fi_ops_cntr),
    .read = read_cntr,
    .readerr = read_error,
    .add = add,
    .set = set,
    .wait = wait,
    .adderr = add_error,
    .seterr = set_error,
};

}  // namespace

CounterObject::CounterObject(Domain& of, fi_wait_obj kind)
    : fid_cntr{},
      domain(of),
      sleeper(
          of, kind,
          [](const void* owner) noexcept {
              const auto& counter = *static_cast<const CounterObject*>(owner);
              return counter.done() != counter.seen_done || counter.failed() != counter.seen_failed;
          },
          this),
      domain_ref(of.refs) {}

int try_wait(CounterObject& counter) {
    if (!counter.sleeper.possible()) return -FI_EINVAL;
    Guard guard(counter.domain);
    counter.seen_done = counter.done();
    counter.seen_failed = counter.failed();
    counter.domain.progress();
    const bool changed =
        counter.done() != counter.seen_done || counter.failed() != counter.seen_failed;
    if (changed || !counter.sleeper.prepare()) return -FI_EAGAIN;
    counter.sleeper.watched();
    return 0;
}

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** out,
                 void* context) noexcept {
    return guarded("fi_cntr_open", [&] {
        const fi_cntr_attr wanted = attributes != nullptr ? *attributes : fi_cntr_attr{};
        if (wanted.flags != 0) return -FI_EBADFLAGS;
        if (wanted.events != FI_CNTR_EVENTS_COMP) return -FI_ENOSYS;  // libfabric 2 can count bytes
        fi_wait_obj kind = wanted.wait_obj;
        switch (kind) {
            case FI_WAIT_NONE:
            case FI_WAIT_FD:
                break;
            // A program may call fi_cntr_wait(3) on counters that it opened without attributes.
            case FI_WAIT_UNSPEC:
            case FI_WAIT_YIELD:
                kind = FI_WAIT_FD;
                break;
            default:
                return -FI_ENOSYS;
        }
        if (attributes == nullptr) kind = FI_WAIT_FD;
        auto& of = static_cast<Domain&>(*domain);
        Guard guard(of);
        auto counter = std::make_unique<CounterObject>(of, kind);
        counter->ops = &cntr_ops;
        describe(counter->fid, FI_CLASS_CNTR, context, cntr_fid_ops);
        *out = counter.release();
        return 0;
    });
}

}  // namespace heddle::provider
