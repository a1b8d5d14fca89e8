// SPDX-License-Identifier: BSD-2-Clause
// The UD QP that a process asks and answers with: a ring of receives that are posted again as soon
// as they are read, slots for what is sent, and a file descriptor that tells when to look.
//
// All but the constructor and the addresses: one thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "heddle/address.h"
#include "protocol/wireup/connector_wire.h"
#include "verbs/handles.h"
#include "verbs/local_port.h"

namespace heddle::protocol {

// Address handles, kept for the ports that were sent to last. All processes of a host have one.
class PathCache {
public:
    static constexpr std::size_t kMost = 4096;
    PathCache(ibv_pd* pd, const verbs::LocalPort& own) : pd_(pd), own_(own) {}
    ~PathCache();
    PathCache(const PathCache&) = delete;
    PathCache& operator=(const PathCache&) = delete;
    // nullptr if the address cannot be had. Valid until kMost others were asked for.
    ibv_ah* find(const EndpointAddress& name) noexcept;
    // From now on all are reached by `own`.
    void take_port(const verbs::LocalPort& own) noexcept;
    std::size_t size() const noexcept { return recent_.size(); }

private:
    void clear() noexcept;
    struct Port {
        std::uint64_t gid[2] = {};  // where it is reached by GID
        std::uint16_t lid = 0;      // on InfiniBand
        bool is_global = false;     // the GID of a name may be zero
        bool operator==(const Port&) const = default;
    };
    struct PortHash {
        std::size_t operator()(const Port& port) const noexcept;
    };
    struct Path {
        Port port;
        ibv_ah* handle;
    };
    ibv_pd* pd_;
    verbs::LocalPort own_;    // by which all are reached
    std::list<Path> recent_;  // the last one used first
    std::unordered_map<Port, std::list<Path>::iterator, PortHash> found_;
};

class ConnectorPort {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kRepairEvery{100};
    // How many datagrams receive() takes at most.
    static constexpr unsigned kAtOnce = 64;
    struct Arrival {
        std::span<const std::byte> bytes;  // all that came, or as much as a slot has
        std::size_t length = 0;            // so much came
        DatagramSource source;
    };

    // A QP that breaks is repaired no sooner than `repair_every` after its last repair. Throws
    // VerbsError.
    ConnectorPort(ibv_context* context, ibv_pd* pd, const verbs::LocalPort& port, unsigned receives,
                  std::uint32_t qkey, Clock::duration repair_every = kRepairEvery);

    ibv_qp* qp() const noexcept { return qp_.get(); }
    const QpAddress& address() const noexcept { return address_; }
    const verbs::LocalPort& port() const noexcept { return port_; }
    // The port has changed: see port_change().
    void take_port(const verbs::LocalPort& port) noexcept {
        port_ = port;
        paths_.take_port(port);
    }
    int fd() const noexcept { return channel_->fd; }
    // False: it is lost, as there is no slot or no path.
    bool send(const Datagram& datagram, const EndpointAddress& to) noexcept;
    // Calls arrived(Arrival) for what is there, then arms the descriptor. `arrived` may send.
    // False: there may be more, and the descriptor is not armed.
    template <class Arrived>
    bool receive(Arrived&& arrived) {
        for (unsigned taken = 0; taken < kAtOnce;) {
            ibv_wc completions[kBatch];
            const unsigned n = poll(completions);
            for (unsigned i = 0; i < n; ++i)
                if (is_arrival(completions[i])) {
                    arrived(arrival_of(completions[i]));
                    post_receive(completions[i].wr_id);
                }
            taken += n;
            if (n != 0) continue;
            if ((broken_ && !repair()) || arm()) return true;
        }
        return false;
    }
    // When receive() has to be called although the descriptor is not readable: the QP is broken.
    std::optional<Clock::time_point> next_repair() const noexcept {
        if (!broken_) return {};
        return repair_from_;
    }
    // Until all that was sent is on its way; what arrives is dropped. For the end.
    void drain(std::chrono::milliseconds most) noexcept;

private:
    static constexpr unsigned kBatch = 16, kSends = 256;
    static constexpr std::size_t kGrh = DatagramSource::kGrhBytes, kSlot = 192;  // cache lines
    // Behind every slot's bytes: what is longer than a slot ends there, and so does not break the
    // QP. UD messages have a packet's length, 4096 bytes at most.
    static constexpr std::size_t kOverflow = 4096;
    static_assert(kGrh + kDatagramBytes <= kSlot && kSends < PathCache::kMost);

    unsigned poll(ibv_wc (&completions)[kBatch]) noexcept;
    // Takes a send's slot back; notes errors.
    bool is_arrival(const ibv_wc& completion) noexcept;
    Arrival arrival_of(const ibv_wc& completion) const noexcept;
    void post_receive(std::uint64_t slot) noexcept;
    bool arm() noexcept;  // false: look again
    int to_ready() noexcept;
    void post_all_receives() noexcept;
    bool repair() noexcept;  // false: later
    std::byte* slot(std::uint64_t k) const noexcept { return memory_.get() + k * kSlot; }
    std::byte* overflow() const noexcept { return slot(receives_ + kSends); }

    struct Free {
        void operator()(std::byte* memory) const noexcept { std::free(memory); }
    };
    unsigned receives_;  // slots; those of sends are behind them, the overflow behind these
    const std::uint32_t qkey_;
    const Clock::duration repair_every_;
    verbs::LocalPort port_;
    std::unique_ptr<std::byte, Free> memory_;
    verbs::MemoryRegion region_;
    verbs::CompletionChannel channel_;
    verbs::CompletionQueue cq_;
    PathCache paths_;
    verbs::QueuePair qp_;
    QpAddress address_;
    std::vector<std::uint32_t> free_sends_;
    bool broken_ = false;
    Clock::time_point repair_from_{};  // no repair before
    bool armed_ = false;               // the next completion makes the descriptor readable
};

}  // namespace heddle::protocol
