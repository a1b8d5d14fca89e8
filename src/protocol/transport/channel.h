// SPDX-License-Identifier: BSD-2-Clause
// The verbs objects behind endpoints: one completion queue, one shared receive queue with its
// buffers, and a send queue for each remote context (XRC) or endpoint (RC), all of one thread's
// resources. WRs are posted and completions are polled by the path that was chosen. Users hear of
// the ends of their WRs in the order of posting. In the category mpi+threads all endpoints of a
// process share one channel; otherwise each has its own.
//
// One thread at a time. Only `wake` may be called by others.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
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
#include "protocol/wireup/connector.h"

namespace heddle::protocol {

class Channel;
class Connection;

// Told of what a channel's device has done. An endpoint.
class ChannelUser {
public:
    virtual ~ChannelUser() = default;
    // A message for this endpoint; the bytes are gone when it returns.
    virtual void received(std::span<const std::byte> bytes, bool has_immediate,
                          std::uint32_t immediate, std::uint32_t qpn) = 0;
    // A WR that was posted with kEntry or kCount is done. error: 0, or an errno.
    virtual void sent(const struct WrContext& sent, int error, int device_error) = 0;
    // A WR of the application without a report has failed on that connection. False: this user
    // sends nothing there.
    virtual bool lost(const Connection& connection, int error, int device_error) = 0;
    // The connection is ready, or has failed.
    virtual void changed(Connection& connection) = 0;
    // Reads everything that is in completion queues of its own.
    virtual void drain() = 0;
    // The channel has broken: nothing is sent any more, and nothing arrives. All its connections
    // have failed.
    virtual void broken(int error) = 0;

private:
    friend class Channel;
    std::uint16_t number_ = 0;  // of attach()
};

// The end of an operation that posts one WR or more, and wants more than a report.
class CompletionHandler {
public:
    virtual void done(int error, int device_error) = 0;

protected:
    ~CompletionHandler() = default;
};

// What happens when a posted WR is done.
struct WrContext {
    // kOwn: of the protocol's own, so the application is not told if it fails.
    enum What : std::uint8_t { kEntry = 1, kCount = 2, kTagged = 4, kRma = 8, kOwn = 16 };
    ChannelUser* user = nullptr;
    void* context = nullptr;               // for kEntry
    CompletionHandler* handler = nullptr;  // told instead of the user
    std::byte* buffer = nullptr;           // of the channel's pool: goes back
    std::uint8_t what = 0;
    bool needs_completion() const noexcept {
        return (what & ~kOwn) != 0 || handler != nullptr || buffer != nullptr;
    }
};

// The way to a remote context, or endpoint.
class Connection {
public:
    bool ready() const noexcept { return state_ == ConnectionRequest::kConnected; }
    bool failed() const noexcept { return state_ == ConnectionRequest::kFailed; }
    int error() const noexcept { return error_; }
    bool direct() const noexcept { return direct_.has_value(); }
    const EndpointAddress& to() const noexcept { return request_.to; }
    // The last byte of a write that is not longer is in memory after all others. Once ready().
    std::uint32_t packet_bytes() const noexcept { return request_.packet_bytes; }
    bool idle() const noexcept { return posted_ == done_; }
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
    verbs::QueuePair qp_;
    std::optional<post::Mlx5SendQueue<post::SingleThreaded>> direct_;
    std::optional<post::VerbsSendQueue<post::SingleThreaded>> verbs_;
    // What WrContext says, for each outstanding WR, in few bytes: there are send_depth of them for
    // each peer. An injected message has no record, since its end is not reported. When a
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
    std::unique_ptr<Record[]> sent_;  // ring, by number; grows up to send_depth
    std::uint32_t sent_mask_ = 0;
    Record& record(std::uint32_t number) noexcept { return sent_[number & sent_mask_]; }
    bool has_place(std::uint32_t depth) noexcept;
    void find_quiet() noexcept;
    std::uint32_t posted_ = 0, done_ = 0;  // free-running numbers
    std::uint32_t signaled_at_ = 0;        // so many when the last that was signaled had been
    // Up to room_until_ WRs have places in the send queue and entries in the CQ. Up to quiet_until_
    // an unsignaled WR need not be signaled for the sake of those before it.
    std::uint32_t room_until_ = 0, quiet_until_ = 0;
    std::uint32_t unsignaled() const noexcept { return posted_ - signaled_at_; }
    ConnectionRequest request_;
};

class Channel {
public:
    static constexpr std::uint32_t kSignalEvery = 32, kPollAtOnce = 16;

    // Throws VerbsError.
    Channel(std::unique_ptr<endpoint::ThreadResources> resources, const Options& options,
            bool direct, std::uint32_t number);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    std::uint32_t number() const noexcept { return number_; }  // EndpointAddress::channel
    const endpoint::ThreadResources& resources() const noexcept { return *resources_; }
    bool xrc() const noexcept { return resources_->shared->xrcd != nullptr; }
    bool direct() const noexcept { return direct_cq_.has_value(); }
    std::uint32_t srqn() const noexcept { return srqn_; }
    ibv_srq* srq() const noexcept { return srq_.get(); }
    ibv_cq* cq() const noexcept { return cq_.get(); }
    ibv_comp_channel* events() const noexcept { return events_.get(); }
    std::size_t max_inline() const noexcept { return max_inline_; }
    // Can a message of so many bytes go inline, with all that is around it? FI_HEDDLE_INJECT_SIZE
    // wants it, and the device has that much room. There must be a connection.
    bool fits_inline(std::size_t bytes) const noexcept { return bytes < inline_end_; }
    std::size_t max_message() const noexcept { return max_message_; }
    std::uint32_t receive_buffers() const noexcept { return receive_buffers_->count(); }
    memory::Pool& send_buffers() noexcept { return send_buffers_; }
    std::uint32_t connections() const noexcept {  // any thread
        return connection_count_.load(std::memory_order_relaxed);
    }
    std::uint64_t under_way() const noexcept;  // works of all of them
    // 0, or an errno once the device has said that it has failed, or this channel's CQ or SRQ.
    int error() const noexcept { return error_; }

    // Before all that follows.
    void use(Connector& connector) noexcept { connector_ = &connector; }
    void attach(std::uint16_t number, ChannelUser& user);
    void detach(std::uint16_t number);

    // The connection that reaches that endpoint; it is asked for if there is none. Throws
    // VerbsError.
    Connection& connection(const EndpointAddress& from, const EndpointAddress& to);

    // kFull: poll() first. The SGEs' memory must stay until the WR is done, unless inline.
    post::Posted post(Connection& connection, post::WorkRequest& work,
                      const WrContext& sent) noexcept;
    // A message of 16 bytes and up to 8 more, as they lie in memory, on a connection that is
    // direct(); in channel_post.h. kInvalid: the caller uses post(). `taken` is called if it is
    // taken, before the doorbell.
    template <bool kImmediate, class Taken>
    post::Posted post_small(Connection& connection, std::uint64_t first, std::uint64_t second,
                            std::uint64_t tail, std::uint32_t tail_bytes, std::uint32_t immediate,
                            std::uint64_t srq, const WrContext& sent, const Taken& taken) noexcept;

    // Tells users and parts of up to `most` completions; gives receive buffers back to the device.
    unsigned poll(unsigned most = kPollAtOnce);
    // The same, in channel_poll.h, for a user that takes its own messages where they are found.
    template <class User>
    unsigned poll_for(User& user, unsigned most);
    // The next message, on the direct path, if it is what the completion queue begins with, and
    // take(bytes, message) takes it. There, too.
    template <class Take>
    bool take_next(const Take& take);
    // The parts of those two for messages of up to 32 bytes in RC mode, which come in the
    // completion queue entry: libmlx5 asks for that, and hardware does it for SRQs of RC QPs, but
    // not of XRC.
    template <class User>
    void poll_inlined(User& user, const mlx5_cqe64& cqe);
    template <class Take>
    bool take_next_inlined(const Take& take);
    // Until everything that was posted is done, or nothing more can come of it; false: still not.
    bool drained() noexcept;
    // Reports nothing to `user` any more.
    void forget(ChannelUser& user) noexcept;

    // A completion event is asked for; false: something is there already.
    bool arm();
    // Takes away the events that made wait_fd() readable.
    void disarm();
    int wait_fd() const noexcept { return epoll_; }
    // wait_fd() is readable after that time, too, until the next disarm(). Throws VerbsError.
    void wake_after(std::chrono::nanoseconds time);
    // Sleepers look again. Any thread.
    void wake() noexcept;

    // The connector asks here when all that is in the completion queues has been read.
    Drain& drain() noexcept { return drain_; }

    // For `user`, by its ChannelUser::received.
    void hand_over(std::uint16_t user, std::span<const std::byte> bytes, bool has_immediate,
                   std::uint32_t immediate, std::uint32_t qpn);

private:
    using CompletedMessage = post::Mlx5CompletionQueue<post::SingleThreaded>::Message;
    using Srq = post::Mlx5SharedReceiveQueue<post::SingleThreaded>;
    void watch(int fd);
    void make_cq();
    void make_srq(bool direct);
    ibv_sge receive_into(std::uint32_t buffer) const noexcept;
    void make_qp(Connection& connection, const EndpointAddress& from);
    bool has_room(Connection& connection) noexcept;
    bool find_room(Connection& connection) noexcept;
    void take_back_room() noexcept;
    bool signal_behind(Connection& connection) noexcept;
    static bool is_signaled(const Connection& connection, const WrContext& sent) noexcept;
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
    [[gnu::noinline]] void other(const mlx5_cqe64& cqe);
    void finish(Connection& connection, std::uint32_t number, int error, int device_error);
    void tell_of_lost(const Connection& connection, int error, int device_error);
    void look_at_changes();
    void look_at_connections();
    void look_if_drained();
    void break_down(int error);
    void fail(Connection& connection, int error);
    verbs::QueuePair make_send_queue();

    const Options options_;
    const std::uint32_t number_;
    std::unique_ptr<endpoint::ThreadResources> resources_;
    std::optional<memory::GrowingBuffers> receive_buffers_;
    memory::Pool send_buffers_;
    std::size_t max_inline_ = 0;         // once there is a queue pair; whole, the header with it
    std::size_t inline_end_ = 0;         // see fits_inline()
    std::uint32_t asked_inline_;         // what the device has not refused
    const std::uint32_t most_receives_;  // see grow_receives()
    std::size_t max_message_ = std::size_t{1} << 30;
    verbs::CompletionChannel events_;
    verbs::CompletionQueue cq_;
    verbs::SharedReceiveQueue srq_;
    std::uint32_t srqn_ = 0;
    std::optional<post::Mlx5CompletionQueue<post::SingleThreaded>> direct_cq_;
    std::optional<post::VerbsCompletionQueue> verbs_cq_;
    std::optional<Srq> direct_srq_;
    int epoll_ = -1, wake_ = -1;
    int timer_ = -1;  // once it is needed
    // Receive buffers, until there are enough for a doorbell: which, or (direct) how many more.
    std::vector<std::uint32_t> to_post_;
    // Not so many that the device could run out of them before.
    const std::uint32_t receives_at_once_;
    std::uint32_t until_posting_ = receives_at_once_;
    // Entries of the CQ that are not reserved. A connection that breaks completes each of its WRs,
    // signaled or not (IBTA 10.3.1.5, flush), so every outstanding WR has an entry of its own, and
    // so has every one that a connection may still post (room_until_).
    std::uint32_t cq_room_ = 0;
    std::uint32_t send_entries_ = 0;   // how many there are for WRs, reserved or not
    bool is_room_taken_back_ = false;  // take_back_room() has run, and nothing has changed since
    std::uint32_t unpublished_ = 0;    // entries that other() has read since it published
    std::vector<ChannelUser*> users_;  // by number
    std::array<post::Completion, kPollAtOnce> completions_;  // of poll()
    Connector* connector_ = nullptr;
    std::vector<std::unique_ptr<Connection>> connections_;
    std::atomic<std::uint32_t> connection_count_{0};  // written by the owner
    std::unordered_map<EndpointAddress, Connection*, EndpointAddressHash> by_name_;
    std::vector<Connection*> connecting_;
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
    std::uint32_t backlog_ = 0;  // entries that the verbs path has read since it found no more
};

// What a device's answer means to the program.
int errno_of(ibv_wc_status status) noexcept;

}  // namespace heddle::protocol
