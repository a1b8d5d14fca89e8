// SPDX-License-Identifier: BSD-2-Clause
// Posting for experiments that must know which WRs are done: a thread posts on its QPs and waits
// until all are done. In mpi+threads all threads share the QPs and the CQ, so a thread that polls
// finds completions of others and records them for their owners (completion_tracker.h).
#pragma once

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "experiments/common/completion_tracker.h"
#include "experiments/common/workers.h"
#include "heddle/detail/assert.h"
#include "heddle/endpoint.h"

namespace heddle::bench {

// How WRs are handed to the device.
enum class PostMode : std::uint8_t {
    // ICPADS'18, section VII, "conservative" (p = 1, q = 1): each WR is posted by itself, which
    // lets it go by BlueFlame, and each has a completion.
    kConservative,
    // Lists that ring() hands over, and a completion for half a window or at the end.
    kBatched,
};

// What one thread has posted on the queues of its endpoint. Lives as long as the endpoint set,
// since the counts go on from one repetition to the next.
class Posting {
public:
    // window: WRs in flight on each QP. All threads that share a QP: together no more than its
    // depth.
    Posting(std::uint32_t thread, std::uint32_t qps, std::uint32_t window, PostMode mode)
        : thread(thread), window(std::max(window, 1u)), mode(mode), lines(qps) {}

    struct Line {
        std::uint64_t posted = 0;
        std::uint32_t unsignalled = 0;
    };
    std::uint32_t thread, window;
    PostMode mode;
    std::vector<Line> lines;  // of each QP
};

template <class Queues>
class Poster {
public:
    Poster(Queues& queues, CompletionTracker& tracker, Workers& workers, Posting& posting)
        : queues_(queues), tracker_(tracker), workers_(workers), p_(posting) {}

    // The device gets the WR at ring(k) at the latest; inline payload must stay until then. `last`:
    // finish() will wait for this WR, and so for all before it on that QP.
    void post(post::WorkRequest work, std::uint32_t k, bool last) {
        HEDDLE_DEBUG_ASSERT(k < p_.lines.size(), "the thread posts on QPs of its endpoint");
        Posting::Line& line = p_.lines[k];
        if (under_way(k) >= p_.window) {
            ring(k);
            Wait wait(workers_, "a completion");
            while (under_way(k) >= p_.window)
                if (!poll()) wait.again();
        }
        const bool alone = p_.mode == PostMode::kConservative;
        // A full window has at least one signaled WR: without its completion no WR would ever count
        // as done.
        const bool signal = alone || last || ++line.unsignalled >= std::max(p_.window / 2, 1u);
        if (signal) {
            line.unsignalled = 0;
            work.flags = static_cast<std::uint8_t>(work.flags | post::kSignaled);
        }
        work.id = CompletionTracker::id(p_.thread, k, line.posted + 1);
        // Not post() and ring_doorbell(): between these another thread of a shared QP could add its
        // WR to the list.
        until_taken(
            [&] { return alone ? queues_.send(k).post_now(work) : queues_.send(k).post(work); }, k);
        ++line.posted;
    }
    void ring(std::uint32_t k) {
        until_taken([&] { return queues_.send(k).ring_doorbell(); }, k);
    }
    // Waits until all WRs are done that were posted and rung.
    void finish() {
        Wait wait(workers_, "a completion");
        for (std::uint32_t k = 0; k < p_.lines.size(); ++k)
            while (under_way(k) != 0)
                if (!poll()) wait.again();
    }
    // True if there was a completion. Throws VerbsError if a WR failed.
    bool poll() {
        post::Completion completions[16];
        const unsigned found = queues_.completions().poll(completions, 16);
        for (unsigned i = 0; i < found; ++i) {
            if (completions[i].status != IBV_WC_SUCCESS)
                throw VerbsError(std::string("an RDMA operation that completed with \"") +
                                     ibv_wc_status_str(completions[i].status) + "\"",
                                 EIO);
            tracker_.record(completions[i].id);
        }
        return found != 0;
    }

private:
    std::uint64_t under_way(std::uint32_t k) const {
        const std::uint64_t done = tracker_.done(p_.thread, k);
        HEDDLE_DEBUG_ASSERT(done <= p_.lines[k].posted, "no WR is done before it is posted");
        return p_.lines[k].posted - done;
    }

    // With more threads on a QP than it has entries, it may be full though the window is not.
    template <class Try>
    void until_taken(const Try& attempt, std::uint32_t k) {
        Wait wait(workers_, "room in a send queue");
        for (;;) {
            const post::Posted posted = attempt();
            if (posted == post::Posted::kOk) return;
            if (posted == post::Posted::kInvalid)
                throw VerbsError("an RDMA operation that cannot be posted", EINVAL);
            queues_.send(k).ring_doorbell();
            if (!poll()) wait.again();
        }
    }

    Queues& queues_;
    CompletionTracker& tracker_;
    Workers& workers_;
    Posting& p_;
};

inline std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace heddle::bench
