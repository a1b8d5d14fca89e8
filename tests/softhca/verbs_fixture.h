// SPDX-License-Identifier: BSD-2-Clause
// What the tests of softhca share: owned verbs objects, endpoints of each transport that connect to
// each other, polling with a deadline, and running the two sides of a test as two threads or as two
// processes. Plain libibverbs only; nothing here knows what lies beneath the uverbs ABI.
//
// Set-up that fails throws VerbsFailure, which GoogleTest reports; checks of behaviour are EXPECTs.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace softhca::test {

using Clock = std::chrono::steady_clock;

// Long enough for a loaded machine; only a test that fails waits this long.
inline constexpr std::chrono::seconds kDeadline{30};

class VerbsFailure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Throws with the text of `error` (default: errno).
[[noreturn]] void fail(const std::string& what, int error = -1);
// Throws as fail() does unless `error` is 0.
void require(int error, const std::string& what);

template <typename T>
T* check(T* object, const char* what) {
    if (object == nullptr) fail(what);
    return object;
}

// Destroying must succeed: a destroy that fails is a leak or a wrong reference count.
struct Destroy {
    void operator()(ibv_context* object) const;
    void operator()(ibv_pd* object) const;
    void operator()(ibv_mr* object) const;
    void operator()(ibv_comp_channel* object) const;
    void operator()(ibv_cq* object) const;
    void operator()(ibv_cq_ex* object) const;
    void operator()(ibv_qp* object) const;
    void operator()(ibv_srq* object) const;
    void operator()(ibv_xrcd* object) const;
    void operator()(ibv_ah* object) const;
    void operator()(ibv_td* object) const;
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

Owned<ibv_context> open_device();
ibv_device_attr device_attributes(ibv_context* context);
ibv_port_attr port_attributes(ibv_context* context);
bool is_ethernet(ibv_context* context);
Owned<ibv_cq> create_cq(ibv_context* context, int entries, ibv_comp_channel* channel = nullptr);
Owned<ibv_srq> create_srq(ibv_pd* pd, std::uint32_t entries, std::uint32_t sges = 1);

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// Page-aligned private memory and its registration. Contents are functions of a seed, so that a
// wrong byte tells where it came from.
class Memory {
public:
    Memory(ibv_pd* pd, std::size_t size, int access = kAllAccess);
    Memory(Memory&&) = delete;
    ~Memory();
    std::uint8_t* data() const { return data_; }
    std::size_t size() const { return size_; }
    ibv_mr* mr() const { return mr_.get(); }
    std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uint64_t>(data_) + offset;
    }
    ibv_sge sge(std::size_t offset, std::size_t length) const;
    void fill(std::size_t offset, std::size_t length, std::uint32_t seed) const;
    testing::AssertionResult holds(std::size_t offset, std::size_t length,
                                   std::uint32_t seed) const;
    // Every byte of the range is `value`: memory that must not have been touched.
    testing::AssertionResult untouched(std::size_t offset, std::size_t length,
                                       std::uint8_t value) const;
    void deregister() { mr_.reset(); }

private:
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
    Owned<ibv_mr> mr_;
};
std::uint8_t pattern(std::uint32_t seed, std::size_t index);
void fill_pattern(void* data, std::size_t length, std::uint32_t seed);
testing::AssertionResult has_pattern(const void* data, std::size_t length, std::uint32_t seed);

enum class Transport { kRc, kUc, kUd, kXrc };
const char* name(Transport transport);

// What one side tells the other.
struct Address {
    std::uint32_t qpn = 0;         // of the QP that sends (and, except for XRC, receives)
    std::uint32_t target_qpn = 0;  // of the QP that receives
    std::uint32_t srqn = 0;        // XRC
    std::uint32_t qkey = 0;        // UD
    std::uint16_t lid = 0;
    ibv_gid gid = {};
    std::uint64_t memory = 0;
    std::uint64_t memory_size = 0;
    std::uint32_t rkey = 0;
};

struct EndpointOptions {
    Transport transport = Transport::kRc;
    std::uint32_t send_depth = 64;
    std::uint32_t receive_depth = 64;
    std::uint32_t send_sges = 4;
    std::uint32_t receive_sges = 4;
    std::uint32_t inline_size = 64;
    int cq_depth = 256;
    std::size_t memory = 1 << 16;
    bool signal_all = false;
    bool srq = false;     // RC, UC, UD: receive from an SRQ (XRC always does)
    bool events = false;  // a completion channel for both CQs
    int qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    std::uint8_t timeout = 14;  // 4.096 us << 14 = 67 ms
    std::uint8_t retry_count = 7;
    std::uint8_t rnr_retry = 7;      // 7 means for ever
    std::uint8_t min_rnr_timer = 1;  // 0.01 ms
    std::uint8_t read_depth = 4;
    ibv_mtu mtu = IBV_MTU_4096;
    std::uint8_t gid_index = 3;      // on an Ethernet port; RoCE v2 over IPv4
    std::uint32_t create_flags = 0;  // enum ibv_qp_create_flags
    int xrcd_file = -1;              // an XRC domain of its own, or the one of this file
};

struct Work {
    ibv_wr_opcode opcode = IBV_WR_SEND;
    std::vector<ibv_sge> sges;
    std::uint64_t id = 0;
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint32_t immediate = 0;  // host order
    std::uint64_t remote = 0;
    std::uint32_t rkey = 0;
    std::uint64_t compare_add = 0;
    std::uint64_t swap = 0;
};

// A context, PD, CQs, a QP (XRC: an initiator, a target, an XRC domain and an SRQ) and registered
// memory. The members are open: a test that needs to bend one of them does.
class Endpoint {
public:
    using Options = EndpointOptions;
    // With `neighbour`, shares its context and PD.
    explicit Endpoint(Options options = {}, Endpoint* neighbour = nullptr);

    Address address() const;
    void to_init();
    void to_ready_to_receive(const Address& peer);
    ibv_ah_attr path_to(const Address& peer) const;
    void to_ready_to_send();
    void connect(const Address& peer);  // all three
    void to_error();                    // both QPs

    // errno of ibv_post_send and friends, 0 when posted.
    int post(const Work& work);
    int post_receive(std::uint64_t id, const std::vector<ibv_sge>& sges);
    void send_wr(const Work& work, ibv_send_wr& wr, std::vector<ibv_sge>& sges) const;

    ibv_wc wait_send() { return wait(send_cq.get()); }
    ibv_wc wait_receive() { return wait(receive_cq.get()); }
    ibv_wc wait(ibv_cq* cq, Clock::duration deadline = kDeadline) const;
    // Posts, waits for its completion and expects success. False when it was not.
    bool run(const Work& work);

    ibv_qp* receiver() const { return target ? target.get() : qp.get(); }
    std::size_t grh() const { return options.transport == Transport::kUd ? 40 : 0; }

    Options options;
    std::shared_ptr<ibv_context> context;
    std::shared_ptr<ibv_pd> pd;
    Owned<ibv_comp_channel> channel;
    Owned<ibv_cq> send_cq;
    Owned<ibv_cq> receive_cq;
    Owned<ibv_xrcd> xrcd;
    Owned<ibv_srq> srq;
    std::unique_ptr<Memory> memory;
    Owned<ibv_ah> ah;
    Owned<ibv_qp> qp;
    Owned<ibv_qp> target;  // XRC only
    Address peer;
};

// Two connected endpoints of one process and one context.
struct Pair {
    explicit Pair(Endpoint::Options options = {}) : Pair(options, options) {}
    Pair(Endpoint::Options first, Endpoint::Options second);
    Endpoint a;
    Endpoint b;
};

// Polls until a completion is there; nothing within the time.
std::optional<ibv_wc> poll_for(ibv_cq* cq, Clock::duration time);
// What a failed wait says: number and state of a QP.
std::string describe(ibv_qp* qp);
std::string describe(const ibv_wc& completion);
ibv_qp_state state_of(ibv_qp* qp);
// The next asynchronous event, acknowledged; nothing within the time.
std::optional<ibv_async_event> async_event(ibv_context* context, Clock::duration time);
// That this event of this QP comes, and no other but LAST_WQE_REACHED before it.
testing::AssertionResult got_qp_event(ibv_context* context, ibv_event_type type, ibv_qp* qp);
testing::AssertionResult succeeded(const ibv_wc& completion);
testing::AssertionResult has_status(const ibv_wc& completion, ibv_wc_status status,
                                    std::uint32_t vendor_error);

// Syndromes that ConnectX reports (ibv_wc.vendor_err), as seen in the logs of users of mlx5.
inline constexpr std::uint32_t kVendorFlush = 0xf9;
inline constexpr std::uint32_t kVendorTransportRetry = 0x81;
inline constexpr std::uint32_t kVendorRnrRetry = 0x87;
inline constexpr std::uint32_t kVendorRemoteAccess = 0x88;
inline constexpr std::uint32_t kVendorRemoteOperation = 0x89;
inline constexpr std::uint32_t kVendorRemoteInvalidRequest = 0x8a;
inline constexpr std::uint32_t kVendorLocalProtection = 0x51;

// One end of a socket between the two sides of a test. Every receive has a deadline.
class Channel {
public:
    explicit Channel(int socket) : socket_(socket) {}
    Channel(Channel&& other) noexcept : socket_(other.socket_) { other.socket_ = -1; }
    ~Channel();
    template <typename T>
    void send(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        send_bytes(&value, sizeof value);
    }
    template <typename T>
    T receive() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value;
        receive_bytes(&value, sizeof value);
        return value;
    }
    // Both sides call it; neither returns before the other came.
    void meet();
    bool readable() const;
    bool closed_by_peer(Clock::duration time);
    int socket() const { return socket_; }
    static std::pair<Channel, Channel> make();

private:
    void send_bytes(const void* data, std::size_t size);
    void receive_bytes(void* data, std::size_t size);
    int socket_;
};

// A forked process that runs `body`; failed EXPECTs and exceptions in it make it exit with 1.
class Child {
public:
    explicit Child(const std::function<void(Channel&)>& body);
    ~Child();  // kills it when nobody waited for it
    Channel& channel() { return channel_; }
    pid_t pid() const { return pid_; }
    void kill(int signal) const;
    bool ended(Clock::duration time);
    int wait();  // status as of waitpid
    void expect_success();

private:
    Channel channel_{-1};
    pid_t pid_ = -1;
    int status_ = 0;
    bool waited_ = false;
};

enum class Placement { kThreads, kProcesses };
const char* name(Placement placement);
using Side = std::function<void(Channel&)>;
// Runs the two sides as two threads of this process or as two processes, and waits for both.
void run_sides(Placement placement, const Side& first, const Side& second);
// Exchanges addresses over the channel and connects; returns when both are connected.
void connect_over(Channel& channel, Endpoint& endpoint);

// Variables that libmlx5 reads when a device is opened: runs `body` in a process that has them.
void with_environment(const std::vector<std::pair<std::string, std::string>>& variables,
                      const std::function<void()>& body);

// A write to the peer's buffer, and a SEND, of the first `length` bytes of the endpoint's own.
Work write_of(const Endpoint& e, std::size_t length = 64);
Work send_of(const Endpoint& e, std::size_t length = 64);

// b can send a datagram back to a, by what the completion and the header say.
void expect_answer(Pair& pair, ibv_wc wc, ibv_grh header);

// The kernel that this run models (SOFTHCA_UAR).
bool static_uars();

}  // namespace softhca::test
