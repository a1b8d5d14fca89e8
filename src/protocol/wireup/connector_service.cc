// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_service.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "memory/program_threads.h"
#include "protocol/wireup/connector_report.h"
#include "verbs/connection.h"

namespace heddle::protocol {
namespace {

using std::chrono::milliseconds;

// How long a process that ends waits for its last datagrams to be on their way.
constexpr milliseconds kFarewell{100};
constexpr int kMostYields = 1000;
constexpr std::size_t kMostComplaints = 100;  // lines of a process

std::uint64_t draw_nonce() {
    std::uint64_t nonce = 0;
    if (getrandom(&nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce))
        throw VerbsError("random bytes for the name of a process", errno);
    return nonce;
}

std::uint32_t qkey_of(std::uint64_t nonce) noexcept {
    ProcessName name;
    name.nonce = nonce;
    return name.qkey();
}

EndpointAddress own_name(const ConnectorPort& port, std::uint64_t nonce) {
    EndpointAddress name = name_of(port.port());
    name.process.ud_qpn = port.address().qpn;
    name.process.nonce = nonce;
    return name;
}

verbs::ConnectionAttributes connections_of(const ConnectorPort& port,
                                           const Connector::Options& options) {
    verbs::ConnectionAttributes own;
    own.mtu = port.port().mtu;
    own.port = port.port();
    own.ack_timeout = static_cast<std::uint8_t>(options.ack_timeout);
    own.retries = static_cast<std::uint8_t>(options.retries);
    own.min_rnr_timer = static_cast<std::uint8_t>(options.rnr_timer);
    return own;
}

// A thread that takes none of the program's signals.
template <class Body>
std::thread quiet_thread(const char* name, Body body) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    int error = 0;
    try {
        thread = std::thread(body);
    } catch (const std::system_error& e) {
        error = e.code().value();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) throw VerbsError("a thread that makes connections", error);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace

WakeUp::WakeUp() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0) throw VerbsError("an eventfd", errno);
}

WakeUp::~WakeUp() { close(fd_); }

void WakeUp::signal() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(fd_, &one, sizeof one);  // full: it is awake anyway
}

void WakeUp::clear() const noexcept {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t n = ::read(fd_, &count, sizeof count);
}

Connector::Service::Service(ibv_context* context, ibv_pd* pd, const verbs::LocalPort& port,
                            const Options& options)
    : options_(options),
      nonce_(draw_nonce()),
      port_(context, pd, port, options.receives, qkey_of(nonce_)),
      device_(ibv_get_device_name(context->device)),
      own_(connections_of(port_, options)),
      self_(own_name(port_, nonce_)),
      targets_(self_, own_, options),
      requests_(self_, own_, options),
      async_fds_(::epoll_create1(EPOLL_CLOEXEC)),
      luck_(options.seed) {
    if (async_fds_ < 0)
        throw VerbsError("a file descriptor for asynchronous events", errno, "raise `ulimit -n`");
    thread_ = quiet_thread("heddle-connect", [this] { run(); });
}

Connector::Service::~Service() {
    HEDDLE_ASSERT(std::this_thread::get_id() != thread_.get_id(),
                  "a thread cannot wait for itself");
    {
        const auto lock = enter();
        leaving_ = true;
    }
    wake_up_.signal();
    thread_.join();
    HEDDLE_ASSERT(ended_.empty(), "each owner has been told of the end of its request");
    ::close(async_fds_);
    memory::ProgramThreads::forget();
}

void Connector::Service::add(const LocalEndpoint& endpoint) {
    HEDDLE_ASSERT(endpoint.context != nullptr && endpoint.name.valid());
    const auto lock = enter();
    if (!is_watched(endpoint.context)) {
        const int fd = endpoint.context->async_fd;
        ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
        epoll_event event{};
        event.events = EPOLLIN;
        if (::epoll_ctl(async_fds_, EPOLL_CTL_ADD, fd, &event) != 0)
            throw VerbsError("waiting for asynchronous events", errno);
    }
    targets_.add(endpoint);
}

void Connector::Service::remove(const EndpointAddress& endpoint) {
    const auto lock = enter();
    const auto& all = targets_.endpoints();
    const auto known = std::find_if(
        all.begin(), all.end(), [&](const LocalEndpoint& each) { return each.name == endpoint; });
    ibv_context* const context = known != all.end() ? known->context : nullptr;
    targets_.remove(endpoint,
                    [this](const Datagram& bye, const EndpointAddress& to) { send(bye, to); });
    if (context != nullptr && !is_watched(context))
        ::epoll_ctl(async_fds_, EPOLL_CTL_DEL, context->async_fd, nullptr);
}

void Connector::Service::drop(const EndpointAddress& peer, std::uint32_t peer_qpn) {
    const auto lock = enter();
    targets_.drop(peer.process, peer_qpn, ConnectorTargets::Clock::now());
    wake_up_.signal();
}

bool Connector::Service::is_quiet(const EndpointAddress& peer, std::uint32_t peer_qpn) const {
    const auto lock = enter();
    return targets_.is_quiet(peer.process, peer_qpn);
}

void Connector::Service::lose(const EndpointAddress& peer, const EndpointAddress& endpoint) {
    const auto lock = enter();
    targets_.lose(peer, endpoint, ConnectorTargets::Clock::now());
    wake_up_.signal();
}

void Connector::Service::refuse(const EndpointAddress& peer, const EndpointAddress& endpoint) {
    const auto lock = enter();
    targets_.refuse(peer, endpoint);
}

void Connector::Service::connect(ConnectionRequest& request) {
    HEDDLE_ASSERT(request.from.process == self_.process);
    {
        const auto lock = enter();
        requests_.start(request, ConnectorRequests::Clock::now());
    }
    wake_up_.signal();
}

void Connector::Service::stop(const ConnectionRequest& request) {
    auto lock = enter();
    if (const auto bye = requests_.stop(request)) send(*bye);
    const auto next = requests_.next();
    if (next && *next <= ConnectorRequests::Clock::now()) wake_up_.signal();  // the turn of another
    if (std::this_thread::get_id() == thread_.get_id()) return;               // it is being told
    // The owner that is about to be called must not be gone before that.
    callback_ended_.wait(lock, [&] {
        return std::none_of(ended_.begin(), ended_.end(),
                            [&](const auto& ended) { return ended.request == &request; });
    });
}

void Connector::Service::abandon(const ConnectionRequest& request) {
    {
        const auto lock = enter();
        requests_.abandon(request, ConnectorRequests::Clock::now());
    }
    wake_up_.signal();
}

Connector::Counts Connector::Service::counts() const {
    const auto lock = enter();
    Counts counts = counts_;
    counts.targets = targets_.size();
    return counts;
}

void Connector::Service::send(const Datagram& datagram, const EndpointAddress& to) noexcept {
    HEDDLE_ASSERT(datagram.qpn < 1u << 24 && datagram.psn < 1u << 24,
                  "IBTA: numbers of QPs and packets have 24 bits");
    HEDDLE_ASSERT(datagram.from.process == self_.process, "an answer finds its way back");
    std::uniform_real_distribution<double> chance;
    const bool lose = options_.drop > 0 && chance(luck_) < options_.drop;
    const bool twice = options_.repeat > 0 && chance(luck_) < options_.repeat;
    if (lose) return;
    // One that finds no slot is as good as lost, and comes again as those do.
    if (!port_.send(datagram, to)) ++counts_.unsent;
    if (twice) port_.send(datagram, to);
}

void Connector::Service::arrived(const ConnectorPort::Arrival& arrival) {
    std::optional<Datagram> datagram;
    if (arrival.length == kDatagramBytes) datagram = parse(arrival.bytes);
    // The name decides to whom answers go: a datagram whose name is not that of the port and the QP
    // it came from is nobody's.
    if (!datagram || datagram->from.ethernet() != self_.ethernet() ||
        !is_of(arrival.source, datagram->from)) {
        ++counts_.malformed;
        return;
    }
    switch (datagram->kind) {
        case DatagramKind::kRequest: {
            ++counts_.requests_received;
            const Datagram reply = targets_.answer(*datagram, ConnectorTargets::Clock::now());
            ++counts_.replies_sent;
            if (reply.error != 0) ++counts_.refused;
            send(reply, datagram->from);
            return;
        }
        case DatagramKind::kReply:
            if (const auto bye =
                    requests_.answered(*datagram, ConnectorRequests::Clock::now(), ended_))
                send(*bye);
            return;
        case DatagramKind::kBye:
            if (!requests_.bye(*datagram)) targets_.bye(*datagram, ConnectorTargets::Clock::now());
            return;
    }
}

// With the lock held; without it while the owners are called.
void Connector::Service::tell(std::unique_lock<std::mutex>& lock) {
    HEDDLE_ASSERT(lock.owns_lock(), "the tables are under the lock");
    if (ended_.empty()) return;
    const std::vector<ConnectorRequests::Ended> ended = ended_;
    lock.unlock();
    for (const ConnectorRequests::Ended& e : ended) {
        if (e.error != 0 && e.error != ECANCELED && !e.is_spare) complain(e);
        if (e.changed != nullptr) e.changed(e.argument);
    }
    lock.lock();
    HEDDLE_ASSERT(ended_.size() == ended.size(), "only this thread adds to it");
    ended_.clear();  // nobody else adds to it
    callback_ended_.notify_all();
}

// The application learns an error number at most: the user needs to know which peer, and by which
// port it was looked for.
void Connector::Service::complain(const ConnectorRequests::Ended& ended) noexcept {
    try {
        if (complained_of_.size() >= kMostComplaints ||
            !complained_of_.insert(ended.to.process).second)
            return;
        tell_user(options_.complain, unreachable_text({device_, self_, ended.to, ended.error,
                                                       ended.waited, ended.times_sent}));
    } catch (const std::bad_alloc&) {  // then it is not said
    }
}

void Connector::Service::sleep() noexcept {
    int timeout = -1;
    {
        const std::lock_guard lock(mutex_);
        if (leaving_) return;
        auto next = requests_.next();
        if (const auto repair = port_.next_repair(); repair && (!next || *repair < *next))
            next = repair;
        if (const auto last = targets_.next(); last && (!next || *last < *next)) next = last;
        if (next) {
            const auto left = *next - ConnectorRequests::Clock::now();
            const auto rounded = std::chrono::ceil<milliseconds>(left).count();
            timeout = static_cast<int>(std::clamp<long>(rounded, 0, 60'000));
        }
    }
    pollfd waiting[] = {
        {port_.fd(), POLLIN, 0}, {wake_up_.fd(), POLLIN, 0}, {async_fds_, POLLIN, 0}};
    ::poll(waiting, 3, timeout);
    has_events_ = waiting[2].revents != 0;
    wake_up_.clear();
}

// A mutex is not fair: a thread that unlocks it and locks it again is mostly the next to have it.
void Connector::Service::let_in() const noexcept {
    for (int i = 0; i < kMostYields && entering_.load(std::memory_order_relaxed) != 0; ++i)
        std::this_thread::yield();
}

void Connector::Service::run() noexcept {
    std::unique_lock lock(mutex_);
    while (!leaving_) {
        const bool all =
            port_.receive([this](const ConnectorPort::Arrival& arrival) { arrived(arrival); });
        read_events();
        targets_.advance(ConnectorTargets::Clock::now());
        for (const auto& out : requests_.due(ConnectorRequests::Clock::now(), ended_)) {
            if (out.datagram.kind == DatagramKind::kRequest)
                ++(out.again ? counts_.repeated : counts_.requests_sent);
            send(out);
        }
        tell(lock);
        lock.unlock();
        if (all)
            sleep();
        else
            let_in();
        lock.lock();
    }
    for (const auto& out : requests_.stop_all(ConnectorRequests::Clock::now(), ended_)) {
        send(out);
        port_.drain(kFarewell);
    }
    tell(lock);
}

}  // namespace heddle::protocol
