// SPDX-License-Identifier: BSD-2-Clause
// The file descriptor on which threads sleep that wait for completions. It is readable in three
// cases: an endpoint of the domain has something to do, as the device reports; another thread ended
// the wait meanwhile; the program called fi_cq_signal(3).
//
// The caller holds the domain's guard, except for wake(), fd() and the sleep itself.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace heddle::provider {

struct Domain;

// The end of a wait. timeout_ms: -1 is no limit.
class Deadline {
public:
    explicit Deadline(int timeout_ms) noexcept
        : endless_(timeout_ms < 0),
          at_(std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms)) {}
    int left_ms() const noexcept;  // as poll(2) takes it

private:
    bool endless_;
    std::chrono::steady_clock::time_point at_;
};

// Owns a file descriptor.
class Descriptor {
public:
    Descriptor() noexcept = default;
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();
    int get() const noexcept { return fd_; }
    bool open() const noexcept { return fd_ >= 0; }

private:
    int fd_ = -1;
};
Descriptor make_epoll();  // both throw VerbsError
Descriptor make_event();
void set_event(int fd) noexcept;
void clear_event(int fd) noexcept;
void watch(int epoll, int fd);  // throws VerbsError
void unwatch(int epoll, int fd) noexcept;
void wait_readable(int fd, int timeout_ms) noexcept;  // returns early after a signal

class Sleeper;

// The sleepers that a thread under the same lock may have to wake: those of one domain, or of all
// domains whose endpoints share a queue pair (category mpi+threads). In the latter case a thread of
// one domain may complete an operation of another. The caller holds that lock.
struct Sleepers {
    unsigned armed = 0;  // how many of `all` a thread may sleep on
    std::vector<Sleeper*> all;

    void look() noexcept;
    // `shared`: the lock of several domains, or nullptr.
    static std::shared_ptr<Sleepers> of(std::recursive_mutex* shared);
};

class Sleeper {
public:
    // Returns whether the wait has ended.
    using Ready = bool (*)(const void* owner) noexcept;

    Sleeper(Domain& domain, fi_wait_obj kind, Ready ready, const void* owner);  // throws VerbsError
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    fi_wait_obj kind() const noexcept { return kind_; }
    bool possible() const noexcept { return kind_ != FI_WAIT_NONE; }
    int fd() const noexcept { return epoll_.get(); }
    int control(int command, void* argument) const noexcept;  // FI_GETWAIT, FI_GETWAITOBJ

    // Makes fd() readable by everything that arrives from now on. Returns false if something may
    // have arrived already.
    bool prepare();
    // The application will sleep on fd() itself.
    void watched() noexcept;
    // Announces that the calling thread is about to sleep, after prepare() under the same guard;
    // and that it has woken.
    void enter() noexcept;
    void leave() noexcept;

    // Wakes a thread that may be asleep if its wait has ended.
    void look() noexcept {
        if (armed() && !set_ && ready_(owner_)) set();
    }
    void wake() noexcept;  // wakes unconditionally; any thread

private:
    bool armed() const noexcept { return sleeping_ != 0 || watched_; }
    void set() noexcept;

    Domain& domain_;
    fi_wait_obj kind_;
    Ready ready_;
    const void* owner_;
    Descriptor event_, epoll_;
    unsigned sleeping_ = 0;
    bool watched_ = false;  // the application may sleep on fd(), until something arrives
    bool set_ = false;      // event_ is readable because of look()
};

}  // namespace heddle::provider
