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
#include <span>
#include <unordered_map>
#include <vector>

#include "heddle/address.h"
#include "protocol/connector_wire.h"
#include "verbs/handles.h"

namespace heddle::protocol {

// Address handles, kept for the ports that were sent to last. All processes of a host have one.
class PathCache {
public:
    static constexpr std::size_t kMost = 4096;
    explicit PathCache(ibv_pd* pd) : pd_(pd) {}
    ~PathCache();
    PathCache(const PathCache&) = delete;
    PathCache& operator=(const PathCache&) = delete;
    // nullptr if the address cannot be had. Valid until kMost others were asked for.
    ibv_ah* find(const Name& name) noexcept;
    std::size_t size() const noexcept { return recent_.size(); }

private:
    struct Port {
        std::uint64_t gid[2] = {};
        std::uint16_t lid = 0;
        bool ethernet = false;
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
    std::list<Path> recent_;  // the last one used first
    std::unordered_map<Port, std::list<Path>::iterator, PortHash> found_;
};

class ConnectorPort {
public:
    // Throws VerbsError.
    ConnectorPort(ibv_context* context, ibv_pd* pd, unsigned receives);

    const QpAddress& address() const noexcept { return address_; }
    int fd() const noexcept { return channel_->fd; }
    // False: it is lost, for want of a slot or of a path.
    bool send(const Datagram& datagram, const Name& to) noexcept;
    // Calls arrived(bytes, QP number of the sender) for all that is there, then arms the
    // descriptor. `arrived` may send.
    template <class Arrived>
    void receive(Arrived&& arrived) {
        do {
            unsigned n;
            ibv_wc completions[kBatch];
            while ((n = poll(completions)) != 0)
                for (unsigned i = 0; i < n; ++i)
                    if (is_arrival(completions[i])) {
                        arrived(bytes_of(completions[i]), completions[i].src_qp);
                        post_receive(completions[i].wr_id);
                    }
            if (broken_) repair();
        } while (!arm());
    }
    // Until all that was sent is on its way; what arrives is dropped. For the end.
    void drain(std::chrono::milliseconds most) noexcept;

private:
    static constexpr unsigned kBatch = 16, kSends = 256;
    static constexpr std::size_t kGrh = 40, kSlot = 192;  // whole cache lines
    static_assert(kGrh + kDatagramBytes <= kSlot && kSends < PathCache::kMost);

    unsigned poll(ibv_wc (&completions)[kBatch]) noexcept;
    // Takes a send's slot back; notes errors.
    bool is_arrival(const ibv_wc& completion) noexcept;
    std::span<const std::byte> bytes_of(const ibv_wc& completion) const noexcept;
    void post_receive(std::uint64_t slot) noexcept;
    bool arm() noexcept;  // false: look again
    int to_ready() noexcept;
    void post_all_receives() noexcept;
    void repair() noexcept;
    std::byte* slot(std::uint64_t k) const noexcept { return memory_.get() + k * kSlot; }

    struct Free {
        void operator()(std::byte* memory) const noexcept { std::free(memory); }
    };
    unsigned receives_;  // slots; those of sends are behind them
    std::unique_ptr<std::byte, Free> memory_;
    verbs::MemoryRegion region_;
    verbs::CompletionChannel channel_;
    verbs::CompletionQueue cq_;
    PathCache paths_;
    verbs::QueuePair qp_;
    QpAddress address_;
    std::vector<std::uint32_t> free_sends_;
    bool broken_ = false;
    bool armed_ = false;            // the next completion makes the descriptor readable
    unsigned repairs_left_ = 1000;  // a QP that breaks whatever is done is left alone in the end
};

}  // namespace heddle::protocol
