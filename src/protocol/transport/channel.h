// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects behind endpoints: one completion queue, one shared receive queue with its
// buffers, and a send queue for each remote context (XRC) or endpoint (RC), or a few for all of
// them (DC), all of one thread's resources. WRs are posted and completions are polled by the path
// that was chosen. Users hear of the ends of their WRs in the order of posting. In the category
// mpi+threads all endpoints of a process share one channel; otherwise each has its own.
//
// One thread at a time. Only WaitSet::wake and connections() may be called by others.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "endpoint/thread_resources.h"
#include "heddle/post/queues.h"
#include "memory/growing_buffers.h"
#include "memory/pool.h"
#include "protocol/common/options.h"
#include "protocol/transport/channel_objects.h"
#include "protocol/transport/channel_users.h"
#include "protocol/transport/dc_initiators.h"
#include "protocol/transport/wait_set.h"
#include "protocol/wireup/connector.h"

namespace heddle::protocol {

class Channel;

// A poll reads at most so many completions at once. Then the device gets the consumer index.
inline constexpr std::uint32_t kPolledAtOnce = 16;

// The end of an operation that posts one WR or more, and wants more than a report.
class CompletionHandler {
public:
    virtual void done(int error, int device_error) = 0;

protected:
    ~CompletionHandler() = default;
};

// What happens when a posted WR is done.
struct WrContext {
    // kOwn: of the protocol's own, or reported already: the application is not told if it fails.
    enum What : std::uint8_t { kEntry = 1, kCount = 2, kTagged = 4, kRma = 8, kOwn = 16 };
    ChannelUser* user = nullptr;
    void* context = nullptr;               // for kEntry
    CompletionHandler* handler = nullptr;  // told instead of the user
    std::byte* buffer = nullptr;           // of the channel's pool: goes back
    std::uint8_t what = 0;
    // Its end is reported to somebody.
    bool needs_completion() const noexcept { return (what & ~kOwn) != 0 || handler != nullptr; }
};

// The way to a remote context, or endpoint.
class Connection {
public:
    bool ready() const noexcept { return state_ == ConnectionRequest::kConnected; }
    bool failed() const noexcept { return state_ == ConnectionRequest::kFailed; }
    int error() const noexcept { return error_; }
    bool direct() const noexcept { return direct_.has_value(); }
    const EndpointAddress& to() const noexcept { return queue_.request->to; }
    // The last byte of a write that is not longer is in memory after all others. Once ready().
    std::uint32_t packet_bytes() const noexcept { return queue_.request->packet_bytes; }
    // host_number() of the peer, once ready(); 0: it shares no memory.
    std::uint64_t host() const noexcept { return queue_.request->host; }
    // The peer's end is no more: it has told so. What is under way to it may end late, or with an
    // error.
    bool peer_has_left() const noexcept {
        return queue_.request->peer_has_left.load(std::memory_order_acquire);
    }
    bool idle() const noexcept { return posted_ == done_; }
    // So many WRs can be under way at once.
    std::uint32_t depth() const noexcept { return queue_.depth; }
    // Nothing is under way that ends with a completion: of what the device cannot deliver any more,
    // and of a peer that is gone, nobody would hear.
    bool silent() const noexcept { return posted_ - done_ <= unsignaled(); }

private:
    friend class Channel;
    enum class Recipient : std::uint8_t { kNobody, kUser, kPart };
    static constexpr std::uint32_t kNoBuffer = UINT32_MAX;
    std::uint32_t index_ = 0;
    ConnectionRequest::State state_ = ConnectionRequest::kConnecting;  // as the owner knows it
    int error_ = 0;
    // What is posted to, and what connects it.
    struct Queue {
        verbs::QueuePair qp;  // by DC: none
        std::unique_ptr<ConnectionRequest> request;
        std::uint32_t depth = 0;  // so many WRs at once
    };
    Queue queue_, deeper_;  // deeper_: until it takes the other's place, see channel_growth.cc
    bool may_grow_ = true;
    std::unique_ptr<DcTarget> dc_;
    DcInitiator* initiator_ = nullptr;  // by DC, while something is under way at least
    ibv_qp* posts_to() const noexcept {
        return initiator_ != nullptr ? initiator_->qp() : queue_.qp.get();
    }
    std::optional<post::Mlx5SendQueue<post::SingleThreaded>> direct_;
    std::optional<post::VerbsSendQueue<post::SingleThreaded>> verbs_;
    // What WrContext says, for each outstanding WR, in few bytes: there are as many as the queue is
    // deep. An injected message has no record, since its end is not reported. When a
    // connection fails, all WRs have a completion, so those of the protocol's own have own_mark().
    struct Record {
        void* argument = nullptr;  // the context, or the part
        std::uint32_t buffer = kNoBuffer;
        std::uint16_t user = 0;
        std::uint8_t what = 0;
        Recipient recipient = Recipient::kNobody;
    };
    static_assert(sizeof(Record) == 16);
    // The argument of a WR without a report. The record that an earlier WR has left in its place
    // has another number.
    static void* own_mark(std::uint32_t number) noexcept {
        return reinterpret_cast<void*>(std::uintptr_t{number} + 1);
    }
    std::unique_ptr<Record[]> sent_;  // ring, by number; grows up to the queue's depth
    std::uint32_t sent_mask_ = 0;
    Record& record(std::uint32_t number) noexcept { return sent_[number & sent_mask_]; }
    bool has_place() noexcept;
    void find_quiet(bool signal) noexcept;
    std::uint32_t posted_ = 0, done_ = 0;  // free-running numbers
    std::uint32_t signaled_at_ = 0;        // so many when the last that was signaled had been
    // No WR from this number on has a recipient or a buffer.
    std::uint32_t recorded_until_ = 0;
    // Up to room_until_ WRs have places in the send queue and entries in the CQ. Up to quiet_until_
    // an unsignaled WR need not be signaled for the sake of those before it.
    std::uint32_t room_until_ = 0, quiet_until_ = 0;
    std::uint32_t unsignaled() const noexcept { return posted_ - signaled_at_; }
};

// What goes out in one WR, in bytes.
struct SendLimits {
    std::size_t max_inline = 0;  // once there is a connection; whole, the header with it
    std::size_t inline_end = 0;  // of the payload; see fits_inline()
    std::size_t max_message = std::size_t{1} << 30;  // or less, if the port says so

    // Can a message of so many bytes go inline, with all that is around it? FI_HEDDLE_INLINE_SIZE
    // wants it, and the device has that much room. There must be a connection.
    bool fits_inline(std::size_t bytes) const noexcept { return bytes < inline_end; }
};

class Channel {
public:
    // Throws VerbsError.
    Channel(std::unique_ptr<endpoint::ThreadResources> resources, const Options& options,
            bool direct, std::uint32_t number);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    std::uint32_t number() const noexcept { return number_; }  // EndpointAddress::channel
    bool xrc() const noexcept { return objects_.xrc(); }
    bool direct() const noexcept { return direct_cq_.has_value(); }
    const ChannelObjects& objects() const noexcept { return objects_; }
    const SendLimits& limits() const noexcept { return limits_; }
    std::uint32_t receive_buffers() const noexcept { return receive_buffers_->count(); }
    memory::Pool& send_buffers() noexcept { return send_buffers_; }
    std::uint32_t connections() const noexcept {  // any thread
        return connection_count_.load(std::memory_order_relaxed);
    }
    std::uint64_t under_way() const noexcept;  // works of all of them
    // 0, or an errno once the device has said that it has failed, or this channel's CQ or SRQ.
    int error() const noexcept { return error_; }

    // Before all that follows. Throws VerbsError.
    void use(Connector& connector);
    ChannelUsers& users() noexcept { return users_; }

    // The connection that reaches that endpoint; it is asked for if there is none. Throws
    // VerbsError.
    Connection& connection(const EndpointAddress& from, const EndpointAddress& to);

    // kFull: poll() first. The SGEs' memory must stay until the WR is done, unless inline.
    post::Posted post(Connection& connection, post::WorkRequest& work,
                      const WrContext& sent) noexcept;
    // A SEND of 16 bytes and as many more as fit inline, on a connection that is direct(); in
    // channel_post.h. kIsQuiet: is_quiet(), and no completion is needed. kInvalid: the caller uses
    // post().
    template <bool kImmediate, bool kIsQuiet>
    post::Posted post_message(Connection& connection, std::uint64_t first, std::uint64_t second,
                              const void* rest, std::size_t rest_bytes, std::uint32_t immediate,
                              std::uint64_t srq, const WrContext& sent) noexcept;

    // Tells users and parts of up to `most` completions; gives receive buffers back to the device.
    // In channel_poll.h, for a user that takes its own messages where they are found.
    template <class User>
    unsigned poll_for(User& user, unsigned most);
    // The next message, on the direct path, if it is what the completion queue begins with, and
    // take(bytes, message) takes it. There, too.
    template <class Take>
    bool take_next(const Take& take);
    // The same of messages of up to 32 bytes in RC mode, which come in the completion queue entry:
    // libmlx5 asks for that, and hardware does it for SRQs of RC QPs, but not of XRC.
    template <class Take>
    bool take_next_inlined(const Take& take);
    // Until everything that was posted is done, or nothing more can come of it, as of what is under
    // way to a peer that has left; false: still not. A connection is not waited for, either, if
    // is_lost(connection).
    bool drained(const std::function<bool(const Connection&)>& is_lost);
    // Reports nothing to `user` any more.
    void forget(ChannelUser& user) noexcept;

    // A completion event is asked for, at the wait set's fd(); false: something is there already.
    bool arm();
    WaitSet& wait_set() noexcept { return wait_set_; }

    // The connector asks here when all that is in the completion queues has been read.
    Drain& drain() noexcept { return drain_; }

private:
    friend class EndpointImpl;
    // A message of 16 bytes and up to 8 more, as they lie in memory, on a connection that is
    // direct(); in channel_post.h. kInvalid: the caller uses post(). `taken` is called if it is
    // taken, before the doorbell.
    template <bool kImmediate, bool kIsQuiet, class Taken>
    post::Posted post_small(Connection& connection, std::uint64_t first, std::uint64_t second,
                            std::uint64_t tail, std::uint32_t tail_bytes, std::uint32_t immediate,
                            std::uint64_t srq, const WrContext& sent, const Taken& taken) noexcept;
    static bool is_quiet(const Connection& connection) noexcept;
    template <class Post>
    post::Posted post_quietly(Connection& connection, const WrContext& sent,
                              const Post& post) noexcept;
    // The same as post() where has_room(), on a connection that is direct(). Inlined: what the
    // caller's compiler knows of the WR - opcode, flags, number of SGEs - is not asked for again.
    post::Posted post_direct(Connection& connection, post::WorkRequest& work,
                             const WrContext& sent) noexcept;
    bool should_poll(const Connection& connection) const noexcept;
    // Something can be polled; on the direct path.
    bool has_completion() noexcept {
        return changed_.load(std::memory_order_relaxed) || direct_cq_->first() != nullptr;
    }
    using CompletedMessage = post::Mlx5CompletionQueue<post::SingleThreaded>::Message;
    using Srq = post::Mlx5SharedReceiveQueue<post::SingleThreaded>;
    ibv_sge receive_into(std::uint32_t buffer) const noexcept;
    // Half of the receive buffers have messages that wait to be read.
    bool is_crowded() const noexcept {  // of the direct path
        return direct_cq_->has_entry_ahead(receive_buffers_->count() / 2);
    }
    Connection::Queue make_queue(const EndpointAddress& from, const EndpointAddress& to,
                                 std::uint32_t depth);
    void post_by(Connection& connection, const Connection::Queue& queue);
    void grow(Connection& connection) noexcept;
    bool take_deeper(Connection& connection) noexcept;
    void drop_deeper(Connection& connection) noexcept;
    void look_at_growing() noexcept;
    void make_initiators();
    void make_dc(Connection& connection);
    int open_dc(Connection& connection) noexcept;
    bool take_initiator(Connection& connection) noexcept;
    void leave_initiator(Connection& connection) noexcept;
    bool has_room(Connection& connection) noexcept;
    bool find_room(Connection& connection) noexcept;
    void give_back_room(Connection& connection) noexcept;
    void take_back_room() noexcept;
    bool signal_behind(Connection& connection) noexcept;
    bool is_signaled(const Connection& connection, const WrContext& sent) noexcept;
    void note(Connection& connection, const WrContext& sent, bool signal) noexcept;
    void add_receive(std::uint32_t buffer) noexcept;
    void count_free_receive() noexcept {  // of the direct path
        if (--until_posting_ == 0) [[unlikely]]
            post_free_receives();
    }
    void post_free_receives() noexcept;  // of the direct path
    void ring_receives() noexcept;       // of the other
    void use_buffers_from(std::uint32_t first) noexcept;
    void grow_receives() noexcept;
    void completed(const post::Completion& completion);
    unsigned poll_verbs(unsigned most);
    template <class User>
    void poll_inlined(User& user, const mlx5_cqe64& cqe);
    unsigned poll();  // poll_for() of nobody: messages are handed over to their users
    // Takes away the events that made the wait set's fd() readable.
    void disarm();
    void note_change() noexcept;  // the owner looks at changed_; any thread
    [[gnu::noinline]] void other(const mlx5_cqe64& cqe);
    void finish(Connection& connection, std::uint32_t number, int error, int device_error);
    void look_at_changes();
    void look_at_connections();
    void look_if_drained();
    void break_down(int error);
    void fail(Connection& connection, int error);
    verbs::QueuePair make_send_queue(std::uint32_t depth);

    const Options options_;
    const std::uint32_t number_;
    std::unique_ptr<endpoint::ThreadResources> resources_;
    std::optional<memory::GrowingBuffers> receive_buffers_;
    memory::Pool send_buffers_;
    SendLimits limits_;
    std::uint32_t asked_inline_;         // what the device has not refused
    const std::uint32_t most_receives_;  // see grow_receives()
    WaitSet wait_set_;
    ChannelObjects objects_;
    std::optional<DcInitiators> initiators_;         // by DC, with the first connection
    std::optional<memory::GrowingBuffers> tickets_;  // one of each connection
    std::optional<post::Mlx5CompletionQueue<post::SingleThreaded>> direct_cq_;
    std::optional<post::VerbsCompletionQueue> verbs_cq_;
    std::optional<Srq> direct_srq_;
    // Receive buffers, until there are enough for a doorbell: which, or (direct) how many more.
    std::vector<std::uint32_t> to_post_;
    // Few enough that the device has buffers left until these are posted.
    const std::uint32_t receives_at_once_;
    std::uint32_t until_posting_ = receives_at_once_;
    const std::uint32_t send_entries_;  // entries of the CQ for WRs
    // Those of them that are not reserved. A connection that breaks completes each of its WRs,
    // signaled or not (IBTA 10.3.1.5, flush), so every outstanding WR has an entry of its own, and
    // so has every one that a connection may still post (room_until_).
    std::uint32_t cq_room_ = send_entries_;
    bool is_room_taken_back_ = false;  // take_back_room() has run, and nothing has changed since
    std::uint32_t unpublished_ = 0;    // entries that other() has read since it published
    ChannelUsers users_;
    std::array<post::Completion, kPolledAtOnce> completions_;  // of poll()
    Connector* connector_ = nullptr;
    std::vector<std::unique_ptr<Connection>> connections_;
    std::atomic<std::uint32_t> connection_count_{0};  // written by the owner
    std::unordered_map<EndpointAddress, Connection*, EndpointAddressHash> by_name_;
    std::vector<Connection*> connecting_;
    std::vector<Connection*> growing_;  // have a deeper_
    // By the connector's thread: the state of a connection, or drain_.asked.
    std::atomic<bool> changed_{false};
    Drain drain_;
    int error_ = 0;
    struct Draining {
        std::uint64_t ticket = 0;   // of drain_.asked
        std::uint32_t read_at = 0;  // entries read before it was asked
        bool is_under_way = false;
    } draining_;
    // The verbs path has read so many entries, and the last call found no more.
    std::uint32_t read_by_verbs_ = 0;
    bool found_no_more_ = false;
    bool cannot_grow_ = false;   // there was no memory for more receive buffers
    std::uint32_t backlog_ = 0;  // entries that the verbs path has read since it last found no more
};

// What a device's answer means to the program.
int errno_of(ibv_wc_status status) noexcept;

}  // namespace heddle::protocol
