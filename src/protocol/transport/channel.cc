// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/channel_limits.h"
#include "protocol/transport/channel_poll.h"
#include "protocol/transport/channel_post.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle::protocol {
namespace {

// Which endpoints one connection reaches.
EndpointAddress key_of(const EndpointAddress& to, bool xrc) {
    EndpointAddress key;
    key.process = to.process;
    if (xrc)
        key.context = to.context;
    else
        key.endpoint = to.endpoint;
    return key;
}

}  // namespace

int errno_of(ibv_wc_status status) noexcept {
    switch (status) {
        case IBV_WC_SUCCESS:
            return 0;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RESP_TIMEOUT_ERR:
            return EHOSTUNREACH;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_LOC_PROT_ERR:
            return EACCES;
        case IBV_WC_LOC_LEN_ERR:
            return EMSGSIZE;
        case IBV_WC_WR_FLUSH_ERR:
            return ECONNABORTED;
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return ENOBUFS;
        case IBV_WC_REM_OP_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
            return EREMOTEIO;
        default:
            return EIO;
    }
}

Channel::Channel(std::unique_ptr<endpoint::ThreadResources> resources, const Options& options,
                 bool direct, std::uint32_t number)
    : options_(options),
      number_(number),
      resources_(std::move(resources)),
      send_buffers_(resources_->shared->pd.get(), buffer_bytes(options), options.send_depth),
      asked_inline_(static_cast<std::uint32_t>(options.inline_bytes + kHeaderRoom) +
                    prefix_bytes(options)),
      most_receives_(most_receives(options)),
      objects_(*resources_, most_receives_, direct),
      receives_at_once_(std::clamp(options.receive_buffers / 4, 1u, kReceivesAtOnce)),
      // other() publishes what it has read at the latest after kPolledAtOnce entries.
      send_entries_(static_cast<std::uint32_t>(objects_.cq()->cqe) - most_receives_ -
                    kPolledAtOnce) {
    HEDDLE_ASSERT(options.send_depth != 0 && options.receive_buffers != 0,
                  "the options have a least value");
    HEDDLE_ASSERT(send_entries_ > kReservedEntries, "find_room() can give some of them away");
    limits_.max_message = resources_->shared->port.max_message;
    drain_.argument = this;
    drain_.ask = [](void* channel) { static_cast<Channel*>(channel)->note_change(); };
    wait_set_.watch(objects_.events()->fd);
    if (direct) {
        direct_cq_.emplace(objects_.cq());
        direct_srq_.emplace(objects_.srq());
        direct_cq_->add_default(*direct_srq_);
    } else {
        verbs_cq_.emplace(objects_.cq());
    }
    // The direct path gives each entry of the queue a buffer, and posts all but one.
    if (direct_srq_) direct_srq_->begin_with(options.receive_buffers);
    receive_buffers_.emplace(
        resources_->shared->pd.get(), buffer_bytes(options),
        direct ? direct_srq_->entries() : options.receive_buffers, most_receives_,
        options.registration.relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0);
    to_post_.reserve(direct ? 0 : most_receives_);
    use_buffers_from(0);
}

Channel::~Channel() {
    HEDDLE_ASSERT(users_.empty(), "an endpoint keeps its channel until it has called detach()");
    HEDDLE_ASSERT(connector_ != nullptr || connections_.empty());
    for (const auto& connection : connections_) {
        drop_deeper(*connection);
        connector_->disconnect(*connection->queue_.request);
    }
}

void Channel::note_change() noexcept {
    changed_.store(true, std::memory_order_release);
    wait_set_.wake();
}

Connection& Channel::connection(const EndpointAddress& from, const EndpointAddress& to) {
    HEDDLE_ASSERT(connector_ != nullptr, "use() comes before the first connection");
    Connection*& known = by_name_[key_of(to, xrc())];
    if (known != nullptr) return *known;
    if (error_ != 0) throw VerbsError("a connection by a device that has failed", error_);
    HEDDLE_ASSERT(connections_.size() < kReceive >> 32, "an id has 31 bits for a connection");
    auto fresh = std::make_unique<Connection>();
    fresh->index_ = static_cast<std::uint32_t>(connections_.size());
    fresh->sent_mask_ = std::min(std::bit_ceil(options_.send_depth), kFewWorks) - 1;
    fresh->sent_ = std::make_unique<Connection::Record[]>(fresh->sent_mask_ + 1);
    if (options_.transport == Transport::kDc) make_dc(*fresh);
    fresh->queue_ = make_queue(from, to, first_depth(options_));
    post_by(*fresh, fresh->queue_);
    connections_.push_back(std::move(fresh));
    connection_count_.store(static_cast<std::uint32_t>(connections_.size()),
                            std::memory_order_relaxed);
    Connection& connection = *connections_.back();
    known = &connection;
    connecting_.push_back(&connection);
    connector_->connect(*connection.queue_.request);
    return connection;
}

post::Posted Channel::post(Connection& connection, post::WorkRequest& work,
                           const WrContext& sent) noexcept {
    if (connection.direct_ && connection.direct_->is_transfer(work)) [[likely]] {
        const auto posted = post_quietly(
            connection, sent, [&](bool signal) __attribute__((always_inline)) {
                return connection.direct_->post_transfer(work, signal,
                                                         [&] { note(connection, sent, signal); });
            });
        if (posted != post::Posted::kInvalid) return posted;
    }
    if (!has_room(connection)) [[unlikely]]
        return post::Posted::kFull;
    const bool signal = is_signaled(connection, sent);
    if (signal) work.flags |= post::kSignaled;
    work.id = std::uint64_t{connection.index_} << 32 | connection.posted_;
    const post::Posted posted = connection.direct_ ? connection.direct_->post_now(work)
                                : connection.verbs_
                                    ? connection.verbs_->post_now(work)
                                    : connection.initiator_->post(*connection.dc_, work);
    if (posted == post::Posted::kOk) [[likely]]
        note(connection, sent, signal);
    return posted;
}

unsigned Channel::poll() {
    struct Anybody {
        Channel& channel;
        static bool has_enough() noexcept { return false; }
        void take_message(std::span<const std::byte> bytes, bool has_immediate,
                          std::uint32_t immediate, std::uint32_t qpn) const {
            channel.users_.hand_over(destination_of(bytes.data()), bytes, has_immediate, immediate,
                                     qpn);
        }
    } const anybody{*this};
    return poll_for(anybody, kPolledAtOnce);
}

unsigned Channel::poll_verbs(unsigned most) {
    const unsigned found = verbs_cq_->poll(completions_.data(), std::min(most, kPolledAtOnce));
    HEDDLE_DEBUG_ASSERT(found <= kPolledAtOnce, "more completions than there are places");
    read_by_verbs_ += found;
    found_no_more_ = found < std::min(most, kPolledAtOnce);
    backlog_ += found;
    if (backlog_ > receive_buffers_->count() / 2) [[unlikely]] {
        backlog_ = 0;
        grow_receives();
    }
    if (found_no_more_) backlog_ = 0;
    for (unsigned i = 0; i < found; ++i)
        completed(completions_[i]);
    if (found != 0 && !growing_.empty()) [[unlikely]]
        look_at_growing();
    return found;
}

// Publishing each entry would cost a store; publishing none until the queue is empty could let what
// callbacks post meanwhile overrun it. Flat: each completion of a send goes through all of this.
[[gnu::flatten]] void Channel::other(const mlx5_cqe64& cqe) {
    if (std::uint64_t id; direct_cq_->is_done(cqe, id)) [[likely]]
        finish(*connections_[id >> 32], static_cast<std::uint32_t>(id), 0, 0);
    else
        completed(direct_cq_->completion(cqe));
    if (++unpublished_ < kPolledAtOnce) return;
    unpublished_ = 0;
    direct_cq_->publish();
}

void Channel::completed(const post::Completion& completion) {
    if (completion.id & kReceive) {
        const auto buffer = static_cast<std::uint32_t>(completion.id);
        HEDDLE_DEBUG_ASSERT(buffer < receive_buffers_->count(), "a receive that was not posted");
        // A peer that died in the middle of a message leaves a receive with an error: it is used
        // again; what is concerned fails where it was asked for.
        const std::byte* at = receive_buffers_->at(buffer);
        const std::uint32_t before = prefix_bytes(options_);
        if (completion.status == IBV_WC_SUCCESS && completion.bytes >= sizeof(Header) + before) {
            std::uint32_t sender = completion.qpn;
            if (before != 0) std::memcpy(&sender, at + offsetof(DcPrefix, ticket), sizeof sender);
            at += before;
            users_.hand_over(destination_of(at), {at, completion.bytes - before},
                             completion.has_immediate, completion.immediate, sender);
        }
        add_receive(buffer);
        return;
    }
    HEDDLE_DEBUG_ASSERT(completion.id >> 32 < connections_.size(), "a completion of nobody");
    Connection& connection = *connections_[completion.id >> 32];
    const auto number = static_cast<std::uint32_t>(completion.id);
    if (completion.status == IBV_WC_SUCCESS) [[likely]] {
        finish(connection, number, 0, 0);
        return;
    }
    const int error = errno_of(completion.status);
    if (connection.initiator_ != nullptr) connection.initiator_->is_broken = true;
    finish(connection, number, error, static_cast<int>(completion.status));
    fail(connection, error);
}

// All WRs up to that number are done: those before it without an error, as the device reports
// one where it happens.
void Channel::finish(Connection& connection, std::uint32_t number, int error, int device_error) {
    HEDDLE_DEBUG_ASSERT(static_cast<std::int32_t>(connection.posted_ - number) > 0,
                        "a WR completed that was not posted");
    const auto done = static_cast<std::int32_t>(number + 1 - connection.done_);
    if (done <= 0) return;
    cq_room_ += static_cast<std::uint32_t>(done);
    HEDDLE_DEBUG_ASSERT(cq_room_ <= send_entries_, "an entry of the CQ was given back twice");
    is_room_taken_back_ = false;
    if (error == 0 &&
        static_cast<std::int32_t>(connection.recorded_until_ - connection.done_) <= 0) {
        // These are small messages, whose ends nobody waits for.
        connection.recorded_until_ = connection.done_ = number + 1;
        return;
    }
    while (static_cast<std::int32_t>(number - connection.done_) >= 0) {
        const Connection::Record record = connection.record(connection.done_);
        if (record.recipient != Connection::Recipient::kNobody ||
            record.buffer != Connection::kNoBuffer)
            connection.record(connection.done_) = {};
        const bool last = connection.done_ == number;
        ++connection.done_;
        if (record.buffer != Connection::kNoBuffer) send_buffers_.give_back(record.buffer);
        switch (record.recipient) {
            case Connection::Recipient::kNobody:
                if (last && error != 0 && record.argument != Connection::own_mark(number))
                    users_.tell_of_lost(connection, error, device_error);
                break;
            case Connection::Recipient::kUser: {
                WrContext sent;
                sent.user = users_.at(record.user);
                HEDDLE_DEBUG_ASSERT(sent.user != nullptr, "forget() comes before detach()");
                sent.context = record.argument;
                sent.what = record.what;
                sent.user->sent(sent, last ? error : 0, last ? device_error : 0);
                break;
            }
            case Connection::Recipient::kPart:
                static_cast<CompletionHandler*>(record.argument)
                    ->done(last ? error : 0, last ? device_error : 0);
                break;
        }
    }
}

void Channel::look_at_changes() {
    // A state that changes from here on sets changed_ again.
    changed_.exchange(false, std::memory_order_acq_rel);
    look_at_connections();
    look_at_growing();
    const int error = drain_.device_error.load(std::memory_order_acquire);
    if (error != 0 && error_ == 0) break_down(error);
    look_if_drained();
}

// No completion comes any more. In the error state a QP touches no memory, so each outstanding WR
// can be ended here, with an error, as nobody knows which were executed (IBTA 11.6.3.2).
void Channel::break_down(int error) {
    HEDDLE_ASSERT(error != 0 && error_ == 0, "a channel breaks once");
    error_ = error;
    for (const auto& each : connections_) {
        Connection& connection = *each;
        if (ibv_qp* const qp = connection.posts_to()) {
            ibv_qp_attr attributes{};
            attributes.qp_state = IBV_QPS_ERR;
            ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
        }
        while (connection.done_ != connection.posted_)
            finish(connection, connection.done_, error, 0);
        fail(connection, error);
    }
    HEDDLE_ASSERT(under_way() == 0, "each WR has ended");
    users_.each([&](ChannelUser& user) { user.broken(error); });
}

// Everything that was in the queue when it was asked has been read once it has been empty, or once
// as many entries as it holds were read.
void Channel::look_if_drained() {
    const auto read = [this] { return direct_cq_ ? direct_cq_->consumer() : read_by_verbs_; };
    if (!draining_.is_under_way) {
        const std::uint64_t asked = drain_.asked.load(std::memory_order_acquire);
        if (asked == drain_.done.load(std::memory_order_relaxed)) return;
        draining_ = {asked, read(), true};
        found_no_more_ = false;
    }
    const bool is_empty = direct_cq_ ? direct_cq_->next() == nullptr : found_no_more_;
    if (!is_empty && read() - draining_.read_at < static_cast<std::uint32_t>(objects_.cq()->cqe)) {
        changed_.store(true, std::memory_order_relaxed);  // look again
        return;
    }
    users_.each([](ChannelUser& user) { user.drain(); });
    draining_.is_under_way = false;
    drain_.done.store(draining_.ticket, std::memory_order_release);
    if (drain_.asked.load(std::memory_order_acquire) != draining_.ticket)
        changed_.store(true, std::memory_order_relaxed);
    connector_->drained();
}

void Channel::look_at_connections() {
    for (std::size_t i = 0; i < connecting_.size();) {
        Connection& connection = *connecting_[i];
        const auto state = connection.queue_.request->state.load(std::memory_order_acquire);
        if (state == ConnectionRequest::kConnecting) {
            ++i;
            continue;
        }
        connecting_.erase(connecting_.begin() + static_cast<std::ptrdiff_t>(i));
        if (state == ConnectionRequest::kFailed) {
            fail(connection, connection.queue_.request->error);
            continue;
        }
        // The channel broke while the connector was making it.
        if (connection.failed()) continue;
        HEDDLE_ASSERT(connection.state_ == ConnectionRequest::kConnecting,
                      "a connection is made once");
        connection.state_ = state;
        if (const int error = connection.dc_ ? open_dc(connection) : 0) {
            fail(connection, error);
            continue;
        }
        users_.each([&](ChannelUser& user) { user.changed(connection); });
    }
}

void Channel::fail(Connection& connection, int error) {
    HEDDLE_ASSERT(error != 0, "a failure has an errno");
    if (connection.failed()) return;
    drop_deeper(connection);
    if (connection.ready()) connector_->abandon(*connection.queue_.request);
    // A peer that has died can end no message that it has begun.
    if (error == EHOSTUNREACH || error == ETIMEDOUT || error == ECONNREFUSED)
        connector_->lose(connection.to(), connection.queue_.request->from);
    connection.state_ = ConnectionRequest::kFailed;
    connection.error_ = error;
    users_.each([&](ChannelUser& user) { user.changed(connection); });
}

bool Channel::drained(const std::function<bool(const Connection&)>& is_lost) {
    bool all = true;
    for (const auto& connection : connections_) {
        if (connection->idle() || !connection->ready() || connection->peer_has_left() ||
            is_lost(*connection))
            continue;
        all = false;
        if (connection->unsignaled() != 0) signal_behind(*connection);
    }
    return all;
}

std::uint64_t Channel::under_way() const noexcept {
    std::uint64_t outstanding = 0;
    for (const auto& connection : connections_)
        outstanding += connection->posted_ - connection->done_;
    return outstanding;
}

void Channel::forget(ChannelUser& user) noexcept {
    for (const auto& connection : connections_)
        for (std::uint32_t number = connection->done_; number != connection->posted_; ++number) {
            Connection::Record& record = connection->record(number);
            if (record.user != user.number_ || record.recipient == Connection::Recipient::kNobody)
                continue;
            record.recipient = Connection::Recipient::kNobody;
            record.argument = Connection::own_mark(number);
        }
}

}  // namespace heddle::protocol
