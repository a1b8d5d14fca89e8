// SPDX-License-Identifier: BSD-2-Clause
// Peers on the same host: see local_peers.h.
#include "protocol/local/local_peers.h"

#include <atomic>
#include <bit>
#include <cerrno>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "heddle/detail/assert.h"
#include "protocol/shm/barrier.h"
#include "protocol/shm/host.h"
#include "protocol/wireup/connector_report.h"

namespace heddle::protocol {
namespace {

// A slot for each so many bytes of the area.
constexpr std::size_t kAreaOfSlot = 512;

ShmShape shape_of(const ShmOptions& options) noexcept {
    const std::size_t area = std::bit_ceil(options.bytes);
    return {static_cast<std::uint32_t>(
                std::clamp<std::size_t>(area / kAreaOfSlot, kLeastShmSlots, kMostShmSlots)),
            static_cast<std::uint32_t>(area)};
}

}  // namespace

// Says that messages begin to go by shared memory, when there is room. Those that wait before it go
// by SEND.
class LocalPeers::Beginning final : public PendingOp {
public:
    Beginning(LocalPeers& local, Peer& peer) noexcept : local_(local), peer_(peer) {}
    bool try_post() override {
        const Header header{Kind::kShmBegin,     0, local_.core_.name.endpoint,
                            peer_.name.endpoint, 0, 0};
        if (!local_.core_.send_control(peer_, std::as_bytes(std::span(&header, 1)))) return false;
        local_.use(peer_);
        return true;
    }
    void fail(int) override {}

private:
    LocalPeers& local_;
    Peer& peer_;
};

LocalPeers::~LocalPeers() {
    for (const auto& each : by_peer_)
        if (each != nullptr && each->sender != nullptr) each->sender->close();
}

LocalPeers::OfPeer& LocalPeers::of(const Peer& peer) {
    if (peer.number >= by_peer_.size()) by_peer_.resize(core_.peers.size());
    HEDDLE_ASSERT(peer.number < by_peer_.size(), "a peer that the endpoint does not have");
    std::unique_ptr<OfPeer>& its = by_peer_[peer.number];
    if (its == nullptr) its = std::make_unique<OfPeer>();
    return *its;
}

void LocalPeers::inform(const Peer& peer, const std::string& text) const {
    if (core_.options.inform == nullptr) return;
    core_.options.inform((text + "; the peer is at " + peer_text(peer.name)).c_str());
}

// Once in a process: each of its peers would have the same reason.
void LocalPeers::tell_that_there_is_none(const Peer& peer, const std::string& why) const {
    static std::atomic_flag has_complained;
    const std::string text = "messages within this host go by the adapter: " + why;
    if (!has_complained.test_and_set()) core_.complain_of(peer, text);
}

void LocalPeers::on_connected(Peer& peer, std::uint64_t host) {
    if (!is_wanted_ || peer.failed != 0 || host == 0 || host != host_number()) return;
    OfPeer& its = of(peer);
    if (std::exchange(its.has_opened, true)) return;
    join_shared_barriers();
    try {
        its.memory_there = std::make_unique<ShmSegment>(shape_of(core_.options.shm));
    } catch (const std::system_error& error) {
        return tell_that_there_is_none(peer, error.what());
    }
    core_.control(peer, Kind::kShmOpen, its.memory_there->body());
    opening_.push_back(&peer);
    is_active_ = true;
}

void LocalPeers::on_open(Peer& peer, const ShmOpenBody& open, bool is_refused) {
    OfPeer& its = of(peer);
    if (its.memory_here != nullptr) return core_.protocol_error(peer);
    try {
        its.memory_here = std::make_unique<ShmSegment>(open);
    } catch (const std::system_error& error) {
        if (error.code().value() == ENOENT) return;  // the peer has gone
        return tell_that_there_is_none(peer, error.what());
    }
    if (!is_wanted_ || core_.closing || is_refused) {
        its.memory_here->refuse();
        its.memory_here.reset();
        return;
    }
    its.reader = std::make_unique<Reader>(peer, *its.memory_here);
    its.process.emplace(open.process, open.word_address, open.word,
                        control_of(its.memory_here->memory()));
    const int error = its.process->probe();
    if (error == 0) peer.memory = &*its.process;
    peer.writes_to_us = is_active_ = true;
    its.memory_here->accept(error == 0, can_make_shared_barriers());
    inform(peer, std::string("messages from a peer come by shared memory; large ones ") +
                     (error == 0 ? "are read from its process"
                                 : "by the adapter, as its process cannot be read (" +
                                       std::generic_category().message(error) + ")"));
}

void LocalPeers::on_begin(Peer& peer) {
    OfPeer* const its = of_known(peer);
    if (its == nullptr || its->reader == nullptr || std::exchange(its->has_begun, true))
        return core_.protocol_error(peer);
    readers_.push_back(its->reader.get());
    ++core_.counts.shm.peers;
}

void LocalPeers::look_at_answers() {
    if (++next_opening_ >= opening_.size()) next_opening_ = 0;
    Peer& peer = *opening_[next_opening_];
    OfPeer& its = of(peer);
    const ShmControl::Answer answer =
        peer.failed != 0 ? ShmControl::kRefused : its.memory_there->answer();
    if (answer == ShmControl::kNone) return;
    opening_[next_opening_] = opening_.back();
    opening_.pop_back();
    if (answer == ShmControl::kAccepted) {
        its.memory_there->close_descriptor();
        return begin(peer);
    }
    its.memory_there.reset();
    if (peer.failed == 0) inform(peer, "messages to a peer go by the adapter, as it wants it so");
}

void LocalPeers::begin(Peer& peer) {
    OfPeer& its = of(peer);
    const bool fences = !join_shared_barriers() || its.memory_there->must_sender_fence();
    its.sender =
        std::make_unique<ShmSender>(its.memory_there->memory(), its.memory_there->shape(), fences);
    auto beginning = std::make_unique<Beginning>(*this, peer);
    if (!CoreServices::can_send(peer) || !beginning->try_post())
        core_.wait(peer, PendingPtr(beginning.release()));
}

void LocalPeers::use(Peer& peer) {
    peer.shm = of(peer).sender.get();
    HEDDLE_ASSERT(peer.shm != nullptr, "begin() has made it");
    ++peer.other_ways;
    core_.look_if_open(peer);
    inform(peer, "messages to a peer go by shared memory");
}

void LocalPeers::on_peer_failed(Peer& peer) noexcept {
    OfPeer* const its = of_known(peer);
    if (its != nullptr && its->reader != nullptr) its->reader->is_closed = true;
    if (its != nullptr && its->sender != nullptr) its->sender->close();
    peer.memory = nullptr;
    if (peer.shm == nullptr) return;
    HEDDLE_ASSERT(peer.other_ways != 0);
    --peer.other_ways;
    peer.shm = peer.shm_small = nullptr;
}

void LocalPeers::fail(Reader& reader) {
    reader.is_closed = true;
    core_.complain_of(reader.peer, "what lies in shared memory is no message");
    core_.protocol_error(reader.peer);
}

// Not while something is read.
void LocalPeers::look() {
    for (std::size_t i = 0; i < by_peer_.size(); ++i) {
        if (by_peer_[i] == nullptr) continue;
        OfPeer& its = *by_peer_[i];
        Peer& peer = *core_.peers[i];
        if (peer.failed == 0 && its.sender != nullptr && its.sender->is_broken()) {
            core_.complain_of(peer, "it has taken more from shared memory than there was");
            core_.protocol_error(peer);
        }
        if (peer.failed == 0) continue;
        if (its.reader != nullptr) {
            std::erase(readers_, its.reader.get());
            first_ = 0;
        }
        its.reader.reset();
        its.memory_here.reset();
        std::erase(opening_, &peer);
        its.sender.reset();
        its.memory_there.reset();
    }
}

// A sequenced message before whose turn there are SENDs will be taken with these.
bool LocalPeers::has_something_to_take(Reader& reader) {
    ShmReceiver::Found found;
    if (reader.is_closed) return false;
    const ShmReceiver::Next next = reader.ring.next(found);
    if (next != ShmReceiver::Next::kMessage) return next == ShmReceiver::Next::kBroken;
    Header header;
    std::memcpy(&header, found.bytes.data(), sizeof header);
    return !is_sequenced(header.kind) || distance(reader.peer, header) <= 0;
}

bool LocalPeers::arm() {
    if (readers_.empty()) return true;
    for (Reader* const reader : readers_)
        reader->ring.arm();
    make_shared_barrier();
    return std::none_of(readers_.begin(), readers_.end(),
                        [this](Reader* reader) { return has_something_to_take(*reader); });
}

}  // namespace heddle::protocol
