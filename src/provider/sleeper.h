// SPDX-License-Identifier: BSD-2-Clause
// What threads that wait for completions sleep on: a file descriptor that is readable when one of
// the domain's endpoints has something to do (the device said so), or when another thread made the
// wait's end come true meanwhile, or fi_cq_signal was called.
//
// All calls under the domain's guard, but wake(), fd() and the sleep itself.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace heddle::provider {

struct Domain;

// -1: for ever.
class Deadline {
public:
    explicit Deadline(int timeout_ms) noexcept
        : endless_(timeout_ms < 0),
          at_(std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms)) {}
    int left_ms() const noexcept;  // for poll(2)

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
void wait_readable(int fd, int timeout_ms) noexcept;  // or a signal handler ran

class Sleeper;

// Who may be asleep while somebody holds the same lock: of one domain, or of all domains whose
// endpoints share a queue pair (category mpi+threads), since a thread of one may then finish what
// is waited for in another. Under that lock.
struct Sleepers {
    unsigned armed = 0;  // of `all`
    std::vector<Sleeper*> all;

    void look() noexcept;
    // `shared`: the lock of several domains, or nullptr.
    static std::shared_ptr<Sleepers> of(std::recursive_mutex* shared);
};

class Sleeper {
public:
    // Is there what sleepers wait for?
    using Ready = bool (*)(const void* owner) noexcept;

    Sleeper(Domain& domain, fi_wait_obj kind, Ready ready, const void* owner);  // throws VerbsError
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    fi_wait_obj kind() const noexcept { return kind_; }
    bool possible() const noexcept { return kind_ != FI_WAIT_NONE; }
    int fd() const noexcept { return epoll_.get(); }
    int control(int command, void* argument) const noexcept;  // FI_GETWAIT, FI_GETWAITOBJ

    // From now on whatever comes makes fd() readable. False: something may have come already.
    bool prepare();
    // The application will sleep on fd() by itself.
    void watched() noexcept;
    // After prepare(), which the same guard covered: announces one who is about to sleep.
    void enter() noexcept;
    void leave() noexcept;

    // Somebody may be asleep, and there is what it waits for.
    void look() noexcept {
        if (armed() && !set_ && ready_(owner_)) set();
    }
    void wake() noexcept;  // whatever there is. Any thread

private:
    bool armed() const noexcept { return sleeping_ != 0 || watched_; }
    void set() noexcept;

    Domain& domain_;
    fi_wait_obj kind_;
    Ready ready_;
    const void* owner_;
    Descriptor event_, epoll_;
    unsigned sleeping_ = 0;
    bool watched_ = false;  // until something came
    bool set_ = false;      // event_ is readable because of look()
};

}  // namespace heddle::provider
