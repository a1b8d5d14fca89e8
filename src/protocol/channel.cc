// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/channel_poll.h"
#include "protocol/channel_post.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "heddle/error.h"
#include "protocol/eager_ring.h"
#include "protocol/wire.h"
#include "verbs/connection.h"
#include "verbs/memlock.h"

namespace heddle::protocol {
namespace {

// Ids of receives carry the buffer's number, those of sends connection << 32 | number of the work.
constexpr std::uint64_t kReceive = std::uint64_t{1} << 63;
// Under way at once there are mostly fewer.
constexpr std::uint32_t kFewWorks = 32;
// Around the payload of the largest eager message: wide data, and the tail that rings have.
constexpr std::size_t kHeaderRoom = sizeof(Header) + 8 + sizeof(RingTail);
// RTS with all its segments must fit, whatever eager_bytes is.
constexpr std::size_t kLeastBuffer = 512;
// Receives are given back to the device so many at a time.
constexpr std::uint32_t kReceivesAtOnce = 16;
constexpr std::uint32_t kMostReceives = 16384;
// Entries of the CQ for WRs of send queues, if the device has CQs of that size. With some 1000
// receive buffers a CQ has 4096 entries, as many as with a few hundred.
constexpr std::uint32_t kSendEntries = 3000;
// Of these, only signal_behind() may use so many: when all others are taken, each connection can
// still be asked which of its WRs are done.
constexpr std::uint32_t kReservedEntries = 64;

std::size_t buffer_bytes(const Options& options) {
    return std::max(options.eager_bytes + kHeaderRoom, kLeastBuffer);
}

// What options.receive_bytes gives room for, and the numbers of an SRQ's entries.
std::uint32_t most_receives(const Options& options) {
    const std::size_t most =
        std::min(options.receive_bytes / buffer_bytes(options), std::size_t{kMostReceives});
    return std::max(options.receive_buffers, static_cast<std::uint32_t>(most));
}

// Which endpoints one connection reaches.
Name key_of(const Name& to, bool xrc) {
    Name key;
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
      asked_inline_(static_cast<std::uint32_t>(options.inject_bytes + kHeaderRoom)),
      most_receives_(most_receives(options)),
      receives_at_once_(std::clamp(options.receive_buffers / 4, 1u, kReceivesAtOnce)) {
    drain_.argument = this;
    drain_.ask = [](void* channel) {
        static_cast<Channel*>(channel)->changed_.store(true, std::memory_order_release);
        static_cast<Channel*>(channel)->wake();
    };
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (wake_ < 0 || epoll_ < 0) {
        const int error = errno;
        ::close(wake_);
        ::close(epoll_);
        throw VerbsError("file descriptors to sleep on", error, "raise `ulimit -n`");
    }
    make_cq();
    make_srq(direct);
    if (direct) {
        direct_cq_.emplace(cq_.get());
        direct_srq_.emplace(srq_.get());
        direct_cq_->add_default(*direct_srq_);
    } else {
        verbs_cq_.emplace(cq_.get());
    }
    // The direct path gives each entry of the queue a buffer, and posts all but one.
    if (direct_srq_) direct_srq_->begin_with(options.receive_buffers);
    receive_buffers_.emplace(resources_->shared->pd.get(), buffer_bytes(options),
                             direct ? direct_srq_->entries() : options.receive_buffers,
                             most_receives_,
                             options.relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0);
    to_post_.reserve(direct ? 0 : most_receives_);
    use_buffers_from(0);
}

// Posts the buffers from that number on, which are new.
void Channel::use_buffers_from(std::uint32_t first) noexcept {
    const std::uint32_t count = receive_buffers_->count();
    if (direct_srq_) {
        direct_srq_->fill(
            [this](std::uint32_t index, std::uint64_t& id) {
                id = kReceive | index;
                return receive_into(index);
            },
            first, count);
        if (first != 0) direct_srq_->grow(count);
        direct_srq_->post_again(first == 0 ? count - 1 : count - first);
        return;
    }
    for (std::uint32_t i = first; i < count; ++i)
        to_post_.push_back(i);
    ring_receives();
}

// A burst of messages has taken half of the receives before they were read. If it takes all, its
// senders wait for their RNR timers, and repeat what they have sent. So there are twice as many
// from now on, up to options.receive_bytes, which the SRQ and the CQ have entries for.
void Channel::grow_receives() noexcept {
    const std::uint32_t count = receive_buffers_->count();
    const std::uint32_t wanted = std::min(2 * count, most_receives_);
    if (wanted == count || cannot_grow_) return;
    try {
        receive_buffers_->grow(wanted);
    } catch (const std::exception&) {  // RLIMIT_MEMLOCK, mostly: then they stay as many as they are
        cannot_grow_ = true;
        return;
    }
    use_buffers_from(count);
}

Channel::~Channel() {
    for (const auto& connection : connections_) {
        connector_->cancel(connection->request_);
        connector_->disconnect(connection->request_);
    }
    ::close(epoll_);
    ::close(wake_);
    if (timer_ >= 0) ::close(timer_);
}

void Channel::watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0)
        throw VerbsError("waiting for a completion channel", errno);
}

void Channel::make_cq() {
    ibv_context* const context = resources_->shared->context.get();
    events_.reset(ibv_create_comp_channel(context));
    if (!events_) throw VerbsError("a completion channel", errno, "raise `ulimit -n`");
    ::fcntl(events_->fd, F_SETFL, ::fcntl(events_->fd, F_GETFL) | O_NONBLOCK);
    watch(events_->fd);
    watch(wake_);
    ibv_device_attr device{};
    if (const int error = ibv_query_device(context, &device))
        throw VerbsError("the limits of the device", error);
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = std::min(most_receives_ + kSendEntries,
                              static_cast<std::uint32_t>(std::max(device.max_cqe, 0)));
    const std::uint32_t fewest = most_receives_ + 2 * kReservedEntries;
    if (attributes.cqe < fewest)
        throw VerbsError("a completion queue of " + std::to_string(fewest) +
                             " entries, where the device has " + std::to_string(device.max_cqe),
                         EINVAL, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller");
    attributes.channel = events_.get();
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    if (resources_->parent) {  // one thread at a time: libmlx5 need not lock
        attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        if (ibv_cq_ex* extended = ibv_create_cq_ex(context, &attributes))
            cq_.reset(ibv_cq_ex_to_cq(extended));
    }
    if (!cq_)
        cq_.reset(
            ibv_create_cq(context, static_cast<int>(attributes.cqe), nullptr, events_.get(), 0));
    if (!cq_)
        throw VerbsError("a completion queue of " + std::to_string(attributes.cqe) + " entries",
                         errno,
                         verbs::memlock_hint(errno, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller"));
    // other() publishes what it has read at the latest after kPollAtOnce entries.
    cq_room_ = static_cast<std::uint32_t>(cq_->cqe) - most_receives_ - kPollAtOnce;
}

void Channel::make_srq(bool direct) {
    ibv_srq_init_attr_ex attributes{};
    // The driver keeps an entry more than it is asked for, and rounds up.
    attributes.attr.max_wr = most_receives_ - (direct ? 1 : 0);
    attributes.attr.max_sge = 1;
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    attributes.srq_type = IBV_SRQT_BASIC;
    attributes.pd = resources_->shared->pd.get();
    if (xrc()) {
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
        attributes.srq_type = IBV_SRQT_XRC;
        attributes.xrcd = resources_->shared->xrcd.get();
        attributes.cq = cq_.get();
    }
    srq_.reset(ibv_create_srq_ex(resources_->shared->context.get(), &attributes));
    if (!srq_)
        throw VerbsError("a shared receive queue of " + std::to_string(most_receives_), errno,
                         verbs::memlock_hint(errno, "FI_HEDDLE_RECEIVE_MEMORY makes it smaller"));
    if (xrc() && ibv_get_srq_num(srq_.get(), &srqn_) != 0)
        throw VerbsError("the number of a shared receive queue", errno);
}

void Channel::attach(std::uint16_t number, ChannelUser& user) {
    if (users_.size() <= number) users_.resize(number + 1u);
    users_[number] = &user;
    user.number_ = number;
}

void Channel::detach(std::uint16_t number) { users_[number] = nullptr; }

Connection& Channel::connection(const Name& from, const Name& to) {
    Connection*& known = by_name_[key_of(to, xrc())];
    if (known != nullptr) return *known;
    if (error_ != 0) throw VerbsError("a connection by a device that has failed", error_);
    auto fresh = std::make_unique<Connection>();
    fresh->index_ = static_cast<std::uint32_t>(connections_.size());
    fresh->request_.from = from;
    fresh->request_.to = to;
    fresh->request_.argument = this;
    fresh->request_.changed = [](void* channel) {
        static_cast<Channel*>(channel)->changed_.store(true, std::memory_order_release);
        static_cast<Channel*>(channel)->wake();
    };
    make_qp(*fresh, from);
    fresh->request_.qp = fresh->qp_.get();
    connections_.push_back(std::move(fresh));
    connection_count_.store(static_cast<std::uint32_t>(connections_.size()),
                            std::memory_order_relaxed);
    Connection& connection = *connections_.back();
    known = &connection;
    connecting_.push_back(&connection);
    connector_->connect(connection.request_);
    return connection;
}

// With as much inline data as the options want, or as the device can: libmlx5 answers EINVAL where
// an entry would be longer than the device's longest (mlx5_calc_sq_size).
verbs::QueuePair Channel::make_send_queue() {
    for (;; asked_inline_ /= 2) {
        ibv_qp_init_attr_ex attributes{};
        attributes.send_cq = cq_.get();
        attributes.cap.max_send_wr = options_.send_depth;
        attributes.cap.max_send_sge = 3;  // header, data, a ring's tail
        attributes.cap.max_inline_data = asked_inline_;
        attributes.pd = resources_->qp_pd();
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        if (xrc()) {
            attributes.qp_type = IBV_QPT_XRC_SEND;
        } else {
            attributes.qp_type = IBV_QPT_RC;
            attributes.recv_cq = cq_.get();
            attributes.srq = srq_.get();
        }
        verbs::QueuePair qp(ibv_create_qp_ex(resources_->shared->context.get(), &attributes));
        if (!qp && errno == EINVAL && asked_inline_ != 0) continue;
        if (!qp) return qp;
        max_inline_ = attributes.cap.max_inline_data;
        inline_end_ = max_inline_ < kHeaderRoom
                          ? 0
                          : std::min(options_.inject_bytes, max_inline_ - kHeaderRoom) + 1;
        return qp;
    }
}

void Channel::make_qp(Connection& connection, const Name& from) {
    connection.qp_ = make_send_queue();
    if (!connection.qp_)
        throw VerbsError("a queue pair for endpoint " + std::to_string(from.endpoint), errno,
                         verbs::memlock_hint(errno,
                                             "the device has no more, or FI_HEDDLE_SEND_DEPTH is "
                                             "more than it can"));
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = verbs::kPort;
    if (const int error =
            ibv_modify_qp(connection.qp_.get(), &init,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        throw VerbsError("taking a queue pair to INIT", error);
    connection.sent_mask_ = std::min(std::bit_ceil(options_.send_depth), kFewWorks) - 1;
    connection.sent_ = std::make_unique<Connection::Record[]>(connection.sent_mask_ + 1);
    if (direct_cq_) {
        connection.direct_.emplace(connection.qp_.get(), false, max_inline_,
                                   resources_->register_shared(), options_.send_depth);
        connection.direct_->count_ids_from(std::uint64_t{connection.index_} << 32);
        direct_cq_->add(*connection.direct_);
    } else {
        connection.verbs_.emplace(connection.qp_.get(), 1);
    }
}

// True: the send queue, `depth` WRs deep, and the ring that remembers its WRs take one more. The
// ring grows up to the depth.
bool Connection::has_place(std::uint32_t depth) noexcept {
    const std::uint32_t outstanding = posted_ - done_;
    if (outstanding >= depth) return false;
    if (outstanding > sent_mask_) {
        const std::uint32_t mask = 2 * sent_mask_ + 1;
        std::unique_ptr<Record[]> larger(new (std::nothrow) Record[mask + std::size_t{1}]);
        if (larger == nullptr) return false;
        for (std::uint32_t number = done_; number != posted_; ++number)
            larger[number & mask] = record(number);
        sent_ = std::move(larger);
        sent_mask_ = mask;
    }
    return true;
}

// Reserves CQ entries for the connection's next WRs: as many as its ring has places, but at most an
// eighth of what is left, so that each of many peers gets some. False: not one.
bool Channel::find_room(Connection& connection) noexcept {
    if (!connection.has_place(options_.send_depth)) return false;
    if (cq_room_ <= kReservedEntries) take_back_room();
    if (cq_room_ <= kReservedEntries) return false;
    const std::uint32_t places = std::min(options_.send_depth, connection.sent_mask_ + 1) -
                                 (connection.posted_ - connection.done_);
    const std::uint32_t taken = std::min(places, 1 + (cq_room_ - kReservedEntries) / 8);
    connection.room_until_ += taken;
    cq_room_ -= taken;
    is_room_taken_back_ = false;
    return true;
}

// Collects the entries that connections have reserved and do not use, and makes the end of
// unsignaled WRs known. The walk over all connections is not repeated until an entry has become
// free or was given out: until then it would find nothing.
void Channel::take_back_room() noexcept {
    if (is_room_taken_back_) return;
    is_room_taken_back_ = true;
    for (const auto& connection : connections_) {
        cq_room_ += connection->room_until_ - connection->posted_;
        connection->room_until_ = connection->quiet_until_ = connection->posted_;
    }
    for (const auto& connection : connections_)
        if (connection->ready() && connection->unsignaled() != 0 && !signal_behind(*connection))
            return;
}

// If the last WRs of a connection are unsignaled, nothing says when they are done: an empty write
// behind them does. False: there is no room for it now.
bool Channel::signal_behind(Connection& connection) noexcept {
    if (cq_room_ == 0 || !connection.has_place(options_.send_depth)) return false;
    cq_room_ += connection.room_until_ - connection.posted_;
    connection.quiet_until_ = connection.posted_;
    connection.room_until_ = connection.posted_ + 1;  // the last that there is room for is signaled
    --cq_room_;
    post::WorkRequest work;
    work.opcode = post::Opcode::kWrite;
    work.remote_srq = connection.request_.to.srqn;
    return post(connection, work, {.what = Sent::kOwn}) == post::Posted::kOk;
}

void Connection::find_quiet() noexcept {
    quiet_until_ = posted_ + std::min(room_until_ - 1 - posted_,
                                      Channel::kSignalEvery - 1 -
                                          std::min(Channel::kSignalEvery - 1, unsignaled()));
}

post::Posted Channel::post(Connection& connection, post::WorkRequest& work,
                           const Sent& sent) noexcept {
    if (!has_room(connection)) [[unlikely]]
        return post::Posted::kFull;
    const bool signal = is_signaled(connection, sent);
    if (signal) work.flags |= post::kSignaled;
    work.id = std::uint64_t{connection.index_} << 32 | connection.posted_;
    const post::Posted posted =
        connection.direct_ ? connection.direct_->post_now(work) : connection.verbs_->post_now(work);
    if (posted == post::Posted::kOk) [[likely]]
        note(connection, sent, signal);
    return posted;
}

ibv_sge Channel::receive_into(std::uint32_t buffer) const noexcept {
    return {reinterpret_cast<std::uintptr_t>(receive_buffers_->at(buffer)),
            static_cast<std::uint32_t>(receive_buffers_->bytes()), receive_buffers_->key(buffer)};
}

// What came into the buffer has been dealt with.
void Channel::add_receive(std::uint32_t buffer) noexcept {
    if (direct_srq_) {  // the CQ has released the entry
        count_free_receive();
        return;
    }
    to_post_.push_back(buffer);
    if (to_post_.size() >= receives_at_once_) ring_receives();
}

// Entries come back in the order of their completions, in which messages are dealt with: the one
// that is posted next is one whose buffer is free.
//
// Their completions are given back to the device no sooner: no more come before these receives are
// there again, and the cache line of that counter, in which the device looks for each message
// whether the queue is armed, changes a sixteenth as often.
void Channel::post_free_receives() noexcept {
    direct_cq_->publish();
    direct_srq_->post_again(receives_at_once_);
    until_posting_ = receives_at_once_;
    if (direct_cq_->has_entry_ahead(receive_buffers_->count() / 2)) [[unlikely]]
        grow_receives();
}

void Channel::ring_receives() noexcept {
    std::size_t taken = 0;
    for (; taken < to_post_.size(); ++taken) {
        ibv_sge piece = receive_into(to_post_[taken]);
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.wr_id = kReceive | to_post_[taken];
        wr.sg_list = &piece;
        wr.num_sge = 1;
        if (ibv_post_srq_recv(srq_.get(), &wr, &bad) != 0) break;
    }
    to_post_.erase(to_post_.begin(), to_post_.begin() + static_cast<std::ptrdiff_t>(taken));
}

unsigned Channel::poll(unsigned most) {
    struct Anybody {
        Channel& channel;
        void take_message(std::span<const std::byte> bytes, bool has_immediate,
                          std::uint32_t immediate, std::uint32_t qpn) const {
            channel.hand_over(destination_of(bytes.data()), bytes, has_immediate, immediate, qpn);
        }
    } const anybody{*this};
    return poll_for(anybody, most);
}

unsigned Channel::poll_verbs(unsigned most) {
    const unsigned found = verbs_cq_->poll(completions_.data(), std::min(most, kPollAtOnce));
    read_by_verbs_ += found;
    found_no_more_ = found < std::min(most, kPollAtOnce);
    backlog_ = found_no_more_ ? 0 : backlog_ + found;
    if (backlog_ > receive_buffers_->count() / 2) [[unlikely]] {
        backlog_ = 0;
        grow_receives();
    }
    for (unsigned i = 0; i < found; ++i)
        completed(completions_[i]);
    return found;
}

// Publishing each entry would cost a store; publishing none until the queue is empty could let what
// callbacks post meanwhile overrun it.
void Channel::other(const mlx5_cqe64& cqe) {
    completed(direct_cq_->completion(cqe));
    if (++unpublished_ < kPollAtOnce) return;
    unpublished_ = 0;
    direct_cq_->publish();
}

void Channel::hand_over(std::uint16_t user, std::span<const std::byte> bytes, bool has_immediate,
                        std::uint32_t immediate, std::uint32_t qpn) {
    if (user < users_.size() && users_[user] != nullptr)
        users_[user]->received(bytes, has_immediate, immediate, qpn);
}

void Channel::completed(const post::Completion& completion) {
    if (completion.id & kReceive) {
        const auto buffer = static_cast<std::uint32_t>(completion.id);
        // A peer that died in the middle of a message leaves a receive with an error: it is used
        // again; what is concerned fails where it was asked for.
        if (completion.status == IBV_WC_SUCCESS && completion.bytes >= sizeof(Header)) {
            const std::byte* const at = receive_buffers_->at(buffer);
            hand_over(destination_of(at), {at, completion.bytes}, completion.has_immediate,
                      completion.immediate, completion.qpn);
        }
        add_receive(buffer);
        return;
    }
    Connection& connection = *connections_[completion.id >> 32];
    const auto number = static_cast<std::uint32_t>(completion.id);
    if (completion.status == IBV_WC_SUCCESS) [[likely]] {
        finish(connection, number, 0, 0);
        return;
    }
    const int error = errno_of(completion.status);
    finish(connection, number, error, static_cast<int>(completion.status));
    fail(connection, error);
}

// All works up to that number are done: those before it without an error, as the device reports
// one where it happens.
void Channel::finish(Connection& connection, std::uint32_t number, int error, int device_error) {
    if (const auto done = static_cast<std::int32_t>(number + 1 - connection.done_); done > 0) {
        cq_room_ += static_cast<std::uint32_t>(done);
        is_room_taken_back_ = false;
    }
    while (static_cast<std::int32_t>(number - connection.done_) >= 0) {
        const Connection::Record record = connection.record(connection.done_);
        if (record.told != Connection::Told::kNobody || record.buffer != Connection::kNoBuffer)
            connection.record(connection.done_) = {};
        const bool last = connection.done_ == number;
        ++connection.done_;
        if (record.buffer != Connection::kNoBuffer) send_buffers_.give_back(record.buffer);
        switch (record.told) {
            case Connection::Told::kNobody:
                if (last && error != 0 && record.argument != Connection::own_mark(number))
                    tell_of_lost(connection, error, device_error);
                break;
            case Connection::Told::kUser: {
                Sent sent;
                sent.user = users_[record.user];
                sent.context = record.argument;
                sent.what = record.what;
                sent.user->sent(sent, last ? error : 0, last ? device_error : 0);
                break;
            }
            case Connection::Told::kPart:
                static_cast<Part*>(record.argument)
                    ->done(last ? error : 0, last ? device_error : 0);
                break;
        }
    }
}

// Which of several endpoints that share the channel posted it, nobody noted: one of those that send
// there is told.
void Channel::tell_of_lost(const Connection& connection, int error, int device_error) {
    for (ChannelUser* const user : users_)
        if (user != nullptr && user->lost(connection, error, device_error)) return;
}

void Channel::look_at_changes() {
    // A state that changes from here on sets changed_ again.
    changed_.exchange(false, std::memory_order_acq_rel);
    look_at_connections();
    const int error = drain_.device_error.load(std::memory_order_acquire);
    if (error != 0 && error_ == 0) break_down(error);
    look_if_drained();
}

// No completion comes any more. In the error state a QP touches no memory, so each outstanding WR
// can be ended here, with an error, as nobody knows which were executed (IBTA 11.6.3.2).
void Channel::break_down(int error) {
    error_ = error;
    for (const auto& each : connections_) {
        Connection& connection = *each;
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_ERR;
        ibv_modify_qp(connection.qp_.get(), &attributes, IBV_QP_STATE);
        while (connection.done_ != connection.posted_)
            finish(connection, connection.done_, error, 0);
        fail(connection, error);
    }
    for (ChannelUser* const user : users_)
        if (user != nullptr) user->broken(error);
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
    if (!is_empty && read() - draining_.read_at < static_cast<std::uint32_t>(cq_->cqe)) {
        changed_.store(true, std::memory_order_relaxed);  // look again
        return;
    }
    for (ChannelUser* const user : users_)
        if (user != nullptr) user->drain();
    draining_.is_under_way = false;
    drain_.done.store(draining_.ticket, std::memory_order_release);
    if (drain_.asked.load(std::memory_order_acquire) != draining_.ticket)
        changed_.store(true, std::memory_order_relaxed);
    connector_->drained();
}

void Channel::look_at_connections() {
    for (std::size_t i = 0; i < connecting_.size();) {
        Connection& connection = *connecting_[i];
        const auto state = connection.request_.state.load(std::memory_order_acquire);
        if (state == ConnectionRequest::kConnecting) {
            ++i;
            continue;
        }
        connecting_.erase(connecting_.begin() + static_cast<std::ptrdiff_t>(i));
        if (state == ConnectionRequest::kFailed) {
            fail(connection, connection.request_.error);
            continue;
        }
        connection.state_ = state;
        for (ChannelUser* const user : users_)
            if (user != nullptr) user->changed(connection);
    }
}

void Channel::fail(Connection& connection, int error) {
    if (connection.failed()) return;
    if (connection.ready()) connector_->abandon(connection.request_);
    // A peer that has died can end no message that it has begun.
    if (error == EHOSTUNREACH || error == ETIMEDOUT || error == ECONNREFUSED)
        connector_->lose(connection.to(), connection.request_.from);
    connection.state_ = ConnectionRequest::kFailed;
    connection.error_ = error;
    for (ChannelUser* const user : users_)
        if (user != nullptr) user->changed(connection);
}

bool Channel::drained() noexcept {
    bool all = true;
    for (const auto& connection : connections_) {
        if (connection->idle() || !connection->ready()) continue;
        all = false;
        if (connection->unsignaled() != 0) signal_behind(*connection);
    }
    return all;
}

std::uint64_t Channel::under_way() const noexcept {
    std::uint64_t works = 0;
    for (const auto& connection : connections_)
        works += connection->posted_ - connection->done_;
    return works;
}

void Channel::forget(ChannelUser& user) noexcept {
    for (const auto& connection : connections_)
        for (std::uint32_t number = connection->done_; number != connection->posted_; ++number) {
            Connection::Record& record = connection->record(number);
            if (record.user != user.number_ || record.told == Connection::Told::kNobody) continue;
            record.told = Connection::Told::kNobody;
            record.argument = Connection::own_mark(number);
        }
}

bool Channel::arm() {
    disarm();
    if (direct_cq_)
        direct_cq_->arm(false);
    else
        verbs_cq_->arm(false);
    // What came before it was armed raises no event.
    return poll() == 0 && !changed_.load(std::memory_order_acquire);
}

void Channel::disarm() {
    std::uint64_t count;
    while (::read(wake_, &count, sizeof count) > 0) {
    }
    // One that has yet to come stays: it may be of another who sleeps here.
    while (timer_ >= 0 && ::read(timer_, &count, sizeof count) > 0) {
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(events_.get(), &cq, &context) == 0) {
        if (direct_cq_ && cq == cq_.get()) direct_cq_->event_read();
        ibv_ack_cq_events(cq, 1);
    }
}

void Channel::wake_after(std::chrono::nanoseconds time) {
    if (timer_ < 0) {
        const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (timer < 0) throw VerbsError("a timer", errno, "raise `ulimit -n`");
        timer_ = timer;
        watch(timer_);
    }
    itimerspec once{};
    once.it_value.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000);
    once.it_value.tv_nsec = static_cast<long>(time.count() % 1'000'000'000);
    ::timerfd_settime(timer_, 0, &once, nullptr);
}

void Channel::wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

}  // namespace heddle::protocol
