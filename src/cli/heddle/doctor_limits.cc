// SPDX-License-Identifier: BSD-2-Clause
// The checks of `heddle doctor` that depend on the size of the job: locked memory, and the objects
// of the device. These depend on the transport.
#include <sys/resource.h>

#include "cli/heddle/doctor.h"
#include "heddle/detail/assert.h"
#include "verbs/dynamic_connection.h"
#include "verbs/memlock.h"

namespace heddle::cli {

std::string times_text(std::uint64_t count, const char* what) {
    HEDDLE_ASSERT(what != nullptr);
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void Checkup::check_transport() {
    const protocol::Transport wanted = options_.protocol.transport;
    const auto refused = [&](const std::string& seen, const char* remedy) {
        problem("transport", seen, remedy);
        is_usable_ = false;  // no endpoint opens
    };
    switch (wanted) {
        case protocol::Transport::kAuto:
            return ok("transport", device_.xrc ? "XRC" : "RC, as the device has no XRC");
        case protocol::Transport::kRc:
            return ok("transport", "RC");
        case protocol::Transport::kXrc:
            if (device_.xrc) return ok("transport", "XRC");
            return refused("FI_HEDDLE_TRANSPORT is xrc, and " + device_.name + " has no XRC",
                           "FI_HEDDLE_TRANSPORT=auto uses RC there");
        case protocol::Transport::kDc:
            if (!verbs::has_dynamic_connection(context_.get()))
                return refused("FI_HEDDLE_TRANSPORT is dc, and " + device_.name + " has no DC",
                               "FI_HEDDLE_TRANSPORT=auto uses XRC or RC there");
            if (options_.protocol.post == protocol::PostPath::kDirect)
                return refused("FI_HEDDLE_POST is direct, which does not post by DC",
                               "FI_HEDDLE_POST=auto, or FI_HEDDLE_TRANSPORT=auto");
            return ok("transport", "DC");
    }
}

// A rank pins receive buffers and queues for each of its endpoints, and what it sends or receives
// in place. Each peer that it talks with adds queues.
void Checkup::check_memlock() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;
    if (limit.rlim_cur == RLIM_INFINITY) {
        ok("memlock", "ulimit -l is unlimited");
        return;
    }
    // A send queue's first 32 entries have 256 bytes each.
    constexpr std::uint64_t kPeer = 8 << 10, kHeader = 64, kQueues = 512 << 10, kMessage = 1 << 20;
    const protocol::Options& o = options_.protocol;
    const std::uint64_t endpoint = o.receive_buffers * (o.eager_bytes + kHeader) + kQueues;
    const std::uint64_t need = request_.threads * endpoint + kMessage;
    const std::uint64_t with_peers = need + kPeer * request_.ranks * request_.threads;
    const std::string seen = "ulimit -l is " + std::to_string(limit.rlim_cur >> 10) + " KiB";
    const std::string remedy =
        "on every host: ulimit -l unlimited, by /etc/security/limits.d (* - memlock unlimited); "
        "for daemons of batch systems LimitMEMLOCK=infinity in their systemd unit, and in "
        "slurm.conf PropagateResourceLimitsExcept=MEMLOCK";
    const verbs::ProtectionDomain pd(ibv_alloc_pd(context_.get()));
    if (pd && !verbs::is_held_to_memlock(pd.get(), limit.rlim_cur)) {
        ok("memlock", seen + ", and it does not bind this user or device");
        return;
    }
    const std::string of_need = ", and a rank needs about " + std::to_string(need >> 10) + " KiB";
    if (limit.rlim_cur < need)
        problem("memlock", seen + of_need, remedy);
    else
        note("memlock",
             seen + of_need + ", " + std::to_string(with_peers >> 10) +
                 " KiB if it talks with all " + times_text(request_.ranks, "rank"),
             "more lets buffers stay registered, and what exceeds it is copied; " + remedy);
}

// Each thread of a rank has a CQ and an SRQ. Queue pairs come with the first message to a peer:
// with XRC one for each thread and remote process, and as many targets; with RC one for each pair
// of endpoints. So most jobs have far fewer than all. With DC each thread has the same few.
void Checkup::check_limits() {
    const std::uint64_t ranks = request_.ranks, threads = request_.threads,
                        endpoints = request_.ranks_here() * threads;
    const protocol::Transport wanted = options_.protocol.transport;
    const bool dc = wanted == protocol::Transport::kDc;
    const bool xrc = device_.xrc && !dc && wanted != protocol::Transport::kRc;
    constexpr std::uint64_t kOfDc = protocol::kDcInitiators + 1;  // and a target
    const std::uint64_t qps = dc ? endpoints * kOfDc : endpoints * ranks * (xrc ? 2 : threads);
    const auto of = [](std::uint64_t need, const char* what, std::uint32_t most) {
        return std::to_string(need) + " " + what + " of " + std::to_string(most);
    };
    const std::string seen =
        times_text(ranks, "rank") + ", " + std::to_string(request_.ranks_here()) + " here, " +
        times_text(threads, "thread") + " each: " + of(endpoints, "CQs", device_.max_cqs) + ", " +
        of(endpoints, "SRQs", device_.max_srqs) + ", at most " + of(qps, "QPs", device_.max_qps);
    const std::string remedy =
        "fewer ranks a host, or fewer threads that call MPI at once; heddle plan shows what each "
        "category of endpoints takes";
    if (endpoints > device_.max_cqs || endpoints > device_.max_srqs)
        problem("limits", seen, remedy);
    else if (qps > device_.max_qps)
        note("limits", seen,
             std::string("if each rank talks with all others: ") +
                 (xrc || dc     ? ""
                  : device_.xrc ? "FI_HEDDLE_TRANSPORT=auto needs fewer queue pairs; "
                                : "a device with XRC needs fewer queue pairs; ") +
                 remedy);
    else
        ok("limits", seen);
}

}  // namespace heddle::cli
